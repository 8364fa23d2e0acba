//! Which provider carries a cluster, and how its nodes find each other on it. The one place where providers have names.
//!
//! All access to a region goes by one provider (F3), so a cluster has one. It follows from where the configuration says that
//! the members are, which every node reads alike: `shm://NAME` is a node of this machine, `tcp://HOST:PORT` one that is reached by
//! TCP, `xdp://HOST:PORT` one whose kernel executes one-sided operations, `verbs://HOST:PORT` one whose RDMA adapter does. `auto` takes what
//! reaches every member, the best first, and says which and why; a named provider that does not, or cannot work here, is an error that says what is missing. Nothing
//! falls back silently.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use verbena_terms::{Incarnation, Rank, Time};

use crate::capability::Capabilities;
use crate::card;
use crate::config::{Choice, FabricConfig};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::provider::{Address, Fabric};
use crate::shm::{Settings, Shm};
use crate::tcp::{Names, TcpConfig, TcpFabric, TlsIdentity, keys};
#[cfg(feature = "verbs")]
use crate::verbs::{self, VerbsFabric};
#[cfg(feature = "xdp")]
use crate::xdp::{self, XdpConfig, XdpFabric};

/// A provider of this build that can carry a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Shared memory.
    Shm,
    /// RDMA adapters.
    Verbs,
    /// The kernels' receive paths.
    Xdp,
    /// TCP.
    Tcp,
}

impl Provider {
    /// All, the best first.
    pub const ALL: [Provider; 4] = [Provider::Shm, Provider::Verbs, Provider::Xdp, Provider::Tcp];

    /// What a configuration says that wants it and no other.
    pub const fn choice(self) -> Choice {
        match self {
            Provider::Shm => Choice::Shm,
            Provider::Verbs => Choice::Verbs,
            Provider::Xdp => Choice::Xdp,
            Provider::Tcp => Choice::Tcp,
        }
    }

    /// As it is called, and as its addresses begin.
    pub const fn name(self) -> &'static str {
        match self {
            Provider::Shm => "shm",
            Provider::Verbs => "verbs",
            Provider::Xdp => "xdp",
            Provider::Tcp => "tcp",
        }
    }
}

/// Decides by which provider nodes with these addresses meet, none for a node that is alone, and says why.
///
/// # Errors
/// [`Error::Unusable`] where no provider, or not the one that was named, reaches them all.
pub fn choose(choice: Choice, members: &[String]) -> Result<(Provider, String)> {
    let named = Provider::ALL.into_iter().find(|provider| provider.choice() == choice);
    if members.is_empty() {
        let why = if named.is_some() {
            "fabric.provider names it"
        } else {
            "the node is alone: nothing is nearer than its own memory"
        };
        return Ok((named.unwrap_or(Provider::Shm), why.into()));
    }
    let reaches = |provider: Provider| {
        let other = members.iter().find(|address| Address((*address).clone()).scheme() != provider.name());
        other.map_or(Ok(()), |other| Err(other.clone()))
    };
    if let Some(provider) = named {
        return match reaches(provider) {
            Ok(()) => Ok((provider, "fabric.provider names it".into())),
            Err(other) => Err(Error::Unusable {
                provider: provider.name(),
                reason: format!("a member's address is {other:?}"),
                remedy: format!(
                    "Give every one of cluster.members an address {}://..., or another fabric.provider",
                    provider.name()
                ),
            }),
        };
    }
    let best = Provider::ALL.into_iter().find(|provider| reaches(*provider).is_ok());
    let best = best.ok_or_else(|| Error::Unusable {
        provider: "auto",
        reason: "no provider reaches every one of cluster.members".into(),
        remedy: "Give all of them addresses of one kind: shm://NAME on one machine, verbs://HOST:PORT, xdp://HOST:PORT or tcp://HOST:PORT otherwise".into(),
    })?;
    Ok((best, format!("every member's address is of {}", best.name())))
}

/// Where the nodes of a cluster find each other.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// Directory of the cards by which nodes of one machine meet.
    pub directory: PathBuf,
    /// This node's configured address.
    pub own: Address,
    /// Every node's, this one's too; none if it is alone.
    pub members: Vec<String>,
}

/// The chosen provider, which opens the fabric of one incarnation after the other.
#[derive(Clone, Debug)]
pub struct Interconnect {
    config: FabricConfig,
    meeting: Meeting,
    provider: Provider,
    why: String,
    names: Option<Names>,
}

