//! Bytes that are copied, from another place of a page each time.
//!
//! Where a copy goes to an address that stands in its page 16 to 31 bytes behind the one it comes from, some processors (AMD's Zen 3 and 4, by the instruction
//! that a kernel copies with, `rep movsb`) take twenty times as long: 1.9 GB/s instead of 36. A program that writes the same block again and again stays at
//! one distance for seconds, and a stream then has one of two rates by chance, whatever it goes through. From changing places one copy in 256 is slow.

use rustix::param::page_size;

/// A multiple of 16, and odd as such, so that each of a page's is met before one is met again.
const STEP: usize = 16 * 63;

/// Room for `length` bytes, at another place each time.
pub(super) struct Places {
    room: Box<[u8]>,
    length: usize,
    at: usize,
}

impl Places {
    /// For `length` bytes, all of them `byte`.
    pub(super) fn of(length: usize, byte: u8) -> Self {
        Places { room: vec![byte; length + page_size()].into(), length, at: 0 }
    }

    /// The next place.
    pub(super) fn next(&mut self) -> &mut [u8] {
        self.at = (self.at + STEP) % page_size();
        &mut self.room[self.at..self.at + self.length]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_place_of_a_page_comes() {
        let mut places = Places::of(100, 7);
        let met: BTreeSet<usize> =
            (0..page_size() / 16).map(|_| places.next().as_ptr() as usize % page_size()).collect();
        assert_eq!(met.len(), page_size() / 16);
        assert_eq!(places.next(), [7; 100]);
    }
}
