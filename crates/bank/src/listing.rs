//! A directory as a bank holds it: its names, with attributes and the targets of links (rule B16).
//!
//! ```text
//!  listing = | taken: 16 | flags: 1 | version: 40, if there is one | count: 4 | entry | entry | ..      little endian
//!  entry   = | name | number: 8 | mode: 4 | parts: 1 | born: 12, if known | attributes: 84, if any | target, if any | extended, if known |
//!  name, target, extended = | bytes: 2 | .. |
//! ```
//!
//! A listing takes one block or several. The first, the *head*, stands under a name that readers can find; the others stand under a mark that the
//! head gives, made anew for each listing. So blocks of two writers are never one listing.
//!
//! ```text
//!  head = | mark: 16 | bytes of the listing: 8 | its first bytes |
//! ```

use crate::{BlockKey, BlockSize, FileKey, Rules, Stamp, Time};

/// What a file system says of a file, beside its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Kind and permissions.
    pub mode: u32,
    /// Its names.
    pub links: u64,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What device it is, if it is one.
    pub device: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Bytes of a transfer that suits the file system.
    pub block_size: u32,
    /// Last access: seconds since 1970, and nanoseconds.
    pub accessed: (i64, u32),
    /// Last change of its bytes.
    pub modified: (i64, u32),
    /// Last change of anything.
    pub changed: (i64, u32),
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    /// The name, of any bytes.
    pub name: Vec<u8>,
    /// The file's number.
    pub number: u64,
    /// When the file was made: seconds since 1970, and nanoseconds. No other file has had this number and this time, nor will have. Absent where that is not sure.
    pub born: Option<(i64, u32)>,
    /// Its kind, as the upper bits of a mode.
    pub kind: u32,
    /// What else is known of it.
    pub attributes: Option<Attributes>,
    /// Where it leads, if it is a link and that was read.
    pub target: Option<Vec<u8>>,
    /// The names of its extended attributes, each with a 0 behind it, if they were asked for.
    pub extended: Option<Vec<u8>>,
}

/// All names of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// From before the file system was asked, in nanoseconds since the machine started.
    pub taken: Time,
    /// The version of the directory from before the names were read, where it counts by that.
    pub version: Option<Stamp>,
    /// Whether a name that is not among these leads to nothing. There are directories that find names in other letters, and names that they do not list.
    pub lists_all: bool,
    entries: Vec<NameEntry>,
}

/// The first block of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingHead {
    mark: [u8; 16],
    bytes: u64,
    first: Vec<u8>,
}

impl Listing {
    /// Bytes of the largest listing that goes into a bank.
    pub const MOST: usize = 16 << 20;
    const HEAD_BYTES: usize = 24;
    const HAS_VERSION: u8 = 1;
    const LISTS_ALL: u8 = 2;

    /// Of these names, in any order, which may not be all that are found.
    pub fn new(taken: Time, version: Option<Stamp>, mut entries: Vec<NameEntry>) -> Self {
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries.dedup_by(|one, other| one.name == other.name);
        Listing { taken, version, lists_all: false, entries }
    }

    /// All names, in order.
    pub fn entries(&self) -> &[NameEntry] {
        &self.entries
    }

    /// The entry with this name.
    pub fn entry(&self, name: &[u8]) -> Option<&NameEntry> {
        let at = self.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).ok()?;
        self.entries.get(at)
    }

    /// Under which its head stands: one for each version, or one for the directory with whatever version.
    pub fn head_key(directory: &[u8], version: Option<Stamp>, size: BlockSize, rules: Rules) -> BlockKey {
        let version = version.map_or_else(|| b"timed".to_vec(), |version| version.bytes().to_vec());
        Self::file(directory, &version, rules).block(size, 0).of_listing()
    }

    /// No file's identity begins so.
    fn file(directory: &[u8], version: &[u8], rules: Rules) -> FileKey {
        FileKey::new(&[b"listing", directory].concat(), version, rules)
    }

    /// Its blocks, head first. `mark` was never used before.
    pub fn blocks(
        &self,
        directory: &[u8],
        version: Option<Stamp>,
        mark: [u8; 16],
        size: BlockSize,
        rules: Rules,
    ) -> Vec<(BlockKey, Vec<u8>)> {
        let bytes = self.bytes();
        let room = size.bytes() as usize;
        let (first, rest) = bytes.split_at(bytes.len().min(room - Self::HEAD_BYTES));
        let head = [&mark[..], &(bytes.len() as u64).to_le_bytes(), first].concat();
        let file = Self::file(directory, &mark, rules);
        let rest = (1..).zip(rest.chunks(room)).map(|(nth, part)| (file.block(size, nth).of_listing(), part.to_vec()));
        std::iter::once((Self::head_key(directory, version, size, rules), head)).chain(rest).collect()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + 160 * self.entries.len());
        bytes.extend(self.taken.to_le_bytes());
        let has_version = if self.version.is_some() { Self::HAS_VERSION } else { 0 };
        bytes.push(has_version | if self.lists_all { Self::LISTS_ALL } else { 0 });
        bytes.extend(self.version.iter().flat_map(Stamp::bytes));
        bytes.extend((self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            entry.put(&mut bytes);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut left = Left(bytes);
        let taken = Time::from_le_bytes(left.take()?);
        let [flags] = left.take()?;
        let version = if flags & Self::HAS_VERSION == 0 { None } else { Some(Stamp::from_bytes(&left.take()?)) };
        let count = u32::from_le_bytes(left.take()?);
        let entries: Option<Vec<NameEntry>> = (0..count).map(|_| NameEntry::get(&mut left)).collect();
        let is_whole = left.0.is_empty();
        let entries = entries.filter(|entries| is_whole && entries.is_sorted_by(|one, other| one.name < other.name))?;
        Some(Listing { taken, version, lists_all: flags & Self::LISTS_ALL != 0, entries })
    }
}

