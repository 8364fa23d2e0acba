//! What the registry showed at one moment.

use verbena_terms::Time;

use crate::latency::LatencySnapshot;
use crate::name::Kind;

/// Every metric of a registry at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Time,
    /// The metrics, in order of their names.
    pub metrics: Vec<MetricSnapshot>,
}

/// One metric of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSnapshot {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub help: String,
    /// What kind it is.
    pub kind: Kind,
    /// Its series, in order of their label values; one, without labels, if it has no labels.
    pub series: Vec<Series>,
}

/// One series of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    /// What it showed.
    pub value: Value,
}

/// What a series showed.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Counter(u64),
    /// A level.
    Gauge(f64),
    /// A distribution of durations.
    Latency(LatencySnapshot),
}

impl Snapshot {
    /// The sum of counter `name` over the series that carry all of `labels` (`&[]`: over all). `None` if no such
    /// counter is there.
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        let counts = self.matching(name, labels).filter_map(|value| match value {
            Value::Counter(count) => Some(*count),
            _ => None,
        });
        counts.reduce(u64::wrapping_add)
    }

    /// The sum of gauge `name` over the series that carry all of `labels`.
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let levels = self.matching(name, labels).filter_map(|value| match value {
            Value::Gauge(level) => Some(*level),
            _ => None,
        });
        levels.reduce(|a, b| a + b)
    }

    /// The latencies of `name`, over the series that carry all of `labels` together.
    pub fn latency(&self, name: &str, labels: &[(&str, &str)]) -> Option<LatencySnapshot> {
        let latencies = self.matching(name, labels).filter_map(|value| match value {
            Value::Latency(latency) => Some(latency.clone()),
            _ => None,
        });
        latencies.reduce(|a, b| a.merged(&b))
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Value> {
        let carries = |series: &Series| {
            labels.iter().all(|(label, value)| series.labels.iter().any(|(l, v)| l == label && v == value))
        };
        let metric = self.metrics.iter().find(|metric| metric.name == name);
        metric.into_iter().flat_map(|metric| &metric.series).filter(move |series| carries(series)).map(|s| &s.value)
    }
}
