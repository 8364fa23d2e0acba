//! Where a proxy keeps its copies: a bound in bytes, and a policy of replacement ([`Replacement`]).
//!
//! Nothing rests on a copy being here. One that is replaced, or was never admitted, is a miss and nothing more; one that
//! stayed too long is found out by its stamp. So the store does not report what it drops.

mod lru;
mod s3_fifo;
mod shards;

use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

use lru::Lru;
use s3_fifo::S3Fifo;

/// Bytes of a key in its slot.
pub const KEY_BYTES: usize = 16;

/// Which copies make room for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// In the class of S3-FIFO (`quick_cache`): what is asked for once goes soon, what was asked for again stays. A copy that is used moves
    /// nothing, so threads that read do not wait for each other.
    #[default]
    S3Fifo,
    /// Those that were not used for longest. A copy that is used moves in its shard's list, under the shard's lock.
    Lru,
}

impl Replacement {
    /// All.
    pub const ALL: [Replacement; 2] = [Replacement::S3Fifo, Replacement::Lru];

    /// As the configuration calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Replacement::S3Fifo => "s3-fifo",
            Replacement::Lru => "lru",
        }
    }

    /// Bytes that an entry takes beside its key and what its value points to: slot and hash table. Slots of entries that are gone wait for
    /// others, and are not counted.
    pub const fn entry_overhead_bytes<V>(self) -> usize {
        let beside = match self {
            Replacement::S3Fifo => s3_fifo::SLOT_BYTES + s3_fifo::TABLE_BYTES,
            Replacement::Lru => lru::SLOT_BYTES + lru::TABLE_BYTES,
        };
        size_of::<V>() + beside
    }

    fn entry_bytes<V: Weigh>(self, value: &V) -> usize {
        KEY_BYTES + self.entry_overhead_bytes::<V>() + value.bytes()
    }
}

/// How many bytes of memory a value points to.
pub trait Weigh {
    /// Bytes.
    fn bytes(&self) -> usize;
}

/// Copies by their key, 128 bits in which all that makes a page is hashed. May be used from any thread.
pub struct Store<V: Weigh + Clone> {
    copies: Copies<V>,
    largest: usize,
}

enum Copies<V: Weigh + Clone> {
    S3Fifo(S3Fifo<V>),
    Lru(Lru<V>),
}

/// In two halves: a whole would be aligned to 16 bytes, and the slot with it.
type Key = [u64; 2];

const fn halves(key: u128) -> Key {
    [(key >> 64) as u64, key as u64]
}

