//! What a node reads of a segment at its home: the word, and the heads of slots (drawn in the layout of a home's region, crate `memory`).

use serde::{Deserialize, Serialize};

/// The head of a slot while it is filled.
pub const FILLING: u64 = u64::MAX;
/// Bytes before a slot's value.
pub const SLOT_HEAD_BYTES: u64 = 16;

const RELEASED: u8 = u8::MAX;
const RECLAIMED: u8 = u8::MAX - 1;

/// How a segment came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentEnd {
    /// Its user released it.
    #[default]
    Released,
    /// Its home took the memory back.
    Reclaimed,
    /// It has not: others hold it from then on, and whoever works on it looks for it again. No word says so.
    Moved,
}

/// A segment's word, `[version : 56 | slot : 8]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentWord(u64);

impl SegmentWord {
    /// What is added to it for one more version.
    pub const VERSION: u64 = 1 << 8;

    /// This version is in this slot.
    pub const fn new(version: u64, slot: u8) -> Self {
        SegmentWord(version << 8 | slot as u64)
    }

    /// As it stands in memory.
    pub const fn from_bits(bits: u64) -> Self {
        SegmentWord(bits)
    }

    /// As it stands in memory.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// How many puts there were, since the segment was made.
    pub const fn version(self) -> u64 {
        self.0 >> 8
    }

    /// Where the value is; `None` when the segment has come to its end.
    pub const fn slot(self) -> Option<u8> {
        match self.0 as u8 {
            RELEASED | RECLAIMED => None,
            slot => Some(slot),
        }
    }

    /// How the segment came to its end, if it did.
    pub const fn end(self) -> Option<SegmentEnd> {
        match self.0 as u8 {
            RELEASED => Some(SegmentEnd::Released),
            RECLAIMED => Some(SegmentEnd::Reclaimed),
            _ => None,
        }
    }

    /// The next version, in this slot.
    pub const fn next_in(self, slot: u8) -> Self {
        SegmentWord::new(self.version() + 1, slot)
    }

    /// The segment has come to its end.
    pub const fn ended(self, end: SegmentEnd) -> Self {
        let how = match end {
            SegmentEnd::Released => RELEASED,
            SegmentEnd::Reclaimed => RECLAIMED,
            SegmentEnd::Moved => return self,
        };
        SegmentWord(self.0 & !(u8::MAX as u64) | how as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_what_it_was_given() {
        let word = SegmentWord::new((1 << 56) - 2, 62);
        assert_eq!((word.version(), word.slot()), ((1 << 56) - 2, Some(62)));
        assert_eq!(word.next_in(3), SegmentWord::new((1 << 56) - 1, 3));
        for end in [SegmentEnd::Released, SegmentEnd::Reclaimed] {
            let gone = word.ended(end);
            assert_eq!((gone.version(), gone.slot(), gone.end()), ((1 << 56) - 2, None, Some(end)));
            assert_eq!(
                SegmentWord::from_bits(gone.to_bits() + SegmentWord::VERSION).end(),
                Some(end),
                "a late addition frees nothing"
            );
        }
    }
}
