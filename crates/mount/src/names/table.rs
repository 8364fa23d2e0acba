//! What a mount keeps of names: listings in its memory, its own changes, and directories that are being listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use verbena_bank::{Listing, NameEntry, Stamp, Time};

use crate::cache::Arrival;

/// When names of a directory changed last, and when anything of it did: seconds since 1970, and nanoseconds.
pub(crate) type DirectoryTimes = ((i64, u32), (i64, u32));

/// A directory that is being listed below, from start to end.
#[derive(Debug)]
pub(crate) struct Collector {
    /// When it began.
    pub(crate) arrived: Arrival,
    /// Its times then.
    pub(crate) seen: DirectoryTimes,
    pub(crate) version: Stamp,
    pub(crate) lists_all: bool,
    /// Where the next part must begin.
    next: u64,
    pub(crate) entries: Vec<NameEntry>,
    pub(crate) bytes: usize,
}

/// Listings in this mount's memory, by what names their directory.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) slots: HashMap<Vec<u8>, Slot>,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) enum Slot {
    Listing(Arc<Listing>, usize),
    /// The bank has none. It is not asked again before then.
    Absent(Instant),
}

/// When this mount changed a file last, by what names it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    some: HashMap<Vec<u8>, Time>,
    /// For all that are not among `some`.
    all: Time,
}

impl Changes {
    /// Files that are known one by one.
    const MOST: usize = 1 << 16;

    /// When a file changed last.
    pub(crate) fn of(&self, file: &[u8]) -> Time {
        self.some.get(file).copied().unwrap_or(0).max(self.all)
    }

    /// All files changed, as far as is known.
    pub(crate) fn all(now: Time) -> Self {
        Changes { some: HashMap::new(), all: now }
    }

    /// When all files changed last.
    pub(crate) fn of_all(&self) -> Time {
        self.all
    }

    /// Changes from before `forgotten` need not be known: no listing is that old.
    pub(crate) fn add(&mut self, file: Vec<u8>, now: Time, forgotten: Time) {
        if let Some(changed) = self.some.get_mut(&file) {
            *changed = now.max(*changed);
            return;
        }
        if self.some.len() >= Self::MOST {
            self.some.retain(|_, changed| *changed > forgotten);
            if self.some.len() >= Self::MOST {
                *self = Changes::all(now);
                return;
            }
        }
        self.some.insert(file, now);
    }
}

impl Table {
    /// Bytes of listings in memory; at one more all of them go, for the bank has them.
    const BYTES: usize = 32 << 20;
    /// Directories that are known to be in memory, or not to be in the bank.
    const SLOTS: usize = 1 << 16;
    /// Bytes of each beside its name and its listing.
    const BESIDE: usize = 100;

    pub(crate) fn put(&mut self, directory: Vec<u8>, slot: Slot) {
        let beside = Self::BESIDE + directory.len();
        let more = beside + slot.bytes();
        self.bytes -= self.slots.remove(&directory).map_or(0, |slot| beside + slot.bytes());
        if self.bytes + more > Self::BYTES || self.slots.len() >= Self::SLOTS {
            *self = Table::default();
        }
        if more <= Self::BYTES {
            self.bytes += more;
            self.slots.insert(directory, slot);
        }
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Slot::Listing(_, bytes) => *bytes,
            Slot::Absent(_) => 0,
        }
    }
}

impl Collector {
    /// Of a directory whose own entry this is.
    pub(crate) fn new(arrived: Arrival, seen: DirectoryTimes, version: Stamp, lists_all: bool, own: NameEntry) -> Self {
        Collector { arrived, seen, version, lists_all, next: 0, bytes: own.bytes(), entries: vec![own] }
    }

    /// The part that begins at `offset` belongs to it, if it follows what came before.
    pub(crate) fn follows(&self, offset: u64) -> bool {
        self.next == offset
    }

    /// One more name, and where the next one stands. Says whether there is room for it.
    pub(crate) fn add(&mut self, entry: NameEntry, next: u64) -> bool {
        self.next = next;
        self.bytes += entry.bytes();
        // The directory itself is in it from the beginning.
        if entry.name != b"." {
            self.entries.push(entry);
        }
        self.bytes <= Listing::MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> Vec<u8> {
        number.to_le_bytes().to_vec()
    }

    fn listing(bytes: usize) -> Slot {
        Slot::Listing(Arc::new(Listing::new(0, None, vec![])), bytes)
    }

    #[test]
    fn a_directory_is_listed_once_however_often_it_names_itself() {
        let entry = |name: &[u8]| NameEntry {
            name: name.to_vec(),
            number: 1,
            born: None,
            kind: 0o040_000,
            attributes: None,
            target: None,
            extended: None,
        };
        let version = Stamp { modified: 0, changed: 0, size: 0 };
        let mut collector = Collector::new(Arrival::now(), ((0, 0), (0, 0)), version, false, entry(b"."));
        assert!(collector.follows(0) && collector.add(entry(b"a"), 7) && collector.follows(7));
        // The directory itself was looked at when its listing began.
        assert!(collector.add(entry(b"."), 8) && collector.follows(8));
        assert_eq!(collector.entries.len(), 2);
    }

    #[test]
    fn memory_of_listings_is_bounded() {
        let mut table = Table::default();
        for number in 0..100 {
            table.put(name(number), listing(Table::BYTES / 8));
            assert!(table.bytes <= Table::BYTES && table.slots.contains_key(&name(number)));
        }
        table.put(name(99), listing(1));
        table.put(name(99), listing(2));
        table.put(name(1000), listing(Table::BYTES + 1));
        assert!(!table.slots.contains_key(&name(1000)));
        for number in 0..2 * Table::SLOTS as u64 {
            table.put(name(number), Slot::Absent(Instant::now()));
            assert!(table.slots.len() <= Table::SLOTS);
        }
        let mut table = Table::default();
        table.put(name(1), listing(5));
        table.put(name(1), Slot::Absent(Instant::now()));
        assert_eq!(table.bytes, Table::BESIDE + 8);
    }

    #[test]
    fn a_change_is_known_for_as_long_as_a_listing_may_be_older() {
        let mut changes = Changes::default();
        for number in 0..Changes::MOST as u64 {
            changes.add(name(number), 10 + Time::from(number), 0);
        }
        assert_eq!((changes.of(&name(3)), changes.of(&name(1 << 40))), (13, 0));
        changes.add(name(3), 1_000_000, 0);
        assert_eq!(changes.of(&name(3)), 1_000_000);
        // Two threads may come in another order than their times.
        changes.add(name(3), 999_999, 0);
        assert_eq!(changes.of(&name(3)), 1_000_000);
        // Old ones make room.
        changes.add(name(1 << 40), 1_000_001, 10 + 100);
        assert_eq!((changes.of(&name(50)), changes.of(&name(101)), changes.of(&name(1 << 40))), (0, 111, 1_000_001));
        // With too many that count, all files changed.
        for number in 0..200 {
            changes.add(name(1 << 41 | number), 1_000_002, 0);
        }
        assert_eq!((changes.of(&name(50)), changes.of(&name(1 << 41))), (1_000_002, 1_000_002));
    }
}
