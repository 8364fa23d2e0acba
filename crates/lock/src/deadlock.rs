//! Clients that wait for each other in a cycle, found by probes that go from node to node (rule L3).
//!
//! A client that holds a lock and has waited for another for 100 ms asks all members who holds that one. Where a client does that waits itself, the
//! question goes on for what it waits for, with all that it has passed. When it comes to a lock that the first one holds, all of them wait for each other:
//! for each of them waits for the holder of its lock, whatever else stands in the queue.
//!
//! The members were not all asked at the same moment, so a cycle that is seen once may never have existed: a client may
//! have given up meanwhile. The cycle is looked for again. If the same requests wait and the same locks are held, all
//! of them did so between the end of the first probe and the beginning of the second.
//!
//! Of a cycle the request with the smallest number, of the smallest node, decides: a probe does not go on to a smaller one than it comes from. It has
//! the youngest refused, by the time that each says it has waited; the others go on.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, Time};

use crate::askers::Asker;
use crate::local_queue::RequestId;
use crate::name::Name;

/// A longer cycle is not found.
pub const MOST_WAITERS: usize = 16;

/// A client that holds a lock and waits for another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiter {
    /// Of which node.
    pub node: Incarnation,
    /// Which of its clients.
    pub asker: Asker,
    /// The request that waits.
    pub waits: RequestId,
    /// For which lock.
    pub name: Name,
    /// For how long when it was asked.
    pub waited: Duration,
    /// The request by which it holds what the one before it waits for; in the first nothing before the cycle is closed.
    pub holds: Option<RequestId>,
}

impl Waiter {
    fn who(&self) -> String {
        format!("process {} on node {}", self.asker.pid, self.node.rank)
    }

    fn identity(&self) -> (Incarnation, RequestId, Option<RequestId>) {
        (self.node, self.waits, self.holds)
    }
}

/// A question in flight: which client holds the lock that the last of these waits for?
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// When the first of them asked, on its clock.
    pub started: Time,
    /// Each waits for the next.
    pub waiters: Vec<Waiter>,
}

impl Probe {
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.first()
    }

    pub(crate) fn last(&self) -> Option<&Waiter> {
        self.waiters.last()
    }

    /// The probe behind another waiter; `None` where that one is there already, another decides, or there are too many.
    pub(crate) fn behind(&self, waiter: Waiter) -> Option<Probe> {
        let first = self.first()?;
        let is_smaller = (waiter.node, waiter.waits) < (first.node, first.waits);
        let is_there = self.waiters.iter().any(|known| (known.node, known.asker) == (waiter.node, waiter.asker));
        if is_smaller || is_there || self.waiters.len() >= MOST_WAITERS {
            return None;
        }
        let waiters = self.waiters.iter().cloned().chain([waiter]).collect();
        Some(Probe { started: self.started, waiters })
    }

    /// The first of them holds by this request what the last waits for.
    pub(crate) fn closed(mut self, holds: RequestId) -> Probe {
        if let Some(first) = self.waiters.first_mut() {
            first.holds = Some(holds);
        }
        self
    }
}

/// A cycle that was seen once.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    /// When the probe had come back.
    ended: Time,
    cycle: Vec<(Incarnation, RequestId, Option<RequestId>)>,
}

impl Sighting {
    /// Of this probe, which has come back.
    pub fn of(probe: &Probe, now: Time) -> Sighting {
        Sighting { ended: now, cycle: probe.waiters.iter().map(Waiter::identity).collect() }
    }

    /// Whether a probe that was sent after it had been seen has seen the same.
    pub fn is_confirmed_by(&self, probe: &Probe) -> bool {
        probe.started > self.ended && probe.waiters.iter().map(Waiter::identity).eq(self.cycle.iter().copied())
    }
}

/// Clients that wait for each other.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cycle(Vec<Waiter>);

impl Cycle {
    pub(crate) fn of(probe: Probe) -> Cycle {
        Cycle(probe.waiters)
    }

    /// Each waits for the next, and the last for the first.
    pub fn waiters(&self) -> &[Waiter] {
        &self.0
    }

    /// The waiter that has waited for the shortest time.
    pub(crate) fn youngest(&self) -> Option<&Waiter> {
        self.0.iter().min_by_key(|waiter| (waiter.waited, waiter.node, waiter.waits))
    }
}

/// For people.
impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, waiter) in self.0.iter().enumerate() {
            let next = &self.0[(at + 1) % self.0.len()];
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{} waits for \"{}\", which {} holds", waiter.who(), waiter.name, next.who())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cycle({self})")
    }
}
