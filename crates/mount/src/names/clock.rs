//! The clock by which listings have their times. Nothing sets it while the mount lives.

use std::time::Instant;

use verbena_bank::Time;

use crate::below::Below;
use crate::cache::Arrival;

/// Times of listings, in nanoseconds.
///
/// On a file system of this machine it is the time since the machine started: all that find these listings are of this start of it ([`Below::place`]).
/// Else it is the file system's, as ours was when the two were measured: our clock may be set afterwards, and the difference counts on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// From the start of the machine to where it counts from.
    since: Time,
    /// By how much it can be ahead of the file system's.
    pub(super) ahead: Time,
    /// By how much it can be behind.
    pub(super) behind: Time,
}

impl Clock {
    pub(super) fn new(below: &Below) -> Self {
        if below.is_local() {
            return Clock { since: 0, ahead: 0, behind: 0 };
        }
        Clock { since: below.since, ahead: below.clocks.ahead, behind: below.behind }
    }

    pub(super) fn now(self) -> Time {
        self.at(Arrival::now())
    }

    /// When a request arrived.
    pub(super) fn at(self, arrived: Arrival) -> Time {
        arrived.since_start() + self.since
    }

    /// When a moment was.
    pub(super) fn of(self, moment: Instant) -> Time {
        self.now() - moment.elapsed().as_nanos() as Time
    }
}
