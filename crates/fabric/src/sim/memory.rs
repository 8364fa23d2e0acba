//! A region's memory, and the check that atomics and plain writes do not mix on one of its words (F3).

use crate::error::Result;
use crate::memory::Words;

/// Memory of a region as it was made once. Counted, because operations that have begun hold on to it (F4).
pub(super) struct Memory {
    pub(super) words: Words,
    pub(super) bytes: u64,
    pub(super) holders: u32,
    /// One bit for each word that an atomic worked on.
    atomic: Vec<u64>,
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Result<Self> {
        Ok(Memory { words: Words::anonymous(bytes)?, bytes, holders: 1, atomic: Vec::new() })
    }

    /// An atomic works on the word at `at`.
    pub(super) fn mark_atomic(&mut self, at: u64) {
        let word = (at / 8) as usize;
        if self.atomic.len() <= word / 64 {
            self.atomic.resize(word / 64 + 1, 0);
        }
        self.atomic[word / 64] |= 1 << (word % 64);
    }

    /// A plain write covers these bytes. Panics if an atomic has worked on one of the words: on hardware whose
    /// atomics are its own, the one may undo the other (F3).
    pub(super) fn assert_plain(&self, at: u64, length: u64, who: &dyn std::fmt::Display) {
        for word in at / 8..(at + length).div_ceil(8) {
            let bits = self.atomic.get((word / 64) as usize).copied().unwrap_or(0);
            assert!(
                bits >> (word % 64) & 1 == 0,
                "F3: {who} writes the word at {} plainly, which atomics change",
                word * 8
            );
        }
    }
}
