//! What the server counts.

use verbena_metrics::{Counter, Family, Gauge, Registry, RegistryError};

/// Tenants that are counted apart.
const MOST_TENANTS: usize = 256;

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
    /// That were refused: a wrong password, or a tenant with as many as it may have.
    pub tenants_refused: Counter,
    /// Connections with which no TLS came about.
    pub handshakes_failed: Counter,
    tenant_connections: Family<Gauge, 1>,
    tenant_commands: Family<Counter, 2>,
}

/// What is counted of one tenant's clients.
#[derive(Clone)]
pub(crate) struct OfTenant {
    /// Open connections.
    pub connections: Gauge,
    /// Reads that found an item.
    pub hits: Counter,
    /// Reads that found none.
    pub misses: Counter,
    /// Commands that did something else.
    pub done: Counter,
    /// Commands that failed, or of which this is not known.
    pub failed: Counter,
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
            tenants_refused: registry.counter(
                "verbena_coop_tenant_refused_total",
                "Clients that were refused: a wrong password, or as many connections as their tenant may have.",
            )?,
            handshakes_failed: registry.counter(
                "verbena_coop_client_handshakes_failed_total",
                "Connections closed because no TLS came about with the client.",
            )?,
            tenant_connections: registry.family(
                "verbena_coop_tenant_connections",
                "Connections of a tenant's clients.",
                ["tenant"],
                MOST_TENANTS,
            )?,
            tenant_commands: registry.family(
                "verbena_coop_tenant_commands_total",
                "Commands of a tenant's clients by what became of them.",
                ["tenant", "outcome"],
                4 * MOST_TENANTS,
            )?,
        })
    }

    /// Of the tenant with this name.
    pub fn of_tenant(&self, name: &str) -> OfTenant {
        let commands = |outcome: &str| self.tenant_commands.with([name, outcome]);
        OfTenant {
            connections: self.tenant_connections.with([name]),
            hits: commands("hit"),
            misses: commands("miss"),
            done: commands("done"),
            failed: commands("failed"),
        }
    }
}
