//! The one place where names meet numbers.

use std::sync::Arc;

use parking_lot::RwLock;
use thiserror::Error;
use verbena_terms::Time;

use crate::family::{Family, Metric};
use crate::name::{Kind, NameError, check_label, check_name};
use crate::snapshot::{MetricSnapshot, Series, Snapshot, Value};
use crate::{Counter, Gauge, Latency, Level};

const FOLDED: &str = "verbena_metrics_folded_total";

/// Why a metric could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// The metric's or a label's name breaks a rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The name has an owner: share its handle, or find another name.
    #[error("metric `{name}` is registered already: pass its handle on, or use another name")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A metric that says not what it is.
    #[error("metric `{name}` has an empty help text: say in one sentence what it counts")]
    Help {
        /// The name.
        name: String,
    },
}

/// The metrics of one process (or of one node in a simulation). Cloning gives another handle on the same registry.
#[derive(Clone, Default)]
pub struct Registry {
    entries: Arc<RwLock<Vec<Arc<Entry>>>>,
}

struct Entry {
    name: String,
    help: String,
    kind: Kind,
    labels: Vec<String>,
    source: Source,
}

/// Reads every series of a metric: its label values, and what it shows.
type Source = Box<dyn Fn() -> Read + Send + Sync>;

struct Read {
    series: Vec<(Vec<String>, Value)>,
    folded: Option<u64>,
}

impl Read {
    fn single(value: Value) -> Self {
        Read { series: vec![(Vec::new(), value)], folded: None }
    }
}

impl Registry {
    /// A registry with nothing in it.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Registers a counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, RegistryError> {
        self.single(name, help)
    }

    /// Registers a gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, RegistryError> {
        self.single(name, help)
    }

    /// Registers a latency.
    pub fn latency(&self, name: &str, help: &str) -> Result<Latency, RegistryError> {
        self.single(name, help)
    }

    /// Registers a metric with labels, of at most `limit` series (see [`Family::with`] for what happens beyond).
    pub fn family<M: Metric, const N: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; N],
        limit: usize,
    ) -> Result<Family<M, N>, RegistryError> {
        let family = Family::<M, N>::new(limit);
        let source = family.clone();
        self.register(name, help, M::KIND, &labels, move || Read {
            series: source.read(),
            folded: Some(source.folded()),
        })?;
        Ok(family)
    }

    /// Registers a counter that somebody below keeps: `read` is called at every snapshot, and must not block.
    pub fn counter_from(
        &self,
        name: &str,
        help: &str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(), RegistryError> {
        self.register(name, help, Kind::Counter, &[], move || Read::single(Value::Counter(read())))
    }

    /// Registers a gauge that is computed when it is looked at: `read` is called at every snapshot, and must not block.
    pub fn gauge_from(
        &self,
        name: &str,
        help: &str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), RegistryError> {
        self.register(name, help, Kind::Gauge, &[], move || Read::single(Value::Gauge(read())))
    }

    /// A gauge of what is going on, which is never set.
    pub fn level(&self, name: &str, help: &str) -> Result<Level, RegistryError> {
        let level = Level::new();
        let read = level.clone();
        self.gauge_from(name, help, move || read.value() as f64)?;
        Ok(level)
    }

    /// Everything, read once, in order of names. `now` is the moment it is said to be taken at.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        self.read(now, |_| true)
    }

    /// The same of the metrics of these names alone.
    pub fn snapshot_of(&self, names: &[&str], now: Time) -> Snapshot {
        self.read(now, |name| names.contains(&name))
    }

    fn read(&self, now: Time, is_wanted: impl Fn(&str) -> bool) -> Snapshot {
        // Read outside the lock: a source may be slow, and may even register.
        let entries: Vec<_> = self.entries.read().iter().filter(|entry| is_wanted(&entry.name)).cloned().collect();
        let mut folded = Vec::new();
        let mut metrics: Vec<MetricSnapshot> = entries
            .iter()
            .map(|entry| {
                let read = (entry.source)();
                if let Some(count) = read.folded {
                    folded.push(Series {
                        labels: vec![("metric".to_owned(), entry.name.clone())],
                        value: Value::Counter(count),
                    });
                }
                entry.snapshot(read.series)
            })
            .collect();
        if !folded.is_empty() && is_wanted(FOLDED) {
            metrics.push(MetricSnapshot {
                name: FOLDED.to_owned(),
                help: "Look-ups that found a metric full of series and were counted under other".to_owned(),
                kind: Kind::Counter,
                series: folded,
            });
        }
        metrics.sort_by(|a, b| a.name.cmp(&b.name));
        Snapshot { at: now, metrics }
    }

    fn single<M: Metric>(&self, name: &str, help: &str) -> Result<M, RegistryError> {
        let metric = M::zero();
        let source = metric.clone();
        self.register(name, help, M::KIND, &[], move || Read::single(source.read()))?;
        Ok(metric)
    }

    fn register(
        &self,
        name: &str,
        help: &str,
        kind: Kind,
        labels: &[&str],
        source: impl Fn() -> Read + Send + Sync + 'static,
    ) -> Result<(), RegistryError> {
        check_name(kind, name)?;
        labels.iter().try_for_each(|label| check_label(label))?;
        if help.trim().is_empty() {
            return Err(RegistryError::Help { name: name.to_owned() });
        }
        let mut entries = self.entries.write();
        if name == FOLDED || entries.iter().any(|entry| entry.name == name) {
            return Err(RegistryError::Duplicate { name: name.to_owned() });
        }
        entries.push(Arc::new(Entry {
            name: name.to_owned(),
            help: help.to_owned(),
            kind,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            source: Box::new(source),
        }));
        Ok(())
    }
}

