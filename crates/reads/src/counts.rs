//! What is counted of logs of reads.

use verbena_metrics::{Counter, Family, Registry, RegistryError};

use crate::reading::Lost;

/// What is counted of logs of reads, for whoever reads a registry.
pub struct Metrics {
    /// Fills that asked logs, by what they found.
    pub(crate) fills: Family<Counter, 1>,
    pub(crate) recorded: Counter,
    pub(crate) unusable: Counter,
}

impl Metrics {
    /// Registered here.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, RegistryError> {
        let fills = registry.family(
            "verbena_database_reads_fills_total",
            "Pages that were made while a relay of another process recorded what is read, by what was found in its ring.",
            ["found"],
            16,
        )?;
        for lost in Lost::ALL {
            fills.with([lost.name()]);
        }
        fills.with(["whole"]);
        Ok(Metrics {
            fills,
            recorded: registry.counter(
                "verbena_database_reads_recorded_total",
                "Entries that the relay of this node has put into its ring for proxies of other processes.",
            )?,
            unusable: registry.counter(
                "verbena_database_reads_unusable_total",
                "Messages about logs of reads, and logs, that could not be used.",
            )?,
        })
    }
}
