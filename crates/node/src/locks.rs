//! Locks, hosted: membership's notices on one side, [`LockService`] on the other.

use std::time::Duration;

use verbena_cluster::Notice;
use verbena_ipc::Board;
use verbena_lock::service::{LockService, LocksConfig, Metrics};
use verbena_metrics::Registry;
use verbena_protocol::wire::BOARD_LAPSES;

use crate::error::Result;
use crate::life::Life;
use crate::service::{Replies, Service};

/// The service of locks.
pub(crate) struct Locks {
    service: LockService,
    /// How long those who hold locks are waited for when the node leaves.
    patience: Duration,
}

impl Locks {
    /// The service, and the handle by which programs use it. How often all that they held was lost is on the board.
    ///
    /// # Errors
    /// If there can be no thread for it, or its metrics are registered already.
    pub(crate) fn start(
        config: &LocksConfig,
        lease: Duration,
        board: Board,
        registry: &Registry,
    ) -> Result<(Locks, LockService)> {
        let metrics = Metrics::new(registry)?;
        let service = LockService::start(config.options(), metrics, move |losses| board.publish(BOARD_LAPSES, losses))?;
        // Before the node leaves without having heard that they are at rest.
        Ok((Locks { service: service.clone(), patience: lease * 3 / 4 }, service))
    }
}

impl Service for Locks {
    fn name(&self) -> &'static str {
        "locks"
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.service.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                // Of the departed nothing is left that a home of locks would hold: it opens when their leases are over (rule L5).
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
        // Whoever holds a lock may end what it does. What is held after that ends with the lease: nobody has to settle anything.
        self.service.close(self.patience, move || closed.closed(true));
    }

    fn end(&mut self) {
        self.service.life_ends();
    }
}