impl Entry {
    fn snapshot(&self, series: Vec<(Vec<String>, Value)>) -> MetricSnapshot {
        let series = series
            .into_iter()
            .map(|(values, value)| Series { labels: self.labels.iter().cloned().zip(values).collect(), value })
            .collect();
        MetricSnapshot { name: self.name.clone(), help: self.help.clone(), kind: self.kind, series }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_owner() {
        let registry = Registry::new();
        registry.counter("verbena_node_starts_total", "Starts").unwrap();
        let again = registry.gauge_from("verbena_node_starts", "Starts", || 0.0);
        assert_eq!(again, Ok(()));
        assert_eq!(
            registry.counter("verbena_node_starts_total", "Starts").unwrap_err(),
            RegistryError::Duplicate { name: "verbena_node_starts_total".to_owned() }
        );
        assert!(registry.counter(FOLDED, "Mine").is_err());
    }

    #[test]
    fn some_are_read_without_the_others() {
        let registry = Registry::new();
        registry.counter("verbena_node_starts_total", "Starts").unwrap().add(3);
        registry.gauge_from("verbena_node_never", "Not wanted", || panic!("it was read")).unwrap();
        registry.family::<Counter, 1>("verbena_node_ends_total", "Ends", ["why"], 1).unwrap().with(["lease"]).add(2);
        let found = registry.snapshot_of(&["verbena_node_starts_total", "verbena_node_ends_total"], Time::ZERO);
        assert_eq!(found.metrics.len(), 2);
        assert_eq!(found.counter("verbena_node_starts_total", &[]), Some(3));
        assert_eq!(found.counter("verbena_node_ends_total", &[("why", "lease")]), Some(2));
    }

    #[test]
    fn rules_are_checked_at_registration() {
        let registry = Registry::new();
        assert!(matches!(registry.counter("verbena_node_starts", "Starts"), Err(RegistryError::Name(_))));
        assert!(matches!(
            registry.family::<Counter, 1>("verbena_node_starts_total", "Starts", ["le"], 4),
            Err(RegistryError::Name(_))
        ));
        assert!(matches!(registry.counter("verbena_node_starts_total", " "), Err(RegistryError::Help { .. })));
        assert_eq!(registry.snapshot(Time::ZERO).metrics.len(), 0, "nothing refused was registered");
    }
}
