//! Where a proxy keeps its copies: a bound in bytes, and replacement in the S3-FIFO class (`quick_cache`).
//!
//! Nothing rests on a copy being here. One that is replaced, or was never admitted, is a miss and nothing more; one that
//! stayed too long is found out by its stamp. So the store tells nobody what it drops.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Bytes of a key in its slot.
pub const KEY_BYTES: usize = 16;

/// Bytes that a slot takes beside key and value: links in the order of replacement, how often it was used, what is in it.
const SLOT_BYTES: usize = 24;

/// Bytes of the hash table for an entry: 5 for each of its buckets, of which between 7 in 16 and 7 in 8 are taken.
const TABLE_BYTES: usize = 8;

/// Bytes that an entry takes beside its key and what its value points to: slot and hash table. Slots double when they are full; those that were
/// never used take no memory yet, and are not counted.
pub const fn entry_overhead_bytes<V>() -> usize {
    size_of::<V>() + SLOT_BYTES + TABLE_BYTES
}

/// How many bytes of memory a value points to.
pub trait Weigh {
    /// Bytes.
    fn bytes(&self) -> usize;
}

/// Copies by their key, 128 bits in which all that makes a page is hashed. May be used from any thread.
pub struct Store<V: Weigh + Clone> {
    cache: Cache<Key, V, ByBytes>,
    largest: usize,
}

/// In two halves: a whole would be aligned to 16 bytes, and the slot with it.
type Key = [u64; 2];

const fn halves(key: u128) -> Key {
    [(key >> 64) as u64, key as u64]
}

#[derive(Clone)]
struct ByBytes;

impl<V: Weigh> Weighter<Key, V> for ByBytes {
    fn weight(&self, _: &Key, value: &V) -> u64 {
        entry_bytes(value) as u64
    }
}

fn entry_bytes<V: Weigh>(value: &V) -> usize {
    KEY_BYTES + entry_overhead_bytes::<V>() + value.bytes()
}

impl<V: Weigh + Clone> Store<V> {
    /// A store of at most `bytes` bytes in all, for copies of about `typical` bytes each, that takes no copy of more than
    /// `largest`.
    pub fn new(bytes: u64, typical: usize, largest: usize) -> Self {
        let expected = bytes / (typical.max(1) + entry_overhead_bytes::<V>()) as u64;
        Store { cache: Cache::with_weighter(expected as usize, bytes, ByBytes), largest }
    }

    /// The copy of this key. Cheap if `V` is cheap to clone.
    pub fn copy(&self, key: u128) -> Option<V> {
        self.cache.get(&halves(key))
    }

    /// Keeps a copy, in place of an earlier one. False if it is too large: then there is none of this key.
    pub fn keep(&self, key: u128, value: V) -> bool {
        let key = halves(key);
        if entry_bytes(&value) > self.largest {
            self.cache.remove(&key);
            return false;
        }
        self.cache.insert(key, value);
        true
    }

    /// Copies kept.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
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

    /// As large as a pointer to a page, and pointing to nothing.
    #[derive(Clone)]
    struct Pointer(#[allow(dead_code, reason = "its size counts")] u64);

    impl Weigh for Pointer {
        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_store_stays_within_its_bytes() {
        let store = Store::new(100_000, 1000, 10_000);
        for page in 0..1000 {
            assert!(store.keep(page, vec![0; 1000]));
        }
        assert!(store.bytes() <= 100_000, "{} bytes", store.bytes());
        assert!(store.len() > 20, "{} copies", store.len());
    }

    #[test]
    fn a_copy_too_large_leaves_no_older_one_behind() {
        let store = Store::new(100_000, 1000, 10_000);
        assert!(store.keep(7, vec![0; 10]));
        assert!(!store.keep(7, vec![0; 20_000]));
        assert!(store.copy(7).is_none() && store.is_empty());
    }

    #[test]
    fn keys_differ_in_both_halves() {
        let store = Store::new(100_000, 1000, 10_000);
        store.keep(1, vec![1]);
        store.keep(1 << 64, vec![2]);
        assert_eq!((store.copy(1), store.copy(1 << 64), store.copy(1 | 1 << 64)), (Some(vec![1]), Some(vec![2]), None));
    }

    #[test]
    fn slots_and_table_take_what_is_said_of_them() {
        let store = Store::new(1 << 30, 1, 10_000);
        let entries = 1 << 17;
        for page in 0..entries as u128 {
            // Spread over the shards as hashes are.
            store.keep(page.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), Pointer(0));
        }
        assert_eq!(store.len(), entries);
        let used = store.cache.memory_used();
        let slot = KEY_BYTES + size_of::<Pointer>() + SLOT_BYTES;
        assert_eq!(used.entries % slot, 0, "slots of another size than {slot}: {} bytes", used.entries);
        let buckets = used.map / entries;
        assert!((5..=11).contains(&buckets), "{buckets} bytes of the table for an entry");
    }
}
