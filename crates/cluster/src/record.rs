//! What must survive a restart: the keeper's record of views (rule C3) and a node's start number (rule C1).
//!
//! ```text
//!  0        4         6       8              16
//!  +--------+---------+-------+--------------+--------------------------------+
//!  | magic  | version |   0   | checksum     | postcard of the record         |
//!  +--------+---------+-------+--------------+--------------------------------+
//!
//!  "VCKR"   KeeperRecord   view (absent: 0) | out | starts | terms
//!  "VCST"   StartRecord    rank | start
//! ```
//!
//! The checksum is SipHash-1-3 (key 0, 0) of what follows it, little endian. A record that rotted is refused as a
//! whole, because a number that was used and is forgotten would be used twice. The writer of a record replaces the old
//! file by the new one in one step and says `Persisted` only when it would survive a loss of power.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use verbena_terms::{Format, Incarnation, Rank};

use crate::{ClusterError, LeaseTerms, View};

/// Marks a keeper's record.
pub const KEEPER_FORMAT: Format = Format::new(*b"VCKR", 2);
/// Marks a start record.
pub const START_FORMAT: Format = Format::new(*b"VCST", 1);

const KEEPER: &str = "keeper's record";
const START: &str = "start record";
const CHECKSUM_BYTES: usize = 8;

/// What a keeper knows after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperRecord {
    /// The newest view. Every earlier one has taken effect; this one may have.
    pub view: Option<View>,
    /// Its members that ran out of lease: they get none again.
    pub out: Vec<Incarnation>,
    /// The highest start number of each rank that was ever a member.
    pub starts: BTreeMap<Rank, u32>,
    /// No lease that may still run was granted by longer terms: what a keeper that restarts waits for.
    pub terms: LeaseTerms,
}

/// The start number that a node has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// Which node: a state directory that was copied to another node is noticed.
    pub rank: Rank,
    /// The last start number that may have been used.
    pub start: u32,
}

impl KeeperRecord {
    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(KEEPER_FORMAT, self)
    }

    /// The record in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let record: KeeperRecord = decode(KEEPER_FORMAT, KEEPER, bytes)?;
        let named = |who: &Incarnation| record.view.as_ref().is_some_and(|view| view.member(*who).is_some());
        match record.out.iter().find(|who| !named(who)) {
            None => Ok(record),
            Some(who) => {
                let problem = format!("{who} is out and is no member");
                Err(ClusterError::Malformed { what: KEEPER, problem })
            }
        }
    }
}

impl StartRecord {
    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(START_FORMAT, self)
    }

    /// The record in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        decode(START_FORMAT, START, bytes)
    }
}

pub(crate) fn encode<T: Serialize>(format: Format, record: &T) -> Vec<u8> {
    let body =
        postcard::to_stdvec(record).expect("invariant: every field has a form in postcard, and a Vec does not end");
    with_checksum(format, &body)
}

pub(crate) fn with_checksum(format: Format, body: &[u8]) -> Vec<u8> {
    [format.header().as_slice(), &checksum(body).to_le_bytes(), body].concat()
}

pub(crate) fn decode<T: DeserializeOwned>(format: Format, what: &'static str, bytes: &[u8]) -> Result<T, ClusterError> {
    let malformed = |problem: String| ClusterError::Malformed { what, problem };
    let rest = format.check(bytes).map_err(|source| ClusterError::Format { what, source })?;
    let (expected, body) = rest
        .split_first_chunk::<CHECKSUM_BYTES>()
        .ok_or_else(|| malformed(format!("{} bytes after the header", rest.len())))?;
    let (expected, found) = (u64::from_le_bytes(*expected), checksum(body));
    if expected != found {
        return Err(ClusterError::Checksum { what, expected, found });
    }
    let (record, rest) = postcard::take_from_bytes(body).map_err(|error| malformed(error.to_string()))?;
    if rest.is_empty() { Ok(record) } else { Err(malformed(format!("{} bytes after its end", rest.len()))) }
}

fn checksum(body: &[u8]) -> u64 {
    SipHasher13::new_with_keys(0, 0).hash(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::view;

    #[test]
    fn records_survive() {
        let start = StartRecord { rank: Rank(3), start: 77 };
        assert_eq!(StartRecord::decode(&start.encode()), Ok(start));
        let record = KeeperRecord {
            view: Some(view(4, &[(1, 1), (2, 9)])),
            out: vec![Incarnation::new(2, 9)],
            starts: [(Rank(1), 1), (Rank(2), 9), (Rank(3), 2)].into(),
            terms: LeaseTerms::DEFAULT,
        };
        assert_eq!(KeeperRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = StartRecord { rank: Rank(3), start: 77 }.encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let reserved = (48..64).contains(&bit);
            assert_eq!(StartRecord::decode(&bad).is_err(), !reserved, "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(StartRecord::decode(&good[..length]).is_err());
        }
    }

    #[test]
    fn each_record_is_told_from_the_other() {
        let bytes = StartRecord { rank: Rank(3), start: 77 }.encode();
        assert_eq!(
            KeeperRecord::decode(&bytes).unwrap_err().to_string(),
            "keeper's record: expected a block marked \"VCKR\", found \"VCST\""
        );
        let record = KeeperRecord {
            view: None,
            out: vec![Incarnation::new(2, 9)],
            starts: BTreeMap::new(),
            terms: LeaseTerms::DEFAULT,
        };
        assert_eq!(
            KeeperRecord::decode(&record.encode()).unwrap_err().to_string(),
            "keeper's record: 2.9 is out and is no member"
        );
    }
}
