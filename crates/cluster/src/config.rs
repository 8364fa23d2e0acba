//! The section `[cluster]` of the configuration file.

use serde::{Deserialize, Serialize};
use verbena_terms::{Contradiction, Lapse, Rank, Section, section};

use crate::{ClusterError, LeaseTerms, MAX_MEMBERS, MAX_TEXT_BYTES, Role, Roles};

section! {
    /// The members of the cluster and the length of its leases. The same at every node, but for `name`, `address` and `roles`.
    pub struct ClusterConfig as "cluster", checked by ClusterConfig::check {
        /// Which nodes are members: `static` (the lines of `members`) or `etcd` (each node that joins, by the section `[etcd]`).
        pub provider: Provider as "PROVIDER" = Provider::Static,
        /// How long a lease is: how long a node that died or was cut off holds the others up.
        pub lease: Lapse as "TIME" = Lapse(LeaseTerms::DEFAULT.lease()),
        /// How far two clocks may run apart in one lease: taken off at the member, put on at the keeper.
        pub drift: Lapse as "TIME" = Lapse(LeaseTerms::DEFAULT.drift()),
        /// The name of this node: one of `members`, or with `etcd` its own. Where there is neither: what the nodes of this machine are
        /// called, `local` if it is not set, then `local-2` and so on.
        pub name: Option<String> as "NAME" = None,
        /// With `etcd`: where the others reach this node's fabric.
        pub address: Option<String> as "ADDRESS" = None,
        /// With `etcd`: the roles of this node.
        pub roles: Roles as "ROLES" = Roles::ALL,
        /// The nodes of the cluster. None: the nodes of this machine that are started in this way are the cluster, up to 16.
        ///
        /// The first line is rank 1, and the keeper. A line's place is its rank: add lines at the end and leave the
        /// line of a node that is gone for good where it is.
        pub members: Vec<Configured> as "MEMBERS" = Vec::new(),
    }
}

/// How the members of the cluster are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The configuration file, with one keeper (rule C4).
    Static,
    /// A register: any node may join, and etcd records which member is the keeper.
    Etcd,
}

/// One line of `cluster.members`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configured {
    /// The node's name.
    pub name: String,
    /// Where its fabric is reached.
    pub address: String,
    /// What it is there for.
    #[serde(default = "every_role")]
    pub roles: Roles,
}

/// A configuration that fits together: what the machines are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    terms: LeaseTerms,
    own: Configured,
    listed: Option<Listed>,
    gathers: bool,
}

/// Nodes that are known before they join.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    members: Vec<Configured>,
    own: Rank,
}

/// What a node is called where nothing is configured.
const UNNAMED: &str = "local";

/// Seats of a machine where nothing is configured.
pub const SEATS: u32 = 16;

impl Membership {
    /// What `config` says, or the first thing that is wrong with it, naming the key.
    pub fn new(config: &ClusterConfig) -> Result<Self, ClusterError> {
        if let Some(Contradiction { key, problem }) = config.contradictions().into_iter().next() {
            return Err(ClusterError::Setting { key, problem });
        }
        let terms = config.terms().map_err(|(key, problem)| ClusterError::Setting { key: key.into(), problem })?;
        if config.provider == Provider::Etcd {
            let name = config.name.clone().expect("invariant: check() wants a name with etcd");
            let own = Configured { name, address: config.address.clone().unwrap_or_default(), roles: config.roles };
            return Ok(Membership { terms, own, listed: None, gathers: true });
        }
        if config.members.is_empty() {
            let name = config.seat_name(Rank(1));
            let members = vec![Configured { name, address: String::new(), roles: Roles::ALL }];
            return Ok(Membership::listed(terms, members, Rank(1), true));
        }
        let own = config.members.iter().position(|member| Some(&member.name) == config.name.as_ref());
        let own = own.expect("invariant: check() found the name among the members");
        Ok(Membership::listed(terms, config.members.clone(), Rank(own as u32 + 1), true))
    }

    fn listed(terms: LeaseTerms, members: Vec<Configured>, own: Rank, gathers: bool) -> Self {
        let line = members[own.0 as usize - 1].clone();
        Membership { terms, own: line, listed: Some(Listed { members, own }), gathers }
    }

