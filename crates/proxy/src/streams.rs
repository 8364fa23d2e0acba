//! The edges of a connection of HTTP/2, on which many requests are under way at once.
//!
//! Hyper and h2 see to frames, windows and floods. What is left is time: a connection on which nothing moves for too long while a client owes
//! something is ended. Each stream counts what moves, and once in a while the task of the connection looks at the counters:
//!
//! ```text
//!                 nothing moved for `patience`, and ...
//!  no request is under way     --> GOAWAY, and after as long again the end
//!  an answer is not taken      --> the end
//!  else                        --> the application, or an upload, is waited for: those have limits of their own
//! ```

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::taking::Taking;

/// What a connection's streams have come to. All of it is touched by tasks of one thread.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// Requests whose answers have not ended.
    under_way: AtomicUsize,
    /// Answers of which a piece waits for the client.
    owed: AtomicUsize,
    /// Goes up with each beginning, piece and end.
    moved: AtomicU64,
}

impl Streams {
    /// A request's head is here.
    pub fn begins(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.moves();
    }

    /// Its answer came to an end, however it did.
    pub fn ends(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        self.moves();
    }

    /// Whether a piece of an answer waits for the client from now on: `was` is whether one did. None does when the client took it and the next one is not here yet or does not exist.
    pub fn owing(&self, was: &mut bool, is: bool) {
        match (std::mem::replace(was, is), is) {
            (false, true) => drop(self.owed.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.owed.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Something moved.
    pub fn moves(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    fn seen(&self) -> Seen {
        Seen {
            under_way: self.under_way.load(Ordering::Relaxed),
            owed: self.owed.load(Ordering::Relaxed),
            moved: self.moved.load(Ordering::Relaxed),
        }
    }
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    under_way: usize,
    owed: usize,
    moved: u64,
}

/// What is to be done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Stay,
    /// It is idle: take no more requests.
    Leave,
    /// It is idle, was asked to leave, and is open still.
    Close,
    /// Its client takes nothing.
    GiveUp,
}

/// Judges a connection by what moves on it.
#[derive(Debug)]
pub(crate) struct Watch {
    patience: Duration,
    last: Seen,
    /// What the client had not taken when something moved last.
    taking: Taking,
    /// When something moved last, as far as is known.
    since: Instant,
    is_leaving: bool,
}

impl Watch {
    /// From now on.
    pub fn new(patience: Duration, streams: &Streams, untaken: u64, now: Instant) -> Self {
        Watch { patience, last: streams.seen(), taking: Taking::new(untaken), since: now, is_leaving: false }
    }

    /// How often to look: it takes that much longer at most.
    pub fn every(&self) -> Duration {
        self.patience / 4
    }

    /// Looks. `untaken` is what the client has not acknowledged.
    pub fn look(&mut self, streams: &Streams, untaken: u64, now: Instant) -> Verdict {
        self.judge(streams.seen(), untaken, now)
    }

    fn judge(&mut self, seen: Seen, untaken: u64, now: Instant) -> Verdict {
        if seen.moved != self.last.moved {
            (self.last, self.since, self.taking) = (seen, now, Taking::new(untaken));
            return Verdict::Stay;
        }
        if now.duration_since(self.since) < self.patience {
            return Verdict::Stay;
        }
        match (seen.under_way, seen.owed) {
            (0, _) if self.is_leaving => Verdict::Close,
            (0, _) => {
                (self.is_leaving, self.since) = (true, now);
                Verdict::Leave
            }
            (_, 0) => Verdict::Stay,
            // It takes what was sent before.
            _ if self.taking.goes_on(untaken, now.duration_since(self.since)) => {
                self.since = now;
                Verdict::Stay
            }
            _ => Verdict::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_when_its_client_lets_it_stand() {
        let (second, start) = (Duration::from_secs(1), Instant::now());
        let streams = Streams::default();
        let mut watch = Watch::new(4 * second, &streams, 0, start);
        assert_eq!(watch.look(&streams, 0, start + 3 * second), Verdict::Stay);
        // The application is waited for, and that has a limit of its own.
        streams.begins();
        assert_eq!(watch.look(&streams, 0, start + 4 * second), Verdict::Stay);
        assert_eq!(watch.look(&streams, 0, start + 400 * second), Verdict::Stay);
        // The answer is there, and moves.
        let mut is_owed = false;
        streams.owing(&mut is_owed, true);
        streams.moves();
        assert_eq!(watch.look(&streams, 0, start + 401 * second), Verdict::Stay);
        assert_eq!(watch.look(&streams, 0, start + 404 * second), Verdict::Stay);
        assert_eq!(watch.look(&streams, 0, start + 405 * second), Verdict::GiveUp, "it is not taken");
        streams.owing(&mut is_owed, false);
        streams.ends();
        assert_eq!(watch.look(&streams, 0, start + 406 * second), Verdict::Stay);
        assert_eq!(watch.look(&streams, 0, start + 410 * second), Verdict::Leave, "idle");
        assert_eq!(watch.look(&streams, 0, start + 413 * second), Verdict::Stay);
        assert_eq!(watch.look(&streams, 0, start + 414 * second), Verdict::Close, "it was told to go");
    }
}
