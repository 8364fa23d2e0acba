//! Memory that nodes share, hosted: membership's notices on one side, [`MemoryService`] on the other.

use std::time::Duration;

use verbena_cluster::Notice;
use verbena_ipc::Board;
use verbena_memory::service::{MemoryConfig, MemoryService, Metrics};
use verbena_metrics::Registry;
use verbena_protocol::wire::BOARD_FORGETS;

use crate::error::Result;
use crate::life::Life;
use crate::service::{Replies, Service};

/// The service of memory.
pub(crate) struct Memory {
    service: MemoryService,
    /// How long what is open is waited for when the node leaves.
    patience: Duration,
}

impl Memory {
    /// The service, and the handle by which programs use it. When what they found in the node's memory is not there any more is on the board.
    ///
    /// # Errors
    /// If there can be no thread for it, or its metrics are registered already.
    pub(crate) fn start(
        config: &MemoryConfig,
        lease: Duration,
        board: Board,
        registry: &Registry,
    ) -> Result<(Memory, MemoryService)> {
        let forgets = Box::new(move |count| board.publish(BOARD_FORGETS, count));
        let service = MemoryService::start(config.options(), Metrics::new(registry)?, forgets)?;
        // Before the node leaves without having heard that it is at rest.
        Ok((Memory { service: service.clone(), patience: lease * 3 / 4 }, service))
    }
}

impl Service for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.service.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                // A home has other memory in each view, which nothing of the departed reaches (rule F4).
                view.departed().iter().for_each(|gone| replies.settled(gone.incarnation));
                let replies = replies.clone();
                self.service.view_learnt(view.clone(), move |view| replies.prepared(view));
            }
            Notice::LeaseLost => self.service.lease_lost(),
            Notice::Expelled(_) | Notice::Superseded(_) => self.service.life_ends(),
            _ => {}
        }
    }

    fn close(&mut self, replies: &Replies) {
        let closed = replies.clone();
        // What is on its way at other homes' memory would land there while they copy it (rules C3, P6).
        self.service.close(self.patience, move |at_rest| closed.closed(at_rest));
    }

    fn end(&mut self) {
        self.service.life_ends();
    }
}
