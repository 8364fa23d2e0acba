//! The last five minutes of this node, a point each second, so that a page that is opened begins with them.
//!
//! A point says what happened between two snapshots of the metrics, under the names that the page gives it. Nothing rests on it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use verbena_metrics::{Interval, LatencySnapshot, Snapshot};

use crate::services::loads::ANSWERS;

/// How often there is a point.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Points that are kept: five minutes.
const KEPT: usize = 300;
/// What is answered by whether it came from the cache or not.
const LATENCIES: [&str; 2] = ["verbena_proxy_hit_latency_seconds", "verbena_proxy_miss_latency_seconds"];
const NOT_STORED: &str = "verbena_proxy_not_stored_total";
/// The reason of a registration whose home answered too late. Those that a home refused begin with [`REFUSED`].
const LATE: &str = "home-late";
const REFUSED: &str = "refused-";

/// The newest points, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Charts {
    last: Option<Snapshot>,
    /// At most [`KEPT`].
    points: VecDeque<Point>,
}

/// What happened in one second: rates per second, times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// When it ended, in seconds of the clock that `at_ns` of the metrics reads.
    at: f64,
    hit: f64,
    miss: f64,
    pass: f64,
    update: f64,
    error: f64,
    answers: f64,
    /// Of hits and misses; none where there was neither.
    ratio: Option<f64>,
    median: Option<f64>,
    p99: Option<f64>,
    updates: f64,
    /// By reason.
    refused: BTreeMap<String, f64>,
    refusals: f64,
}

impl Charts {
    /// The metrics are these now.
    pub(crate) fn record(&mut self, now: Snapshot) {
        let point = self.last.as_ref().and_then(|last| point(last, &now));
        self.last = Some(now);
        if let Some(point) = point {
            if self.points.len() == KEPT {
                self.points.pop_front();
            }
            self.points.push_back(point);
        }
    }

    /// All that are kept.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.points.iter().cloned().collect()
    }
}

fn point(earlier: &Snapshot, later: &Snapshot) -> Option<Point> {
    let interval = Interval::between(earlier, later);
    if interval.length().is_zero() {
        return None;
    }
    let rate = |name: &str, labels: &[(&str, &str)]| interval.rate(name, labels).unwrap_or(0.0);
    let answers = |result| rate(ANSWERS, &[("result", result)]);
    let (hit, miss) = (answers("hit"), answers("miss"));
    let latencies = LATENCIES.iter().filter_map(|name| interval.latency(name, &[]));
    let latency = latencies.fold(LatencySnapshot::empty(), |all, one| all.merged(&one));
    let quantile = |q| latency.quantile(q).map(|time| time.as_secs_f64());
    let not_stored = later.metrics.iter().filter(|metric| metric.name == NOT_STORED).flat_map(|metric| &metric.series);
    let refused: BTreeMap<String, f64> = not_stored
        .flat_map(|series| series.labels.first())
        .map(|(_, reason)| reason.as_str())
        .filter(|reason| reason.starts_with(REFUSED) || *reason == LATE)
        .map(|reason| (reason.trim_start_matches(REFUSED).to_owned(), rate(NOT_STORED, &[("reason", reason)])))
        .collect();
    Some(Point {
        at: later.at.nanos() as f64 / 1e9,
        hit,
        miss,
        pass: answers("pass"),
        update: answers("update"),
        error: answers("error"),
        answers: rate(ANSWERS, &[]),
        ratio: (hit + miss > 0.0).then(|| hit / (hit + miss)),
        median: quantile(0.5),
        p99: quantile(0.99),
        updates: rate("verbena_content_updates_total", &[]),
        refusals: refused.values().sum(),
        refused,
    })
}

#[cfg(test)]
mod tests {
    use verbena_metrics::{Counter, Registry};
    use verbena_terms::Time;

    use super::*;

    #[test]
    fn a_point_is_what_happened_between_two_snapshots_and_five_minutes_are_kept() {
        let registry = Registry::new();
        let answers = registry.family::<Counter, 1>(ANSWERS, "Answers", ["result"], 8).unwrap();
        let refused = registry.family::<Counter, 1>(NOT_STORED, "Not stored", ["reason"], 8).unwrap();
        let latency = registry.latency(LATENCIES[0], "Hits").unwrap();
        let mut charts = Charts::default();
        answers.with(["hit"]).add(1000);
        charts.record(registry.snapshot(Time::from_nanos(1_000_000_000)));
        assert_eq!(charts.points(), []);
        answers.with(["hit"]).add(30);
        answers.with(["miss"]).add(10);
        refused.with(["refused-moved"]).add(4);
        refused.with(["set-cookie"]).add(4);
        (0..100).for_each(|_| latency.record(Duration::from_micros(80)));
        charts.record(registry.snapshot(Time::from_nanos(3_000_000_000)));
        let points = charts.points();
        let [point] = &points[..] else { panic!("one point") };
        assert_eq!((point.at, point.hit, point.miss, point.answers, point.ratio), (3.0, 15.0, 5.0, 20.0, Some(0.75)));
        assert_eq!((point.refusals, point.refused.clone()), (2.0, BTreeMap::from([("moved".to_owned(), 2.0)])));
        assert!(point.p99.is_some_and(|p99| (75e-6..85e-6).contains(&p99)), "{point:?}");

        for second in 4..=KEPT as u64 + 10 {
            charts.record(registry.snapshot(Time::from_nanos(second * 1_000_000_000)));
        }
        let points = charts.points();
        assert_eq!((points.len(), points[0].at, points[KEPT - 1].at), (KEPT, 11.0, KEPT as f64 + 10.0));
        assert_eq!((points[0].answers, points[0].ratio, points[0].median), (0.0, None, None));
        let shown = serde_json::to_value(&points[0]).unwrap();
        assert!(shown["at"] == 11.0 && shown["ratio"].is_null() && shown["refused"]["moved"] == 0.0, "{shown}");
    }
}
