//! Where a proxy keeps its copies: a bound in bytes, and replacement in the S3-FIFO class (`quick_cache`).
//!
//! Nothing rests on a copy being here. One that is replaced, or was never admitted, is a miss and nothing more; one that
//! stayed too long is found out by its stamp. So the store tells nobody what it drops.

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::hit::Stamp;

/// Bytes that an entry takes beside its key and its value: table, stamp, counters of the shared pointers.
pub const ENTRY_OVERHEAD_BYTES: usize = 160;

/// A copy and what it was stored under.
#[derive(Clone, Debug)]
pub struct Stored<V> {
    /// What its words are compared with.
    pub stamp: Stamp,
    /// The copy.
    pub value: V,
}

/// How many bytes a value takes, what it points to included.
pub trait Weigh {
    /// Bytes.
    fn bytes(&self) -> usize;
}

/// Copies by their whole key. May be used from any thread.
pub struct Store<V: Weigh + Clone> {
    cache: Cache<Box<[u8]>, Stored<V>, ByBytes>,
    largest: usize,
}

#[derive(Clone)]
struct ByBytes;

impl<V: Weigh> Weighter<Box<[u8]>, Stored<V>> for ByBytes {
    fn weight(&self, key: &Box<[u8]>, stored: &Stored<V>) -> u64 {
        entry_bytes(key, &stored.value) as u64
    }
}

fn entry_bytes(key: &[u8], value: &impl Weigh) -> usize {
    ENTRY_OVERHEAD_BYTES + key.len() + value.bytes()
}

impl<V: Weigh + Clone> Store<V> {
    /// A store of at most `bytes` bytes in all, for copies of about `typical` bytes each, that takes no copy of more than
    /// `largest`.
    pub fn new(bytes: u64, typical: usize, largest: usize) -> Self {
        let expected = bytes / (typical.max(1) + ENTRY_OVERHEAD_BYTES) as u64;
        Store { cache: Cache::with_weighter(expected as usize, bytes, ByBytes), largest }
    }

    /// The copy of this key. Cheap if `V` is cheap to clone.
    pub fn copy(&self, key: &[u8]) -> Option<Stored<V>> {
        self.cache.get(key)
    }

    /// Keeps a copy, in place of an earlier one. False if it is too large: then there is none of this key.
    pub fn keep(&self, key: &[u8], stamp: Stamp, value: V) -> bool {
        if entry_bytes(key, &value) > self.largest {
            self.cache.remove(key);
            return false;
        }
        self.cache.insert(key.into(), Stored { stamp, value });
        true
    }

    /// Drops the copy of this key if it is still the one stored under `stamp`.
    pub fn drop_copy(&self, key: &[u8], stamp: &Stamp) {
        self.cache.remove_if(key, |stored| stored.stamp == *stamp);
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
    use verbena_terms::Incarnation;

    use super::*;
    use crate::table::Word;

    impl Weigh for Vec<u8> {
        fn bytes(&self) -> usize {
            self.len()
        }
    }

    fn stamp(generation: u64) -> Stamp {
        Stamp::new(Incarnation::new(1, 1), Word::new(generation, false), Word::default(), None)
    }

    #[test]
    fn a_store_stays_within_its_bytes() {
        let store = Store::new(100_000, 1000, 10_000);
        for page in 0..1000u32 {
            assert!(store.keep(&page.to_le_bytes(), stamp(1), vec![0; 1000]));
        }
        assert!(store.bytes() <= 100_000, "{} bytes", store.bytes());
        assert!(store.len() > 20, "{} copies", store.len());
    }

    #[test]
    fn a_copy_too_large_leaves_no_older_one_behind() {
        let store = Store::new(100_000, 1000, 10_000);
        assert!(store.keep(b"page", stamp(1), vec![0; 10]));
        assert!(!store.keep(b"page", stamp(2), vec![0; 20_000]));
        assert!(store.copy(b"page").is_none());
    }

    #[test]
    fn only_the_copy_that_was_found_out_is_dropped() {
        let store = Store::new(100_000, 1000, 10_000);
        store.keep(b"page", stamp(2), vec![7]);
        store.drop_copy(b"page", &stamp(1));
        assert_eq!(store.copy(b"page").map(|stored| stored.value), Some(vec![7]));
        store.drop_copy(b"page", &stamp(2));
        assert!(store.is_empty());
    }
}
