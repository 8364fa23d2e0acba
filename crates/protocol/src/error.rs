//! The errors of decoding a message.

use thiserror::Error;
use verbena_terms::FormatError;

/// What decoding gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why bytes are no message.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// Another format or version.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Cut short, too long, or of a kind that this version does not know.
    #[error("{0}")]
    Malformed(String),
}