impl<V: Weigh + Clone> Store<V> {
    /// A store of at most `bytes` bytes in all, for copies of about `typical` bytes each, that takes no copy of more than
    /// `largest`.
    pub fn new(replacement: Replacement, bytes: u64, typical: usize, largest: usize) -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        Store::for_threads(replacement, bytes, typical, largest, threads)
    }

    fn for_threads(replacement: Replacement, bytes: u64, typical: usize, largest: usize, threads: usize) -> Self {
        let typical = typical + replacement.entry_overhead_bytes::<V>();
        let shards = shards::count(bytes, typical, largest, threads);
        let (room, copies) = match replacement {
            Replacement::S3Fifo => {
                let cache = s3_fifo::new(bytes, typical, shards);
                (s3_fifo::room(&cache), Copies::S3Fifo(cache))
            }
            Replacement::Lru => {
                let lru = Lru::new(bytes, shards);
                (lru.room(), Copies::Lru(lru))
            }
        };
        Store { copies, largest: largest.min(room) }
    }

    /// The copy of this key. Cheap if `V` is cheap to clone.
    pub fn copy(&self, key: u128) -> Option<V> {
        match &self.copies {
            Copies::S3Fifo(cache) => cache.get(&halves(key)),
            Copies::Lru(lru) => lru.copy(halves(key)),
        }
    }

    /// Keeps a copy, in place of an earlier one. False if it is too large: then the store has no copy under
    /// this key.
    pub fn keep(&self, key: u128, value: V) -> bool {
        let key = halves(key);
        let bytes = self.replacement().entry_bytes(&value);
        let fits = bytes <= self.largest;
        match (&self.copies, fits) {
            (Copies::S3Fifo(cache), true) => cache.insert(key, value),
            (Copies::S3Fifo(cache), false) => drop(cache.remove(&key)),
            (Copies::Lru(lru), true) => lru.keep(key, value),
            (Copies::Lru(lru), false) => lru.remove(key),
        }
        fits
    }

    /// Drops the copy of this key.
    pub fn forget(&self, key: u128) {
        match &self.copies {
            Copies::S3Fifo(cache) => drop(cache.remove(&halves(key))),
            Copies::Lru(lru) => lru.remove(halves(key)),
        }
    }

    fn replacement(&self) -> Replacement {
        match self.copies {
            Copies::S3Fifo(_) => Replacement::S3Fifo,
            Copies::Lru(_) => Replacement::Lru,
        }
    }

    /// Copies kept.
    pub fn len(&self) -> usize {
        match &self.copies {
            Copies::S3Fifo(cache) => cache.len(),
            Copies::Lru(lru) => lru.len(),
        }
    }

    /// Whether the store has no copy.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        match &self.copies {
            Copies::S3Fifo(cache) => cache.weight(),
            Copies::Lru(lru) => lru.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weigh for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn stores(bytes: u64, typical: usize, largest: usize) -> [Store<Vec<u8>>; 2] {
        Replacement::ALL.map(|replacement| Store::new(replacement, bytes, typical, largest))
    }

    #[test]
    fn a_store_stays_within_its_bytes() {
        for store in stores(100_000, 1000, 10_000) {
            for page in 0..1000 {
                assert!(store.keep(page, vec![0; 1000]));
                assert!(store.bytes() <= 100_000, "{} bytes", store.bytes());
            }
            assert!(store.len() > 20, "{} copies", store.len());
            let each = 1000 + KEY_BYTES + store.replacement().entry_overhead_bytes::<Vec<u8>>();
            assert_eq!(store.bytes(), (store.len() * each) as u64);
        }
    }

    #[test]
    fn a_copy_in_the_place_of_another_takes_its_own_bytes() {
        for store in stores(100_000, 1000, 10_000) {
            let beside = KEY_BYTES + store.replacement().entry_overhead_bytes::<Vec<u8>>();
            for bytes in [2000, 10, 500] {
                store.keep(7, vec![0; bytes]);
                assert_eq!((store.len(), store.bytes()), (1, (bytes + beside) as u64));
            }
            assert_eq!(store.copy(7), Some(vec![0; 500]));
            store.forget(7);
            assert!(store.copy(7).is_none() && store.is_empty());
        }
    }

    #[test]
    fn a_copy_too_large_leaves_no_older_one_behind() {
        for store in stores(100_000, 1000, 10_000) {
            assert!(store.keep(7, vec![0; 10]));
            assert!(!store.keep(7, vec![0; 20_000]));
            assert!(store.copy(7).is_none() && store.is_empty() && store.bytes() == 0);
        }
    }

    #[test]
    fn one_of_the_largest_is_kept_however_many_threads_there_are() {
        const LARGEST: usize = 1_000_000;
        for (replacement, threads) in Replacement::ALL.into_iter().flat_map(|it| [1, 2, 16, 64, 256].map(|n| (it, n))) {
            let store = Store::for_threads(replacement, 64_000_000, 1000, LARGEST, threads);
            let bytes = LARGEST - KEY_BYTES - replacement.entry_overhead_bytes::<Vec<u8>>();
            for page in 0..16 {
                assert!(store.keep(page, vec![0; bytes]));
                assert!(store.copy(page).is_some(), "{} for {threads} threads: page {page}", replacement.name());
            }
            assert!(!store.keep(1, vec![0; bytes + 1]) && store.copy(1).is_none());
            // Where the store is smaller than the largest, nothing is said to be kept that is not.
            let small = Store::for_threads(replacement, 100_000, 1000, LARGEST, threads);
            for bytes in (90_000..101_000).step_by(500) {
                assert_eq!(small.keep(7, vec![0; bytes]), small.copy(7).is_some(), "{} of {bytes}", replacement.name());
            }
        }
    }

    #[test]
    fn keys_differ_in_both_halves() {
        for store in stores(100_000, 1000, 10_000) {
            store.keep(1, vec![1]);
            store.keep(1 << 64, vec![2]);
            assert_eq!(
                (store.copy(1), store.copy(1 << 64), store.copy(1 | 1 << 64)),
                (Some(vec![1]), Some(vec![2]), None)
            );
        }
    }
}