/// The fabric of one incarnation.
pub struct Opened {
    /// The fabric.
    pub fabric: Arc<dyn Fabric>,
    /// Why this provider.
    pub why: String,
    /// How others are found on it.
    pub finder: Finder,
}

impl Interconnect {
    /// Chooses, opens nothing.
    ///
    /// # Errors
    /// As [`choose`].
    pub fn new(config: FabricConfig, meeting: Meeting) -> Result<Self> {
        let (provider, why) = choose(config.provider, &meeting.members)?;
        Ok(Interconnect { config, meeting, provider, why, names: None })
    }

    /// With certificates that are for names: where every incarnation has a new rank.
    pub fn by_names(self, names: Names) -> Self {
        Interconnect { names: Some(names), ..self }
    }

    /// Opens the fabric of an incarnation. That of an earlier incarnation must have been dropped.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn open(&self, who: Incarnation) -> Result<Opened> {
        let why = self.why.clone();
        match self.provider {
            Provider::Shm => {
                let fabric: Arc<dyn Fabric> = open_shm(&self.config, who)?;
                let finder = Finder(Way::Cards(Arc::new(Cards::leave(&self.meeting, who, &fabric.address())?)));
                Ok(Opened { fabric, why, finder })
            }
            Provider::Tcp => {
                let fabric = Arc::new(TcpFabric::open(who, self.tcp(who.rank)?)?);
                Ok(Opened { fabric: fabric.clone(), why, finder: Finder(Way::Ask(fabric)) })
            }
            #[cfg(feature = "xdp")]
            Provider::Xdp => {
                let (interfaces, mode) = (self.config.xdp_interfaces.clone(), self.config.xdp_mode);
                let fabric = Arc::new(XdpFabric::open(who, XdpConfig { tcp: self.tcp(who.rank)?, interfaces, mode })?);
                let stands: Vec<String> = fabric.interfaces().map(|(name, mode)| format!("{mode} on {name}")).collect();
                let why = format!("{why}; {}", stands.join(", "));
                Ok(Opened { fabric: fabric.clone(), why, finder: Finder(Way::AskXdp(fabric)) })
            }
            #[cfg(not(feature = "xdp"))]
            Provider::Xdp => Err(left_out("xdp")),
            #[cfg(feature = "verbs")]
            Provider::Verbs => {
                let tcp = self.tcp(who.rank)?;
                let wanted = verbs::wanted(&self.config, Some(tcp.listen.ip()));
                let (fabric, chosen) = verbs::open(who, tcp, &wanted, &self.config)?;
                let fabric = Arc::new(fabric);
                let why = format!(
                    "{why}; {} port {}, GID {} ({}): {}",
                    chosen.device, chosen.port, chosen.gid_index, chosen.gid, chosen.why
                );
                Ok(Opened { fabric: fabric.clone(), why, finder: Finder(Way::AskVerbs(fabric)) })
            }
            #[cfg(not(feature = "verbs"))]
            Provider::Verbs => Err(left_out("verbs")),
        }
    }

    fn tcp(&self, rank: Rank) -> Result<TcpConfig> {
        let files = |directory: &Path| match &self.names {
            None => node_files(directory, rank),
            Some(names) => member_files(directory, &names.own),
        };
        let mut config = TcpConfig { names: self.names.clone(), ..tcp_config(&self.config, files) };
        if !self.meeting.members.is_empty() {
            config.advertise = Some(self.meeting.own.rest().to_owned());
            config.listen = match self.config.listen {
                Some(listen) => listen,
                None => resolve(self.meeting.own.rest())?,
            };
        }
        Ok(config)
    }
}

/// Finds the incarnation at a configured address, and the address at which it is reached. Cheap to clone; usable from
/// any thread.
#[derive(Clone)]
pub struct Finder(Way);

#[derive(Clone)]
enum Way {
    Cards(Arc<Cards>),
    Ask(Arc<TcpFabric>),
    #[cfg(feature = "xdp")]
    AskXdp(Arc<XdpFabric>),
    #[cfg(feature = "verbs")]
    AskVerbs(Arc<VerbsFabric>),
}

impl Finder {
    /// Puts back the file by which others find this incarnation, if it was removed or spoilt. Returns whether it was.
    ///
    /// # Errors
    /// That it cannot be written.
    pub fn keep(&self) -> Result<bool> {
        match &self.0 {
            Way::Cards(cards) => cards.keep(),
            _ => Ok(false),
        }
    }

