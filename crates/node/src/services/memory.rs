//! Memory that nodes share, hosted: membership's notices on one side, [`MemoryService`] on the other.

use std::time::Duration;

use verbena_ipc::Board;
use verbena_memory::service::{MemoryConfig, MemoryService, Metrics};
use verbena_metrics::Registry;
use verbena_protocol::wire::BOARD_FORGETS;

use crate::error::Result;
use crate::services::hosting::Hosting;

/// The service, and the handle by which programs use it. When what they found in the node's memory is not there any more is on the board.
///
/// # Errors
/// If there can be no thread for it, or its metrics are registered already.
pub(crate) fn start(
    config: &MemoryConfig,
    lease: Duration,
    board: Board,
    registry: &Registry,
) -> Result<(Hosting<MemoryService>, MemoryService)> {
    let forgets = Box::new(move |count| board.publish(BOARD_FORGETS, count));
    let service = MemoryService::start(config.options(), Metrics::new(registry)?, forgets)?;
    // Before the node leaves without having heard that it is at rest.
    Ok((Hosting::new(service.clone(), lease * 3 / 4), service))
}
