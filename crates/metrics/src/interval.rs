//! What happened between two snapshots: the live line's numbers, and a benchmark's.

use std::time::Duration;

use crate::latency::LatencySnapshot;
use crate::snapshot::Snapshot;

/// The time between two snapshots of one registry. Every question takes labels as [`Snapshot::counter`] does.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'a> {
    earlier: &'a Snapshot,
    later: &'a Snapshot,
}

impl<'a> Interval<'a> {
    /// From `earlier` to `later`.
    pub fn between(earlier: &'a Snapshot, later: &'a Snapshot) -> Self {
        Interval { earlier, later }
    }

    /// How long it was.
    pub fn length(&self) -> Duration {
        self.later.at.since(self.earlier.at)
    }

    /// How much a counter grew. `None` if the later snapshot has no such counter; one that appeared in the interval
    /// grew from 0.
    pub fn growth(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let now = self.later.counter(name, labels)?;
        Some(now.wrapping_sub(self.earlier.counter(name, labels).unwrap_or(0)))
    }

    /// How much a counter grew per second. `None` if there is no such counter, or the interval is empty.
    pub fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let seconds = self.length().as_secs_f64();
        (seconds > 0.0).then_some(self.growth(name, labels)? as f64 / seconds)
    }

    /// The share that counter `part` has in the growth of `part` and `rest` together: a hit ratio. `None` if neither
    /// grew.
    pub fn share(&self, part: (&str, &[(&str, &str)]), rest: (&str, &[(&str, &str)])) -> Option<f64> {
        let part = self.growth(part.0, part.1)?;
        let whole = part + self.growth(rest.0, rest.1)?;
        (whole > 0).then_some(part as f64 / whole as f64)
    }

    /// The latencies recorded in the interval.
    pub fn latency(&self, name: &str, labels: &[(&str, &str)]) -> Option<LatencySnapshot> {
        let now = self.later.latency(name, labels)?;
        match self.earlier.latency(name, labels) {
            Some(then) => Some(now.since(&then)),
            None => Some(now),
        }
    }

    /// The latency that a share `q` of those in the interval did not exceed. `None` if none was recorded.
    pub fn quantile(&self, name: &str, labels: &[(&str, &str)], q: f64) -> Option<Duration> {
        self.latency(name, labels)?.quantile(q)
    }
}

#[cfg(test)]
mod tests {
    use verbena_terms::Time;

    use crate::{Counter, Registry};

    use super::*;

    #[test]
    fn only_the_interval_counts() {
        let registry = Registry::new();
        let requests = registry.family::<Counter, 1>("verbena_proxy_requests_total", "Requests", ["cache"], 4).unwrap();
        let latency = registry.latency("verbena_proxy_response_seconds", "Response time").unwrap();

        requests.with(["hit"]).add(1_000);
        latency.record(Duration::from_secs(9));
        let earlier = registry.snapshot(Time::from_nanos(1_000_000_000));

        requests.with(["hit"]).add(30);
        requests.with(["miss"]).add(10);
        (0..100).for_each(|_| latency.record(Duration::from_micros(80)));
        let later = registry.snapshot(Time::from_nanos(3_000_000_000));

        let interval = Interval::between(&earlier, &later);
        assert_eq!(interval.length(), Duration::from_secs(2));
        let name = "verbena_proxy_requests_total";
        assert_eq!(interval.rate(name, &[]), Some(20.0));
        assert_eq!(interval.rate(name, &[("cache", "miss")]), Some(5.0));
        assert_eq!(interval.share((name, &[("cache", "hit")]), (name, &[("cache", "miss")])), Some(0.75));
        assert_eq!(interval.latency("verbena_proxy_response_seconds", &[]).unwrap().count(), 100);
        let p99 = interval.quantile("verbena_proxy_response_seconds", &[], 0.99).unwrap();
        assert!((75..=85).contains(&p99.as_micros()), "the 9 s before the interval do not count: {p99:?}");

        assert_eq!(interval.rate("verbena_proxy_absent_total", &[]), None);
        assert_eq!(Interval::between(&later, &later).rate(name, &[]), None);
        assert_eq!(Interval::between(&later, &later).quantile("verbena_proxy_response_seconds", &[], 0.5), None);
    }
}
