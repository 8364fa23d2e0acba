//! How loaded this node is, published for the others, hosted: membership's notices on one side, [`Monitor`] on the other.

use std::sync::Arc;
use std::time::Duration;

use verbena_metrics::Registry;
use verbena_monitor::{Loads, Metrics, Monitor, MonitorConfig};
use verbena_terms::{LoadCounts, Time};

use crate::error::{Error, Result};
use crate::services::hosting::Hosting;

/// What the proxy beside a node has answered.
pub(crate) const ANSWERS: &str = "verbena_proxy_answers_total";
const UPDATES: &str = "verbena_content_updates_total";
const LOCKS: &str = "verbena_lock_requests_total";
const MEMORY: &str = "verbena_memory_requests_total";
const REQUESTS: &str = "verbena_ipc_requests_total";
const PROGRAMS: &str = "verbena_ipc_clients";

/// The monitor, which puts what it finds into `loads`.
///
/// # Errors
/// If the machine does not say how it is, or the metrics are registered already.
pub(crate) fn start(config: &MonitorConfig, loads: Loads, registry: &Arc<Registry>) -> Result<Hosting<Monitor>> {
    let metrics = Metrics::new(registry)?;
    let counts = registry.clone();
    let monitor = Monitor::start(config, loads, metrics, Box::new(move || work(&counts)));
    let monitor = monitor.map_err(|source| Error::System { doing: "watch how loaded the machine is", source })?;
    // Nothing of it is ever open.
    Ok(Hosting::new(monitor, Duration::ZERO))
}

/// What the node has done, by its metrics, and the programs that are connected.
fn work(registry: &Registry) -> (LoadCounts, u32) {
    let read = registry.snapshot_of(&[ANSWERS, UPDATES, LOCKS, MEMORY, REQUESTS, PROGRAMS], Time::ZERO);
    let count = |name| read.counter(name, &[]).unwrap_or(0);
    let counts = LoadCounts {
        answers: count(ANSWERS),
        hits: read.counter(ANSWERS, &[("result", "hit")]).unwrap_or(0),
        updates: count(UPDATES),
        locks: count(LOCKS),
        memory: count(MEMORY),
        requests: count(REQUESTS),
    };
    (counts, read.gauge(PROGRAMS, &[]).unwrap_or(0.0) as u32)
}
