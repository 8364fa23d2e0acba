//! The record of a part: who owns it, and what it claims. A hint (rule T8): it may be older or newer than the part.
//!
//! ```text
//!  0         8         16        24        32
//!  +---------+---------+---------+---------+---------------------------+
//!  | VTRC 1  | owner   | part    | check   | claims, in postcard       |
//!  +---------+---------+---------+---------+---------------------------+
//! ```
//! Numbers are little-endian. *Owner* grows with each session that takes the part over (rule T6). *Part* is the number in
//! the part's name. The check is the first 8 bytes of BLAKE3 over the claims.

use serde::{Deserialize, Serialize};
use verbena_terms::Format;

use crate::frame::Identity;
use crate::tree::Hash;

const RECORD: Format = Format::new(*b"VTRC", 1);

/// Bytes before the claims.
pub(crate) const HEAD: usize = 32;

/// Who may write a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Grows with each session.
    pub number: u64,
    /// The part's number.
    pub part: u64,
}

/// What a part claims to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The version of the source.
    pub identity: Identity,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks and their hashes.
    pub chunks: Vec<(u64, Hash)>,
}

fn check(claims: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(claims).as_bytes()[..8]);
    first
}

/// The bytes of a record.
pub fn encode_record(owner: Owner, claims: &Claims) -> Vec<u8> {
    // Every field has a form in postcard.
    let claims = postcard::to_stdvec(claims).unwrap_or_default();
    let mut bytes = RECORD.header().to_vec();
    bytes.extend_from_slice(&owner.number.to_le_bytes());
    bytes.extend_from_slice(&owner.part.to_le_bytes());
    bytes.extend_from_slice(&check(&claims));
    bytes.extend_from_slice(&claims);
    bytes
}

/// The owner in the first bytes of a record. Total.
pub fn decode_owner(bytes: &[u8]) -> Option<Owner> {
    RECORD.check(bytes.get(..8)?).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some(Owner { number: number(8)?, part: number(16)? })
}

/// What a record claims; nothing if it is damaged. Total.
pub fn decode_claims(bytes: &[u8]) -> Claims {
    let Some(claims) = bytes.get(HEAD..).filter(|claims| check(claims) == bytes[24..32]) else {
        return Claims::default();
    };
    match postcard::take_from_bytes(claims) {
        Ok((claims, [])) => claims,
        _ => Claims::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_record_claims_nothing() {
        let owner = Owner { number: 3, part: u64::MAX };
        let claims = Claims { chunk_bytes: 1024, chunks: vec![(0, [1; 32]), (9, [2; 32])], ..Claims::default() };
        let bytes = encode_record(owner, &claims);
        assert_eq!((decode_owner(&bytes), decode_claims(&bytes)), (Some(owner), claims));
        for cut in 0..bytes.len() {
            assert_eq!(decode_claims(&bytes[..cut]), Claims::default(), "{cut}");
        }
        for at in HEAD..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(decode_claims(&flipped), Claims::default(), "{at}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (decode_owner(&bytes), decode_claims(&bytes));
        }
    }
}
