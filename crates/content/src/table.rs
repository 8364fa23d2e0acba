//! The two regions of the page protocol: the home's page table and the updater's acknowledgement words.
//!
//! ```text
//! page table: one at each home, written by the home alone, read by every proxy
//!
//!    0  +--------------------------------+
//!       | header "VPGW", version 3       |
//!    8  | incarnation of the home        |   [rank : 32 | start : 32]
//!   16  | slots, a power of two          |
//!   24  | fingerprint of the names' key  |
//!   32  | 0                              |
//!   64  +--------------------------------+
//!       | everything                     |   [generation : 63 | busy : 1]
//!   72  | clock                          |   movements at this home, but for those of everything
//!   80  | purge                          |   [generation : 63 | busy : 1]
//!   88  | hard word of the purge word    |   generation of the last hard purge of all
//!   96  | change word of the purge word  |   generation of the last update of all that was not soft
//!  104  | 0                              |
//!  128  +--------------------------------+
//!       | page word 0                    |   [generation : 63 | busy : 1]
//!       | ...                            |
//!       +--------------------------------+
//!       | hard word of page word 0       |   generation of its last hard purge
//!       | change word of page word 0     |   generation of its last update that was not soft
//!       | ...                            |
//!       +--------------------------------+
//!
//! acknowledgements: one region at each updater, each word written by one home
//!
//!    0  +--------------------------------+
//!       | header "VACK", version 1       |
//!    8  | incarnation of the updater     |
//!   16  | words                          |
//!   24  | 0                              |
//!   64  +--------------------------------+
//!       | word 0                         |   [view : 32 | k : 32]
//!       | ...                            |
//!       +--------------------------------+
//! ```
//!
//! All are little-endian words of 8 bytes on 8-byte boundaries.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_terms::{Format, FormatError, Incarnation, ViewNumber};

use crate::names::PageId;

/// What stands first in a page table.
pub const PAGE_TABLE: Format = Format::new(*b"VPGW", 3);
/// What stands first in a region of acknowledgements.
pub const ACKNOWLEDGEMENTS: Format = Format::new(*b"VACK", 1);
/// Words of a page table that a proxy reads to [`check`](PageTable::check) it.
pub const PAGE_TABLE_HEADER_WORDS: usize = 4;

const EVERYTHING: u64 = 64;
const CLOCK: u64 = 72;
const PURGE: u64 = 80;
const LAST_CHANGES: u64 = 88;
const PAGES: u64 = 128;
const WORDS: u64 = 64;

/// A page word, the everything word or the purge word: `[generation : 63 | busy : 1]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(pub u64);

impl Word {
    /// This generation, busy or not.
    pub const fn new(generation: u64, busy: bool) -> Word {
        Word(generation << 1 | busy as u64)
    }

    /// How often it was bumped, counted from where its home began. Only grows.
    pub const fn generation(self) -> u64 {
        self.0 >> 1
    }

    /// Whether an update that touches it is open.
    pub const fn is_busy(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Where the words of one home's page table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageTable {
    home: Incarnation,
    slots: u64,
    names: u64,
}

/// Why a region is not the page table that was expected. The pages of that home then come from the origin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// It is another layout.
    #[error("page table of home {home}: {source}; run the same release on every node")]
    Format {
        /// The home that was expected.
        home: Incarnation,
        /// What stands there.
        source: FormatError,
    },
    /// The table belongs to another home, or to another incarnation of it.
    #[error("page table of home {expected} says that it belongs to {found}; it is being replaced, ask the home again")]
    Home {
        /// The home that was expected.
        expected: Incarnation,
        /// The home that the table names.
        found: Incarnation,
    },
    /// The number of slots is no power of two, or not what the region can hold.
    #[error("page table of home {home} has {slots} slots, which is no power of two up to 2^32")]
    Slots {
        /// The home of the table.
        home: Incarnation,
        /// What it says.
        slots: u64,
    },
    /// Its names are hashed under another key.
    #[error("home {home} hashes names under another key; give every node the same key file")]
    Names {
        /// The home of the table.
        home: Incarnation,
    },
}

impl PageTable {
    /// The table of `slots` page words at `home`, rounded up to a power of two.
    pub fn new(home: Incarnation, slots: u32, names_fingerprint: u64) -> Self {
        PageTable { home, slots: u64::from(slots.max(1)).next_power_of_two(), names: names_fingerprint }
    }

    /// Checks the first words of a region read from `home` (rule F6).
    pub fn check(
        home: Incarnation,
        header: [u64; PAGE_TABLE_HEADER_WORDS],
        names_fingerprint: u64,
    ) -> Result<Self, TableError> {
        let [format, incarnation, slots, names] = header;
        PAGE_TABLE.check_word(format).map_err(|source| TableError::Format { home, source })?;
        let found = Incarnation::from_word(incarnation);
        if found != home {
            return Err(TableError::Home { expected: home, found });
        }
        if !slots.is_power_of_two() || slots > 1 << 32 {
            return Err(TableError::Slots { home, slots });
        }
        if names != names_fingerprint {
            return Err(TableError::Names { home });
        }
        Ok(PageTable { home, slots, names })
    }

    /// The words that [`check`](Self::check) wants to see, to be written first.
    pub fn header(&self) -> [u64; PAGE_TABLE_HEADER_WORDS] {
        [PAGE_TABLE.word(), self.home.to_word(), self.slots, self.names]
    }

    /// The home that owns the table.
    pub fn home(&self) -> Incarnation {
        self.home
    }

    /// How many page words it has.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Bytes of the region.
    pub fn region_bytes(&self) -> u64 {
        PAGES + 3 * 8 * self.slots
    }

