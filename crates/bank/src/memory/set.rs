//! How blocks stand in a segment, and which one a writer replaces.
//!
//! ```text
//!  segment = sets, one after the other
//!  set     = | entry 0 | .. | entry n-1 | slot 0 | .. | slot n-1 |       most slots for whole blocks, four times as many for small ends of files
//!  entry   = | tag: 8 | item's bytes: 4 | stored: 4 |                    little endian; a tag of 0 says that the slot is empty
//! ```
//!
//! A reader reads the entries of one set, then the slot with its tag. Nothing orders it with writers: an entry may be torn, and a
//! slot may hold half of another item. The envelope in the slot proves itself (rule B2), so both are misses. Two writers that choose one
//! slot cost one of their items. The writer alone chooses: a slot with the same tag, else an empty one, else the one stored longest ago.

use std::hash::Hasher;
use std::ops::Range;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{BlockSize, Envelope, Name};

/// Bytes of an entry.
const ENTRY: u64 = 16;
/// Slots begin at whole words, as one-sided copies are fastest there.
const ALIGN: u64 = 64;
/// Small slots beside each large one.
const SMALL_PER_LARGE: u64 = 4;
/// Large slots of a set, where the segment has room for them.
const LARGE: u64 = 8;

/// What a name decides: its segment, its set, and the tag that stands there for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    segment: u64,
    set: u64,
    pub(crate) tag: u64,
}

/// One item as an entry tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tag: u64,
    pub(crate) bytes: u32,
    /// Seconds since 1970, by the writer's clock.
    pub(crate) stored: u32,
}

/// How one segment is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    sets: u64,
    large: u64,
    small: u64,
    large_bytes: u64,
    small_bytes: u64,
}

impl Seat {
    pub(crate) fn of(name: &Name) -> Self {
        let mut hasher = SipHasher13::new();
        hasher.write(name.bytes());
        let hash = hasher.finish128();
        Seat { segment: hash.h1, set: hash.h2 >> 32, tag: hash.h1.rotate_left(32) ^ hash.h2 | 1 }
    }

