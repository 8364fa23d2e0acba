//! What the rings to programs count, for whoever reads the metrics.

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_ipc::Counters;
use verbena_metrics::{Registry, RegistryError};

/// The counts as they were when the thread that serves the rings last looked.
#[derive(Clone, Default)]
pub(crate) struct Rings(Arc<Mutex<Counters>>);

impl Rings {
    /// Rings whose counts the registry shows.
    ///
    /// # Errors
    /// If it shows others already.
    pub(crate) fn shown_by(metrics: &Registry) -> Result<Rings, RegistryError> {
        type Read = fn(&Counters) -> u64;
        let counters: [(&str, &str, Read); 5] = [
            ("verbena_ipc_requests_total", "Requests of programs that were taken from a ring.", |counts| {
                counts.requests
            }),
            (
                "verbena_ipc_full_rings_total",
                "Answers that found no room in their ring and had to wait for the program to take others.",
                |counts| counts.full_rings,
            ),
            (
                "verbena_ipc_bad_frames_total",
                "Programs whose connection was dropped because they wrote against the rules.",
                |counts| counts.bad_frames,
            ),
            ("verbena_ipc_dead_clients_total", "Programs that went, or died.", |counts| counts.dead_clients),
            (
                "verbena_ipc_refused_clients_total",
                "Programs turned away: too many, not allowed, of another version, or no descriptors left.",
                |counts| counts.refused_clients,
            ),
        ];
        let rings = Rings::default();
        for (name, help, read) in counters {
            let rings = rings.clone();
            metrics.counter_from(name, help, move || read(&rings.0.lock()))?;
        }
        let connected = rings.clone();
        metrics.gauge_from("verbena_ipc_clients", "Programs that are connected.", move || {
            connected.0.lock().clients as f64
        })?;
        Ok(rings)
    }

    /// So it is now.
    pub(crate) fn are(&self, counts: Counters) {
        *self.0.lock() = counts;
    }
}
