//! One metric by labels, with a bound on how many series it may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::name::Kind;
use crate::snapshot::Value;
use crate::{Counter, Gauge, Latency};

/// No family may have more series than this, whatever was asked for.
pub const MAX_SERIES: usize = 256;

/// The value of every label of the series into which a full family folds what it has no room for.
pub const OTHER: &str = "other";

/// What a family can be made of: [`Counter`], [`Gauge`], [`Latency`].
pub trait Metric: Clone + Send + Sync + sealed::Sealed + 'static {
    /// Which kind it is.
    const KIND: Kind;
    /// Nothing recorded yet.
    fn zero() -> Self;
    /// What it shows now.
    fn read(&self) -> Value;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Counter {}
    impl Sealed for crate::Gauge {}
    impl Sealed for crate::Latency {}
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;
    fn zero() -> Self {
        Counter::new()
    }
    fn read(&self) -> Value {
        Value::Counter(self.value())
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;
    fn zero() -> Self {
        Gauge::new()
    }
    fn read(&self) -> Value {
        Value::Gauge(self.value() as f64)
    }
}

impl Metric for Latency {
    const KIND: Kind = Kind::Latency;
    fn zero() -> Self {
        Latency::new()
    }
    fn read(&self) -> Value {
        Value::Latency(self.snapshot())
    }
}

/// A metric with `N` labels. Cloning gives another handle on the same family.
pub struct Family<M, const N: usize> {
    inner: Arc<Inner<M, N>>,
}

struct Inner<M, const N: usize> {
    limit: usize,
    series: RwLock<Vec<([Box<str>; N], M)>>,
    folded: AtomicU64,
}

impl<M, const N: usize> Clone for Family<M, N> {
    fn clone(&self) -> Self {
        Family { inner: Arc::clone(&self.inner) }
    }
}

impl<M: Metric, const N: usize> Family<M, N> {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, MAX_SERIES);
        Family { inner: Arc::new(Inner { limit, series: RwLock::default(), folded: AtomicU64::new(0) }) }
    }

    /// The series with these label values, made if there is room for it. It searches under a lock: a hot path asks
    /// once and keeps the handle. When the family is full, values that it has not seen share the series [`OTHER`].
    pub fn with(&self, values: [&str; N]) -> M {
        if let Some(found) = find(&self.inner.series.read(), values) {
            return found;
        }
        let mut series = self.inner.series.write();
        if let Some(found) = find(&series, values) {
            return found;
        }
        if series.len() < self.inner.limit {
            return insert(&mut series, values);
        }
        self.inner.folded.fetch_add(1, Ordering::Relaxed);
        let other = [OTHER; N];
        match find(&series, other) {
            Some(found) => found,
            None => insert(&mut series, other),
        }
    }

    /// How often [`with`](Self::with) had no room and answered with the series [`OTHER`].
    pub fn folded(&self) -> u64 {
        self.inner.folded.load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> Vec<(Vec<String>, Value)> {
        let series = self.inner.series.read();
        let mut read: Vec<_> = series
            .iter()
            .map(|(values, metric)| (values.iter().map(|value| value.to_string()).collect::<Vec<_>>(), metric.read()))
            .collect();
        read.sort_by(|a, b| a.0.cmp(&b.0));
        read
    }
}

fn find<M: Clone, const N: usize>(series: &[([Box<str>; N], M)], values: [&str; N]) -> Option<M> {
    let same = |held: &[Box<str>; N]| held.iter().zip(values).all(|(held, value)| **held == *value);
    series.iter().find(|(held, _)| same(held)).map(|(_, metric)| metric.clone())
}

fn insert<M: Metric, const N: usize>(series: &mut Vec<([Box<str>; N], M)>, values: [&str; N]) -> M {
    let metric = M::zero();
    series.push((values.map(Box::from), metric.clone()));
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_again() {
        let family = Family::<Counter, 2>::new(4);
        family.with(["read", "ok"]).add(2);
        family.with(["read", "ok"]).add(3);
        family.with(["read", "late"]).increment();
        assert_eq!(family.with(["read", "ok"]).value(), 5);
        assert_eq!(family.read().len(), 2);
        assert_eq!(family.folded(), 0);
    }

    #[test]
    fn a_flood_of_values_ends_in_one_series() {
        let family = Family::<Counter, 1>::new(3);
        for value in 0..1_000 {
            family.with([&format!("v{value}")]).increment();
        }
        assert_eq!(family.read().len(), 4, "three of their own and one for the rest");
        assert_eq!(family.with(["v0"]).value(), 1);
        assert_eq!(family.with([OTHER]).value(), 997);
        assert_eq!(family.folded(), 997);
    }
}