    /// The node in seat `own` of [`SEATS`] on one machine, whose nodes meet by shared memory without configuration. It
    /// has the roles `roles`; every other seat has all. The number of seats that will be taken is unknown, so views are
    /// made at once.
    ///
    /// # Errors
    /// As [`new`](Self::new); and where the name is so long that the last seat's would be too long.
    pub fn seats(config: &ClusterConfig, own: Rank, roles: Roles) -> Result<Self, ClusterError> {
        let terms = Membership::new(&ClusterConfig { members: vec![], ..config.clone() })?.terms;
        let seat = |rank| {
            let name = config.seat_name(rank);
            Configured { address: format!("shm://{name}"), name, roles: if rank == own { roles } else { Roles::ALL } }
        };
        let members: Vec<Configured> = (1..=SEATS).map(Rank).map(seat).collect();
        let checked = ClusterConfig { members: members.clone(), name: Some(config.seat_name(own)), ..config.clone() };
        Membership::new(&checked)?;
        Ok(Membership::listed(terms, members, own, false))
    }

    /// The same, where this node lends memory to the cooperative cache, or does not; if it is passive it is no home there. What its configuration says of memory
    /// decides, not a list of roles.
    #[must_use]
    pub fn in_pool(mut self, is_in: bool, is_passive: bool) -> Membership {
        let roles = &mut self.own.roles;
        *roles = roles.without(Role::Pool).without(Role::Passive);
        if is_in {
            *roles = roles.and(Role::Pool);
        }
        if is_in && is_passive {
            *roles = roles.and(Role::Passive);
        }
        self
    }

    /// The same, where a relay runs in this node, or does not. What it was started for decides, not a list of roles.
    #[must_use]
    pub fn with_relay(mut self, runs: bool) -> Membership {
        let roles = self.own.roles.without(Role::Relay);
        self.own.roles = if runs { roles.and(Role::Relay) } else { roles };
        self
    }

    /// How long leases are.
    pub fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// Whether the keeper waits a moment before it makes a view, for others that are started at the same time.
    pub fn gathers(&self) -> bool {
        self.gathers
    }

    /// This node's own line.
    pub fn own(&self) -> &Configured {
        &self.own
    }

    /// This node's rank, where ranks are known before an incarnation has begun.
    pub fn rank(&self) -> Option<Rank> {
        self.listed.as_ref().map(|listed| listed.own)
    }

    /// The one that grants leases and numbers views, where it is always the same: the lowest rank (rule C4).
    pub fn keeper(&self) -> Option<Rank> {
        self.listed.as_ref().map(|_| Rank(1))
    }

    /// The number of nodes in the file; `None` where any node may join.
    pub fn size(&self) -> Option<usize> {
        self.listed.as_ref().map(|listed| listed.members.len())
    }

    /// Every line of the file, in the order of ranks.
    pub fn lines(&self) -> &[Configured] {
        self.listed.as_ref().map_or(&[], |listed| &listed.members)
    }

    /// The line of `rank`.
    pub fn configured(&self, rank: Rank) -> Option<&Configured> {
        self.lines().get((rank.0 as usize).checked_sub(1)?)
    }

    /// Whether a member can have this rank.
    pub fn knows(&self, rank: Rank) -> bool {
        self.configured(rank).is_some() || self.listed.is_none() && rank != Rank::NOBODY
    }
}

impl ClusterConfig {
    /// What the node in a seat is called where nothing is configured: `local`, `local-2`, `local-3`.
    pub fn seat_name(&self, seat: Rank) -> String {
        let name = self.name.as_deref().unwrap_or(UNNAMED);
        if seat == Rank(1) { name.to_owned() } else { format!("{name}-{seat}") }
    }

