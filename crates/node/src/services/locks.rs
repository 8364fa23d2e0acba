//! Locks, hosted: membership's notices on one side, [`LockService`] on the other.

use std::time::Duration;

use verbena_ipc::Board;
use verbena_lock::service::{LockService, LocksConfig, Metrics};
use verbena_metrics::Registry;
use verbena_protocol::wire::BOARD_LAPSES;

use crate::error::Result;
use crate::services::hosting::Hosting;

/// The service, and the handle by which programs use it. How often all that they held was lost is on the board.
///
/// # Errors
/// If there can be no thread for it, or its metrics are registered already.
pub(crate) fn start(
    config: &LocksConfig,
    lease: Duration,
    board: Board,
    registry: &Registry,
) -> Result<(Hosting<LockService>, LockService)> {
    let metrics = Metrics::new(registry)?;
    let service = LockService::start(config.options(), metrics, move |losses| board.publish(BOARD_LAPSES, losses))?;
    // Before the node leaves without having heard that they are at rest.
    Ok((Hosting::new(service.clone(), lease * 3 / 4), service))
}
