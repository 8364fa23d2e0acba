//! Where numbers are added up: counters and levels sharded by thread, gauges in one word.
//!
//! A counter is an array of words, one per core (at most [`MAX_SHARDS`]), each alone on its cache line. A thread adds to
//! the word that its own number selects, so as long as there are no more recording threads than cores no two of them
//! write one line; with more they share, which costs time and never a count. The price is memory: 128 bytes a shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// More shards than this buy nothing that the memory is worth.
const MAX_SHARDS: usize = 16;

/// A number that only grows: events, bytes, nanoseconds of work. Cloning gives another handle on the same number.
#[derive(Clone, Debug)]
pub struct Counter {
    shards: Arc<[CachePadded<AtomicU64>]>,
}

impl Counter {
    pub(crate) fn new() -> Self {
        Self::with_shards(shard_count())
    }

    fn with_shards(shards: usize) -> Self {
        Counter { shards: (0..shards).map(|_| CachePadded::default()).collect() }
    }

    /// Counts one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `amount`. Wraps after 2^64.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.shards[own_shard(self.shards.len())].fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted so far, by all threads. Of two reads by one thread the later is never the smaller.
    pub fn value(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.load(Ordering::Relaxed)))
    }
}

/// A number that goes up and down: what is open, queued, held. One word, not sharded, because it can be set.
#[derive(Clone, Debug)]
pub struct Gauge {
    value: Arc<CachePadded<AtomicI64>>,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        Gauge { value: Arc::default() }
    }

    /// Makes it `value`.
    #[inline]
    pub fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// Changes it by `amount`, which may be negative.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.value.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn value(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// What is going on at the moment: a number that goes up and down, and is never set. Sharded as a counter is, so that what begins and ends
/// with every request may be counted so.
#[derive(Clone, Debug)]
pub struct Level {
    shards: Arc<[CachePadded<AtomicI64>]>,
}

impl Level {
    pub(crate) fn new() -> Self {
        Level { shards: (0..shard_count()).map(|_| CachePadded::default()).collect() }
    }

    /// Changes it by `amount`, which may be negative.
    #[inline]
    pub fn add(&self, amount: i64) {
        self.shards[own_shard(self.shards.len())].fetch_add(amount, Ordering::Relaxed);
    }

    /// What it is now. What begins and ends while it is read may count or not.
    pub fn value(&self) -> i64 {
        self.shards.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
    }
}

/// How many shards a metric made now gets: the cores, as a power of two.
pub(crate) fn shard_count() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    cores.next_power_of_two().min(MAX_SHARDS)
}

/// The shard of the calling thread out of `shards`, a power of two. Threads are numbered as they first record.
#[inline]
pub(crate) fn own_shard(shards: usize) -> usize {
    // Numbering threads is the process's business, not a registry's: two registries in one process may share it.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    debug_assert!(shards.is_power_of_two());
    // A thread that is being torn down has lost its number and shares shard 0.
    NUMBER.try_with(|number| *number).unwrap_or(0) & (shards - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn threads_that_share_a_shard_lose_no_count() {
        let counter = Counter::with_shards(1);
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    together.wait();
                    (0..10_000_000).for_each(|_| counter.increment());
                });
            }
        });
        assert_eq!(counter.value(), 20_000_000);
    }

    #[test]
    fn threads_of_a_machine_full_spread_over_all_shards() {
        let shards = 4;
        let mut seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(|| own_shard(shards))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn what_begins_in_one_thread_may_end_in_another() {
        let level = Level::new();
        level.add(5);
        std::thread::scope(|scope| drop(scope.spawn(|| level.add(-3))));
        assert_eq!(level.value(), 2);
    }

    #[test]
    fn a_gauge_goes_both_ways() {
        let gauge = Gauge::new();
        gauge.add(3);
        gauge.add(-5);
        assert_eq!(gauge.value(), -2);
        gauge.set(7);
        assert_eq!(gauge.clone().value(), 7);
    }
}
