//! What the server counts.

use verbena_metrics::{Counter, Gauge, Registry, RegistryError};

/// The server's counters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observed {
    /// Open ones.
    pub connections: Gauge,
    /// Since the start.
    pub accepted: Counter,
    /// That waited because there were too many.
    pub delayed: Counter,
    /// Of clients that did not read.
    pub cut_off: Counter,
    /// Lines that are no request.
    pub rejected: Counter,
}

impl Observed {
    pub(crate) fn new(registry: &Registry) -> Result<Observed, RegistryError> {
        Ok(Observed {
            connections: registry.gauge("verbena_coop_client_connections", "Connections of memcached clients.")?,
            accepted: registry.counter("verbena_coop_client_accepted_total", "Connections that were accepted.")?,
            delayed: registry.counter(
                "verbena_coop_client_delayed_total",
                "Connections that waited, because there were too many.",
            )?,
            cut_off: registry
                .counter("verbena_coop_client_cut_off_total", "Connections closed because the client did not read.")?,
            rejected: registry
                .counter("verbena_coop_client_rejected_total", "Lines of clients that are no request.")?,
        })
    }
}
