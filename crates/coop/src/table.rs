//! A home's part of the key table: two words an entry, read by all, written by the home alone (rule K1).
//!
//! ```text
//!  word 0      1           2        3..8     8          4104             4112
//!  +-----------+-----------+--------+--------+----------+----------------+----------------+---
//!  | open view | geometry  | floor  |  0     | floors   | bucket 0       | bucket 1       |      a bucket: 4 x [version | place]
//!  +-----------+-----------+--------+--------+----------+----------------+----------------+---
//! ```
//!
//! A key has two buckets, and is in one of them. A reader posts one batch: the three words and both buckets, and its
//! tenant's floor among the 4,096 if it is of one. The entry names no key: the
//! home knows the hash of each of its entries, and the object names its key. So the reader tries every entry with its tag, and an entry that is
//! being moved or written while it is read costs a miss, never a wrong answer (rules K2, K4).
//!
//! The table grows while in use, bucket by bucket (linear hashing, Litwin 1980): the geometry word says how far. Memory for its largest size is
//! reserved at the start. A reader that went by an older geometry sees the new one in the same batch and reads again.

use serde::{Deserialize, Serialize};

use crate::place::{Place, tag_of};
use crate::tenant::{FLOORS, Tenant};
use crate::version::Version;

/// Slots of a bucket.
const SLOTS: usize = 4;
/// Words of a bucket: one cache line.
pub const BUCKET_WORDS: usize = 2 * SLOTS;
/// Words at the start.
pub const HEADER_WORDS: usize = 8;
const OPEN: usize = 0;
const GEOMETRY: usize = 1;
const FLOOR: usize = 2;
/// Where the first bucket begins.
const BUCKETS: usize = HEADER_WORDS + FLOORS;
/// How many entries may be moved to make room for one.
const MAX_MOVES: usize = 24;
/// Buckets that are divided for each entry that is put during a doubling.
const SPLITS: usize = 8;
/// Buckets that are divided at most for an entry that finds no room. Large tables have room long before.
const MAX_EXTRA_SPLITS: usize = 256;

/// An entry: the valid version of a key and where a copy of it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which value is valid.
    pub version: Version,
    /// Where a copy lies, perhaps.
    pub place: Place,
}

/// How many buckets there are: a power of two, and how many of them are divided already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry(pub u64);

impl Geometry {
    fn new(buckets: u32, divided: u32) -> Geometry {
        Geometry(u64::from(buckets) << 32 | u64::from(divided))
    }

    fn parts(self) -> (u32, u32) {
        ((self.0 >> 32) as u32, self.0 as u32)
    }

    /// Buckets in use.
    pub fn buckets(self) -> u32 {
        let (buckets, divided) = self.parts();
        buckets + divided
    }

    /// The two buckets of a key.
    pub fn buckets_of(self, hash: u64) -> [u32; 2] {
        [hash as u32, (hash >> 32) as u32 ^ (hash as u32).rotate_left(16)].map(|half| self.bucket(half))
    }

    fn bucket(self, half: u32) -> u32 {
        let (buckets, divided) = self.parts();
        if buckets == 0 {
            return 0;
        }
        let at = half & (buckets - 1);
        if at < divided { half & (2 * buckets - 1) } else { at }
    }

    /// Where the bucket stands in the table's words.
    pub fn word_of(bucket: u32) -> usize {
        BUCKETS + bucket as usize * BUCKET_WORDS
    }
}

/// What a reader got in one batch.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The words at the start, the floor that of the key's tenant.
    pub header: [u64; HEADER_WORDS],
    /// Both buckets, by the geometry that the reader knew.
    pub buckets: [[u64; BUCKET_WORDS]; 2],
}

impl Look {
    /// The floor of a key of a tenant was read beside the words at the start.
    pub fn set_floor(&mut self, floor: u64) {
        self.header[FLOOR] = floor;
    }

    /// The view in which the home answers (rule K7).
    pub fn open(&self) -> u64 {
        self.header[OPEN]
    }

