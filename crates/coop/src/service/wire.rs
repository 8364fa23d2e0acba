//! What nodes send each other about the pool.
//!
//! ```text
//!  0        4         6         8
//!  +--------+---------+---------+------------------------------------------+
//!  | "VPOL" |    4    |    0    |  one letter, postcard 1 (varints)         |
//!  +--------+---------+---------+------------------------------------------+
//!
//!  letter  = view from said
//!  said    = 0 frame                      once; what a loss of it costs is in the rules (K6)
//!          | 1 numbered number frame      until it is heard
//!          | 2 heard number
//!          | 3 region key layout asks     where the sender's table and objects are, to be read
//! ```
//!
//! A view and a sender are in each (rule F5). Decoding is total: any bytes give a letter, or an error.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_fabric::{Message, RegionKey};
use verbena_service::driver;
use verbena_terms::{Format, Incarnation, ViewNumber};

use crate::message::Frame;

/// What a letter begins with.
pub const LETTER: Format = Format::new(*b"VPOL", 4);
/// Longest letter, in bytes. A longer one is refused unread.
pub const MAX_LETTER_BYTES: usize = 48 * 1024;
/// Entries of one hand-over: 30 bytes each at the most.
pub const MOST_ENTRIES: usize = 1024;

/// One message between nodes of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The view that it belongs to.
    pub view: ViewNumber,
    /// The sender.
    pub from: Incarnation,
    /// What it says.
    pub said: Said,
}

/// What one node says to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Said once.
    Frame(Frame),
    /// Said again until it is heard. It may be taken in more than once.
    Numbered(u64, Frame),
    /// The letter with this number has come.
    Heard(u64),
    /// Where the sender's memory is.
    Region {
        /// To read it.
        key: RegionKey,
        /// What is where in it.
        layout: Layout,
        /// The sender wants to know the same.
        asks: bool,
    },
}

/// What is where in a node's region: first its table, then its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes of the table.
    pub table_bytes: u64,
    /// Units of objects behind it.
    pub units: u32,
}

/// Bytes are no letter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a letter about the pool: {0}")]
pub struct LetterError(String);

impl Letter {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        LETTER.encode(self)
    }

    /// The letter in `bytes`. Total.
    ///
    /// # Errors
    /// If the bytes are no letter, or one whose parts do not fit each other.
    pub fn decode(bytes: &[u8]) -> Result<Letter, LetterError> {
        if bytes.len() > MAX_LETTER_BYTES {
            return Err(LetterError(format!("{} bytes; at most {MAX_LETTER_BYTES}", bytes.len())));
        }
        let letter: Letter = LETTER.decode(bytes).map_err(LetterError)?;
        match &letter.said {
            Said::Region { key, layout, .. } if !layout.fits(key) => {
                Err(LetterError(format!("{layout:?} in a region of {} bytes", key.bytes)))
            }
            Said::Region { key, .. } if key.owner != letter.from => {
                Err(LetterError(format!("the region of {} from {}", key.owner, letter.from)))
            }
            _ => Ok(letter),
        }
    }
}

impl driver::Frame for Letter {
    type Error = LetterError;

    fn decode(message: &Message) -> Result<Letter, LetterError> {
        Letter::decode(&message.body)
    }

    fn sender(&self) -> Incarnation {
        self.from
    }

    fn view(&self) -> Option<ViewNumber> {
        Some(self.view)
    }
}

impl Layout {
    /// Bytes of the whole region.
    pub fn bytes(&self) -> u64 {
        self.table_bytes.saturating_add(u64::from(self.units) * crate::UNIT_BYTES as u64)
    }

    fn fits(&self, key: &RegionKey) -> bool {
        self.table_bytes.is_multiple_of(8) && self.bytes() <= key.bytes
    }
}

#[cfg(test)]
mod tests {
    use verbena_fabric::Rights;

    use super::*;
    use crate::table::Entry;
    use crate::{Ask, Expect, Place, Verdict, Version, Wanted};

    fn letters() -> Vec<Letter> {
        let (view, from) = (ViewNumber(7), Incarnation::new(3, 2));
        let place = Place::new(u64::MAX, from.rank, 12, 34);
        let ask = Ask {
            id: 1,
            serial: 2,
            hash: 3,
            expect: Expect::AbsentOr(vec![Version(4)]),
            wanted: Wanted::Install(place),
        };
        let entries = vec![(u64::MAX, Entry { version: Version(u64::MAX), place }); MOST_ENTRIES];
        let verdict = Verdict::Done { version: Version(5), was_there: true };
        let said = [
            Said::Frame(Frame::Ask(ask)),
            Said::Frame(Frame::Verdict { id: 1, serial: 2, verdict }),
            Said::Numbered(9, Frame::HandOver(entries)),
            Said::Heard(9),
        ];
        said.map(|said| Letter { view, from, said }).to_vec()
    }

    #[test]
    fn letters_are_read_as_they_were_written() {
        for letter in letters() {
            let bytes = letter.encode();
            assert!(bytes.len() <= MAX_LETTER_BYTES, "{}", bytes.len());
            assert_eq!(Letter::decode(&bytes).unwrap(), letter);
            for cut in (0..bytes.len()).step_by(7) {
                assert!(Letter::decode(&bytes[..cut]).is_err());
            }
        }
        assert!(Letter::decode(&vec![0; MAX_LETTER_BYTES + 1]).is_err());
    }

    #[test]
    fn a_region_that_its_key_does_not_reach_is_refused() {
        let from = Incarnation::new(3, 2);
        let world = verbena_fabric::RegionKey {
            owner: from,
            region: 1,
            view: ViewNumber(0),
            bytes: 4096 + 160,
            rights: Rights::Read,
            secret: serde_secret(),
        };
        let said = |units, key: &RegionKey| Letter {
            view: ViewNumber(1),
            from,
            said: Said::Region { key: key.clone(), layout: Layout { table_bytes: 4096, units }, asks: false },
        };
        assert!(Letter::decode(&said(10, &world).encode()).is_ok());
        assert!(Letter::decode(&said(11, &world).encode()).is_err(), "objects behind the end");
        let other = RegionKey { owner: Incarnation::new(4, 1), ..world };
        assert!(Letter::decode(&said(10, &other).encode()).is_err(), "another node's region");
    }

    /// Two secrets of 0, as a letter has them.
    fn serde_secret() -> verbena_fabric::Secret {
        postcard::from_bytes(&[0; 64]).unwrap()
    }
}
