//! How members come by each other's regions: a message that carries keys.
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+-----------------------------------------+
//!  | "VCIN" |    1    |    0    |  one introduction, postcard 1           |
//!  +--------+---------+---------+-----------------------------------------+
//!
//!  introduction = from page-table-key? acknowledgements-key wants-answer
//! ```
//!
//! It goes to the members of a view that was learnt of, and again until they have introduced themselves. The transport
//! knows the sender (rule F5), so that no node can introduce another.

use serde::{Deserialize, Serialize};
use verbena_fabric::RegionKey;
use verbena_terms::{Format, Incarnation};

use crate::wire::{MAX_FRAME_BYTES, WireError};

/// What stands first in an introduction.
const INTRODUCTION: Format = Format::new(*b"VCIN", 1);

/// The regions of a member that others work on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// The member that owns them.
    pub from: Incarnation,
    /// Its page table, to read, if it is a home.
    pub table: Option<RegionKey>,
    /// Its acknowledgement words, to change.
    pub acknowledgements: RegionKey,
    /// The sender does not know the addressee's yet.
    pub wants_answer: bool,
}

impl Introduction {
    pub fn encode(&self) -> Vec<u8> {
        INTRODUCTION.encode(self)
    }

    /// Decoding is total.
    pub fn decode(frame: &[u8]) -> Result<Introduction, WireError> {
        if frame.len() > MAX_FRAME_BYTES {
            return Err(WireError::Long { found: frame.len() });
        }
        let (introduction, rest) = postcard::take_from_bytes(INTRODUCTION.check(frame)?)
            .map_err(|source| WireError::Malformed { length: frame.len(), source })?;
        if rest.is_empty() { Ok(introduction) } else { Err(WireError::Trailing { extra: rest.len() }) }
    }
}

/// Whether these bytes are an introduction; panics if what is read is not written as something that reads the same.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn exercise(frame: &[u8]) -> bool {
    let Ok(introduction) = Introduction::decode(frame) else { return false };
    let written = introduction.encode();
    assert!(written.len() <= frame.len(), "{introduction:?} has grown");
    assert_eq!(Introduction::decode(&written), Ok(introduction));
    true
}