    /// The present incarnation of node `rank`, whose configured address is `address`. May block its thread until
    /// `deadline`.
    ///
    /// # Errors
    /// If no node answers there, or none of that rank.
    pub fn find(&self, rank: Rank, address: &Address, deadline: Time) -> Result<(Incarnation, Address)> {
        let (who, at) = match &self.0 {
            Way::Cards(cards) => card::read(&cards.directory, address.rest())?,
            Way::Ask(fabric) => (fabric.who_lives_at(rank, address, deadline)?, address.clone()),
            #[cfg(feature = "xdp")]
            Way::AskXdp(fabric) => (fabric.who_lives_at(rank, address, deadline)?, address.clone()),
            #[cfg(feature = "verbs")]
            Way::AskVerbs(fabric) => (fabric.who_lives_at(rank, address, deadline)?, address.clone()),
        };
        if who.rank == rank {
            return Ok((who, at));
        }
        let target = Incarnation { rank, start: 0 };
        Err(Error::Unreachable { target, address: address.to_string(), reason: format!("{who} lives there") })
    }
}

/// This incarnation's own card, for as long as it runs.
struct Cards {
    directory: PathBuf,
    own: Option<(String, Incarnation, Address)>,
}

impl Cards {
    fn leave(meeting: &Meeting, who: Incarnation, address: &Address) -> Result<Self> {
        let mut own = None;
        if !meeting.members.is_empty() {
            card::leave(&meeting.directory, meeting.own.rest(), who, address)?;
            own = Some((meeting.own.rest().to_owned(), who, address.clone()));
        }
        Ok(Cards { directory: meeting.directory.clone(), own })
    }

    /// Leaves it again if it is gone; one of a later incarnation stays.
    fn keep(&self) -> Result<bool> {
        let Some((name, who, address)) = &self.own else { return Ok(false) };
        if card::read(&self.directory, name).is_ok_and(|(found, _)| found.rank == who.rank && found.start >= who.start)
        {
            return Ok(false);
        }
        card::leave(&self.directory, name, *who, address).map(|()| true)
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        if let Some((name, who, _)) = &self.own {
            card::take_away(&self.directory, name, *who);
        }
    }
}

/// The authority's files in a directory of `fabric.keys`. Nodes need its certificate; its key belongs where no other
/// user comes.
pub fn authority_files(directory: &Path) -> keys::Pair {
    keys::Pair { certificate: directory.join("authority.pem"), key: directory.join("authority.key") }
}

/// A node's files in a directory of `fabric.keys`.
pub fn node_files(directory: &Path, rank: Rank) -> keys::Pair {
    keys::Pair {
        certificate: directory.join(format!("node-{rank}.pem")),
        key: directory.join(format!("node-{rank}.key")),
    }
}

/// A node's files in a directory of `fabric.keys`, where certificates are for names.
pub fn member_files(directory: &Path, name: &str) -> keys::Pair {
    keys::Pair {
        certificate: directory.join(format!("member-{name}.pem")),
        key: directory.join(format!("member-{name}.key")),
    }
}

#[cfg(any(not(feature = "xdp"), not(feature = "verbs")))]
fn left_out(provider: &'static str) -> Error {
    Error::Unusable {
        provider,
        reason: "it was left out when verbena was built".into(),
        remedy: format!("Build with the feature {provider}: `cargo build --release --features {provider}`"),
    }
}

/// Tries a provider for real: opens it without any peer, on loopback where it has a network, and registers memory. Of
/// `xdp` the program is loaded and answers a frame; no interface is touched.
///
/// # Errors
/// What is missing, and how to get it.
pub fn try_out(provider: Provider, config: &FabricConfig) -> Result<Capabilities> {
    let who = Incarnation::new(u32::MAX, 1);
    let fabric: Arc<dyn Fabric> = match provider {
        Provider::Shm => open_shm(config, who)?,
        Provider::Tcp => Arc::new(TcpFabric::open(who, small())?),
        #[cfg(feature = "xdp")]
        Provider::Xdp => return xdp::try_out(),
        #[cfg(not(feature = "xdp"))]
        Provider::Xdp => return Err(left_out("xdp")),
        #[cfg(feature = "verbs")]
        Provider::Verbs => {
            let wanted = verbs::wanted(config, config.listen.map(|listen| listen.ip()));
            Arc::new(verbs::open(who, small(), &wanted, config)?.0)
        }
        #[cfg(not(feature = "verbs"))]
        Provider::Verbs => return Err(left_out("verbs")),
    };
    let region = fabric.register(4096, verbena_terms::ViewNumber(1))?;
    let key = region.key(crate::Rights::Change);
    let deadline = fabric.clock().now() + std::time::Duration::from_secs(2);
    // Through the front door, as a peer would: by `tcp` a node goes to itself without one.
    let caller = match provider {
        Provider::Tcp => Arc::new(TcpFabric::open(Incarnation::new(u32::MAX - 1, 1), small())?),
        _ => fabric.clone(),
    };
    let remote = caller.connect(who, &fabric.address())?.open(&key, deadline)?;
    let add = crate::Batch::one(crate::Operation::FetchAdd { at: 0, addend: 1 });
    remote.post(add, crate::Class::Control, deadline).wait()?;
    match region.load(0)? {
        1 => Ok(fabric.capabilities().clone()),
        other => Err(Error::Unusable {
            provider: provider.name(),
            reason: format!("a word that one was added to is {other}"),
            remedy: "This is a defect: please report it".into(),
        }),
    }
}

