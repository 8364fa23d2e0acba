//! A snapshot as JSON, and back: what the dashboard and `verbena top` compare two of.
//!
//! ```text
//!  {"at_ns": 42, "metrics": [{"name", "kind", "help", "series": [SERIES, ...]}, ...]}
//!
//!  SERIES of a counter, a gauge   {"labels": {NAME: VALUE, ...}, "value": 3}
//!  SERIES of a latency            {"labels": ..., "count": 4, "sum_seconds": 0.001,
//!                                  "p50_seconds": ..., "p90_seconds", "p99_seconds", "p999_seconds",
//!                                  "buckets": [[NANOSECONDS, COUNT], ...]}
//! ```
//!
//! The quantiles are those of everything since the process began, null if nothing was recorded. For those of the time between two
//! readings the buckets are there: those that are not empty, in order, each by its middle. The difference of two readings of a
//! bucket is what fell into it meanwhile.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use verbena_terms::Time;

use crate::latency::LatencySnapshot;
use crate::name::Kind;
use crate::snapshot::{MetricSnapshot, Series, Snapshot, Value};

impl Snapshot {
    /// As JSON.
    pub fn json(&self) -> Json {
        let metric = |metric: &MetricSnapshot| {
            json!({
                "name": metric.name,
                "kind": metric.kind,
                "help": metric.help,
                "series": metric.series.iter().map(series).collect::<Vec<_>>(),
            })
        };
        json!({ "at_ns": self.at.nanos(), "metrics": self.metrics.iter().map(metric).collect::<Vec<_>>() })
    }

    /// The snapshot of which this is the JSON, but for what JSON rounds: the sum of a latency. What the form does not have is
    /// passed over.
    ///
    /// # Errors
    /// What is not as in the form.
    pub fn from_json(json: Json) -> Result<Snapshot, serde_json::Error> {
        let read: Read = serde_json::from_value(json)?;
        let metric = |metric: ReadMetric| {
            let kind = metric.kind;
            let series = metric.series.into_iter().map(|series| series.of(kind)).collect();
            MetricSnapshot { name: metric.name, help: metric.help, kind, series }
        };
        Ok(Snapshot { at: Time::from_nanos(read.at_ns), metrics: read.metrics.into_iter().map(metric).collect() })
    }
}

fn series(series: &Series) -> Json {
    let labels: Map<_, _> = series.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let mut object = match &series.value {
        Value::Counter(count) => json!({ "value": count }),
        Value::Gauge(level) => json!({ "value": level }),
        Value::Latency(latency) => json!({
            "count": latency.count(),
            "sum_seconds": latency.sum().as_secs_f64(),
            "p50_seconds": quantile_seconds(latency, 0.5),
            "p90_seconds": quantile_seconds(latency, 0.9),
            "p99_seconds": quantile_seconds(latency, 0.99),
            "p999_seconds": quantile_seconds(latency, 0.999),
            "buckets": latency.buckets().collect::<Vec<_>>(),
        }),
    };
    object["labels"] = labels.into();
    object
}

fn quantile_seconds(latency: &LatencySnapshot, q: f64) -> Option<f64> {
    latency.quantile(q).map(|quantile| quantile.as_secs_f64())
}

#[derive(Deserialize)]
struct Read {
    at_ns: u64,
    metrics: Vec<ReadMetric>,
}

#[derive(Deserialize)]
struct ReadMetric {
    name: String,
    kind: Kind,
    #[serde(default)]
    help: String,
    series: Vec<ReadSeries>,
}

#[derive(Deserialize)]
struct ReadSeries {
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    value: f64,
    #[serde(default)]
    sum_seconds: f64,
    #[serde(default)]
    buckets: Vec<(u64, u64)>,
}

impl ReadSeries {
    fn of(self, kind: Kind) -> Series {
        let value = match kind {
            // Exact up to 2^53, as in every reader of JSON that knows one kind of number.
            Kind::Counter => Value::Counter(self.value as u64),
            Kind::Gauge => Value::Gauge(self.value),
            Kind::Latency => {
                let sum = Duration::try_from_secs_f64(self.sum_seconds).unwrap_or_default();
                Value::Latency(LatencySnapshot::of_buckets(sum, self.buckets))
            }
        };
        Series { labels: self.labels.into_iter().collect(), value }
    }
}
