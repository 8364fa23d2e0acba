//! Errors of starting a helper, and the reasons for which a running one ends.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use verbena_cluster::SEATS;
use verbena_terms::{Incarnation, Size};

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a helper cannot be started, or had to end.
#[derive(Debug, Error)]
pub enum Error {
    /// The membership section does not fit together, or the records are not this node's.
    #[error(transparent)]
    Cluster(#[from] verbena_cluster::ClusterError),
    /// The register of the cluster cannot be used.
    #[error(transparent)]
    Etcd(#[from] verbena_etcd::Error),
    /// The interconnect cannot be opened.
    #[error("the fabric cannot be opened: {0}")]
    Fabric(#[from] verbena_fabric::Error),
    /// The socket for programs cannot be opened.
    #[error(transparent)]
    Ipc(#[from] verbena_ipc::Error),
    /// The key of names cannot be had.
    #[error(transparent)]
    Key(#[from] verbena_content::service::KeyError),
    /// The socket's directory cannot be used.
    #[error(transparent)]
    Client(#[from] verbena_client::Error),
    /// Another process holds the state directory.
    #[error("{} is in use by another helper: a node's state has one owner; give each node a directory of its own (node.state)", directory.display())]
    StateInUse {
        /// The directory.
        directory: PathBuf,
    },
    /// Every seat of the machine is taken.
    #[error(
        "all {SEATS} seats of this machine's plain nodes and proxies are taken (in {}): stop one, or configure them as members of a cluster \
         ([cluster] members, docs/howto/several-machines.md)",
        runtime.display()
    )]
    NoSeat {
        /// Where they meet.
        runtime: PathBuf,
    },
    /// Plain processes that do not belong to these run on the machine.
    #[error(
        "process {process} of user {user} runs a plain node or proxy on this machine, and with another runtime directory than {}: two caches that do not know of each other would not be coherent (rule P11). Stop that one; or run this one as the same user with the same \
         XDG_RUNTIME_DIR and HOME; or configure both as members of a cluster ([cluster] members, docs/howto/several-machines.md); or, if they have no \
         application in common, name a runtime directory and a state directory for this one (--node-runtime, --node-state)",
        runtime.display()
    )]
    Strangers {
        /// The process, as it calls itself.
        process: String,
        /// The number of its user.
        user: String,
        /// This process's.
        runtime: PathBuf,
    },
    /// There is no place for the state.
    #[error("no directory for the state: neither $XDG_STATE_HOME nor $HOME is set; name one (node.state)")]
    NoStateDirectory,
    /// A file or directory cannot be used.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The port of `node.api` cannot be had.
    #[error("cannot listen on node.api, {address}: {source}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused something else.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A service cannot start an incarnation.
    #[error("the service {service} cannot begin: {reason}")]
    Service {
        /// Which.
        service: &'static str,
        /// What it said.
        reason: String,
    },
    /// Others do not let it in.
    #[error("waited {} s in vain: {because}; try again when they are done, or give this application a cluster of its own (--name)", patience.as_secs())]
    NotInTurn {
        /// What it waited for.
        because: &'static str,
        /// How long.
        patience: Duration,
    },
    /// A proxy of another application runs, and an update could not be announced to its cluster.
    #[error(
        "the update cannot be announced to the application {name} of this user: {reason}; for one application alone, ask the helper of its own name \
         (--cluster-name)"
    )]
    Untold {
        /// Its cluster.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The pool's memory is more than there is.
    #[error("pool.memory: {asked} is more than {most}, {why}")]
    TooMuchMemory {
        /// What is configured.
        asked: Size,
        /// What there can be.
        most: Size,
        /// Why that is, and what to do.
        why: &'static str,
    },
    /// A metric's name is taken or wrong.
    #[error(transparent)]
    Metrics(#[from] verbena_metrics::RegistryError),
    /// A later incarnation of this node runs elsewhere.
    #[error("{0} of the same node has joined: is a second process running with this node's name?")]
    Superseded(Incarnation),
}

impl Error {
    pub(crate) fn file(doing: &'static str, path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Error::File { doing, path: path.into(), source: source.into() }
    }
}
