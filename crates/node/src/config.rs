//! The helper's own section of the configuration, and all that a helper is started from.

use std::net::SocketAddr;
use std::path::PathBuf;

use verbena_client::{DEFAULT_NAME, Socket};
use verbena_cluster::{ClusterConfig, Membership, Provider, SEATS};
use verbena_content::service::PagesConfig;
use verbena_coop::service::PoolConfig;
use verbena_etcd::{Deadlines, Etcd, EtcdConfig};
use verbena_fabric::FabricConfig;
use verbena_ipc::IpcConfig;
use verbena_lock::service::LocksConfig;
use verbena_memory::service::MemoryConfig;
use verbena_monitor::MonitorConfig;
use verbena_reads::service::RelaySettings;
use verbena_terms::{Contradiction, Rank, section};

use crate::error::{Error, Result};

/// Connections at once to the helper's HTTP; more wait.
pub(crate) const HTTP_CONNECTIONS: usize = 1024;
/// Files that a helper has open for itself and its peers.
const OTHER_FILES: usize = 256;

section! {
    /// The helper: where programs on this machine reach it, and what outlives it.
    pub struct NodeConfig as "node", checked by NodeConfig::check {
        /// Directory of the socket through which programs on this machine reach the helper.
        ///
        /// Not set: `verbena` in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`, else `/tmp/verbena-UID`; made if it is missing,
        /// for its owner alone. Nodes of one machine that meet through shared memory have the same one.
        pub runtime: Option<PathBuf> as "DIR" = None,
        /// Directory of what must outlive the helper: its start number and, at the keeper, the newest view. Made if it is
        /// missing.
        ///
        /// Not set: `verbena/NAME` in `$XDG_STATE_HOME`, else in `/var/lib` for root and in `~/.local/state` for others. A node
        /// that lost it must be given a new line in `cluster.members`: an incarnation is never used twice (rule C1).
        pub state: Option<PathBuf> as "DIR" = None,
        /// Loopback address of the helper's HTTP and of its dashboard, beside its unix socket; port 0 takes a free one. Not set: the
        /// unix socket alone.
        pub api: Option<SocketAddr> as "ADDRESS" = None,
    }
}

impl NodeConfig {
    fn check(&self) -> Vec<Contradiction> {
        let open = self.api.filter(|address| !address.ip().is_loopback());
        let problem = |address| {
            format!(
                "{address} is no loopback address, and each client that reaches it may purge: write 127.0.0.1 or [::1] here, and put a proxy before it"
            )
        };
        open.map(|address| Contradiction::new("api", problem(address))).into_iter().collect()
    }
}

/// What a helper is started from. The default is a plain node: one without any configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The members of the cluster.
    pub cluster: ClusterConfig,
    /// By what they agree who is in, where no file says it.
    pub etcd: EtcdConfig,
    /// How they reach each other.
    pub fabric: FabricConfig,
    /// This helper.
    pub node: NodeConfig,
    /// How programs reach it.
    pub ipc: IpcConfig,
    /// The page protocol.
    pub pages: PagesConfig,
    /// Locks.
    pub locks: LocksConfig,
    /// Memory that nodes share.
    pub memory: MemoryConfig,
    /// The cooperative cache.
    pub pool: PoolConfig,
    /// How loaded nodes are.
    pub monitor: MonitorConfig,
    /// The relay before the application's database that runs in this process, if one does.
    pub relay: Option<RelaySettings>,
}

impl Settings {
    /// What the node is called: in the cluster, in its socket's name, and where its state lies.
    pub fn name(&self) -> &str {
        self.cluster.name.as_deref().unwrap_or(DEFAULT_NAME)
    }

    /// Whether no members are configured. The node then joins the other such nodes of this machine, over shared memory.
    pub fn is_plain(&self) -> bool {
        self.cluster.provider == Provider::Static && self.cluster.members.is_empty()
    }

    /// What asks the register, where the keeper's office moves.
    ///
    /// # Errors
    /// The key of `[etcd]` that cannot be as it is.
    pub(crate) fn etcd(&self, membership: &Membership) -> Result<Option<Etcd>> {
        let start = || Etcd::start(&self.etcd, Deadlines::of_lease(membership.terms().lease()));
        Ok((self.cluster.provider == Provider::Etcd).then(start).transpose()?)
    }

    /// Where the helper may be reached: at its own socket, or, where nothing is configured, at that of any seat; the first one first.
    ///
    /// # Errors
    /// As [`socket`](Self::socket).
    pub fn sockets(&self) -> Result<Vec<Socket>> {
        let own = self.socket()?;
        let others = 2..=if self.is_plain() { SEATS } else { 1 };
        let seat = |rank| Ok(Socket::new(Some(own.directory()), Some(&self.cluster.seat_name(Rank(rank))))?);
        [Ok(own.clone())].into_iter().chain(others.map(seat)).collect()
    }

    /// Files that a helper may have open at once: two for each program, one for each connection to its HTTP, some for its peers. A
    /// plain one may come to serve the first seat as well.
    pub fn open_files(&self) -> u64 {
        let helper = 2 * verbena_ipc::Options::default().max_clients + HTTP_CONNECTIONS + OTHER_FILES;
        (helper * if self.is_plain() { 2 } else { 1 }) as u64
    }

    /// Where programs reach the helper that has the first seat or the configured name.
    ///
    /// # Errors
    /// If no directory is configured and the user's own cannot be used.
    pub fn socket(&self) -> Result<Socket> {
        Ok(Socket::new(self.node.runtime.as_deref(), Some(self.name()))?)
    }

    /// Where the state lies; where nothing is configured, that of the first seat, with the others' in it.
    ///
    /// # Errors
    /// If no directory is configured and the user has no home.
    pub fn state_directory(&self) -> Result<PathBuf> {
        if let Some(state) = &self.node.state {
            return Ok(state.clone());
        }
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = match variable("XDG_STATE_HOME") {
            Some(base) => base,
            None if rustix::process::geteuid().is_root() => "/var/lib".into(),
            None => variable("HOME").ok_or(Error::NoStateDirectory)?.join(".local/state"),
        };
        Ok(base.join("verbena").join(self.name()))
    }
}