    /// The table's geometry now.
    pub fn geometry(&self) -> Geometry {
        Geometry(self.header[GEOMETRY])
    }

    /// The entries that may be of this key. Those below the floor are nothing (rule K10).
    pub fn entries(&self, hash: u64) -> impl Iterator<Item = Entry> + '_ {
        let floor = Version(self.header[FLOOR]);
        self.buckets
            .iter()
            .flat_map(|bucket| bucket.chunks_exact(2))
            .map(|slot| Entry { version: Version(slot[0]), place: Place::from_word(slot[1]) })
            .filter(move |entry| entry.version != Version::NONE && entry.version >= floor)
            .filter(move |entry| entry.place.tag == tag_of(hash))
    }
}

/// The words of a table, which others read while the home writes them.
pub trait Words: std::fmt::Debug + Send {
    /// The word with this number.
    fn load(&self, at: usize) -> u64;
    /// Changes it at once.
    fn store(&mut self, at: usize, word: u64);
}

impl Words for Vec<u64> {
    fn load(&self, at: usize) -> u64 {
        self[at]
    }

    fn store(&mut self, at: usize, word: u64) {
        self[at] = word;
    }
}

/// A home's part of the key table.
#[derive(Debug)]
pub struct Table {
    words: Box<dyn Words>,
    /// The hash of the key in each slot: what the home alone knows.
    hashes: Vec<u64>,
    entries: usize,
    largest: u32,
}

impl Table {
    /// With so many buckets at first and at most, both powers of two.
    ///
    /// # Panics
    /// If they are none.
    pub fn new(buckets: u32, largest: u32) -> Table {
        Table::over(Box::new(vec![0; Table::words(largest)]), buckets, largest)
    }

    /// How many words a table of this size has.
    pub fn words(largest: u32) -> usize {
        BUCKETS + largest as usize * BUCKET_WORDS
    }

    /// Where the floor of a tenant stands in the words.
    pub fn floor_word(tenant: Tenant) -> usize {
        match tenant.floor_index() {
            0 => FLOOR,
            at => HEADER_WORDS + at,
        }
    }

