//! The key table beside a map, while it grows and while it is full.

use std::collections::BTreeMap;

use verbena_coop::table::{Entry, Geometry};
use verbena_coop::{Place, Table, Tenant, Version, hash_of};
use verbena_terms::Rank;

use crate::random::Random;

fn entry(hash: u64, version: u64) -> Entry {
    Entry { version: Version(version), place: Place::new(hash, Rank(1), version as u32, 1) }
}

/// A reader that knows an old geometry reads again with the one that it saw.
fn looked_up(table: &Table, hash: u64, mut geometry: Geometry) -> Vec<Entry> {
    loop {
        let look = table.look(hash, geometry);
        if look.geometry() == geometry {
            return look.entries(hash).collect();
        }
        geometry = look.geometry();
    }
}

#[test]
fn a_table_that_grows_holds_what_a_map_holds() {
    let mut random = Random::new(1);
    let mut table = Table::new(4, 1 << 14);
    let first = table.geometry();
    let mut map = BTreeMap::new();
    for version in 1..60_000u64 {
        let hash = hash_of(&(random.below(30_000) as u32).to_le_bytes());
        match random.below(5) {
            0 => assert_eq!(table.remove(hash), map.remove(&hash)),
            1 => {
                let known: Option<&mut Entry> = map.get_mut(&hash);
                let place = Place::new(hash, Rank(2), 7, 2);
                let is_known = known.is_some();
                let old = known.map_or(Version(version), |entry| {
                    entry.place = place;
                    entry.version
                });
                assert_eq!(table.relocate(hash, old, place), is_known);
                assert!(!table.relocate(hash, Version(u64::MAX), place));
            }
            _ => {
                assert_eq!(table.put(hash, entry(hash, version)), None, "there is room for all");
                map.insert(hash, entry(hash, version));
            }
        }
        assert_eq!(table.get(hash), map.get(&hash).copied());
        assert_eq!(table.len(), map.len());
    }
    assert!(table.geometry().buckets() > 4000, "it grew");
    let mut all: Vec<(u64, Entry)> = table.iter().collect();
    all.sort_by_key(|(hash, _)| *hash);
    assert_eq!(all, map.clone().into_iter().collect::<Vec<_>>());
    for (hash, entry) in &map {
        assert!(looked_up(&table, *hash, first).contains(entry), "a reader finds it");
    }
    let taken = table.take(|hash| hash % 2 == 0);
    assert!(taken.iter().all(|(hash, entry)| map.remove(hash) == Some(*entry)));
    assert!(map.keys().all(|hash| hash % 2 == 1) && table.len() == map.len());
}

#[test]
fn a_table_that_is_full_forgets_and_mixes_nothing() {
    let mut table = Table::new(4, 64);
    let mut map = BTreeMap::new();
    let mut displaced_entries = 0;
    for version in 1..2_000u64 {
        let hash = hash_of(&version.to_le_bytes());
        if let Some((other, old)) = table.put(hash, entry(hash, version)) {
            displaced_entries += 1;
            assert_eq!(map.remove(&other), Some(old));
        }
        map.insert(hash, entry(hash, version));
    }
    assert_eq!(table.len(), map.len());
    assert!(map.iter().all(|(hash, entry)| table.get(*hash) == Some(*entry)));
    assert!(displaced_entries > 1_500 && table.len() > 64 * 4 * 9 / 10, "{} of {}", table.len(), 64 * 4);
}

#[test]
fn what_is_below_the_floor_is_nothing() {
    let mut table = Table::new(4, 4);
    table.put(1, entry(1, 10));
    table.put(2, entry(2, 20));
    table.raise_floor(Tenant::DEFAULT, Version(15));
    table.raise_floor(Tenant::DEFAULT, Version(5));
    assert_eq!((table.get(1), table.get(2)), (None, Some(entry(2, 20))));
    assert_eq!(looked_up(&table, 1, table.geometry()), []);
    assert_eq!(table.iter().count(), 1);
    assert_eq!(table.take(|_| true), [(2, entry(2, 20))]);
    assert_eq!((table.remove(1), table.is_empty()), (None, true));
}
