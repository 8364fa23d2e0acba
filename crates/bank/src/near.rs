//! Blocks in this process's own memory, before the bank.
//!
//! They stand under the names that they have in the bank, so the version is part of the name here too: what is near counts under the same
//! proof as what the bank has (rule B1), and a hit asks no bank. No envelope is needed, for no other process writes here.
//!
//! What is asked for once goes soon, what was asked for again stays (the class of S3-FIFO, by `quick_cache`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::{BlockSize, Name};

/// Blocks that are near.
#[derive(Debug)]
pub struct Near {
    blocks: Cache<Name, Arc<Vec<u8>>, ByBytes>,
    hits: AtomicU64,
}

/// What a near bank holds and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NearStatus {
    /// Blocks in it.
    pub blocks: u64,
    /// Bytes that they take, with what is kept beside each.
    pub bytes: u64,
    /// Blocks that it had when they were asked for.
    pub hits: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Name, Arc<Vec<u8>>> for ByBytes {
    fn weight(&self, _: &Name, block: &Arc<Vec<u8>>) -> u64 {
        block.len() as u64 + Near::BESIDE
    }
}

impl Near {
    /// Bytes that a block takes beside its own: its name, two counts and a slice, and its place in the table.
    const BESIDE: u64 = 128;
    /// Fewer whole blocks than this are no cache.
    const LEAST: u64 = 8;
    /// Whole blocks of one shard at least: a block goes where its name says, so shards are not filled evenly.
    const SHARD: u64 = 64;

    /// Room for `bytes` of blocks; nothing if fewer than eight whole ones fit.
    pub fn new(bytes: u64, block: BlockSize) -> Option<Self> {
        let whole = bytes / (u64::from(block.bytes()) + Self::BESIDE);
        if whole < Self::LEAST {
            return None;
        }
        // A power of two, so that no rounding adds to what the shards have together.
        let shards = 1_u64 << (whole / Self::SHARD).clamp(1, 16).ilog2();
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(usize::try_from(whole).unwrap_or(usize::MAX))
            .weight_capacity(bytes / shards * shards)
            .build()
            .expect("invariant: both capacities are set");
        let blocks = Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Some(Near { blocks, hits: AtomicU64::new(0) })
    }

    /// What it holds and did.
    pub fn status(&self) -> NearStatus {
        NearStatus { blocks: self.blocks.len() as u64, bytes: self.blocks.weight(), hits: self.hits.load(Relaxed) }
    }

    pub(crate) fn get(&self, name: &Name) -> Option<Arc<Vec<u8>>> {
        let found = self.blocks.get(name)?;
        self.hits.fetch_add(1, Relaxed);
        Some(found)
    }

    pub(crate) fn put(&self, name: Name, block: Arc<Vec<u8>>) {
        self.blocks.insert(name, block);
    }

    pub(crate) fn remove(&self, name: &Name) {
        self.blocks.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKey, Rules, Secret};

    fn name(nth: u64) -> Name {
        FileKey::new(b"file", b"1", Rules::default()).block(BlockSize::default(), nth).name(&Secret::new([1; 32]))
    }

    #[test]
    fn it_holds_no_more_than_it_was_given_and_what_is_used_stays() {
        let block = BlockSize::default();
        let room = |blocks: u64| blocks * (u64::from(block.bytes()) + Near::BESIDE);
        assert!(Near::new(0, block).is_none() && Near::new(room(8) - 1, block).is_none());
        for blocks in [8, 100, 1000] {
            let near = Near::new(room(blocks), block).unwrap();
            let all: Vec<u64> = (0..blocks * 3).collect();
            for nth in &all {
                near.put(name(*nth), Arc::new(vec![*nth as u8; block.bytes() as usize]));
                let status = near.status();
                assert!(status.bytes <= room(blocks) && status.blocks <= blocks, "{blocks}: {status:?}");
                // The first one is used all the time.
                assert!(near.get(&name(0)).is_some(), "{blocks}: after {nth}");
            }
            let kept = all.iter().filter(|nth| near.get(&name(**nth)).is_some_and(|found| found[0] == **nth as u8));
            let kept = kept.count() as u64;
            assert_eq!(kept, near.status().blocks);
            assert!(kept >= blocks / 2, "{kept} of {blocks}");
            near.remove(&name(0));
            assert!(near.get(&name(0)).is_none());
        }
    }
}
