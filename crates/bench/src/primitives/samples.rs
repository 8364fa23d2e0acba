//! Taking samples: one operation again and again, and what became of it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cpu;
use crate::stats::RoundSummary;

/// Samples that a stretch has at least, however slow they are.
const FEWEST: usize = 3;

/// What one stretch of one variant gave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Stretch {
    /// Microseconds an operation.
    pub(crate) latency_us: RoundSummary,
    /// Operations a second.
    pub(crate) per_s: f64,
    /// Processor seconds of the target for a million operations.
    pub(crate) peer_cpu_s: f64,
    /// The same of the caller.
    pub(crate) own_cpu_s: f64,
}

/// The caller's part of a [`Stretch`].
pub(crate) struct Samples {
    us: Vec<f64>,
    operations: u64,
    took: Duration,
    own_cpu_ns: u64,
}

impl Samples {
    /// Calls `repeat`, which does the number of operations that it is given, for about `length`. A sample spans
    /// `shortest` at least, because reading the clock must not count.
    pub(crate) fn take<E>(
        length: Duration,
        shortest: Duration,
        mut repeat: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<Self, E> {
        const TRIALS: u64 = 2;
        let (started, before) = (Instant::now(), own_cpu_ns());
        let (mut quickest, mut trials) = (Duration::MAX, 0);
        while trials == 0 || (trials < TRIALS && started.elapsed() < length) {
            trials += 1;
            let start = Instant::now();
            repeat(1)?;
            quickest = quickest.min(start.elapsed());
        }
        let together = shortest.as_nanos().div_ceil(quickest.as_nanos().max(1)).clamp(1, 256) as u32;

        let mut us = Vec::new();
        while us.len() < FEWEST || started.elapsed() < length {
            let start = Instant::now();
            repeat(together)?;
            us.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(together));
        }
        let operations = trials + us.len() as u64 * u64::from(together);
        let (took, own_cpu_ns) = (started.elapsed(), own_cpu_ns().saturating_sub(before));
        Ok(Samples { us, operations, took, own_cpu_ns })
    }

    /// With the processor time that the target took meanwhile. A sample is of an operation that went `ways` ways, one of which counts.
    pub(crate) fn summarise(mut self, ways: f64, peer_cpu_ns: u64) -> Stretch {
        self.us.iter_mut().for_each(|sample| *sample /= ways);
        let each = |taken_ns: u64| taken_ns as f64 / 1e9 / self.operations as f64 * 1e6;
        Stretch {
            latency_us: RoundSummary::of(&mut self.us).expect("invariant: a stretch has samples"),
            per_s: self.operations as f64 / self.took.as_secs_f64(),
            peer_cpu_s: each(peer_cpu_ns),
            own_cpu_s: each(self.own_cpu_ns),
        }
    }
}

fn own_cpu_ns() -> u64 {
    cpu::taken_ns(std::process::id()).expect("invariant: a process has a clock of its own")
}