fn small() -> TcpConfig {
    TcpConfig { pool_bytes: 1 << 20, ..TcpConfig::default() }
}

fn open_shm(config: &FabricConfig, who: Incarnation) -> Result<Arc<Shm>> {
    Shm::open(Settings { identity: who, pool: Pool::new(config.pool.0 as usize), allowed_users: vec![] })
}

fn tcp_config(config: &FabricConfig, files: impl Fn(&Path) -> keys::Pair) -> TcpConfig {
    let tls = config.keys.as_ref().map(|directory| {
        let keys::Pair { certificate, key } = files(directory);
        TlsIdentity { authority: authority_files(directory).certificate, certificate, key }
    });
    TcpConfig { tls, insecure: config.insecure, pool_bytes: config.pool.0 as usize, ..TcpConfig::default() }
}

fn resolve(host: &str) -> Result<SocketAddr> {
    let unusable = |reason: String| Error::Unusable {
        provider: "tcp",
        reason: format!("{host:?} in cluster.members is not where this node can listen: {reason}"),
        remedy: "Write HOST:PORT with a name or address of this machine, or set fabric.listen".into(),
    };
    let mut found = host.to_socket_addrs().map_err(|error| unusable(error.to_string()))?;
    found.next().ok_or_else(|| unusable("the name has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|address| (*address).to_owned()).collect()
    }

    #[test]
    fn auto_takes_what_reaches_everybody_and_says_why() {
        let (provider, why) = choose(Choice::Auto, &members(&["tcp://a:1", "tcp://b:1"])).unwrap();
        assert_eq!((provider, why.as_str()), (Provider::Tcp, "every member's address is of tcp"));
        assert_eq!(choose(Choice::Auto, &members(&["shm://a", "shm://b"])).unwrap().0, Provider::Shm);
        assert_eq!(choose(Choice::Auto, &members(&["xdp://a:1", "xdp://b:1"])).unwrap().0, Provider::Xdp);
        assert_eq!(choose(Choice::Auto, &members(&["verbs://a:1", "verbs://b:1"])).unwrap().0, Provider::Verbs);
        assert_eq!(choose(Choice::Auto, &[]).unwrap().0, Provider::Shm);
        let refused = choose(Choice::Auto, &members(&["shm://a", "tcp://b:1"])).unwrap_err().to_string();
        assert!(refused.contains("addresses of one kind"), "{refused}");
    }

    #[test]
    fn what_is_named_is_taken_or_refused_never_replaced() {
        assert_eq!(choose(Choice::Tcp, &[]).unwrap().0, Provider::Tcp);
        let refused = choose(Choice::Shm, &members(&["tcp://a:1"])).unwrap_err().to_string();
        assert!(refused.starts_with("shm cannot be used here: a member's address is \"tcp://a:1\""), "{refused}");
    }

    #[test]
    fn every_provider_works_here() {
        for provider in Provider::ALL {
            let tried = try_out(provider, &FabricConfig::default());
            let capabilities = match provider {
                #[cfg(feature = "xdp")]
                Provider::Xdp => match xdp::if_allowed(tried) {
                    Some(capabilities) => capabilities,
                    None => continue,
                },
                // Few machines have an adapter; with one `verbs_devices` tries it.
                Provider::Verbs => match tried {
                    Err(Error::Unusable { provider: "verbs", .. }) => continue,
                    tried => tried.unwrap(),
                },
                _ => tried.unwrap(),
            };
            assert_eq!(capabilities.provider, provider.name());
        }
    }
}
