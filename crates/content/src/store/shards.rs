//! Into how many parts a store is divided, each with a lock and an order of replacement of its own.

/// For each thread that may run at once: two seldom want the same.
const PER_THREAD: usize = 4;

/// A shard has room for at least this many typical copies, and for this many of the largest: otherwise its own order is no longer
/// that of all, and the largest find no room.
const FEWEST_TYPICAL: u64 = 32;
const FEWEST_LARGEST: u64 = 4;

/// Shards for `bytes` bytes in all, used by `threads` threads: a power of two.
pub(super) fn count(bytes: u64, typical: usize, largest: usize, threads: usize) -> usize {
    let fewest = FEWEST_TYPICAL.saturating_mul(typical as u64).max(FEWEST_LARGEST.saturating_mul(largest as u64));
    let mut shards = threads.saturating_mul(PER_THREAD).next_power_of_two();
    while shards > 1 && bytes / (shards as u64) < fewest {
        shards /= 2;
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_as_many_as_leave_each_its_order() {
        assert_eq!(count(1 << 40, 8192, 4 << 20, 2), 8, "by the threads");
        assert_eq!(count(1 << 40, 8192, 4 << 20, 48), 256, "by the threads");
        assert_eq!(count(40_000_000, 8192, 4_000_000, 48), 2, "by the largest");
        assert_eq!(count(600_000, 8192, 10_000, 48), 2, "by the typical");
        assert_eq!(count(1_000, 8192, 10_000, 48), 1);
    }
}