impl ListingHead {
    /// What a first block says.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut left = Left(block);
        let mark = left.take()?;
        let bytes = u64::from_le_bytes(left.take()?);
        let fits = bytes <= Listing::MOST as u64 && left.0.len() as u64 <= bytes;
        fits.then(|| ListingHead { mark, bytes, first: left.0.to_vec() })
    }

    /// The blocks behind it.
    pub fn rest(&self, directory: &[u8], size: BlockSize, rules: Rules) -> Vec<BlockKey> {
        let file = Listing::file(directory, &self.mark, rules);
        let count = (self.bytes - self.first.len() as u64).div_ceil(size.bytes().into());
        (1..=count).map(|nth| file.block(size, nth).of_listing()).collect()
    }

    /// The listing, with the blocks behind the head in their order.
    pub fn listing<'a>(self, rest: impl IntoIterator<Item = &'a [u8]>) -> Option<Listing> {
        let mut bytes = self.first;
        rest.into_iter().for_each(|part| bytes.extend(part));
        if bytes.len() as u64 == self.bytes { Listing::parse(&bytes) } else { None }
    }
}

impl NameEntry {
    const HAS_ATTRIBUTES: u8 = 1;
    const HAS_TARGET: u8 = 2;
    const HAS_EXTENDED: u8 = 4;
    const HAS_BORN: u8 = 8;

    /// Bytes that it takes in a listing, and not many more in memory.
    pub fn bytes(&self) -> usize {
        let length = |text: &Option<Vec<u8>>| text.as_ref().map_or(0, Vec::len);
        200 + self.name.len() + length(&self.target) + length(&self.extended)
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, &self.name);
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.kind.to_le_bytes());
        let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
        bytes.push(
            flag(self.attributes.is_some(), Self::HAS_ATTRIBUTES)
                | flag(self.target.is_some(), Self::HAS_TARGET)
                | flag(self.extended.is_some(), Self::HAS_EXTENDED)
                | flag(self.born.is_some(), Self::HAS_BORN),
        );
        if let Some((seconds, nanoseconds)) = self.born {
            bytes.extend(seconds.to_le_bytes());
            bytes.extend(nanoseconds.to_le_bytes());
        }
        if let Some(told) = &self.attributes {
            for four in [told.mode, told.uid, told.gid, told.block_size] {
                bytes.extend(four.to_le_bytes());
            }
            for eight in [told.links, told.device, told.size, told.blocks] {
                bytes.extend(eight.to_le_bytes());
            }
            for (seconds, nanoseconds) in [told.accessed, told.modified, told.changed] {
                bytes.extend(seconds.to_le_bytes());
                bytes.extend(nanoseconds.to_le_bytes());
            }
        }
        for text in [&self.target, &self.extended].into_iter().flatten() {
            put_text(bytes, text);
        }
    }

    fn get(left: &mut Left<'_>) -> Option<Self> {
        let name = left.text()?;
        let number = left.eight()?;
        let kind = left.four()?;
        let [parts] = left.take()?;
        let born = if parts & Self::HAS_BORN == 0 { None } else { Some(left.moment()?) };
        let attributes = if parts & Self::HAS_ATTRIBUTES == 0 { None } else { Some(left.attributes()?) };
        let target = if parts & Self::HAS_TARGET == 0 { None } else { Some(left.text()?) };
        let extended = if parts & Self::HAS_EXTENDED == 0 { None } else { Some(left.text()?) };
        Some(NameEntry { name, number, born, kind, attributes, target, extended })
    }
}

