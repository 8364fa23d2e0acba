//! What happened between two readings, for as long as a chart is wide.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use verbena_metrics::{Interval, LatencySnapshot};

use super::reading::Reading;

/// Moments that are kept: three minutes of one a second.
const KEPT: usize = 180;

const ANSWERS: &str = "verbena_proxy_answers_total";
const NOT_STORED: &str = "verbena_proxy_not_stored_total";
const EMPTIED: &str = "verbena_proxy_emptied_total";
const UPDATES: &str = "verbena_content_updates_total";
const LATENCIES: [&str; 2] = ["verbena_proxy_hit_latency_seconds", "verbena_proxy_miss_latency_seconds"];

/// All that is drawn.
#[derive(Debug, Default)]
pub struct History {
    /// The newest reading.
    pub reading: Option<Reading>,
    /// What happened between readings, the newest last.
    pub moments: VecDeque<Moment>,
    /// Why there is no newer reading, if the last question had no answer.
    pub trouble: Option<String>,
}

/// What happened between two readings. Rates are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    /// When: the node's clock, seconds.
    pub at_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// Whether the node runs a proxy; without one there are no requests.
    pub has_proxy: bool,
    /// Answers to clients.
    pub requests_per_second: f64,
    /// Answers from the cache.
    pub hits_per_second: f64,
    /// Answers that were fetched, and could have been hits.
    pub fetched_per_second: f64,
    /// Errors.
    pub errors_per_second: f64,
    /// Hits among hits and fetched. `None` if there were neither.
    pub hit_ratio: Option<f64>,
    /// Half of the answers took at most this long, in seconds. `None` without answers.
    pub median_seconds: Option<f64>,
    /// 99 of 100 answers took at most this long, in seconds.
    pub p99_seconds: Option<f64>,
    /// Updates that began at every home.
    pub updates_per_second: f64,
    /// Registrations that a home refused, or answered too late.
    pub refused_per_second: f64,
    /// The same by reason, those that there were.
    pub refused: BTreeMap<String, f64>,
    /// Requests that emptied the cache, by first segment of the path and status of the answer (`/cart 200`), those that there were.
    pub emptied_per_second: BTreeMap<String, f64>,
}

impl History {
    /// Takes an answer. Returns what happened since the one before, if that was of the same process.
    pub fn answered(&mut self, reading: Reading) -> Option<&Moment> {
        self.trouble = None;
        let earlier = self.reading.replace(reading);
        let (earlier, later) = (earlier.as_ref()?, self.reading.as_ref()?);
        if earlier.status.pid != later.status.pid || earlier.status.name != later.status.name {
            // Its counters begin at 0, and its clock may be another machine's.
            self.moments.clear();
            return None;
        }
        let moment = Moment::between(earlier, later)?;
        if self.moments.len() == KEPT {
            self.moments.pop_front();
        }
        self.moments.push_back(moment);
        self.moments.back()
    }

    /// There is no answer. What was known stays.
    pub fn failed(&mut self, why: String) {
        self.trouble = Some(why);
    }
}

impl Moment {
    /// `None` if no time has passed.
    fn between(earlier: &Reading, later: &Reading) -> Option<Moment> {
        let interval = Interval::between(&earlier.metrics, &later.metrics);
        let seconds = interval.length().as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let answers = |result| interval.rate(ANSWERS, &[("result", result)]).unwrap_or(0.0);
        let latency = LATENCIES.iter().filter_map(|name| interval.latency(name, &[]));
        let latency = latency.reduce(|one, other| one.merged(&other)).unwrap_or_else(LatencySnapshot::empty);
        let quantile = |q| latency.quantile(q).map(|latency| latency.as_secs_f64());
        let refused = refused(&interval, later);
        Some(Moment {
            at_seconds: later.metrics.at.nanos() as f64 / 1e9,
            seconds,
            has_proxy: later.metrics.metrics.iter().any(|metric| metric.name == ANSWERS),
            requests_per_second: interval.rate(ANSWERS, &[]).unwrap_or(0.0),
            hits_per_second: answers("hit"),
            fetched_per_second: answers("miss"),
            errors_per_second: answers("error"),
            hit_ratio: interval.share((ANSWERS, &[("result", "hit")]), (ANSWERS, &[("result", "miss")])).or_else(
                || {
                    // Before the first hit or miss there is no such series.
                    let (hits, fetched) = (answers("hit"), answers("miss"));
                    (hits + fetched > 0.0).then(|| hits / (hits + fetched))
                },
            ),
            median_seconds: quantile(0.5),
            p99_seconds: quantile(0.99),
            updates_per_second: interval.rate(UPDATES, &[]).unwrap_or(0.0),
            // A sum of nothing is -0, which would be shown so.
            refused_per_second: refused.values().sum::<f64>() + 0.0,
            refused,
            emptied_per_second: emptied(&interval, later),
        })
    }
}

