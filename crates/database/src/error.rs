//! Why there is no relay.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use verbena_metrics::RegistryError;

/// Why a relay does not start.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// The configuration does not fit together.
    #[error("database.{key}: {problem}")]
    Setting {
        /// Which key.
        key: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The catalog cannot be read.
    #[error("the catalog of the database at {database} (database.to) cannot be read: {reason}")]
    Catalog {
        /// Where.
        database: String,
        /// Why not.
        reason: String,
    },
    /// The relay cannot listen.
    #[error("cannot listen on {address} for the application's connections to the database: {reason}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("cannot listen on {} for the application's connections to the database: {reason}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The thread cannot be started.
    #[error("the thread of the relay could not be started: {0}")]
    Thread(std::io::Error),
    /// Its metrics could not be registered.
    #[error(transparent)]
    Metrics(#[from] RegistryError),
}
