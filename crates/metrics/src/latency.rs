//! Latencies: a histogram with log-linear buckets, as in HdrHistogram, sharded like a counter.
//!
//! Nanoseconds fall into buckets by their highest bit and the three bits after it:
//!
//! ```text
//!  value            bucket                              width
//!  0 .. 7           one for each value                  1 ns
//!  8 .. 15          8 + 3 bits                          1 ns
//!  2^k .. 2^k+1     8 * (k - 2) + 3 bits after the top  2^(k-3) ns
//!  2^36 and more    the last, which has no upper end    (68.7 s)
//! ```
//!
//! A bucket is at most 1/8 of its lower end wide, so its middle is within 1/16 of everything in it: a quantile read
//! from a snapshot is off by at most [`MAX_QUANTILE_ERROR`] (plus a nanosecond). The text for Prometheus carries fewer
//! bounds (two per octave, see `encode.rs`): what a remote server interpolates from it is coarser than what is read here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::cell::{own_shard, shard_count};

const SUB_BITS: u32 = 3;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
const LONGEST_BIT: u32 = 36;
const BUCKETS: usize = ((LONGEST_BIT - SUB_BITS + 1) * SUB_BUCKETS as u32) as usize + 1;

/// Relative error of a quantile, at most, for latencies below [`LONGEST`].
pub const MAX_QUANTILE_ERROR: f64 = 0.0625;

/// Longer latencies than this are counted, and summed, but told apart no more.
pub const LONGEST: Duration = Duration::from_nanos(1 << LONGEST_BIT);

/// How long something took, many times. Recording is two relaxed additions on lines of the thread's own shard.
#[derive(Clone, Debug)]
pub struct Latency {
    shards: Arc<[CachePadded<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Latency {
    /// One that no registry shows.
    pub fn new() -> Self {
        let shard = || Shard { sum_ns: AtomicU64::new(0), buckets: [const { AtomicU64::new(0) }; BUCKETS] };
        Latency { shards: (0..shard_count()).map(|_| CachePadded::new(shard())).collect() }
    }

    /// Records one occurrence that took `elapsed`.
    #[inline]
    pub fn record(&self, elapsed: Duration) {
        // 2^64 ns are 584 years; what claims to be longer is as good as that.
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let shard = &self.shards[own_shard(self.shards.len())];
        shard.sum_ns.fetch_add(nanos, Ordering::Relaxed);
        shard.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts at this moment. Recordings that run meanwhile are in it or not, each as a whole in the buckets.
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut snapshot = LatencySnapshot { sum_ns: 0, buckets: vec![0; BUCKETS] };
        for shard in self.shards.iter() {
            snapshot.sum_ns = snapshot.sum_ns.wrapping_add(shard.sum_ns.load(Ordering::Relaxed));
            for (sum, bucket) in snapshot.buckets.iter_mut().zip(&shard.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        snapshot
    }
}

/// The counts of a [`Latency`], at a moment or over an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencySnapshot {
    sum_ns: u64,
    buckets: Vec<u64>,
}

impl LatencySnapshot {
    /// Nothing recorded.
    pub fn empty() -> Self {
        LatencySnapshot { sum_ns: 0, buckets: vec![0; BUCKETS] }
    }

    /// What these buckets hold, each named by a latency that falls into it, and counted.
    pub(crate) fn of_buckets(sum: Duration, counted: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut snapshot =
            LatencySnapshot { sum_ns: u64::try_from(sum.as_nanos()).unwrap_or(u64::MAX), ..Self::empty() };
        for (nanos, count) in counted {
            let bucket = &mut snapshot.buckets[bucket_of(nanos)];
            *bucket = bucket.saturating_add(count);
        }
        snapshot
    }

    /// The buckets that are not empty, shortest first: the middle of each in nanoseconds, and how many fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (middle_of(at), *count))
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all that was recorded.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }

    /// The mean, if anything was recorded.
    pub fn mean(&self) -> Option<Duration> {
        self.sum_ns.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// The latency that a share `q` (0 to 1) of the occurrences did not exceed, within [`MAX_QUANTILE_ERROR`]; `None`
    /// if nothing was recorded. Of what was longer than [`LONGEST`] it says `LONGEST`.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, recorded) in self.buckets.iter().enumerate() {
            below += recorded;
            if below >= rank {
                return Some(Duration::from_nanos(middle_of(bucket)));
            }
        }
        None
    }

    /// How many took at most 2^`bit` ns, and at most 1.5 * 2^`bit` ns (bounds are bucket ends: the counts are exact, but
    /// for a latency equal to the bound, which counts as longer).
    pub(crate) fn below_octave(&self, bit: u32) -> (u64, u64) {
        let start = bucket_of(1 << bit);
        let below = self.buckets[..start].iter().sum::<u64>();
        (below, below + self.buckets[start..start + SUB_BUCKETS as usize / 2].iter().sum::<u64>())
    }

    /// What was recorded after `earlier` and until this snapshot.
    pub fn since(&self, earlier: &LatencySnapshot) -> LatencySnapshot {
        let buckets = self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then));
        LatencySnapshot { sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns), buckets: buckets.collect() }
    }

    /// Both together.
    pub fn merged(&self, other: &LatencySnapshot) -> LatencySnapshot {
        let buckets = self.buckets.iter().zip(&other.buckets).map(|(a, b)| a + b);
        LatencySnapshot { sum_ns: self.sum_ns.wrapping_add(other.sum_ns), buckets: buckets.collect() }
    }
}

