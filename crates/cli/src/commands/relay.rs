//! The relay of a proxy, or of a node of its own, and what the proxy of the process is told of relays.

use verbena_database::{Database, DatabaseConfig};
use verbena_metrics::Registry;
use verbena_node::{Helper, Settings};
use verbena_proxy::Queries;
use verbena_reads::service::RelaySettings;

use crate::error::Result;

/// Says in the settings of a node whether a relay runs in it: the others know it from the view.
pub(super) fn announce(config: &DatabaseConfig, settings: &mut Settings) {
    settings.relay = config.to.is_some().then_some(RelaySettings { is_complete: config.complete });
}

/// The relay that the configuration asks for.
///
/// # Errors
/// It cannot start.
pub(super) fn start(config: &DatabaseConfig, helper: &Helper, registry: &Registry) -> Result<Option<Database>> {
    let log = helper.reads().recorder();
    Ok(Database::start(config, (helper.content().clone(), log), helper.socket(), registry)?)
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
