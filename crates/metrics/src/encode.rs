//! A snapshot as text for Prometheus.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::latency::LatencySnapshot;
use crate::name::Kind;
use crate::snapshot::{Snapshot, Value};

/// The media type of [`Snapshot::openmetrics`], for the answer's `Content-Type`.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Octaves whose bounds the text carries: 2^8 ns (256 ns) to 1.5 * 2^34 ns (25.8 s), so 54 bounds and `+Inf`.
const TEXT_OCTAVES: std::ops::RangeInclusive<u32> = 8..=34;

impl Snapshot {
    /// The OpenMetrics text. A latency carries two bounds an octave (1 and 1.5 times a power of two of nanoseconds).
    pub fn openmetrics(&self) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        registry.register_collector(Box::new(Face(self.clone())));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("invariant: writing to a String does not fail");
        text
    }
}

/// A snapshot as prometheus-client wants to see it.
#[derive(Debug)]
struct Face(Snapshot);

impl Collector for Face {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for metric in &self.0.metrics {
            // The encoder writes the ending `_total` itself.
            let name = metric.name.strip_suffix("_total").unwrap_or(&metric.name);
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Latency => MetricType::Histogram,
            };
            let mut encoder = encoder.encode_descriptor(name, &metric.help, None, kind)?;
            for series in &metric.series {
                if series.labels.is_empty() {
                    encode_value(&mut encoder, &series.value)?;
                } else {
                    encode_value(&mut encoder.encode_family(&series.labels)?, &series.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(encoder: &mut MetricEncoder, value: &Value) -> Result<(), std::fmt::Error> {
    match value {
        Value::Counter(count) => encoder.encode_counter::<NoLabelSet, u64, u64>(count, None),
        Value::Gauge(level) => encoder.encode_gauge(level),
        Value::Latency(latency) => {
            encoder.encode_histogram::<NoLabelSet>(latency.sum().as_secs_f64(), latency.count(), &bounds(latency), None)
        }
    }
}

/// Upper bounds in seconds, each with the count since the bound before it.
fn bounds(latency: &LatencySnapshot) -> Vec<(f64, u64)> {
    let mut bounds = Vec::with_capacity(56);
    let mut before = 0;
    for bit in TEXT_OCTAVES {
        let (below_one, below_one_and_a_half) = latency.below_octave(bit);
        bounds.push(((2u64 << bit) as f64 / 2e9, below_one - before));
        bounds.push(((3u64 << bit) as f64 / 2e9, below_one_and_a_half - below_one));
        before = below_one_and_a_half;
    }
    bounds.push((f64::INFINITY, latency.count() - before));
    bounds
}
