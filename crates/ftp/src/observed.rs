//! What the server counts.

use std::sync::Weak;

use verbena_metrics::{Counter, Family, Registry, RegistryError};
use verbena_terms::{BootClock, Clock};

use crate::serve::Shared;

/// The server's counters.
#[derive(Clone)]
pub(crate) struct Observed {
    pub accepted: Counter,
    pub refused: Family<Counter, 1>,
    pub logins: Family<Counter, 1>,
    pub transfers: Family<Counter, 2>,
    pub bytes: Family<Counter, 1>,
    pub kicked: Counter,
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Observed").finish_non_exhaustive()
    }
}

impl Observed {
    pub(crate) fn new(registry: &Registry) -> Result<Observed, RegistryError> {
        Ok(Observed {
            accepted: registry.counter("verbena_ftp_connections_total", "Control connections that were taken.")?,
            refused: registry.family(
                "verbena_ftp_refused_total",
                "Control connections that were refused, by reason: too many, or a banned address.",
                ["reason"],
                2,
            )?,
            logins: registry.family("verbena_ftp_logins_total", "Logins by what came of them.", ["outcome"], 4)?,
            transfers: registry.family(
                "verbena_ftp_transfers_total",
                "Transfers of files and trees that ended, by direction and by whether they were whole.",
                ["direction", "outcome"],
                4,
            )?,
            bytes: registry.family(
                "verbena_ftp_bytes_total",
                "Bytes that transfers moved over data connections, counted at their ends.",
                ["direction"],
                2,
            )?,
            kicked: registry.counter("verbena_ftp_kicked_total", "Sessions that the administrator ended.")?,
        })
    }

    /// What is computed when it is looked at.
    pub(crate) fn watch(registry: &Registry, shared: &Weak<Shared>) -> Result<(), RegistryError> {
        let of = shared.clone();
        registry.gauge_from("verbena_ftp_sessions", "Control connections that are open.", move || {
            of.upgrade().map_or(0.0, |shared| shared.sessions.facts().len() as f64)
        })?;
        let of = shared.clone();
        registry.gauge_from("verbena_ftp_banned_addresses", "Addresses that are banned now.", move || {
            of.upgrade().map_or(0.0, |shared| shared.bans().banned(BootClock.now()) as f64)
        })
    }

    /// A transfer has ended.
    pub(crate) fn ended(&self, is_upload: bool, is_whole: bool, bytes: u64) {
        let direction = if is_upload { "in" } else { "out" };
        self.transfers.with([direction, if is_whole { "whole" } else { "failed" }]).add(1);
        self.bytes.with([direction]).add(bytes);
    }
}
