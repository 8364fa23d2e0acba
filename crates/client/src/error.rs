//! Why a question to the helper has no answer.

use std::path::PathBuf;

use thiserror::Error;
use verbena_terms::FormatError;

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Error {
    /// Nobody listens.
    #[error(
        "no helper runs: nobody listens at {}{}; start one with `verbena node`",
        tried.display(), others(.running)
    )]
    NoHelper {
        /// The socket that was tried.
        tried: PathBuf,
        /// Names of helpers whose sockets are in the same directory.
        running: Vec<String>,
    },
    /// The way to the helper failed.
    #[error(transparent)]
    Ipc(#[from] verbena_ipc::Error),
    /// The answer is in another format or version.
    #[error("the helper does not fit this program: {0}")]
    Format(#[from] FormatError),
    /// The answer makes no sense.
    #[error("the helper's answer cannot be read: {0}")]
    Malformed(String),
    /// The helper does not know the question, or refuses it.
    #[error("the helper refuses: {0}")]
    Refused(String),
    /// What was asked for changed with each part of the answer.
    #[error("the cluster's view changed again and again while it was being read: ask again")]
    Unsteady,
}

fn others(running: &[String]) -> String {
    if running.is_empty() { String::new() } else { format!(" (beside it: {})", running.join(", ")) }
}
