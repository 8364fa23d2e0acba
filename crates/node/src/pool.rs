//! The cooperative cache, hosted: membership's notices on one side, [`PoolService`] on the other.

use verbena_cluster::Notice;
use verbena_coop::service::{Metrics, PoolConfig, PoolService};
use verbena_metrics::Registry;

use crate::error::Result;
use crate::life::Life;
use crate::service::{Replies, Service};

/// The service of the pool.
pub(crate) struct Pool {
    service: PoolService,
}

impl Pool {
    /// The service, and the handle by which programs use it.
    ///
    /// # Errors
    /// If there can be no thread for it, or its metrics are registered already.
    pub(crate) fn start(config: &PoolConfig, registry: &Registry) -> Result<(Pool, PoolService)> {
        let service = PoolService::start(config, Metrics::new(registry)?)?;
        Ok((Pool { service: service.clone() }, service))
    }
}

impl Service for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.service.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                // The departed wrote in their own memory alone (rule K1).
                view.departed().iter().for_each(|gone| replies.settled(gone.incarnation));
                let replies = replies.clone();
                self.service.view_learnt(view.clone(), move |view| replies.prepared(view));
            }
            Notice::LeaseLost => self.service.lease_lost(),
            Notice::Expelled(_) | Notice::Superseded(_) => self.service.life_ends(),
            _ => {}
        }
    }

    /// Nothing of the pool is open anywhere: what a client waits for ends with its deadline.
    fn close(&mut self, replies: &Replies) {
        replies.closed(true);
    }

    fn end(&mut self) {
        self.service.life_ends();
    }
}
