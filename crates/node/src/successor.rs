//! Whoever is left keeps the cluster (rule C4, for nodes that nobody configured).
//!
//! The keeper of the plain nodes of a machine is whoever sits in the first seat. Every process in another looks again and again
//! whether that seat is free, and if so takes it beside its own: a second, small helper, which grants leases from the durable
//! records of the one that ended and serves its socket. Of two who try, the seat's lock lets one. The others, and programs, find it
//! as they find a keeper that was started again.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use verbena_metrics::Registry;

use crate::config::Settings;
use crate::desk::Desk;
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
    /// Looks from now on. Who observes the process's own helper is told, and at its desk, when the first seat is taken.
    pub(crate) fn start(
        seats: Seats,
        settings: &Settings,
        observer: SharedObserver,
        desk: Arc<Desk>,
    ) -> Result<Successor> {
        let mut settings = settings.clone();
        // The process has it already, for its own seat.
        settings.node.api = None;
        let stop = Arc::new(Stop::default());
        let thread = thread::spawn("verbena-heir", {
            let stop = stop.clone();
            move || watch(&seats, &settings, &observer, &desk, &stop)
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

fn watch(seats: &Seats, settings: &Settings, observer: &SharedObserver, desk: &Arc<Desk>, stop: &Stop) {
    let look_every = settings.cluster.lease.0 / LOOKS_IN_A_LEASE;
    let mut first: Option<Helper> = None;
    let mut patience = look_every;
    while !stop.said_within(patience) {
        patience = look_every;
        if first.as_ref().is_some_and(Helper::has_ended) {
            let reason = first.take().map(Helper::stop).and_then(Result::err);
            tracing::error!(?reason, "the first seat was lost");
            patience = AGAIN_AFTER;
        } else if first.is_none() {
            match take(seats, settings, observer, desk) {
                Ok(taken) => first = taken,
                Err(error) => {
                    tracing::error!(%error, "the first seat is free and cannot be taken");
                    patience = AGAIN_AFTER;
                }
            }
        }
    }
}

fn take(seats: &Seats, settings: &Settings, observer: &SharedObserver, desk: &Arc<Desk>) -> Result<Option<Helper>> {
    let Some(place) = seats.keepers()? else { return Ok(None) };
    let (observer, desk) = (observer.clone(), desk.clone());
    let tell = move |event: &Event| {
        if let Event::Life { incarnation, .. } = event {
            (observer.lock())(&Event::Succeeded { incarnation: *incarnation });
            desk.keeper_moved();
        }
    };
    Helper::at(place, settings, vec![], Arc::new(Registry::new()), Box::new(tell)).map(Some)
}
