//! The memory that a client and the helper share, byte by byte. One memfd a client, sealed against growing and
//! shrinking; the helper makes it and both map it.
//!
//! ```text
//!  byte     word
//!     0      0   format: "VIPR", version (rule F6)                      written by the helper before the client sees it
//!     8      1   [ bytes of one ring : 32 | longest message : 32 ]      the same
//!    16      2   queue of requests:  [ its number : 32 | its key : 32 ] the same; 0 where requests go through a ring
//!    24      3   queue of responses: [ its number : 32 | its key : 32 ] the same; 0 where responses do
//!   128     16   requests: messages put into the queue                  client
//!   256     32   requests: head of the ring                             helper
//!   512     64   responses: head of the ring, or messages taken out of  client
//!                the queue
//!   640     80   client sleeps: 0, or what it waits for (futex)         client sets, helper clears
//!   768     96   helper waits for room among the responses: 0 or 1      helper
//!   896    112   the core that the client was on when it last waited    client
//!                or rang, plus 1; 0: not known
//!  4096    512   the ring of requests, if there is one                  client
//!  4096+R        the ring of responses, if there is one                 helper
//! ```
//!
//! Words are 64 bits in the machine's own order: both sides are on one machine. Each control word has 128 bytes to
//! itself, because the processors of today fetch cache lines in pairs. Positions count the lines that ever passed;
//! they only grow, and 2^64 is never reached. A ring is a power of two long, so a position's place is its low bits.
//!
//! A message in a ring takes whole lines of 64 bytes, and may wrap at any of them:
//!
//! ```text
//!  0                       8               12              16               24
//!  +-----------------------+---------------+---------------+----------------+--------------------------------+
//!  | position of this line |               |               |                |                                |
//!  | plus 1, written last  | payload bytes |     kind      | request number | the first 40 bytes of payload  |
//!  +-----------------------+---------------+---------------+----------------+--------------------------------+
//!  | as it was             | 56 bytes of payload                                                              |
//!  +-----------------------+----------------------------------------------------------------------------------+
//! ```
//!
//! There is no tail to look at: a message is there when the first word of its line is the line's position plus 1, so that it
//! reaches the other core with the one cache line that is looked for. That word never holds payload. What an
//! earlier round left in it is smaller, so nothing that ever passed is taken for a message that is to come.
//!
//! The helper's own page, one for all clients, mapped by them for reading only (F_SEAL_FUTURE_WRITE):
//!
//! ```text
//!     0      0   format: "VIPB", version
//!     8      1   1 where the helper polls and never sleeps, so that nobody has to look whether it does; else 0
//!    16      2   the core that the helper was on when it last looked, plus 1; 0: not known
//!    24      3   1 where a crowd asks, as it last counted (hints.rs); else 0
//!    32      4   the number of a thread that the helper has as long as it lives; with bit 30 when it has ended, however it ended (life.rs); 0: not known
//!   128     16   helper sleeps: 0 or 1
//!   256     32   the board: eight words that services of the helper write for all clients
//! ```

use verbena_terms::Format;

use crate::error::Error;

pub(crate) const RINGS: Format = Format::new(*b"VIPR", 2);
pub(crate) const BEACON: Format = Format::new(*b"VIPB", 4);

pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const FORMAT_WORD: usize = 0;
pub(crate) const SIZES_WORD: usize = 1;
pub(crate) const REQUEST_QUEUE: usize = 2;
pub(crate) const RESPONSE_QUEUE: usize = 3;
pub(crate) const REQUESTS_PUT: usize = 16;
const REQUEST_HEAD: usize = 32;
pub(crate) const RESPONSES_TAKEN: usize = 64;
pub(crate) const CLIENT_SLEEPS: usize = 80;
pub(crate) const HELPER_WANTS_ROOM: usize = 96;
pub(crate) const CLIENT_CORE: usize = 112;
const RING_START: usize = 512;

pub(crate) const BEACON_BYTES: usize = 4096;
pub(crate) const HELPER_POLLS: usize = 1;
pub(crate) const HELPER_CORE: usize = 2;
pub(crate) const HELPER_CROWD: usize = 3;
pub(crate) const HELPER_LIFE: usize = 4;
pub(crate) const HELPER_SLEEPS: usize = 16;
pub(crate) const BOARD: usize = 32;

/// Words of a [`Board`](crate::Board).
pub const BOARD_WORDS: usize = 8;

/// A cache line of the machines that we know, in words.
pub(crate) const LINE_WORDS: usize = 8;
/// Words of a message's first line before its payload: the position, length and kind, the request number.
pub(crate) const FRAME_WORDS: usize = 3;
/// Payload in a message's first line, and in each further one: bytes.
const FIRST_BYTES: usize = (LINE_WORDS - FRAME_WORDS) * WORD_BYTES;
const FURTHER_BYTES: usize = (LINE_WORDS - 1) * WORD_BYTES;

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
    pub(crate) head: usize,
    pub(crate) data: usize,
    pub(crate) lines: u64,
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

    /// As many messages as a ring can hold at once: those of one line.
    pub(crate) fn most_messages(self) -> usize {
        self.ring_bytes as usize / WORD_BYTES / LINE_WORDS
    }

    /// Bytes of the memory with that many rings.
    pub(crate) fn bytes_with(self, rings: usize) -> usize {
        RING_START * WORD_BYTES + rings * self.ring_bytes as usize
    }

    pub(crate) fn sizes_word(self) -> u64 {
        u64::from(self.ring_bytes) << 32 | self.longest_message() as u64
    }

    pub(crate) fn requests(self) -> Place {
        self.place(REQUEST_HEAD, RING_START)
    }

    pub(crate) fn responses(self) -> Place {
        self.place(RESPONSES_TAKEN, RING_START + self.ring_bytes as usize / WORD_BYTES)
    }

    fn place(self, head: usize, data: usize) -> Place {
        let lines = u64::from(self.ring_bytes) / (LINE_WORDS * WORD_BYTES) as u64;
        Place { head, data, lines, longest: self.longest_message() }
    }
}

/// Lines that a message with a payload of `bytes` takes in a ring.
pub(crate) fn message_lines(bytes: usize) -> u64 {
    1 + bytes.saturating_sub(FIRST_BYTES).div_ceil(FURTHER_BYTES) as u64
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
                REQUESTS_PUT,
                requests.head,
                responses.head,
                CLIENT_SLEEPS,
                HELPER_WANTS_ROOM,
                CLIENT_CORE,
                requests.data,
            ];
            control.sort_unstable();
            assert!(control.windows(2).all(|pair| pair[1] - pair[0] >= 16), "two control words within 128 bytes");
            let words = requests.lines as usize * LINE_WORDS;
            assert_eq!(requests.data + words, responses.data);
            assert_eq!((responses.data + words) * WORD_BYTES, geometry.bytes_with(2));
            assert!(requests.data % LINE_WORDS == 0 && responses.data % LINE_WORDS == 0);
            assert!(message_lines(geometry.longest_message()) * 3 <= requests.lines);
        }
    }

    #[test]
    fn a_message_takes_as_many_lines_as_it_needs() {
        for (bytes, lines) in [(0, 1), (8, 1), (40, 1), (41, 2), (96, 2), (97, 3), (1024, 19)] {
            assert_eq!(message_lines(bytes), lines, "{bytes}");
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for bytes in [0, 1, 2 << 10, 5000, 32 << 20, u32::MAX] {
            assert!(matches!(Geometry::new(bytes), Err(Error::RingSize { .. })), "{bytes}");
        }
    }
}
