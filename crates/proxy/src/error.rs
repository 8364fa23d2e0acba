//! Why a proxy does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use verbena_listening::CertificateError;
use verbena_metrics::RegistryError;

/// Why a proxy does not start.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// The configuration does not fit together.
    #[error("proxy.{key}: {problem}")]
    Setting {
        /// Which key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A proxy of another cluster stands before the same application (rule P11).
    #[error(
        "process {process} is a verbena proxy before {origin} too, and of another cluster: each would go on serving what is written through the other; start this one where it \
         finds that one (the same user, node.runtime and node.state, or cluster.members), stop that one, or say proxy.shared_origin = true if one of them never writes"
    )]
    OtherCache {
        /// Which application.
        origin: String,
        /// The other proxy's process.
        process: u32,
    },
    /// The token for `PURGE` requests cannot be had.
    #[error("proxy.purge_token_file, {}: {reason}; write the token into that file, one line, which this user can read", file.display())]
    PurgeToken {
        /// Its file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// TLS cannot be spoken.
    #[error("TLS cannot be spoken with clients: {0}")]
    Tls(String),
    /// A thread or its runtime could not be made.
    #[error("a thread of the proxy could not be started: {0}")]
    Thread(std::io::Error),
    /// Its metrics could not be registered.
    #[error(transparent)]
    Metrics(#[from] RegistryError),
}

impl From<CertificateError> for ProxyError {
    fn from(error: CertificateError) -> ProxyError {
        match error {
            CertificateError::File { key, problem } => ProxyError::Setting { key: key.into(), problem },
            CertificateError::Tls(problem) => ProxyError::Tls(problem),
        }
    }
}
