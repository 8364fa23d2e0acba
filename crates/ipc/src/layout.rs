//! The memory that a client and the helper share, byte by byte. One memfd a client, sealed against growing and
//! shrinking; the helper makes it and both map it.
//!
//! ```text
//!  byte     word
//!     0      0   format: "VIPR", version (rule F6)                      written by the helper before the client sees it
//!     8      1   [ bytes of one ring : 32 | longest message : 32 ]      the same
//!   128     16   requests: tail                                         client
//!   256     32   requests: head                                         helper
//!   384     48   responses: tail                                        helper
//!   512     64   responses: head                                        client
//!   640     80   client sleeps: 0, or what it waits for (futex)         client sets, helper clears
//!   768     96   helper waits for room among the responses: 0 or 1      helper
//!  4096    512   the ring of requests                                   client
//!  4096+R        the ring of responses                                  helper
//! ```
//!
//! Words are 64 bits in the machine's own order: both sides are on one machine. Each control word has 128 bytes to
//! itself, because the processors of today fetch cache lines in pairs. Heads and tails count the words that ever passed;
//! they only grow, and 2^64 is never reached. A ring is a power of two long, so a position's place is its low bits.
//!
//! A message in a ring, which may wrap at any word:
//!
//! ```text
//!  0               4               8                       16
//!  +---------------+---------------+-----------------------+------------------------------+
//!  | payload bytes |     kind      |    request number     | payload, zeros to full words |
//!  +---------------+---------------+-----------------------+------------------------------+
//! ```
//!
//! The helper's own page, one for all clients, mapped by them for reading only (F_SEAL_FUTURE_WRITE):
//!
//! ```text
//!     0      0   format: "VIPB", version
//!   128     16   helper sleeps: 0 or 1
//!   256     32   the board: eight words that services of the helper write for all clients
//! ```

use verbena_terms::Format;

use crate::error::Error;

pub(crate) const RINGS: Format = Format::new(*b"VIPR", 1);
pub(crate) const BEACON: Format = Format::new(*b"VIPB", 2);

pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const FORMAT_WORD: usize = 0;
pub(crate) const SIZES_WORD: usize = 1;
const REQUEST_TAIL: usize = 16;
const REQUEST_HEAD: usize = 32;
const RESPONSE_TAIL: usize = 48;
const RESPONSE_HEAD: usize = 64;
pub(crate) const CLIENT_SLEEPS: usize = 80;
pub(crate) const HELPER_WANTS_ROOM: usize = 96;
const RING_START: usize = 512;

pub(crate) const BEACON_BYTES: usize = 4096;
pub(crate) const HELPER_SLEEPS: usize = 16;
pub(crate) const BOARD: usize = 32;

/// Words of a [`Board`](crate::Board).
pub const BOARD_WORDS: usize = 8;

/// Words before the payload of a message: length and kind, then the request number.
pub(crate) const FRAME_WORDS: u64 = 2;

/// Bit of [`CLIENT_SLEEPS`]: wake me for a response.
pub(crate) const FOR_RESPONSE: u64 = 1;
/// Bit of [`CLIENT_SLEEPS`]: wake me for room among the requests.
pub(crate) const FOR_ROOM: u64 = 2;

const SMALLEST_RING: u32 = 4 << 10;
const LARGEST_RING: u32 = 16 << 20;

/// How large the rings of one client are. Exists only with sizes that the layout allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    ring_bytes: u32,
}

/// Where one ring lies: word indexes into the shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) tail: usize,
    pub(crate) head: usize,
    pub(crate) data: usize,
    pub(crate) words: u64,
    /// Longest payload, bytes.
    pub(crate) longest: usize,
}

impl Geometry {
    pub(crate) fn new(ring_bytes: u32) -> Result<Self, Error> {
        if !ring_bytes.is_power_of_two() || !(SMALLEST_RING..=LARGEST_RING).contains(&ring_bytes) {
            return Err(Error::RingSize { bytes: ring_bytes, smallest: SMALLEST_RING, largest: LARGEST_RING });
        }
        Ok(Geometry { ring_bytes })
    }

    pub(crate) fn ring_bytes(self) -> u32 {
        self.ring_bytes
    }

    /// A quarter of a ring, so that one message never keeps a whole ring waiting for room.
    pub(crate) fn longest_message(self) -> usize {
        self.ring_bytes as usize / 4
    }

    /// As many messages as a ring can hold at once: those without payload.
    pub(crate) fn most_messages(self) -> usize {
        self.ring_bytes as usize / WORD_BYTES / FRAME_WORDS as usize
    }

    pub(crate) fn total_bytes(self) -> usize {
        RING_START * WORD_BYTES + 2 * self.ring_bytes as usize
    }

    pub(crate) fn sizes_word(self) -> u64 {
        u64::from(self.ring_bytes) << 32 | self.longest_message() as u64
    }

    pub(crate) fn requests(self) -> Place {
        self.place(REQUEST_TAIL, REQUEST_HEAD, RING_START)
    }

    pub(crate) fn responses(self) -> Place {
        self.place(RESPONSE_TAIL, RESPONSE_HEAD, RING_START + self.ring_bytes as usize / WORD_BYTES)
    }

    fn place(self, tail: usize, head: usize, data: usize) -> Place {
        let words = u64::from(self.ring_bytes) / WORD_BYTES as u64;
        Place { tail, head, data, words, longest: self.longest_message() }
    }
}

/// Words that a message with a payload of `bytes` takes in a ring.
pub(crate) fn message_words(bytes: usize) -> u64 {
    FRAME_WORDS + bytes.div_ceil(WORD_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_is_inside() {
        for shift in 12..=24 {
            let geometry = Geometry::new(1 << shift).unwrap();
            let (requests, responses) = (geometry.requests(), geometry.responses());
            let mut control = [
                FORMAT_WORD,
                requests.tail,
                requests.head,
                responses.tail,
                responses.head,
                CLIENT_SLEEPS,
                HELPER_WANTS_ROOM,
                requests.data,
            ];
            control.sort_unstable();
            assert!(control.windows(2).all(|pair| pair[1] - pair[0] >= 16), "two control words within 128 bytes");
            assert_eq!(requests.data + requests.words as usize, responses.data);
            assert_eq!((responses.data + responses.words as usize) * WORD_BYTES, geometry.total_bytes());
            assert!(message_words(geometry.longest_message()) * 3 <= requests.words);
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for bytes in [0, 1, 2 << 10, 5000, 32 << 20, u32::MAX] {
            assert!(matches!(Geometry::new(bytes), Err(Error::RingSize { .. })), "{bytes}");
        }
    }
}
