//! Operations that have ended and whose callers do not know it yet.

use crate::completion::Completer;
use crate::error::Result;
use crate::operation::{Completed, Settled};

/// Collected under a lock, handed over without: who is woken may run anything.
#[derive(Default)]
#[must_use = "who posted is not woken before these are handed over"]
pub(in crate::tcp) struct Endings(Vec<Ending>);

enum Ending {
    Batch(Completer<Completed>, Result<Completed>),
    Settle(Completer<Settled>, Result<Settled>),
}

impl Endings {
    pub(super) fn batch(&mut self, completer: Completer<Completed>, result: Result<Completed>) {
        self.0.push(Ending::Batch(completer, result));
    }

    pub(super) fn settle(&mut self, completer: Completer<Settled>, result: Result<Settled>) {
        self.0.push(Ending::Settle(completer, result));
    }

    /// Tells everybody, in order.
    pub(in crate::tcp) fn hand_over(&mut self) {
        for ending in self.0.drain(..) {
            match ending {
                Ending::Batch(completer, result) => completer.complete(result),
                Ending::Settle(completer, result) => completer.complete(result),
            }
        }
    }
}
