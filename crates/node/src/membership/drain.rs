//! A program's request that this process leave the cluster and end, and the outcome of leaving.
//!
//! A process is one node, or two: a plain process may have taken the first seat as well. Whichever node gets the
//! request, the process leaves with both. The answer reports the worse of the two departures.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use verbena_protocol::wire::{Departure, Exit};

/// Of one process.
#[derive(Default)]
pub(crate) struct Drain {
    asked: AtomicBool,
    came: Notify,
    left: Mutex<Option<Departure>>,
}

impl Drain {
    /// A program asks.
    pub(crate) fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            tracing::info!("a program asked this process to leave the cluster and to end");
        }
        self.came.notify_waiters();
        self.came.notify_one();
    }

    /// Waits until one has asked.
    pub(crate) async fn asked(&self) {
        while !self.asked.load(Ordering::Acquire) {
            self.came.notified().await;
        }
    }

    /// One of the nodes has left; how all have until now.
    pub(crate) fn left(&self, departure: Departure) -> Departure {
        let mut left = self.left.lock();
        let worse = match *left {
            Some(earlier) if !is_good(earlier) => earlier,
            _ => departure,
        };
        *left = Some(worse);
        worse
    }
}

fn is_good(departure: Departure) -> bool {
    departure.at_rest && departure.exit != Exit::LeaseRunsOut
}

#[cfg(test)]
mod tests {
    use verbena_terms::ViewNumber;

    use super::*;

    #[test]
    fn of_two_departures_the_worse_is_told() {
        let good = Departure { at_rest: true, exit: Exit::InEffect(ViewNumber(3)) };
        let open = Departure { at_rest: false, ..good };
        let late = Departure { exit: Exit::LeaseRunsOut, ..good };
        for bad in [open, late] {
            let [first, second] = [Drain::default(), Drain::default()];
            assert_eq!((first.left(bad), first.left(good)), (bad, bad));
            assert_eq!((second.left(good), second.left(bad)), (good, bad));
        }
    }
}