    /// The same over these words, which are 0.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn over(mut words: Box<dyn Words>, buckets: u32, largest: u32) -> Table {
        assert!(buckets.is_power_of_two() && largest.is_power_of_two() && buckets <= largest, "{buckets}, {largest}");
        words.store(GEOMETRY, Geometry::new(buckets, 0).0);
        Table { words, hashes: vec![0; largest as usize * SLOTS], entries: 0, largest }
    }

    /// What one batch of a reader that goes by this geometry gets.
    pub fn look(&self, hash: u64, geometry: Geometry) -> Look {
        let mut look = Look { header: [0; HEADER_WORDS], buckets: [[0; BUCKET_WORDS]; 2] };
        for (at, word) in look.header.iter_mut().enumerate() {
            *word = self.words.load(at);
        }
        look.set_floor(self.words.load(Table::floor_word(Tenant::of(hash))));
        for (bucket, at) in look.buckets.iter_mut().zip(geometry.buckets_of(hash)) {
            let at = Geometry::word_of(at.min(self.largest - 1));
            for (next, word) in bucket.iter_mut().enumerate() {
                *word = self.words.load(at + next);
            }
        }
        look
    }

    /// Its geometry now.
    pub fn geometry(&self) -> Geometry {
        Geometry(self.words.load(GEOMETRY))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Answers readers and setters of this view from now on; 0: of none.
    pub fn open(&mut self, view: u64) {
        self.words.store(OPEN, view);
    }

    /// The view in which it answers.
    pub fn open_view(&self) -> u64 {
        self.words.load(OPEN)
    }

    /// Entries of this tenant below `floor` are nothing from now on.
    pub fn raise_floor(&mut self, tenant: Tenant, floor: Version) {
        let at = Table::floor_word(tenant);
        self.words.store(at, self.words.load(at).max(floor.0));
    }

    /// The floor of a tenant.
    pub fn floor(&self, tenant: Tenant) -> Version {
        Version(self.words.load(Table::floor_word(tenant)))
    }

    fn is_valid(&self, hash: u64, version: Version) -> bool {
        version != Version::NONE && version >= self.floor(Tenant::of(hash))
    }

    /// The entry of a key.
    pub fn get(&self, hash: u64) -> Option<Entry> {
        let slot = self.slot_of(hash)?;
        let entry = self.entry(slot);
        self.is_valid(hash, entry.version).then_some(entry)
    }

    fn slot_of(&self, hash: u64) -> Option<usize> {
        let slots = self.geometry().buckets_of(hash).into_iter().flat_map(slots_of);
        slots.into_iter().find(|&slot| self.hashes[slot] == hash && self.entry(slot).version != Version::NONE)
    }

    fn entry(&self, slot: usize) -> Entry {
        let at = BUCKETS + 2 * slot;
        Entry { version: Version(self.words.load(at)), place: Place::from_word(self.words.load(at + 1)) }
    }

    /// The place goes first: so no new version stands beside a place where another key's object was.
    fn write(&mut self, slot: usize, hash: u64, entry: Entry) {
        self.hashes[slot] = hash;
        let at = BUCKETS + 2 * slot;
        self.words.store(at + 1, entry.place.to_word());
        self.words.store(at, entry.version.0);
    }

    fn clear(&mut self, slot: usize) {
        let at = BUCKETS + 2 * slot;
        self.words.store(at, Version::NONE.0);
        self.words.store(at + 1, 0);
    }

    /// Makes this the entry of the key. The entry of another key that it displaces is returned: it is forgotten.
    pub fn put(&mut self, hash: u64, entry: Entry) -> Option<(u64, Entry)> {
        if let Some(slot) = self.slot_of(hash) {
            self.write(slot, hash, entry);
            return None;
        }
        // Fuller than four fifths: a doubling begins. It goes on with each entry, and fast, since buckets that wait for it fill up.
        let (buckets, divided) = self.geometry().parts();
        if divided > 0 || self.entries * 5 >= buckets as usize * SLOTS * 4 {
            (0..SPLITS).for_each(|_| self.divide());
        }
        let mut room = self.room(hash);
        for _ in 0..MAX_EXTRA_SPLITS {
            if room.is_some() || self.geometry().buckets() >= self.largest {
                break;
            }
            self.divide();
            room = self.room(hash);
        }
        let displaced = match room {
            Some(slot) => {
                self.write(slot, hash, entry);
                None
            }
            None => {
                let slots = self.geometry().buckets_of(hash).into_iter().flat_map(slots_of);
                let oldest = slots.into_iter().min_by_key(|&slot| self.entry(slot).version)?;
                let displaced = (self.hashes[oldest], self.entry(oldest));
                self.clear(oldest);
                self.entries -= 1;
                self.write(oldest, hash, entry);
                Some(displaced)
            }
        };
        self.entries += 1;
        displaced
    }

    /// A free slot for this key. Others are moved to their second bucket if needed: shortest way first (cuckoo hashing, Pagh 2001).
    fn room(&mut self, hash: u64) -> Option<usize> {
        let geometry = self.geometry();
        let is_free = |table: &Table, slot: &usize| table.entry(*slot).version == Version::NONE;
        // Each step: a slot, and the step whose entry goes there.
        let mut ways: Vec<(usize, usize)> = vec![];
        for slot in geometry.buckets_of(hash).into_iter().flat_map(slots_of) {
            if is_free(self, &slot) {
                return Some(slot);
            }
            ways.push((slot, usize::MAX));
        }
        let mut step = 0;
        while step < ways.len().min(MAX_MOVES) {
            let from = ways[step].0;
            let here = (from / SLOTS) as u32;
            let [first, second] = geometry.buckets_of(self.hashes[from]);
            let there = if first == here { second } else { first };
            if let Some(free) = slots_of(there).into_iter().find(|slot| is_free(self, slot)) {
                // From the end of the way to its start: an entry is in two slots for a moment, never in none.
                let (mut to, mut at) = (free, step);
                loop {
                    let (from, before) = ways[at];
                    self.write(to, self.hashes[from], self.entry(from));
                    self.clear(from);
                    to = from;
                    match before {
                        usize::MAX => return Some(to),
                        before => at = before,
                    }
                }
            }
            for slot in slots_of(there) {
                if !ways.iter().any(|(known, _)| *known == slot) {
                    ways.push((slot, step));
                }
            }
            step += 1;
        }
        None
    }

    /// Divides one bucket in two.
    fn divide(&mut self) {
        let (buckets, divided) = self.geometry().parts();
        if buckets >= self.largest {
            return;
        }
        let new =
            if divided + 1 == buckets { Geometry::new(2 * buckets, 0) } else { Geometry::new(buckets, divided + 1) };
        let to = buckets + divided;
        let mut free = slots_of(to).into_iter();
        for slot in slots_of(divided) {
            let hash = self.hashes[slot];
            if self.entry(slot).version == Version::NONE {
                continue;
            }
            // The entry is here by one of its two buckets, which may lead elsewhere now.
            let stays = new.buckets_of(hash).contains(&divided);
            if !stays && let Some(target) = free.next() {
                self.write(target, hash, self.entry(slot));
                self.clear(slot);
            }
        }
        self.words.store(GEOMETRY, new.0);
    }

    /// Another copy is the one to read, if the version is still this (rule K8).
    pub fn relocate(&mut self, hash: u64, version: Version, place: Place) -> bool {
        match self.slot_of(hash).filter(|&slot| self.entry(slot).version == version) {
            Some(slot) => {
                self.write(slot, hash, Entry { version, place });
                true
            }
            None => false,
        }
    }

    /// No value of the key is valid any more. Returns what was.
    pub fn remove(&mut self, hash: u64) -> Option<Entry> {
        let slot = self.slot_of(hash)?;
        let entry = self.entry(slot);
        self.clear(slot);
        self.entries -= 1;
        self.is_valid(hash, entry.version).then_some(entry)
    }

    /// Takes out all entries whose hash is `chosen`. Returns those that are valid (rules K7, K10).
    pub fn take(&mut self, chosen: impl FnMut(u64) -> bool) -> Vec<(u64, Entry)> {
        let mut taken = self.take_with_flushed(chosen);
        taken.retain(|(hash, entry)| self.is_valid(*hash, entry.version));
        taken
    }

    /// As [`take`](Self::take), with those below the floor.
    pub(crate) fn take_with_flushed(&mut self, mut chosen: impl FnMut(u64) -> bool) -> Vec<(u64, Entry)> {
        let mut taken = vec![];
        let slots = self.geometry().buckets() as usize * SLOTS;
        for slot in 0..slots {
            let (hash, entry) = (self.hashes[slot], self.entry(slot));
            if entry.version != Version::NONE && chosen(hash) {
                self.clear(slot);
                self.entries -= 1;
                taken.push((hash, entry));
            }
        }
        taken
    }

    /// Entries of this tenant's floor that were valid above this one, and are below the one of now.
    pub(crate) fn flushed_since(&self, tenant: Tenant, before: Version) -> Vec<(u64, Entry)> {
        let slots = 0..self.geometry().buckets() as usize * SLOTS;
        let entries = slots.map(|slot| (self.hashes[slot], self.entry(slot)));
        let floor = self.floor(tenant);
        let is_flushed = |version| version != Version::NONE && version >= before && version < floor;
        let is_its = |hash| Tenant::of(hash).clashes_with(tenant);
        entries.filter(|(hash, entry)| is_its(*hash) && is_flushed(entry.version)).collect()
    }

    /// All valid entries.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Entry)> + '_ {
        let slots = self.geometry().buckets() as usize * SLOTS;
        (0..slots)
            .map(|slot| (self.hashes[slot], self.entry(slot)))
            .filter(|(hash, entry)| self.is_valid(*hash, entry.version))
    }
}

fn slots_of(bucket: u32) -> [usize; SLOTS] {
    std::array::from_fn(|slot| bucket as usize * SLOTS + slot)
}
