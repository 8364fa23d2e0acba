//! What a lock is called.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use thiserror::Error;
use verbena_cluster::{View, home_of};
use verbena_terms::Incarnation;

/// Bytes that the name of a lock may have.
pub const MAX_NAME_BYTES: usize = 1024;

/// The name of a lock: any bytes, at least one. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Name(Arc<[u8]>);

/// What cannot be the name of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a lock's name of {bytes} bytes: it must have 1 to {MAX_NAME_BYTES}")]
pub struct NameError {
    /// How long it is.
    pub bytes: usize,
}

impl Name {
    /// A name of these bytes.
    ///
    /// # Errors
    /// When they are too many, or none.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        match bytes.len() {
            1..=MAX_NAME_BYTES => Ok(Name(bytes.into())),
            bytes => Err(NameError { bytes }),
        }
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The node that owns the lock's words in this view; `None` where the view has no home. SipHash-1-3 of the bytes
    /// under the key 0, 0, drawn for by [`home_of`].
    pub fn home(&self, view: &View) -> Option<Incarnation> {
        home_of(SipHasher13::new().hash(&self.0), view)
    }
}

/// In the order of their bytes.
impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, NameError> {
        Name::new(&bytes)
    }
}

impl From<Name> for Vec<u8> {
    fn from(name: Name) -> Self {
        name.0.to_vec()
    }
}

/// For people: what is no printable ASCII is escaped.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_any_bytes_up_to_a_kibibyte() {
        assert_eq!(Name::new(b"\0nightly \xff").unwrap().to_string(), "\\x00nightly \\xff");
        assert!(Name::new(&[7; MAX_NAME_BYTES]).is_ok());
        assert_eq!(
            Name::new(&[7; 1025]).unwrap_err().to_string(),
            "a lock's name of 1025 bytes: it must have 1 to 1024"
        );
        assert_eq!(Name::new(b""), Err(NameError { bytes: 0 }));
    }
}
