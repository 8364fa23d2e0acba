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
use verbena_metrics::Registry;

use crate::config::Settings;
use crate::desk::Desk;
use crate::drain::Drain;
use crate::error::Result;
use crate::helper::{Event, Helper, SharedObserver};
use crate::seats::Seats;
use crate::thread;

/// Part of a lease after which the seat is looked at again.
const LOOKS_IN_A_LEASE: u32 = 8;
/// After an attempt that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The thread that looks, and the helper in the first seat once it has taken that.
pub(crate) struct Successor {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    said: Mutex<bool>,
    changed: Condvar,
}

impl Successor {
    /// Starts watching the first seat. When it is taken, this informs the observer of the process's own helper, and its
    /// desk.
    pub(crate) fn start(
        seats: Seats,
        settings: &Settings,
        observer: SharedObserver,
        desk: Arc<Desk>,
        drain: Arc<Drain>,
    ) -> Result<Successor> {
        let mut settings = settings.clone();
        // The process has it already, for its own seat.
        settings.node.api = None;
        let stop = Arc::new(Stop::default());
        let thread = thread::spawn("verbena-heir", {
            let stop = stop.clone();
            move || watch(&Own { seats, settings, observer, desk, drain }, &stop)
        })?;
        Ok(Successor { stop, thread: Some(thread) })
    }
}

impl Drop for Successor {
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

/// The process's own.
struct Own {
    seats: Seats,
    settings: Settings,
    observer: SharedObserver,
    desk: Arc<Desk>,
    drain: Arc<Drain>,
}

fn watch(own: &Own, stop: &Stop) {
    let look_every = own.settings.cluster.lease.0 / LOOKS_IN_A_LEASE;
    let mut first: Option<Helper> = None;
    let mut patience = look_every;
    while !stop.said_within(patience) {
        patience = look_every;
        if first.as_ref().is_some_and(Helper::has_ended) {
            let reason = first.take().map(Helper::stop).and_then(Result::err);
            tracing::error!(?reason, "the first seat was lost");
            patience = AGAIN_AFTER;
        } else if first.is_none() {
            match take(own) {
                Ok(taken) => first = taken,
                Err(error) => {
                    tracing::error!(%error, "the first seat is free and cannot be taken");
                    patience = AGAIN_AFTER;
                }
            }
        }
    }
}

fn take(own: &Own) -> Result<Option<Helper>> {
    let Some(place) = own.seats.keepers()? else { return Ok(None) };
    let (observer, desk) = (own.observer.clone(), own.desk.clone());
    let tell = move |event: &Event| {
        if let Event::Life { incarnation, .. } = event {
            (observer.lock())(&Event::Succeeded { incarnation: *incarnation });
            desk.keeper_moved();
        }
    };
    let registry = Arc::new(Registry::new());
    Helper::at(place, &own.settings, vec![], registry, Box::new(tell), own.drain.clone()).map(Some)
}
