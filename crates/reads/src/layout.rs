//! The region of a relay: where its words are.
//!
//! ```text
//!    0  +--------------------------------+
//!       | header "VRLG", version 1       |
//!    8  | incarnation of the relay       |   [rank : 32 | start : 32]
//!   16  | words of the ring              |   a power of two
//!   24  | fingerprint of the names' key  |
//!   32  | promises                       |   bit 0: pages are made of the database alone
//!   40  | 0                              |
//!   64  +--------------------------------+
//!       | epoch                          |   odd while reads are recorded
//!   72  | moment                         |   counts statements that may begin a transaction
//!   80  | written                        |   position behind the last entry that is whole
//!   88  | 0                              |
//!  128  +--------------------------------+
//!       | tag 0                          |   of a request that is open, written by its proxy; 0: none
//!       | ...                            |   4096 of them
//! 32896 +--------------------------------+
//!       | word 0 of the ring             |
//!       | ...                            |
//!       +--------------------------------+
//! ```
//!
//! All are little-endian words of 8 bytes. A *position* counts words of the ring since the relay's incarnation began; its word is at `position mod words`. The relay stores
//! `written` after the last word of an entry. A reader reads `written` and then the words, in this order in one batch (rule F1). The ring may come round meanwhile: an entry
//! says at both ends at which position it stands.
//!
//! Tags are written by proxies and read by the relay, all else the other way round. Two tags may share a word: then the one that was there counts as closed, which is safe (rule Q3).

use verbena_terms::{Format, Incarnation};

/// What stands first.
pub const READ_LOG: Format = Format::new(*b"VRLG", 1);
/// Words of the ring of a relay: 1 MiB.
pub const RING_WORDS: u64 = 128 << 10;
/// Words for tags, a power of two.
pub const TAGS: u64 = 4096;
/// Words that are read to [check](Layout::check) a region.
pub const HEADER_WORDS: usize = 5;

/// Odd while reads are recorded.
pub const EPOCH_AT: u64 = 64;
/// Counts moments.
pub const MOMENT_AT: u64 = 72;
/// Behind the last entry that is whole.
pub const WRITTEN_AT: u64 = 80;

const TAGS_AT: u64 = 128;
const RING_AT: u64 = TAGS_AT + 8 * TAGS;
const IS_COMPLETE: u64 = 1;

/// Where the words of one relay's region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whose it is.
    pub owner: Incarnation,
    /// Words of its ring.
    pub ring_words: u64,
    /// What two nodes compare to know that their names are hashed under one key.
    pub names: u64,
    /// The relay's configuration promises that pages are made of the database alone.
    pub is_complete: bool,
}

impl Layout {
    /// Checks the first words of a region that was opened by `owner`'s key.
    ///
    /// # Errors
    /// Why its log cannot be read.
    pub fn check(owner: Incarnation, header: [u64; HEADER_WORDS], names: u64, bytes: u64) -> Result<Layout, String> {
        let [format, incarnation, ring_words, fingerprint, promises] = header;
        READ_LOG.check_word(format).map_err(|error| error.to_string())?;
        let found = Incarnation::from_word(incarnation);
        if found != owner {
            return Err(format!("the log of {found}, not of {owner}"));
        }
        if fingerprint != names {
            return Err("names are hashed under another key; give every node the same key file".into());
        }
        let layout = Layout { owner, ring_words, names, is_complete: promises & IS_COMPLETE != 0 };
        if !ring_words.is_power_of_two() || ring_words > 1 << 32 || layout.bytes() > bytes {
            return Err(format!("a ring of {ring_words} words in {bytes} bytes"));
        }
        Ok(layout)
    }

    /// The words that [`check`](Self::check) wants to see, to be written first.
    pub fn header(&self) -> [u64; HEADER_WORDS] {
        let promises = if self.is_complete { IS_COMPLETE } else { 0 };
        [READ_LOG.word(), self.owner.to_word(), self.ring_words, self.names, promises]
    }

    /// Bytes of the region.
    pub fn bytes(&self) -> u64 {
        RING_AT + 8 * self.ring_words
    }

    /// Byte offset of the word at a position.
    pub fn at(&self, position: u64) -> u64 {
        RING_AT + 8 * (position & (self.ring_words - 1))
    }

    /// Words from a position to the end of the ring's memory.
    pub fn until_wrap(&self, position: u64) -> u64 {
        self.ring_words - (position & (self.ring_words - 1))
    }

    /// Byte offset of the word that a tag has.
    pub const fn tag_at(tag: u64) -> u64 {
        TAGS_AT + 8 * (tag & (TAGS - 1))
    }

    /// Byte offsets of all words for tags.
    pub fn tags() -> impl Iterator<Item = u64> {
        (0..TAGS).map(Layout::tag_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_known_by_its_header() {
        let owner = Incarnation::new(3, 2);
        let layout = Layout { owner, ring_words: 64, names: 7, is_complete: true };
        let check = |header, names, bytes| Layout::check(owner, header, names, bytes);
        assert_eq!(check(layout.header(), 7, layout.bytes()), Ok(layout));
        assert_eq!((layout.at(63), layout.at(64), layout.until_wrap(63)), (RING_AT + 504, RING_AT, 1));
        let with = |at: usize, word| {
            let mut header = layout.header();
            header[at] = word;
            check(header, 7, layout.bytes()).unwrap_err()
        };
        assert!(with(0, 0).contains("VRLG"));
        assert!(with(1, Incarnation::new(3, 1).to_word()).contains("the log of 3.1"));
        assert!(with(2, 65).contains("65 words") && with(2, 128).contains("128 words"));
        assert!(check(layout.header(), 8, layout.bytes()).unwrap_err().contains("key file"));
    }
}
