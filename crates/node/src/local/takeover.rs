//! Takes the keeper's seat when it becomes free, so that the remaining nodes keep the cluster (rule C4, for plain
//! nodes).
//!
//! The keeper of the plain nodes of a machine is the process in the first seat. Every process in another seat checks
//! regularly whether the first is free, and if so takes it beside its own: a second, small helper, which grants leases
//! from the durable records of the one that ended and serves its socket. If two processes try, the seat's lock admits
//! one. The others, and programs, find it as they find a keeper that was started again.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::thread;

/// Part of a lease after which the seat is looked at again.
const LOOKS_IN_A_LEASE: u32 = 8;
/// After an attempt that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What keeps the first seat once that is taken.
pub(crate) trait Seated {
    /// Whether it has ended by itself.
    fn has_ended(&self) -> bool;

    /// Leaves in good order.
    ///
    /// # Errors
    /// Why it had ended by itself, if it had.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// Takes the first seat, if it is free.
pub(crate) type Take = Box<dyn Fn() -> Result<Option<Box<dyn Seated>>> + Send>;

/// The thread that looks, and the helper in the first seat once it has taken that.
pub(crate) struct Takeover {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    said: Mutex<bool>,
    changed: Condvar,
}

impl Takeover {
    /// Starts watching the first seat.
    pub(crate) fn start(lease: Duration, take: Take) -> Result<Takeover> {
        let stop = Arc::new(Stop::default());
        let thread = thread::spawn("verbena-heir", {
            let stop = stop.clone();
            move || watch(lease / LOOKS_IN_A_LEASE, &take, &stop)
        })?;
        Ok(Takeover { stop, thread: Some(thread) })
    }
}

impl Drop for Takeover {
    /// Leaves the first seat in good order, if it was taken.
    fn drop(&mut self) {
        *self.stop.said.lock() = true;
        self.stop.changed.notify_all();
        // If it panicked the process has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Stop {
    /// Whether it was said, now or within `patience`.
    fn said_within(&self, patience: Duration) -> bool {
        let mut said = self.said.lock();
        if !*said {
            self.changed.wait_for(&mut said, patience);
        }
        *said
    }
}

fn watch(look_every: Duration, take: &Take, stop: &Stop) {
    let mut first: Option<Box<dyn Seated>> = None;
    let mut patience = look_every;
    while !stop.said_within(patience) {
        patience = look_every;
        if let Some(lost) = first.take_if(|first| first.has_ended()) {
            let reason = lost.stop().err();
            tracing::error!(?reason, "the first seat was lost");
            patience = AGAIN_AFTER;
        } else if first.is_none() {
            match take() {
                Ok(taken) => first = taken,
                Err(error) => {
                    tracing::error!(%error, "the first seat is free and cannot be taken");
                    patience = AGAIN_AFTER;
                }
            }
        }
    }
}
