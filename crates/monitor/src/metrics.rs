//! The monitor's metrics.

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_metrics::{Counter, Family, Registry, RegistryError};
use verbena_terms::Load;

/// The counters of the monitor, registered with the node's metrics.
pub struct Metrics {
    pub(crate) published: Counter,
    pub(crate) unread: Counter,
    pub(crate) fresh: Counter,
    pub(crate) torn: Counter,
    pub(crate) failed: Counter,
    pub(crate) unusable: Counter,
    /// What was published last.
    pub(crate) load: Arc<Mutex<Load>>,
}

impl Metrics {
    /// Registered here.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, RegistryError> {
        let counter = |name: &str, help: &str| registry.counter(name, help);
        type Read = fn(&Load) -> f64;
        let gauges: [(&str, &str, Read); 5] = [
            ("verbena_monitor_cores", "Processors of the machine.", |load| load.cores.into()),
            ("verbena_monitor_busy_cores", "Of them, those that are busy, a mean of a second.", |load| {
                f64::from(load.busy_milli) / 1e3
            }),
            ("verbena_monitor_runnable_tasks", "Tasks that run or wait to, a mean of a second.", |load| {
                f64::from(load.runnable_milli) / 1e3
            }),
            ("verbena_monitor_available_bytes", "Memory of the machine that programs could still have.", |load| {
                load.available_bytes as f64
            }),
            ("verbena_monitor_connections", "TCP connections of the node's network that are established.", |load| {
                load.connections.into()
            }),
        ];
        let load = Arc::new(Mutex::new(Load::default()));
        for (name, help, read) in gauges {
            let load = load.clone();
            registry.gauge_from(name, help, move || read(&load.lock()))?;
        }
        let reads: Family<Counter, 1> = registry.family(
            "verbena_monitor_reads_total",
            "Boards of others read, by what was found.",
            ["found"],
            4,
        )?;
        Ok(Metrics {
            published: counter("verbena_monitor_published_total", "How often this node's load was published.")?,
            unread: counter(
                "verbena_monitor_unreadable_total",
                "How often the kernel did not say how the machine is.",
            )?,
            fresh: reads.with(["load"]),
            torn: reads.with(["torn"]),
            failed: reads.with(["failed"]),
            unusable: counter("verbena_monitor_unusable_total", "Messages about boards that could not be used.")?,
            load,
        })
    }
}
