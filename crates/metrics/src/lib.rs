//! One registry of metrics, and every way of reading it.
//!
//! A part of the house registers a name once and keeps the handle it gets: a [`Counter`], a [`Gauge`], a [`Level`],
//! a [`Latency`], or a [`Family`] of one of them by labels. Recording on a handle is one relaxed atomic addition to a cache line that
//! the thread has mostly to itself (`cell.rs`); it takes no lock, allocates nothing and never fails. All the cost is at
//! the reader: a [`Snapshot`] walks the registry once, and everything that anyone sees is made from a snapshot: the
//! OpenMetrics text of `/metrics`, the JSON, and the rates and quantiles of the [`Interval`] between two of them, which
//! is what a live line and a benchmark print. So two faces never disagree on what a number means.
//!
//! What is refused, is refused at registration, where a test sees it: a name that breaks the rules of [`check_name`],
//! or a name that has an owner already. What is bounded: a family keeps a stated number of series and folds the rest
//! into one series labelled `other`, and says in `verbena_metrics_folded_total` how often it had to.

mod cell;
mod encode;
mod family;
mod interval;
mod json;
mod latency;
mod name;
mod registry;
mod snapshot;

pub use cell::{Counter, Gauge, Level};
pub use encode::OPENMETRICS_CONTENT_TYPE;
pub use family::{Family, MAX_SERIES, Metric, OTHER};
pub use interval::Interval;
pub use latency::{LONGEST, Latency, LatencySnapshot, MAX_QUANTILE_ERROR};
pub use name::{Kind, NameError, check_label, check_name};
pub use registry::{Registry, RegistryError};
pub use snapshot::{MetricSnapshot, Series, Snapshot, Value};
