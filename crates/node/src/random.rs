//! Random bytes of the system.

use crate::error::{Error, Result};

/// Bytes that cannot be guessed.
///
/// # Errors
/// That the system has none: `doing` is what cannot be done then.
pub(crate) fn random<const N: usize>(doing: &'static str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Error::System { doing, source: std::io::Error::other(error.to_string()) }),
    }
}
