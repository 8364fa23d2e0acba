//! How long frames took, as the router sees it.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// From when a frame came to when it had been sent, over all frames of a way that rules and queues let through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Took {
    /// How many.
    pub frames: u64,
    /// Nanoseconds: the shortest.
    pub least_ns: u64,
    /// Half took at most this.
    pub median_ns: u64,
    /// 90 of a hundred took at most this.
    pub p90_ns: u64,
    /// 99 of a hundred took at most this.
    pub p99_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

/// The longest time that is distinguished from longer ones: two hours, in nanoseconds.
const LONGEST: u64 = 7200 * 1_000_000_000;

#[derive(Debug)]
pub(super) struct Recorder(Histogram<u64>);

impl Recorder {
    pub fn new() -> Self {
        // Three digits, from one nanosecond: these bounds are ones that it takes.
        Recorder(Histogram::new_with_bounds(1, LONGEST, 3).unwrap_or_else(|_| unreachable!("bounds that are in order")))
    }

    pub fn record(&mut self, took: Duration) {
        self.0.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(LONGEST));
    }

    pub fn look(&self) -> Took {
        if self.0.is_empty() {
            return Took::default();
        }
        let at = |quantile| self.0.value_at_quantile(quantile);
        Took {
            frames: self.0.len(),
            least_ns: self.0.min(),
            median_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            most_ns: self.0.max(),
        }
    }
}
