//! The relay of a proxy, or of a node of its own, and what the proxy of the process is told of relays.

use verbena_database::{Bound, Database, DatabaseConfig};
use verbena_metrics::Registry;
use verbena_node::{Helper, Settings};
use verbena_proxy::Queries;
use verbena_reads::service::RelaySettings;

use crate::error::Result;

/// Says in the settings of a node whether a relay runs in it: the others know it from the view.
pub(super) fn announce(config: &DatabaseConfig, settings: &mut Settings) {
    settings.relay = config.to.is_some().then_some(RelaySettings { is_complete: config.complete });
}

/// The relay whose port is taken.
///
/// # Errors
/// It cannot start.
pub(super) fn start(bound: Bound, helper: &Helper, registry: &Registry) -> Result<Database> {
    let log = helper.reads().recorder();
    Ok(Database::start(bound, (helper.content().clone(), log), helper.socket(), registry)?)
}

/// What the proxy of this process is told of relays, its own and those of other processes.
pub(super) fn queries(database: Option<&Database>, helper: &Helper) -> Queries {
    let logs = helper.reads().clone();
    match database {
        Some(database) => Queries {
            has_relay: true,
            fills: database.fills(),
            identity: database.identity(),
            is_complete: database.is_complete(),
            logs: Some(logs),
        },
        None => Queries::of_others(logs),
    }
}