#[inline]
fn bucket_of(nanos: u64) -> usize {
    if nanos < SUB_BUCKETS {
        return nanos as usize;
    }
    let top = nanos.ilog2();
    if top >= LONGEST_BIT {
        return BUCKETS - 1;
    }
    let sub = (nanos >> (top - SUB_BITS)) & (SUB_BUCKETS - 1);
    (u64::from(top - SUB_BITS + 1) * SUB_BUCKETS + sub) as usize
}

fn middle_of(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return LONGEST.as_nanos() as u64;
    }
    let (octave, sub) = (bucket as u64 / SUB_BUCKETS, bucket as u64 % SUB_BUCKETS);
    match octave.checked_sub(1) {
        None => sub,
        Some(shift) => ((SUB_BUCKETS + sub) << shift) + ((1 << shift) >> 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        let mut checked = 0;
        let mut nanos = 1u64;
        while nanos < 1 << LONGEST_BIT {
            for near in [nanos - 1, nanos, nanos + 1] {
                let middle = middle_of(bucket_of(near));
                let error = middle.abs_diff(near) as f64;
                assert!(error <= near as f64 * MAX_QUANTILE_ERROR + 1.0, "{near} ns is shown as {middle} ns");
                checked += 1;
            }
            nanos += 1 + nanos / 50;
        }
        assert!(checked > 2_000);
    }

    #[test]
    fn buckets_follow_each_other_without_gap() {
        let mut last = 0;
        for nanos in 1..1 << 16 {
            let bucket = bucket_of(nanos);
            assert!(bucket == last || bucket == last + 1, "at {nanos} ns");
            last = bucket;
        }
        assert_eq!(bucket_of((1 << LONGEST_BIT) - 1), BUCKETS - 2);
        assert_eq!(bucket_of(1 << LONGEST_BIT), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_keep_the_stated_error() {
        let latency = Latency::new();
        for micros in 1..=100_000u64 {
            latency.record(Duration::from_micros(micros));
        }
        let snapshot = latency.snapshot();
        assert_eq!(snapshot.count(), 100_000);
        assert_eq!(snapshot.sum(), Duration::from_micros(100_000 * 100_001 / 2));
        for (q, exact_us) in [(0.0, 1.0), (0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0), (1.0, 100_000.0)] {
            let shown_us = snapshot.quantile(q).unwrap().as_secs_f64() * 1e6;
            assert!((shown_us / exact_us - 1.0).abs() <= MAX_QUANTILE_ERROR, "q {q}: {shown_us} us for {exact_us} us");
        }
    }

    #[test]
    fn a_bucket_is_found_again_by_its_middle() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(middle_of(bucket)), bucket);
        }
    }

    #[test]
    fn nothing_recorded_has_no_quantile() {
        assert_eq!(LatencySnapshot::empty().quantile(0.5), None);
        assert_eq!(LatencySnapshot::empty().mean(), None);
    }

    #[test]
    fn octaves_count_what_is_below_them() {
        let latency = Latency::new();
        for nanos in [900, 1023, 1024, 1535, 1536, 2047, 5000] {
            latency.record(Duration::from_nanos(nanos));
        }
        assert_eq!(latency.snapshot().below_octave(10), (2, 4));
        assert_eq!(latency.snapshot().below_octave(11), (6, 6));
    }
}
