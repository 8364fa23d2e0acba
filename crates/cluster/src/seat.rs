//! The keeper's entry for one incarnation that is a member or wants to join.

use std::collections::BTreeSet;

use verbena_terms::{Incarnation, Time};

use crate::{LeaseTerms, Member, Parting, Renewal};

/// A member of the newest view, or a candidate for the next.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) member: Member,
    /// When no lease of it can run any more, on the keeper's clock.
    pub(crate) lease_over: Time,
    /// It has acknowledged the newest view, that one and no other (rule C3).
    pub(crate) acknowledged: bool,
    /// It asked to go.
    pub(crate) leaving: bool,
    /// It said then that nothing of it was open. Never taken back: it has begun nothing since.
    pub(crate) at_rest: bool,
    /// It gets no lease any more: a later incarnation of the node has joined, or it is known to have ended.
    pub(crate) ended: bool,
    /// A program asked for its end; then it has `ended` too.
    pub(crate) expelled: bool,
    /// The departed that its services have settled.
    pub(crate) settled: BTreeSet<Incarnation>,
    /// The last of its requests that it had an answer to, and when the keeper learnt of that.
    heard: u64,
    heard_at: Time,
}

impl Seat {
    pub(crate) fn new(member: Member, lease_over: Time, now: Time) -> Self {
        Seat {
            member,
            lease_over,
            acknowledged: false,
            leaving: false,
            at_rest: false,
            ended: false,
            expelled: false,
            settled: BTreeSet::new(),
            heard: 0,
            heard_at: now,
        }
    }

    pub(crate) fn lapsed(&self, now: Time) -> bool {
        now >= self.lease_over
    }

    /// Takes note of what a renewal says about its sender.
    pub(crate) fn note(&mut self, now: Time, renewal: &Renewal) {
        self.settled = renewal.settled.iter().copied().collect();
        if renewal.heard > self.heard {
            (self.heard, self.heard_at) = (renewal.heard, now);
        }
    }

    /// It is heard and does not hear: no grant has arrived there for a whole lease. It has no lease by its own count,
    /// so keeping it in would only make all others wait for it.
    pub(crate) fn deaf(&self, now: Time, terms: LeaseTerms) -> bool {
        now >= terms.over_at(self.heard_at)
    }

    /// Why a view is without it.
    pub(crate) fn parting(&self) -> Parting {
        match self {
            Seat { expelled: true, .. } => Parting::Expelled,
            Seat { leaving: true, at_rest: true, .. } => Parting::LeftAtRest,
            Seat { leaving: true, .. } => Parting::LeftOpen,
            Seat { ended: true, .. } => Parting::Superseded,
            _ => Parting::RanOut,
        }
    }

    /// The keeper was away, so that its silence says nothing about the seat: the lease counts from now.
    pub(crate) fn excuse(&mut self, now: Time, terms: LeaseTerms) {
        if !self.ended {
            self.lease_over = self.lease_over.max(terms.over_at(now));
            self.heard_at = now;
        }
    }
}
