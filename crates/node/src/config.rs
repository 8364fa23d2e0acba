//! The helper's own section of the configuration, and all that a helper is started from.

use std::net::SocketAddr;
use std::path::PathBuf;

use verbena_client::{DEFAULT_NAME, Socket};
use verbena_cluster::ClusterConfig;
use verbena_content::service::PagesConfig;
use verbena_fabric::FabricConfig;
use verbena_terms::{Contradiction, section};

use crate::error::{Error, Result};

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
        /// Loopback address of the helper's HTTP, beside its unix socket; port 0 takes a free one. Not set: the unix socket alone.
        pub api: Option<SocketAddr> as "ADDRESS" = None,
    }
}

impl NodeConfig {
    fn check(&self) -> Vec<Contradiction> {
        let open = self.api.filter(|address| !address.ip().is_loopback());
        let problem = |address| {
            format!("{address} is no loopback address, and whoever reaches it may purge: put a proxy before it")
        };
        open.map(|address| Contradiction::new("api", problem(address))).into_iter().collect()
    }
}

/// What a helper is started from. The default is a node that is alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Who is in.
    pub cluster: ClusterConfig,
    /// How they reach each other.
    pub fabric: FabricConfig,
    /// This helper.
    pub node: NodeConfig,
    /// The page protocol.
    pub pages: PagesConfig,
}

impl Settings {
    /// What the node is called: in the cluster, in its socket's name, and where its state lies.
    pub fn name(&self) -> &str {
        self.cluster.name.as_deref().unwrap_or(DEFAULT_NAME)
    }

    /// Where programs reach the helper.
    ///
    /// # Errors
    /// If no directory is configured and the user's own cannot be used.
    pub fn socket(&self) -> Result<Socket> {
        Ok(Socket::new(self.node.runtime.as_deref(), Some(self.name()))?)
    }

    /// Where the state lies.
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
