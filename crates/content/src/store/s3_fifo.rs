//! S3-FIFO's class, by `quick_cache`: a hit marks the copy, and moves nothing.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::{Key, Replacement, Weigh};

/// Bytes that a slot takes beside key and value: links in the order of replacement, how often it was used, what is in it. Slots double when
/// they are full; those that were never used take no memory yet.
pub(super) const SLOT_BYTES: usize = 24;

/// Bytes of the hash table for an entry: 5 for each of its buckets, of which between 7 in 16 and 7 in 8 are taken.
pub(super) const TABLE_BYTES: usize = 8;

pub(super) type S3Fifo<V> = Cache<Key, V, ByBytes>;

#[derive(Clone)]
pub(super) struct ByBytes;

impl<V: Weigh> Weighter<Key, V> for ByBytes {
    fn weight(&self, _: &Key, value: &V) -> u64 {
        Replacement::S3Fifo.entry_bytes(value) as u64
    }
}

/// The part of a shard that copies which are asked for again may take. What is larger, the shard does not keep.
const AGAIN: f64 = 0.97;

/// Room for `bytes` bytes of entries of about `typical` bytes each: for half as many more it remembers that they were here, in about
/// 56 bytes each that are not counted.
pub(super) fn new<V: Weigh + Clone>(bytes: u64, typical: usize, shards: usize) -> S3Fifo<V> {
    let options = OptionsBuilder::new()
        .shards(shards)
        .estimated_items_capacity(usize::try_from(bytes / typical as u64).unwrap_or(usize::MAX))
        // Each shard has its part of this, rounded up.
        .weight_capacity(bytes / shards as u64 * shards as u64)
        .hot_allocation(AGAIN)
        .build()
        .expect("invariant: both capacities are set");
    Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default())
}

/// No copy of more bytes is kept.
pub(super) fn room<V: Weigh + Clone>(cache: &S3Fifo<V>) -> usize {
    usize::try_from((cache.shard_capacity() as f64 * AGAIN) as u64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{KEY_BYTES, halves};

    /// As large as a pointer to a page, and pointing to nothing.
    #[derive(Clone)]
    struct Pointer(#[allow(dead_code, reason = "its size counts")] u64);

    impl Weigh for Pointer {
        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn slots_and_table_take_what_is_said_of_them() {
        let cache = new(1 << 30, 1 + Replacement::S3Fifo.entry_overhead_bytes::<Pointer>(), 8);
        let entries = 1 << 17;
        for page in 0..entries as u128 {
            // Spread over the shards as hashes are.
            cache.insert(halves(page.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)), Pointer(0));
        }
        assert_eq!(cache.len(), entries);
        let used = cache.memory_used();
        let slot = KEY_BYTES + size_of::<Pointer>() + SLOT_BYTES;
        assert_eq!(used.entries % slot, 0, "slots of another size than {slot}: {} bytes", used.entries);
        let buckets = used.map / entries;
        assert!((5..=11).contains(&buckets), "{buckets} bytes of the table for an entry");
    }
}
