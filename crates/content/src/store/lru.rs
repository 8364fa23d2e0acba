//! Least recently used, in shards: each a list in the order of use with a hash table over it, behind a lock of its own.
//!
//! A shard has its part of the bytes and replaces by itself, so what goes is the oldest of its shard, not of all. Keys are spread by a hash with
//! a secret: a client cannot choose pages that push each other out.

use std::hash::{BuildHasher, RandomState};

use hashlink::LinkedHashMap;
use hashlink::linked_hash_map::RawEntryMut;
use parking_lot::Mutex;

use super::{Key, Replacement, Weigh};

/// Bytes that a slot takes beside key and value: two links, and what the allocator keeps before each piece of memory.
pub(super) const SLOT_BYTES: usize = 24;

/// Bytes of the hash table for an entry: 9 for each of its buckets, of which between 7 in 16 and 7 in 8 are taken.
pub(super) const TABLE_BYTES: usize = 15;

pub(super) struct Lru<V> {
    shards: Box<[Mutex<Shard<V>>]>,
    hasher: RandomState,
    /// Bytes of a shard.
    room: u64,
}

/// On lines of memory of its own.
#[repr(align(64))]
struct Shard<V> {
    /// The one that was used last is at the back.
    copies: LinkedHashMap<Key, V, RandomState>,
    bytes: u64,
}

impl<V: Weigh + Clone> Lru<V> {
    pub(super) fn new(bytes: u64, shards: usize) -> Self {
        let hasher = RandomState::new();
        let shard = || Mutex::new(Shard { copies: LinkedHashMap::with_hasher(hasher.clone()), bytes: 0 });
        Lru { shards: (0..shards).map(|_| shard()).collect(), room: bytes / shards as u64, hasher }
    }

    /// No copy of more bytes may be kept: it would push out all of its shard, and itself.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.room).unwrap_or(usize::MAX)
    }

    pub(super) fn copy(&self, key: Key) -> Option<V> {
        let (hash, shard) = self.shard(&key);
        match shard.lock().copies.raw_entry_mut().from_key_hashed_nocheck(hash, &key) {
            RawEntryMut::Occupied(mut found) => {
                found.to_back();
                Some(found.get().clone())
            }
            RawEntryMut::Vacant(_) => None,
        }
    }

    pub(super) fn keep(&self, key: Key, value: V) {
        let (hash, shard) = self.shard(&key);
        // Dropped when the shard is free again: giving memory back takes a while.
        let mut gone = Vec::new();
        let mut shard = shard.lock();
        shard.bytes += entry_bytes(&value);
        match shard.copies.raw_entry_mut().from_key_hashed_nocheck(hash, &key) {
            RawEntryMut::Occupied(mut found) => {
                found.to_back();
                let earlier = std::mem::replace(found.get_mut(), value);
                shard.bytes -= entry_bytes(&earlier);
                gone.push(earlier);
            }
            RawEntryMut::Vacant(place) => drop(place.insert_hashed_nocheck(hash, key, value)),
        }
        while shard.bytes > self.room
            && let Some((_, oldest)) = shard.copies.pop_front()
        {
            shard.bytes -= entry_bytes(&oldest);
            gone.push(oldest);
        }
        drop(shard);
    }

    pub(super) fn remove(&self, key: Key) {
        let (hash, shard) = self.shard(&key);
        let mut shard = shard.lock();
        let RawEntryMut::Occupied(found) = shard.copies.raw_entry_mut().from_key_hashed_nocheck(hash, &key) else {
            return;
        };
        let removed = found.remove();
        shard.bytes -= entry_bytes(&removed);
        drop(shard);
        drop(removed);
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().copies.len()).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }

    fn shard(&self, key: &Key) -> (u64, &Mutex<Shard<V>>) {
        let hash = self.hasher.hash_one(key);
        // The table goes by the first and the last bits.
        (hash, &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)])
    }
}

fn entry_bytes<V: Weigh>(value: &V) -> u64 {
    Replacement::Lru.entry_bytes(value) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KEY_BYTES;

    /// Room for three copies in one shard.
    fn three() -> Lru<Vec<u8>> {
        let each = KEY_BYTES + Replacement::Lru.entry_overhead_bytes::<Vec<u8>>() + 10;
        Lru::new(3 * each as u64, 1)
    }

    fn kept(lru: &Lru<Vec<u8>>) -> Vec<u64> {
        lru.shards[0].lock().copies.keys().map(|key| key[0]).collect()
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let lru = three();
        [1, 2, 3].iter().for_each(|key| lru.keep([*key, 0], vec![0; 10]));
        assert!(lru.copy([1, 0]).is_some());
        lru.keep([2, 0], vec![1; 10]);
        assert_eq!(kept(&lru), [3, 1, 2]);
        lru.keep([4, 0], vec![0; 10]);
        assert_eq!(kept(&lru), [1, 2, 4]);
        assert!(lru.copy([3, 0]).is_none());
        // A large one makes as many go as it needs.
        lru.keep([5, 0], vec![0; 80]);
        assert_eq!((kept(&lru), lru.len()), (vec![4, 5], 2));
        lru.remove([4, 0]);
        assert_eq!((kept(&lru), lru.bytes()), (vec![5], entry_bytes(&vec![0; 80])));
    }

    #[test]
    fn threads_that_use_and_replace_leave_the_count_right() {
        let lru = Lru::new(1 << 20, 16);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let lru = &lru;
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let key = [turn.wrapping_mul(thread + 7) % 8_000, 1];
                        match turn % 7 {
                            0 => lru.remove(key),
                            1 | 2 => lru.keep(key, vec![0; (turn % 900) as usize]),
                            _ => drop(lru.copy(key)),
                        }
                    }
                });
            }
        });
        let shards: Vec<_> = lru.shards.iter().map(|shard| shard.lock()).collect();
        for shard in &shards {
            assert!(shard.bytes <= lru.room && shard.copies.len() > 20, "{} in {}", shard.bytes, shard.copies.len());
            assert_eq!(shard.bytes, shard.copies.values().map(entry_bytes).sum::<u64>());
        }
    }
}