    /// The segment among `count`. One more segment takes its own share from the others, and moves nothing among them (jump hash of Lamping and Veach).
    pub(crate) fn segment(&self, count: usize) -> usize {
        let (mut key, mut found, mut next) = (self.segment, 0, 0_u64);
        while next < count as u64 {
            found = next;
            key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            next = ((found + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
        }
        found as usize
    }
}

impl Entry {
    fn read(sixteen: &[u8]) -> Self {
        let number = |range: Range<usize>| {
            sixteen.get(range).unwrap_or_default().iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Entry { tag: number(0..8), bytes: number(8..12) as u32, stored: number(12..16) as u32 }
    }

    pub(crate) fn bytes(&self) -> [u8; ENTRY as usize] {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..].copy_from_slice(&self.stored.to_le_bytes());
        bytes
    }
}

impl Geometry {
    /// Bytes of a key that fit a slot with a whole block. A block with a longer one is not stored.
    const KEY_ROOM: usize = 320;

    /// Of a segment for blocks of this size; nothing if it has no room for one.
    pub(crate) fn new(segment: u64, block: BlockSize) -> Option<Self> {
        let slot = |bytes: u64| (bytes + Envelope::overhead(Self::KEY_ROOM) as u64).next_multiple_of(ALIGN);
        let block = u64::from(block.bytes());
        // Slots for small ends pay only where a block is much larger than what an envelope adds.
        let small = if block >= 8 << 10 { SMALL_PER_LARGE } else { 0 };
        let (large_bytes, small_bytes) = (slot(block), slot(block / 16));
        let unit = large_bytes + ENTRY + small * (small_bytes + ENTRY);
        let units = segment.checked_sub(ALIGN)? / unit;
        let sets = (units / LARGE).max(1);
        // The entries of a set are rounded up: this may cost its last slot.
        let fits = |large: &u64| {
            sets * Geometry { sets, large: *large, small: large * small, large_bytes, small_bytes }.set_bytes()
                <= segment
        };
        let large = (1..=units / sets).rev().find(fits)?;
        Some(Geometry { sets, large, small: large * small, large_bytes, small_bytes })
    }

    /// Whole blocks that it holds.
    pub(crate) fn blocks(&self) -> u64 {
        self.sets * self.large
    }

    /// Where the entries of a name's set are.
    pub(crate) fn entries(&self, seat: &Seat) -> Range<u64> {
        let at = seat.set % self.sets * self.set_bytes();
        at..at + (self.large + self.small) * ENTRY
    }

    /// Where the item of a name is, if the entries of its set say that there is one.
    pub(crate) fn find(&self, seat: &Seat, entries: &[u8]) -> Option<Range<u64>> {
        let mut ways = (0..).zip(entries.chunks_exact(ENTRY as usize).map(Entry::read));
        let (way, entry) = ways.find(|(_, entry)| entry.tag == seat.tag)?;
        let slot = self.slot(seat, way);
        // Entries may be torn: what they say is looked at first.
        let bytes = u64::from(entry.bytes);
        (bytes > 0 && bytes <= slot.end - slot.start).then(|| slot.start..slot.start + bytes)
    }

    /// Where the entry of a name stands, if there is one.
    pub(crate) fn entry(&self, seat: &Seat, entries: &[u8]) -> Option<u64> {
        let mut ways = (0..).zip(entries.chunks_exact(ENTRY as usize).map(Entry::read));
        let (way, _) = ways.find(|(_, entry)| entry.tag == seat.tag)?;
        Some(self.entries(seat).start + way * ENTRY)
    }

    /// Where an item of so many bytes goes, and where its entry stands; nothing if no slot is large enough.
    pub(crate) fn replace(&self, seat: &Seat, entries: &[u8], bytes: usize) -> Option<(u64, u64)> {
        let is_small = self.small > 0 && bytes as u64 <= self.small_bytes;
        if bytes as u64 > self.large_bytes {
            return None;
        }
        let ways = if is_small { self.large..self.large + self.small } else { 0..self.large };
        let entry = |way: u64| {
            let at = (way * ENTRY) as usize;
            Entry::read(entries.get(at..at + ENTRY as usize).unwrap_or_default())
        };
        // A file that grew or shrank has another version, and so another name: a tag never moves between the two kinds of slots.
        let way = ways.min_by_key(|way| match entry(*way) {
            found if found.tag == seat.tag => (0, 0),
            Entry { tag: 0, .. } => (1, 0),
            found => (2, found.stored),
        })?;
        Some((self.slot(seat, way).start, self.entries(seat).start + way * ENTRY))
    }

    fn slot(&self, seat: &Seat, way: u64) -> Range<u64> {
        let first = seat.set % self.sets * self.set_bytes() + self.head_bytes();
        let (at, bytes) = match way.checked_sub(self.large) {
            None => (way * self.large_bytes, self.large_bytes),
            Some(small) => (self.large * self.large_bytes + small * self.small_bytes, self.small_bytes),
        };
        first + at..first + at + bytes
    }

    fn head_bytes(&self) -> u64 {
        ((self.large + self.small) * ENTRY).next_multiple_of(ALIGN)
    }

    fn set_bytes(&self) -> u64 {
        self.head_bytes() + self.large * self.large_bytes + self.small * self.small_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FileKey, Rules, Secret};

    fn name(nth: u64) -> Name {
        let file = FileKey::new(b"file", b"1", Rules::default());
        file.block(BlockSize::default(), nth).name(&Secret::new([1; 32]))
    }

    fn geometry(segment: u64, block: u32) -> Option<Geometry> {
        Geometry::new(segment, BlockSize::new(block).unwrap())
    }

    /// A segment's entries and slots, written as a writer does it.
    struct Model(Geometry, Vec<u8>);

    impl Model {
        fn store(&mut self, nth: u64, bytes: usize, stored: u32) -> Option<u64> {
            let seat = Seat::of(&name(nth));
            let entries = self.0.entries(&seat);
            let (slot, at) = self.0.replace(&seat, &self.1[entries.start as usize..entries.end as usize], bytes)?;
            let entry = Entry { tag: seat.tag, bytes: bytes as u32, stored };
            self.1[at as usize..at as usize + 16].copy_from_slice(&entry.bytes());
            self.1[slot as usize..slot as usize + bytes].fill(nth as u8);
            Some(slot)
        }

        fn item(&self, nth: u64) -> Option<&[u8]> {
            let seat = Seat::of(&name(nth));
            let entries = self.0.entries(&seat);
            let found = self.0.find(&seat, &self.1[entries.start as usize..entries.end as usize])?;
            Some(&self.1[found.start as usize..found.end as usize])
        }
    }

    #[test]
    fn slots_fill_a_segment_and_stay_inside() {
        for (segment, block, least) in [
            (16 << 20, 256, 20_000),
            (16 << 20, 4096, 3500),
            (16 << 20, 65_536, 190),
            (16 << 20, 1 << 20, 12),
            (2 << 20, 65_536, 20),
        ] {
            let geometry = geometry(segment, block).unwrap();
            assert!(geometry.blocks() >= least, "{block}: {} blocks", geometry.blocks());
            assert!(geometry.sets * geometry.set_bytes() <= segment, "{geometry:?}");
            let seat = Seat { segment: 0, set: geometry.sets - 1, tag: 1 };
            assert!(geometry.slot(&seat, geometry.large + geometry.small - 1).end <= segment);
        }
        assert_eq!(geometry(64 << 10, 65_536), None);
        assert_eq!(geometry(0, 256), None);
    }

    #[test]
    fn a_writer_replaces_its_own_item_then_an_empty_slot_then_the_oldest() {
        // One set, so that all names meet.
        let geometry = geometry(600 << 10, 65_536).unwrap();
        assert_eq!((geometry.sets, geometry.large, geometry.small), (1, 7, 28));
        let mut model = Model(geometry, vec![0; 600 << 10]);
        let slots: Vec<_> = (0..7).map(|nth| model.store(nth, 60_000, 100 + nth as u32).unwrap()).collect();
        assert!(slots.iter().enumerate().all(|(at, slot)| !slots[..at].contains(slot)), "{slots:?}");
        assert_eq!(model.store(3, 60_000, 200), Some(slots[3]));
        assert_eq!(model.store(7, 60_000, 300), Some(slots[0]));
        assert_eq!(model.item(0), None);
        assert_eq!(model.item(7).unwrap(), [7; 60_000]);
        // Small ends of files have slots of their own.
        for nth in 100..128 {
            model.store(nth, 3000, 400).unwrap();
        }
        assert!((1..8).all(|nth| model.item(nth).is_some()));
        assert!((100..128).all(|nth| model.item(nth).is_some()));
        assert_eq!(model.store(9, 70_000, 500), None, "larger than any slot");
    }

    #[test]
    fn one_more_segment_takes_only_its_own_share() {
        let mut moved = 0;
        for nth in 0..4000 {
            let seat = Seat::of(&name(nth));
            let (four, five) = (seat.segment(4), seat.segment(5));
            assert!(four < 4 && (five == four || five == 4));
            moved += usize::from(five != four);
        }
        assert!((650..950).contains(&moved), "{moved} of 4,000 for a fifth");
        assert_eq!(Seat::of(&name(0)).segment(1), 0);
    }

    proptest! {
        #[test]
        fn torn_entries_name_nothing_outside_their_slots(entries in proptest::collection::vec(any::<u8>(), 0..800), nth in 0_u64..50, way in 0_usize..40, bytes in any::<u32>()) {
            let geometry = geometry(16 << 20, 65_536).unwrap();
            let seat = Seat::of(&name(nth));
            let mut entries = entries;
            if entries.len() >= (way + 1) * 16 {
                entries[way * 16..way * 16 + 8].copy_from_slice(&seat.tag.to_le_bytes());
                entries[way * 16 + 8..way * 16 + 12].copy_from_slice(&bytes.to_le_bytes());
            }
            if let Some(found) = geometry.find(&seat, &entries) {
                let slot = geometry.slot(&seat, way as u64);
                prop_assert!(found.start == slot.start && found.end <= slot.end && found.end <= 16 << 20);
            }
            if let Some((slot, at)) = geometry.replace(&seat, &entries, 5000) {
                prop_assert!(slot + 5000 <= 16 << 20 && geometry.entries(&seat).contains(&at));
            }
        }
    }
}
