use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

use crate::tenant::Tenant;

/// Memory is given in units of that many bytes.
pub const UNIT_BYTES: usize = 16;

const LENGTH_BITS: u32 = 17;
const OFFSET_BITS: u32 = 30;
const HOLDER_BITS: u32 = 10;
const TAG_BITS: u32 = 7;

/// Where a copy lies: `[tag : 7 | holder : 10 | offset : 30 | length : 17]`, offset and length in units of 16 bytes. A hint: it may be older or newer than the
/// version beside it (rule K2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Place {
    /// Of the key's hash.
    pub tag: u8,
    /// The low bits of the holder's rank.
    pub holder: u16,
    /// Where the object begins in the holder's memory.
    pub offset: u32,
    /// Units of the whole object.
    pub units: u32,
}

impl Place {
    /// The largest object, in units.
    pub const MAX_UNITS: u32 = (1 << LENGTH_BITS) - 1;
    /// The largest share of one node, in units: 16 GiB.
    pub const MAX_OFFSET: u32 = 1 << OFFSET_BITS;

    /// Where this node holds the object of a key.
    pub fn new(hash: u64, holder: Rank, offset: u32, units: u32) -> Place {
        debug_assert!(units <= Place::MAX_UNITS && offset < Place::MAX_OFFSET);
        Place { tag: tag_of(hash), holder: holder_of(holder), offset, units }
    }

    /// Whether the node with this rank may be the holder.
    pub fn is_at(self, rank: Rank) -> bool {
        self.holder == holder_of(rank)
    }

    /// As it stands in the table.
    pub fn to_word(self) -> u64 {
        let top = u64::from(self.tag) << HOLDER_BITS | u64::from(self.holder);
        (top << OFFSET_BITS | u64::from(self.offset)) << LENGTH_BITS | u64::from(self.units)
    }

    /// The inverse of [`to_word`](Self::to_word).
    pub fn from_word(word: u64) -> Place {
        let bits = |at: u32, many: u32| (word >> at) & ((1 << many) - 1);
        Place {
            tag: bits(LENGTH_BITS + OFFSET_BITS + HOLDER_BITS, TAG_BITS) as u8,
            holder: bits(LENGTH_BITS + OFFSET_BITS, HOLDER_BITS) as u16,
            offset: bits(LENGTH_BITS, OFFSET_BITS) as u32,
            units: bits(0, LENGTH_BITS) as u32,
        }
    }
}

impl From<u64> for Place {
    fn from(word: u64) -> Place {
        Place::from_word(word)
    }
}

impl From<Place> for u64 {
    fn from(place: Place) -> u64 {
        place.to_word()
    }
}

fn holder_of(rank: Rank) -> u16 {
    (rank.0 & ((1 << HOLDER_BITS) - 1)) as u16
}

pub(crate) fn tag_of(hash: u64) -> u8 {
    (hash >> (64 - TAG_BITS)) as u8
}

/// The hash of a key of no tenant.
pub fn hash_of(key: &[u8]) -> u64 {
    Tenant::DEFAULT.hash_of(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_word() {
        for (hash, rank, offset, units) in
            [(0, 1, 0, 1), (u64::MAX, 1023, Place::MAX_OFFSET - 1, Place::MAX_UNITS), (1 << 63, 5, 77, 3)]
        {
            let place = Place::new(hash, Rank(rank), offset, units);
            assert_eq!(Place::from_word(place.to_word()), place);
            assert!(place.is_at(Rank(rank)) && !place.is_at(Rank(rank + 1)));
        }
        let word = Place::new(u64::MAX, Rank(1023), Place::MAX_OFFSET - 1, Place::MAX_UNITS).to_word();
        assert_eq!(word, u64::MAX);
    }
}
