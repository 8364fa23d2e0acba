//! A node's share of the memory, beside a map of what must lie where.

use std::collections::{BTreeMap, HashMap};

use verbena_coop::holder::{Evicted, Memory, OwnMemory, Room};
use verbena_coop::object::{FILLING, units};
use verbena_coop::{Holder, Object, Tenant, Version, hash_of};
use verbena_memcache::semantics::{Head, Item};

use crate::random::Random;

fn object(key: u64, bytes: usize, expires: u64) -> Object {
    let head = Head { expires, ..Head::default() };
    let value = vec![key as u8; bytes];
    Object {
        tenant: Tenant::DEFAULT,
        key: format!("key{key}").into_bytes(),
        item: Item { head, value },
        has_cas: false,
    }
}

fn store(holder: &mut Holder<OwnMemory>, object: &Object, version: u64, evicted: &mut Vec<Evicted>) -> Option<u32> {
    let units = units(&object.key, &object.item.value) as u32;
    let unit = holder.reserve(units, Room::Any, evicted)?;
    holder.fill(unit, object);
    holder.publish(unit, Version(version), false);
    Some(unit)
}

#[test]
fn objects_lie_apart_and_memory_is_never_lost() {
    let mut random = Random::new(3);
    let mut holder = Holder::new(OwnMemory::new(4096), 4096);
    let mut there: BTreeMap<u32, (u64, Object)> = BTreeMap::new();
    let mut evicted = vec![];
    for version in 1..30_000 {
        match random.below(8) {
            0 if !there.is_empty() => {
                let unit = *there.keys().nth(random.below(there.len())).unwrap();
                assert!(holder.drop_version(unit, Version(there[&unit].0)));
                assert!(!holder.drop_version(unit, Version(there[&unit].0)));
                there.remove(&unit);
            }
            1 if !there.is_empty() => {
                let unit = *there.keys().nth(random.below(there.len())).unwrap();
                holder.hit(unit, Version(there[&unit].0), 1);
            }
            _ => {
                let size = if random.is_one_of(50) { 20_000 } else { random.below(1_500) };
                let object = object(version, size, 0);
                let unit = store(&mut holder, &object, version, &mut evicted).unwrap();
                for gone in evicted.drain(..) {
                    let (version, object) = there.remove(&gone.unit).unwrap();
                    assert_eq!((gone.version, gone.hash), (Version(version), hash_of(&object.key)));
                }
                assert_eq!(there.insert(unit, (version, object)), None);
            }
        }
        let used: u32 = there.values().map(|(_, object)| units(&object.key, &object.item.value) as u32).sum();
        assert_eq!(holder.free_units() + used, 4096);
        if version % 64 == 0 {
            for (unit, (version, object)) in &there {
                let mut expected = object.clone();
                expected.item.head.cas = *version;
                assert_eq!(holder.object(*unit, Version(*version)), Some(expected));
            }
        }
    }
    assert_eq!(holder.reserve(4097, Room::Any, &mut evicted), None);
}

#[test]
fn objects_that_are_dropped_leave_nothing_in_the_queues() {
    let mut holder = Holder::new(OwnMemory::new(1 << 12), 1 << 12);
    for version in 1..20_000 {
        let unit = store(&mut holder, &object(version, 100, 0), version, &mut vec![]).unwrap();
        holder.mark_redundant(unit, Version(version), true);
        holder.drop_object(unit);
    }
    assert!(holder.queued() < 200, "{} names of no object", holder.queued());
    assert_eq!((holder.free_units(), holder.redundant_units()), (1 << 12, 0));
}

#[test]
fn what_is_freed_or_filling_is_of_no_version() {
    let mut holder = Holder::new(OwnMemory::new(64), 64);
    let mut evicted = vec![];
    let first = object(1, 400, 0);
    let unit = store(&mut holder, &first, 7, &mut evicted).unwrap();
    assert_eq!(holder.memory().read_word(unit), 7);
    holder.drop_object(unit);
    assert_eq!(holder.memory().read_word(unit), FILLING.0, "the head goes first");
    let again = holder.reserve(units(&first.key, &first.item.value) as u32, Room::Free, &mut evicted).unwrap();
    holder.fill(again, &first);
    assert_eq!((holder.version_at(again), holder.memory().read_word(again)), (None, FILLING.0));
    assert_eq!(holder.object(again, FILLING), None);
    // What fills is not evicted, nor is what is held.
    assert_eq!(holder.reserve(60, Room::Any, &mut evicted), None);
    holder.publish(again, Version(8), false);
    holder.hold(again);
    assert_eq!(holder.reserve(60, Room::Any, &mut evicted), None);
    holder.drop_object(again);
    assert_eq!(holder.version_at(again), Some(Version(8)));
    holder.release(again);
    assert!(holder.reserve(60, Room::Any, &mut evicted).is_some());
    assert_eq!(evicted.len(), 1);
}

