//! Metrics of the rings to programs.

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_ipc::{Counters, Mode};
use verbena_metrics::{Counter, Family, Gauge, Registry, RegistryError};

/// The counts as they were when the thread that serves the rings last looked.
#[derive(Clone)]
pub(crate) struct Rings {
    last: Arc<Mutex<Counters>>,
    requests: Family<Counter, 1>,
    clients: Family<Gauge, 1>,
}

/// More modes than there are.
const MOST_MODES: usize = 8;

impl Rings {
    /// Rings whose counts the registry shows.
    ///
    /// # Errors
    /// If it shows others already.
    pub(crate) fn shown_by(metrics: &Registry) -> Result<Rings, RegistryError> {
        type Read = fn(&Counters) -> u64;
        let counters: [(&str, &str, Read); 6] = [
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
                "Programs turned away: too many, not allowed, of another version or mode, or no descriptors left.",
                |counts| counts.refused_clients,
            ),
            (
                "verbena_ipc_swept_queues_total",
                "Message queues of an earlier helper, which was killed, that were removed at the start.",
                |counts| counts.swept_queues,
            ),
        ];
        let last = Arc::new(Mutex::new(Counters::default()));
        for (name, help, read) in counters {
            let last = last.clone();
            metrics.counter_from(name, help, move || read(&last.lock()))?;
        }
        let connected = last.clone();
        metrics.gauge_from("verbena_ipc_clients", "Programs that are connected.", move || {
            connected.lock().clients as f64
        })?;
        let requests = "Requests of programs, by the mode in which they came.";
        let requests = metrics.family("verbena_ipc_mode_requests_total", requests, ["mode"], MOST_MODES)?;
        let clients = "Programs that are connected, by their mode.";
        let clients = metrics.family("verbena_ipc_mode_clients", clients, ["mode"], MOST_MODES)?;
        Ok(Rings { last, requests, clients })
    }

    /// So it is now.
    pub(crate) fn are(&self, counts: Counters) {
        let last = std::mem::replace(&mut *self.last.lock(), counts);
        for ((mode, now), before) in Mode::ALL.into_iter().zip(counts.of_mode).zip(last.of_mode) {
            if now != before {
                self.requests.with([mode.name()]).add(now.requests - before.requests);
                self.clients.with([mode.name()]).set(now.clients as i64);
            }
        }
    }
}