    /// Which page word belongs to the page. Pages may share one: it costs each other needless misses, nothing else.
    #[inline]
    pub fn slot(&self, page: PageId) -> u64 {
        page.0 & (self.slots - 1)
    }

    /// Byte offset of the page's word.
    #[inline]
    pub fn page_offset(&self, page: PageId) -> u64 {
        self.slot_offset(self.slot(page))
    }

    /// Byte offset of the page word in this slot.
    #[inline]
    pub fn slot_offset(&self, slot: u64) -> u64 {
        debug_assert!(slot < self.slots);
        PAGES + 8 * slot
    }

    /// Byte offsets of the hard word and the change word of the page word in this slot (rule H3).
    #[inline]
    pub fn slot_last_change_offsets(&self, slot: u64) -> [u64; 2] {
        debug_assert!(slot < self.slots);
        let hard = PAGES + 8 * self.slots + 16 * slot;
        [hard, hard + 8]
    }

    /// Byte offsets of the hard word and the change word of the purge word.
    pub const fn last_change_of_all_offsets() -> [u64; 2] {
        [LAST_CHANGES, LAST_CHANGES + 8]
    }

    /// Byte offsets of the hard words and change words that a page's copies are compared with: its own two, and those of all.
    #[inline]
    pub fn last_change_offsets(&self, page: PageId) -> [u64; 4] {
        let [hard, changed] = self.slot_last_change_offsets(self.slot(page));
        let [all_hard, all_changed] = PageTable::last_change_of_all_offsets();
        [hard, changed, all_hard, all_changed]
    }

    /// Byte offset of the everything word.
    pub const fn everything_offset() -> u64 {
        EVERYTHING
    }

    /// Byte offset of the purge word, which moves when every copy is purged (rule H1).
    pub const fn purge_offset() -> u64 {
        PURGE
    }

    /// Byte offset of the clock word.
    pub const fn clock_offset() -> u64 {
        CLOCK
    }
}

/// How far one home has handled one updater's messages: `[view : 32 | k : 32]` (rule P3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Acknowledged {
    /// The view that the messages belong to.
    pub view: ViewNumber,
    /// The last of them that was handled.
    pub k: u32,
}

impl Acknowledged {
    /// As the word that the home writes.
    pub const fn to_word(self) -> u64 {
        (self.view.0 as u64) << 32 | self.k as u64
    }

    /// The inverse of [`to_word`](Self::to_word).
    pub const fn from_word(word: u64) -> Self {
        Acknowledged { view: ViewNumber((word >> 32) as u32), k: word as u32 }
    }
}

/// Where an updater's acknowledgement words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcknowledgementWords {
    updater: Incarnation,
    words: u32,
}

impl AcknowledgementWords {
    /// `words` words, one for each home that can be in a view at once.
    pub fn new(updater: Incarnation, words: u32) -> Self {
        AcknowledgementWords { updater, words }
    }

    /// The words to be written first (rule F6).
    pub fn header(&self) -> [u64; 3] {
        [ACKNOWLEDGEMENTS.word(), self.updater.to_word(), u64::from(self.words)]
    }

    /// Bytes of the region.
    pub fn region_bytes(&self) -> u64 {
        WORDS + 8 * u64::from(self.words)
    }

    /// Byte offset of a word, or `None` if there is no such word.
    pub fn offset(&self, word: u32) -> Option<u64> {
        (word < self.words).then_some(WORDS + 8 * u64::from(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Incarnation = Incarnation::new(2, 9);

    #[test]
    fn a_table_is_known_by_its_header() {
        let table = PageTable::new(HOME, 1000, 77);
        assert_eq!(table.slots(), 1024);
        assert_eq!(table.region_bytes(), 128 + 3 * 8 * 1024);
        let last = 128 + 8 * 1024 + 16;
        assert_eq!(table.last_change_offsets(PageId(1025)), [last, last + 8, 88, 96]);
        assert_eq!(PageTable::check(HOME, table.header(), 77), Ok(table));
        assert_eq!(table.page_offset(PageId(1025)), 136);
    }

    #[test]
    fn what_is_not_the_table_is_refused_by_name() {
        let table = PageTable::new(HOME, 8, 77);
        let with = |at: usize, word: u64| {
            let mut header = table.header();
            header[at] = word;
            PageTable::check(HOME, header, 77).unwrap_err().to_string()
        };
        assert!(with(0, 0).contains("VPGW"));
        let newer = Format { version: PAGE_TABLE.version + 1, ..PAGE_TABLE };
        let both = format!("has version {}, this program speaks version {}", newer.version, PAGE_TABLE.version);
        assert!(with(0, newer.word()).contains(&both), "{}", with(0, newer.word()));
        assert!(with(1, Incarnation::new(2, 8).to_word()).contains("belongs to 2.8"));
        assert!(with(2, 12).contains("12 slots"));
        assert!(with(2, 0).contains("0 slots"));
        assert!(with(3, 78).contains("key file"));
    }

    #[test]
    fn words_hold_what_was_put_in() {
        let word = Word::new(5, true);
        assert_eq!((word.generation(), word.is_busy(), word.0), (5, true, 11));
        let acknowledged = Acknowledged { view: ViewNumber(3), k: u32::MAX };
        assert_eq!(Acknowledged::from_word(acknowledged.to_word()), acknowledged);
        assert_eq!(acknowledged.to_word(), 0x0000_0003_ffff_ffff);
        let words = AcknowledgementWords::new(HOME, 2);
        assert_eq!((words.offset(1), words.offset(2), words.region_bytes()), (Some(72), None, 80));
    }
}