#[test]
fn expired_objects_are_gone_within_a_minute() {
    let mut holder = Holder::new(OwnMemory::new(1 << 16), 1 << 16);
    let mut evicted = vec![];
    for key in 0..1_000 {
        store(&mut holder, &object(key, 100, if key % 2 == 0 { 1_000 } else { 0 }), key + 1, &mut evicted).unwrap();
    }
    for seconds in 900..1_000 {
        holder.sweep(seconds, &mut evicted);
    }
    assert_eq!(evicted, []);
    for seconds in 1_000..1_060 {
        holder.sweep(seconds, &mut evicted);
    }
    assert_eq!((evicted.len(), holder.len()), (500, 500));
    // A clock that jumps sweeps all at once.
    let mut holder = Holder::new(OwnMemory::new(1 << 12), 1 << 12);
    holder.sweep(0, &mut evicted);
    store(&mut holder, &object(1, 100, 5), 1, &mut evicted).unwrap();
    holder.sweep(100, &mut evicted);
    assert!(holder.is_empty());
}

#[test]
fn redundant_copies_go_first() {
    let mut holder = Holder::new(OwnMemory::new(100), 100);
    let mut evicted = vec![];
    let mut at = HashMap::new();
    for key in 0..5 {
        at.insert(key, store(&mut holder, &object(key, 280, 0), key + 1, &mut evicted).unwrap());
    }
    holder.mark_redundant(at[&3], Version(4), true);
    assert_eq!(holder.redundant_units(), 20);
    assert_eq!(holder.reserve(20, Room::Free, &mut evicted), None);
    let unit = holder.reserve(20, Room::Redundant, &mut evicted).unwrap();
    assert_eq!((unit, evicted[0].version, evicted[0].is_redundant), (at[&3], Version(4), true));
    assert_eq!(holder.reserve(20, Room::Redundant, &mut evicted), None);
    assert_eq!(holder.redundant_units(), 0);
    assert!(holder.reserve(20, Room::Any, &mut evicted).is_some());
}

#[test]
fn any_room_is_made_of_redundant_copies_first() {
    let mut holder = Holder::new(OwnMemory::new(40), 40);
    let mut evicted = vec![];
    store(&mut holder, &object(1, 280, 0), 1, &mut evicted).unwrap();
    let second = store(&mut holder, &object(2, 280, 0), 2, &mut evicted).unwrap();
    holder.mark_redundant(second, Version(2), true);
    assert_eq!(holder.reserve(20, Room::Any, &mut evicted), Some(second));
}

#[test]
fn an_object_that_comes_again_outlives_those_that_come_once() {
    let mut holder = Holder::new(OwnMemory::new(20 * 20), 20 * 20);
    let mut evicted = vec![];
    let mut version = 0;
    let mut put = |key: u64| {
        version += 1;
        store(&mut holder, &object(key, 280, 0), version, &mut evicted).map(|unit| (unit, version))
    };
    (0..21).for_each(|key| assert!(put(key).is_some()));
    // Key 0 left as the first. It comes again, and twenty others after it.
    let (unit, version) = put(0).unwrap();
    (100..120).for_each(|key| assert!(put(key).is_some()));
    assert_eq!(holder.version_at(unit), Some(Version(version)));
}

/// S3-FIFO beside LRU on a stream of few keys that come again and many that come once.
#[test]
fn what_comes_once_displaces_nothing_that_comes_again() {
    let mut random = Random::new(9);
    let mut holder = Holder::new(OwnMemory::new(20 * 500), 20 * 500);
    let (mut at, mut lru): (HashMap<u64, (u32, u64)>, Vec<u64>) = (HashMap::new(), vec![]);
    let (mut hits, mut lru_hits, mut evicted) = (0, 0, vec![]);
    for version in 1..60_000u64 {
        // 400 keys come again and again, and half of the requests are for others, each once.
        let key = if random.is_one_of(2) { 1_000_000 + version } else { random.below(400) as u64 };
        match at.get(&key) {
            Some((unit, version)) => {
                hits += 1;
                holder.hit(*unit, Version(*version), 1);
            }
            None => {
                let unit = store(&mut holder, &object(key, 260, 0), version, &mut evicted).unwrap();
                for gone in evicted.drain(..) {
                    at.retain(|_, (unit, _)| *unit != gone.unit);
                }
                at.insert(key, (unit, version));
            }
        }
        match lru.iter().position(|known| *known == key) {
            Some(place) => {
                lru_hits += 1;
                lru.remove(place);
            }
            None if lru.len() == 500 => {
                lru.remove(0);
            }
            None => {}
        }
        lru.push(key);
    }
    assert!(hits > 28_500 && hits > lru_hits + 5_000, "{hits} beside {lru_hits} of LRU");
}