/// Registrations that were refused, per second, by reason.
fn refused(interval: &Interval<'_>, later: &Reading) -> BTreeMap<String, f64> {
    let metric = later.metrics.metrics.iter().find(|metric| metric.name == NOT_STORED);
    let reasons = metric.into_iter().flat_map(|metric| &metric.series).flat_map(|series| &series.labels);
    let rate = |reason: &str| {
        let name = match reason {
            "home-late" => reason,
            _ => reason.strip_prefix("refused-")?,
        };
        let rate = interval.rate(NOT_STORED, &[("reason", reason)])?;
        (rate > 0.0).then(|| (name.to_owned(), rate))
    };
    reasons.filter_map(|(_, reason)| rate(reason)).collect()
}

/// Requests that emptied the cache, per second, by path and status.
fn emptied(interval: &Interval<'_>, later: &Reading) -> BTreeMap<String, f64> {
    let metric = later.metrics.metrics.iter().find(|metric| metric.name == EMPTIED);
    let rate = |labels: &[(String, String)]| {
        let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let rate = interval.rate(EMPTIED, &labels).filter(|rate| *rate > 0.0)?;
        Some((labels.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(" "), rate))
    };
    metric.into_iter().flat_map(|metric| &metric.series).filter_map(|series| rate(&series.labels)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use verbena_metrics::{Counter, Family, Latency, Registry};
    use verbena_terms::Time;

    use super::*;

    /// A node whose metrics a test drives.
    pub struct Shop {
        registry: Registry,
        pub answers: Family<Counter, 1>,
        pub not_stored: Family<Counter, 1>,
        pub emptied: Family<Counter, 2>,
        pub hits: Latency,
        pub misses: Latency,
        pub updates: Counter,
    }

    impl Shop {
        pub fn new() -> Shop {
            let registry = Registry::new();
            Shop {
                answers: registry.family(ANSWERS, "Answers", ["result"], 8).unwrap(),
                not_stored: registry.family(NOT_STORED, "Not stored", ["reason"], 8).unwrap(),
                emptied: registry.family(EMPTIED, "Emptied", ["path", "status"], 8).unwrap(),
                hits: registry.latency(LATENCIES[0], "Hits").unwrap(),
                misses: registry.latency(LATENCIES[1], "Misses").unwrap(),
                updates: registry.counter(UPDATES, "Updates").unwrap(),
                registry,
            }
        }

        /// As it is read over HTTP.
        pub fn reading(&self, at_ms: u64, pid: u32) -> Reading {
            let told = serde_json::json!({"state": "member", "view": 3, "acknowledged": 3, "in_effect": 3, "lease_ms": 2000,
                "lease_left_ms": 1500, "uptime_ms": 65_000, "age_ms": 1});
            let load = serde_json::json!({"cores": 4, "busy_milli": 1480, "runnable_milli": 6200, "connections": 7, "programs": 1,
                "every_ms": 100, "memory_bytes": 16_u64 << 30, "available_bytes": 12_u64 << 30, "age_ms": 90,
                "counts": {"answers": 1, "hits": 1, "updates": 1, "locks": 1, "memory": 1, "requests": 1}});
            let load = |rank| if rank == 2 { serde_json::Value::Null } else { load.clone() };
            let member = |rank: u32, told: &serde_json::Value, out: bool| {
                serde_json::json!({"name": format!("shop-{rank}"), "incarnation": {"rank": rank, "start": 1},
                    "address": format!("tcp://10.0.0.{rank}:7001"), "roles": "home,updater", "acknowledged": true, "out": out,
                    "is_self": rank == 1, "told": told, "load": load(rank)})
            };
            let body = serde_json::json!({
                "status": {"version": "0.1.0", "name": "shop-1", "incarnation": {"rank": 1, "start": 1}, "pid": pid,
                    "uptime_ms": 65_000, "state": "member", "fabric": {"provider": "tcp", "why": "", "address": ""},
                    "keeper": 1, "keeper_incarnation": null, "lease_ms": 2000, "lease_left_ms": 1500, "view": 3,
                    "acknowledged": 3, "in_effect": 3, "members": 3, "departed": 0, "refused": null, "clients": 0},
                "members": [member(1, &told, false), member(2, &serde_json::Value::Null, false), member(3, &told, true)],
                "metrics": self.registry.snapshot(Time::from_nanos(at_ms * 1_000_000)).json(),
            });
            Reading::parse(body.to_string().as_bytes()).unwrap()
        }
    }

    #[test]
    fn only_what_happened_in_between_counts() {
        let (shop, mut history) = (Shop::new(), History::default());
        shop.answers.with(["hit"]).add(1_000_000);
        (0..1_000).for_each(|_| shop.hits.record(Duration::from_secs(9)));
        assert_eq!(history.answered(shop.reading(1_000, 7)), None, "one reading says nothing");

        shop.answers.with(["hit"]).add(60);
        shop.answers.with(["miss"]).add(20);
        shop.answers.with(["pass"]).add(4);
        shop.not_stored.with(["refused-moved"]).add(6);
        shop.not_stored.with(["home-late"]).add(2);
        shop.not_stored.with(["unstorable"]).add(50);
        shop.emptied.with(["/xmlrpc.php", "404"]).add(8);
        shop.emptied.with(["/cart", "200"]).add(2);
        shop.updates.add(10);
        (0..99).for_each(|_| shop.hits.record(Duration::from_micros(100)));
        (0..2).for_each(|_| shop.misses.record(Duration::from_millis(10)));
        let moment = history.answered(shop.reading(3_000, 7)).unwrap();
        assert_eq!((moment.seconds, moment.requests_per_second, moment.hits_per_second), (2.0, 42.0, 30.0));
        assert_eq!((moment.hit_ratio, moment.updates_per_second), (Some(0.75), 5.0));
        assert_eq!(moment.refused, BTreeMap::from([("moved".to_owned(), 3.0), ("home-late".to_owned(), 1.0)]));
        assert_eq!(moment.refused_per_second, 4.0);
        let emptied = [("/cart 200".to_owned(), 1.0), ("/xmlrpc.php 404".to_owned(), 4.0)];
        assert_eq!(moment.emptied_per_second, BTreeMap::from(emptied));
        let near = |found: Option<f64>, expected: f64| (found.unwrap() / expected - 1.0).abs() < 0.07;
        assert!(near(moment.median_seconds, 100e-6) && near(moment.p99_seconds, 10e-3), "{moment:?}");
    }

    #[test]
    fn nothing_asked_is_no_ratio_and_no_latency() {
        let (shop, mut history) = (Shop::new(), History::default());
        history.answered(shop.reading(1_000, 7));
        let moment = history.answered(shop.reading(2_000, 7)).unwrap();
        assert_eq!((moment.hit_ratio, moment.median_seconds, moment.p99_seconds), (None, None, None));
        assert_eq!((moment.requests_per_second, moment.has_proxy), (0.0, true));
        // All fetched, none from the cache.
        shop.answers.with(["miss"]).add(1);
        assert_eq!(history.answered(shop.reading(3_000, 7)).unwrap().hit_ratio, Some(0.0));
        assert_eq!(history.answered(shop.reading(3_000, 7)), None, "no time has passed");
    }

    #[test]
    fn another_life_begins_anew_and_silence_keeps_what_was() {
        let (shop, mut history) = (Shop::new(), History::default());
        shop.answers.with(["hit"]).add(100);
        (1..=3).for_each(|second| drop(history.answered(shop.reading(second * 1_000, 7)).cloned()));
        assert_eq!(history.moments.len(), 2);
        history.failed("gone".into());
        assert_eq!((history.moments.len(), history.trouble.as_deref()), (2, Some("gone")));
        assert_eq!(history.answered(Shop::new().reading(500, 8)), None, "its counters began at 0");
        assert_eq!((history.moments.len(), history.trouble.as_deref()), (0, None));
    }

    #[test]
    fn it_is_bounded() {
        let (shop, mut history) = (Shop::new(), History::default());
        (1..=3 * KEPT as u64).for_each(|second| drop(history.answered(shop.reading(second * 1_000, 7)).cloned()));
        assert_eq!(history.moments.len(), KEPT);
        assert_eq!(history.moments.back().unwrap().at_seconds, 3.0 * KEPT as f64);
    }
}
