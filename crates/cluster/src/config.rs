//! The section `[cluster]` of the configuration file.

use serde::{Deserialize, Serialize};
use verbena_terms::{Contradiction, Lapse, Rank, Section, section};

use crate::{ClusterError, LeaseTerms, MAX_MEMBERS, MAX_TEXT_BYTES, Role, Roles};

section! {
    /// Who is in the cluster and how long its leases are. The same at every node, but for `name`.
    pub struct ClusterConfig as "cluster", checked by ClusterConfig::check {
        /// How long a lease is: how long a node that died or was cut off holds the others up.
        pub lease: Lapse as "TIME" = Lapse(LeaseTerms::DEFAULT.lease()),
        /// How far two clocks may run apart in one lease: taken off at the member, put on at the keeper.
        pub drift: Lapse as "TIME" = Lapse(LeaseTerms::DEFAULT.drift()),
        /// Which of the members this node is. Not needed by a node that is alone.
        pub name: Option<String> as "NAME" = None,
        /// The nodes of the cluster. None: this node is alone.
        ///
        /// The first line is rank 1, and the keeper. A line's place is its rank: add lines at the end and leave the
        /// line of a node that is gone for good where it is.
        pub members: Vec<Configured> as "MEMBERS" = Vec::new(),
    }
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
    members: Vec<Configured>,
    own: Rank,
}

/// What a node that is alone is called.
const ALONE: &str = "local";

impl Membership {
    /// What `config` says, or the first thing that is wrong with it, naming the key.
    pub fn new(config: &ClusterConfig) -> Result<Self, ClusterError> {
        if let Some(Contradiction { key, problem }) = config.contradictions().into_iter().next() {
            return Err(ClusterError::Setting { key, problem });
        }
        let terms = config.terms().map_err(|(key, problem)| ClusterError::Setting { key: key.into(), problem })?;
        if config.members.is_empty() {
            let name = config.name.clone().unwrap_or_else(|| ALONE.into());
            return Ok(Membership {
                terms,
                members: vec![Configured { name, address: String::new(), roles: Roles::ALL }],
                own: Rank(1),
            });
        }
        let own = config.members.iter().position(|member| Some(&member.name) == config.name.as_ref());
        let own = own.expect("invariant: check() found the name among the members");
        Ok(Membership { terms, members: config.members.clone(), own: Rank(own as u32 + 1) })
    }

    /// How long leases are.
    pub fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// This node.
    pub fn own(&self) -> Rank {
        self.own
    }

    /// The one that grants leases and numbers views: the lowest rank (rule C4).
    pub fn keeper(&self) -> Rank {
        Rank(1)
    }

    /// How many nodes there are in the file.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The line of `rank`.
    pub fn configured(&self, rank: Rank) -> Option<&Configured> {
        self.members.get((rank.0 as usize).checked_sub(1)?)
    }
}

impl ClusterConfig {
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
            for (key, text) in [("name", &member.name), ("address", &member.address)] {
                if text.is_empty() || text.len() > MAX_TEXT_BYTES {
                    wrong(format!("members.{nth}.{key}"), format!("{} bytes; 1 to {MAX_TEXT_BYTES}", text.len()));
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
        match &self.name {
            None if !self.members.is_empty() => {
                wrong("name".into(), "needed to say which of cluster.members this node is".into())
            }
            Some(name) if name.is_empty() || name.len() > MAX_TEXT_BYTES => {
                wrong("name".into(), format!("{} bytes; 1 to {MAX_TEXT_BYTES}", name.len()));
            }
            Some(name) if !self.members.is_empty() && self.members.iter().all(|member| member.name != *name) => {
                wrong("name".into(), format!("{name:?} is not in cluster.members"));
            }
            _ => {}
        }
        found
    }
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
        assert_eq!((membership.own(), membership.keeper(), membership.size()), (Rank(2), Rank(1), 2));
        assert_eq!(membership.terms(), LeaseTerms::new(500, 5).unwrap());
        let second = membership.configured(Rank(2)).unwrap();
        assert_eq!(second.roles, Roles::of(Role::Reader).and(Role::Updater));
        assert_eq!((membership.configured(Rank(0)), membership.configured(Rank(3))), (None, None));
    }

    #[test]
    fn nothing_said_is_a_node_alone() {
        let membership = Membership::new(&ClusterConfig::default()).unwrap();
        assert_eq!((membership.own(), membership.size()), (Rank(1), 1));
        assert_eq!(membership.terms(), LeaseTerms::DEFAULT);
        assert_eq!(membership.configured(Rank(1)).unwrap().roles, Roles::ALL);
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