/// Neither a name nor the target of a link is longer than 4,096 bytes.
fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
}

/// Bytes that are not read yet.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, left) = self.0.split_first_chunk::<N>()?;
        self.0 = left;
        Some(*taken)
    }

    fn four(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn eight(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(u16::from_le_bytes(self.take()?));
        let (text, left) = self.0.split_at_checked(length)?;
        self.0 = left;
        Some(text.to_vec())
    }

    fn moment(&mut self) -> Option<(i64, u32)> {
        Some((i64::from_le_bytes(self.take()?), self.four()?))
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let (mode, uid, gid, block_size) = (self.four()?, self.four()?, self.four()?, self.four()?);
        let (links, device, size, blocks) = (self.eight()?, self.eight()?, self.eight()?, self.eight()?);
        let (accessed, modified, changed) = (self.moment()?, self.moment()?, self.moment()?);
        Some(Attributes { mode, links, uid, gid, device, size, blocks, block_size, accessed, modified, changed })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(nth: u32) -> NameEntry {
        let time = (-5 - i64::from(nth), nth);
        let attributes = Attributes {
            mode: 0o100_644,
            links: 1,
            uid: nth,
            gid: 2,
            device: 3,
            size: u64::MAX - u64::from(nth),
            blocks: 4,
            block_size: 4096,
            accessed: time,
            modified: (7, 8),
            changed: (9, 10),
        };
        NameEntry {
            name: format!("name {nth}").into_bytes(),
            number: u64::from(nth) << 33,
            born: nth.is_multiple_of(7).then_some((1 << 40, nth)),
            kind: 0o100_000,
            attributes: (!nth.is_multiple_of(3)).then_some(attributes),
            target: nth.is_multiple_of(2).then(|| vec![b't'; nth as usize]),
            extended: nth.is_multiple_of(5).then(|| b"user.a\0".to_vec()),
        }
    }

    fn listing(count: u32) -> Listing {
        let version = Stamp { modified: 1, changed: 2, size: 3 };
        Listing::new(-4, Some(version), (0..count).rev().map(entry).collect())
    }

    fn read(blocks: &[(BlockKey, Vec<u8>)], size: BlockSize) -> Option<Listing> {
        let head = ListingHead::parse(&blocks[0].1)?;
        let keys = head.rest(b"d", size, Rules::default());
        assert!(keys.iter().eq(blocks[1..].iter().map(|(key, _)| key)));
        head.listing(blocks[1..].iter().map(|(_, bytes)| bytes.as_slice()))
    }

    #[test]
    fn a_listing_reads_as_it_was_written_from_one_block_or_many() {
        let size = BlockSize::new(256).unwrap();
        for count in [0, 1, 2, 300] {
            let listing = listing(count);
            let blocks = listing.blocks(b"d", None, [1; 16], size, Rules::default());
            assert!(blocks.iter().all(|(_, bytes)| bytes.len() <= 256));
            assert_eq!(blocks[0].0, Listing::head_key(b"d", None, size, Rules::default()));
            assert_eq!(read(&blocks, size).unwrap(), listing);
            assert!((0..count).all(|nth| listing.entry(&entry(nth).name) == Some(&entry(nth))));
            assert_eq!(listing.entry(b"none"), None);
        }
        let plain = Listing { version: None, lists_all: true, ..listing(5) };
        assert_eq!(read(&plain.blocks(b"d", None, [1; 16], size, Rules::default()), size).unwrap(), plain);
    }

    #[test]
    fn blocks_of_two_listings_are_told_apart_by_their_mark() {
        let size = BlockSize::new(256).unwrap();
        let keys = |directory: &[u8], version, mark| {
            let blocks = listing(20).blocks(directory, version, [mark; 16], size, Rules::default());
            blocks.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        let (one, two) = (keys(b"d", None, 1), keys(b"d", None, 2));
        assert_eq!(one[0], two[0], "the later one replaces the earlier");
        assert!(one[1..].iter().all(|key| !two.contains(key)));
        let version = Some(Stamp { modified: 1, changed: 1, size: 1 });
        assert!(keys(b"d", version, 1)[0] != one[0] && keys(b"e", None, 1)[0] != one[0]);
    }

    proptest! {
        #[test]
        fn nothing_that_is_cut_or_turned_is_read_beyond_its_end(at in 0_usize..4000, turn in 1_u8.., cut in 0_usize..4000) {
            let size = BlockSize::new(4096).unwrap();
            let mut head = listing(20).blocks(b"d", None, [1; 16], size, Rules::default())[0].1.clone();
            let length = head.len();
            head[at % length] ^= turn;
            head.truncate(length - cut % 50);
            if let Some(head) = ListingHead::parse(&head) {
                _ = head.listing([]);
            }
        }
    }
}