    fn terms(&self) -> Result<LeaseTerms, (&'static str, String)> {
        let millis = |key, lapse: Lapse| match u32::try_from(lapse.0.as_millis()) {
            Ok(millis) if lapse.0.subsec_nanos().is_multiple_of(1_000_000) => Ok(millis),
            _ => Err((key, format!("{lapse} is not a whole number of milliseconds below 50 days"))),
        };
        let (lease, drift) = (millis("lease", self.lease)?, millis("drift", self.drift)?);
        LeaseTerms::new(lease, 1).map_err(|problem| ("lease", problem))?;
        LeaseTerms::new(lease, drift).map_err(|problem| ("drift", problem))
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |key: String, problem: String| found.push(Contradiction::new(key, problem));
        if let Err((key, problem)) = self.terms() {
            wrong(key.into(), problem);
        }
        if self.members.len() > MAX_MEMBERS {
            wrong("members".into(), format!("{} lines; at most {MAX_MEMBERS}", self.members.len()));
        }
        for (nth, member) in self.members.iter().enumerate() {
            for (key, problem) in [("name", of_name(&member.name)), ("address", of_length(&member.address))] {
                if let Some(problem) = problem {
                    wrong(format!("members.{nth}.{key}"), problem);
                }
            }
            if self.members[..nth].iter().any(|other| other.name == member.name) {
                wrong(format!("members.{nth}.name"), format!("{:?} is the name of an earlier line", member.name));
            }
            if member.roles.is_empty() {
                wrong(
                    format!("members.{nth}.roles"),
                    "no role: a member is at least one of home, reader, updater".into(),
                );
            }
        }
        let homes = self.members.iter().any(|member| member.roles.has(Role::Home));
        if !self.members.is_empty() && !homes {
            wrong("members".into(), "no line has the role home: nothing could be cached".into());
        }
        let etcd = self.provider == Provider::Etcd;
        if etcd && !self.members.is_empty() {
            wrong(
                "members".into(),
                "with the provider etcd each node that joins is a member: leave the list out".into(),
            );
        }
        match &self.address {
            Some(_) if !etcd => {
                wrong("address".into(), "goes with the provider etcd; here the list of members says it".into())
            }
            Some(text) if let Some(problem) = of_length(text) => wrong("address".into(), problem),
            None if etcd => wrong(
                "address".into(),
                "needed with the provider etcd: where the others reach this node, tcp://HOST:PORT".into(),
            ),
            _ => {}
        }
        if self.roles.is_empty() {
            wrong("roles".into(), "no role: a member is at least one of home, reader, updater".into());
        }
        if !etcd && self.roles != Roles::ALL {
            wrong("roles".into(), "goes with the provider etcd; here the list of members says it".into());
        }
        match &self.name {
            None if etcd => wrong("name".into(), "needed with the provider etcd: what this node is called".into()),
            None if !self.members.is_empty() => {
                wrong("name".into(), "needed to say which of cluster.members this node is".into())
            }
            Some(name) if let Some(problem) = of_name(name) => wrong("name".into(), problem),
            Some(name) if !self.members.is_empty() && self.members.iter().all(|member| member.name != *name) => {
                wrong("name".into(), format!("{name:?} is not in cluster.members"));
            }
            _ => {}
        }
        found
    }
}

/// What is wrong with the length of a text.
fn of_length(text: &str) -> Option<String> {
    let fits = (1..=MAX_TEXT_BYTES).contains(&text.len());
    (!fits).then(|| format!("{} bytes; 1 to {MAX_TEXT_BYTES}", text.len()))
}

/// What is wrong with the name of a node, which its files are called after.
fn of_name(name: &str) -> Option<String> {
    let is_file = !name.contains(|letter: char| letter == '/' || letter.is_control()) && !matches!(name, "." | "..");
    of_length(name).or_else(|| {
        (!is_file).then(|| format!("{name:?} cannot be the name of a file, and a node's files are called after it: write letters, digits, \"-\" and \".\", without \"/\""))
    })
}

