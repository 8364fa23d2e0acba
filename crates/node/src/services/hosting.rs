//! Hosts a service of the runtime: takes membership's notices on one side and calls the service's handle on the other.

use std::time::Duration;

use verbena_cluster::Notice;
use verbena_service::hosted::Hosted;

use crate::membership::life::Life;
use crate::membership::service::{Replies, Service};

/// Locks, memory, the pool or the monitor, as this node's membership drives it.
pub(crate) struct Hosting<S> {
    service: S,
    /// How long what is open is waited for when the node leaves.
    patience: Duration,
}

impl<S: Hosted> Hosting<S> {
    pub(crate) fn new(service: S, patience: Duration) -> Self {
        Hosting { service, patience }
    }
}

impl<S: Hosted> Service for Hosting<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.service.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                // Of the departed nothing is left that a home would hold: it opens locks when their leases are over (rule L5), has other memory in each view, which
                // nothing of theirs reaches (rule F4), and of the pool they wrote in their own memory alone (rule K1).
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
        self.service.close(self.patience, move |at_rest| closed.closed(at_rest));
    }

    fn end(&mut self) {
        self.service.life_ends();
    }
}