fn every_role() -> Roles {
    Roles::ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = r#"
        lease = "500ms"
        drift = "5ms"
        name = "b"
        members = [
            { name = "a", address = "tcp://10.0.0.1:7001" },
            { name = "b", address = "tcp://10.0.0.2:7001", roles = ["reader", "updater"] },
        ]
    "#;

    fn problem(text: &str) -> String {
        Membership::new(&toml::from_str(text).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn a_file_gives_ranks_in_its_order() {
        let membership = Membership::new(&toml::from_str(THREE).unwrap()).unwrap();
        assert_eq!((membership.rank(), membership.keeper()), (Some(Rank(2)), Some(Rank(1))));
        assert_eq!((membership.size(), membership.own().name.as_str()), (Some(2), "b"));
        assert_eq!(membership.terms(), LeaseTerms::new(500, 5).unwrap());
        let second = membership.configured(Rank(2)).unwrap();
        assert_eq!(second.roles, Roles::of(Role::Reader).and(Role::Updater));
        assert_eq!((membership.configured(Rank(0)), membership.configured(Rank(3))), (None, None));
    }

    #[test]
    fn nothing_said_is_a_node_alone() {
        let membership = Membership::new(&ClusterConfig::default()).unwrap();
        assert_eq!((membership.rank(), membership.size()), (Some(Rank(1)), Some(1)));
        assert_eq!(membership.terms(), LeaseTerms::DEFAULT);
        assert_eq!(membership.configured(Rank(1)).unwrap().roles, Roles::ALL);
    }

    #[test]
    fn seats_are_named_alike_at_every_node() {
        let config = ClusterConfig::default();
        let third = Membership::seats(&config, Rank(3), Roles::of(Role::Updater)).unwrap();
        assert_eq!((third.rank(), third.keeper(), third.size()), (Some(Rank(3)), Some(Rank(1)), Some(SEATS as usize)));
        let line = |rank| third.configured(rank).unwrap();
        assert_eq!((line(Rank(1)).name.as_str(), line(Rank(3)).name.as_str()), ("local", "local-3"));
        assert_eq!((line(Rank(3)).address.as_str(), line(Rank(2)).roles), ("shm://local-3", Roles::ALL));
        assert_eq!(line(Rank(3)).roles, Roles::of(Role::Updater));
        let long = ClusterConfig { name: Some("x".repeat(MAX_TEXT_BYTES - 6)), ..config };
        let refused = Membership::seats(&long, Rank(1), Roles::ALL).unwrap_err().to_string();
        assert!(refused.starts_with("cluster.members.") && refused.contains("1 to 255"), "{refused}");
    }

    #[test]
    fn with_etcd_nobody_is_listed() {
        const ETCD: &str = "provider = \"etcd\"\nname = \"a\"\naddress = \"tcp://10.0.0.1:7001\"\nroles = [\"home\"]";
        let membership = Membership::new(&toml::from_str(ETCD).unwrap()).unwrap();
        assert_eq!((membership.rank(), membership.keeper(), membership.size()), (None, None, None));
        assert_eq!((membership.own().name.as_str(), membership.own().roles), ("a", Roles::of(Role::Home)));
        assert_eq!((membership.knows(Rank(0)), membership.knows(Rank(77))), (false, true));
        assert!(problem(&ETCD.replace("name = \"a\"", "")).starts_with("cluster.name: needed with the provider etcd"));
        assert!(problem(&ETCD.replace("address", "#")).starts_with("cluster.address: needed with the provider etcd"));
        assert!(
            problem(&format!("{ETCD}\nmembers = [{{ name = \"a\", address = \"b\" }}]"))
                .starts_with("cluster.members: with")
        );
        assert!(problem("address = \"tcp://a:1\"").starts_with("cluster.address: goes with the provider etcd"));
        assert!(problem("roles = [\"home\"]").starts_with("cluster.roles: goes with the provider etcd"));
        let unknown = toml::from_str::<ClusterConfig>("provider = \"consul\"").unwrap_err().to_string();
        assert!(unknown.contains("unknown variant `consul`, expected `static` or `etcd`"), "{unknown}");
    }

    #[test]
    fn a_mistake_names_its_key() {
        assert_eq!(problem("lease = \"1ms\""), "cluster.lease: a lease of 1 ms; it must be 100 ms to 600000 ms");
        assert_eq!(
            problem("drift = \"1s\""),
            "cluster.drift: a drift allowance of 1000 ms; it must be 1 ms to a quarter of the lease"
        );
        assert_eq!(
            problem("lease = \"2s1us\""),
            "cluster.lease: 2s1us is not a whole number of milliseconds below 50 days"
        );
        assert_eq!(
            problem(&THREE.replace("\"b\"", "\"c\"").replace("name = \"c\", address", "name = \"b\", address")),
            "cluster.name: \"c\" is not in cluster.members"
        );
        assert_eq!(
            problem(&THREE.replace("{ name = \"b\"", "{ name = \"a\"")).split(':').next(),
            Some("cluster.members.1.name")
        );
        assert_eq!(problem(&THREE.replace("tcp://10.0.0.1:7001", "")), "cluster.members.0.address: 0 bytes; 1 to 255");
        for name in ["../x", "a/b", "..", "a\\n"] {
            let refused = problem(&format!("name = \"{name}\""));
            assert!(refused.starts_with("cluster.name: ") && refused.contains("name of a file"), "{refused}");
        }
        assert_eq!(
            problem(&THREE.replace("name = \"b\"\n", "\n")),
            "cluster.name: needed to say which of cluster.members this node is"
        );
        assert!(
            problem(&THREE.replace("[\"reader\", \"updater\"]", "[]")).starts_with("cluster.members.1.roles: no role")
        );
        let unknown = toml::from_str::<ClusterConfig>("leese = \"2s\"").unwrap_err().to_string();
        assert!(unknown.contains("unknown field `leese`"), "{unknown}");
        let unknown = toml::from_str::<ClusterConfig>(&THREE.replace("reader", "writer")).unwrap_err().to_string();
        assert!(unknown.contains("unknown variant `writer`"), "{unknown}");
    }
}
