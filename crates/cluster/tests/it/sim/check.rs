//! The checkers: each looks at the whole cluster from outside, with a knowledge that no node has.

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::{Body, Message, View};
use verbena_terms::{Incarnation, ViewNumber};

use crate::sim::node::Process;

/// How long a view may stay proposed by one keeper that runs: a lease until its acknowledgement is demanded, one more
/// until who did not give it is out, and some for the disc. What it waits in vain for a register to store its record is
/// not counted.
const BLOCKED_AFTER: u64 = 5_500_000_000;
/// How long a member may stay in without a lease and without being said to be out, while the keeper runs: its last renewal
/// may be two and a half leases late, the keeper grants for one lease more until it takes it for deaf, and waits one.
const HELD_AFTER: u64 = 10_200_000_000;

#[derive(Default)]
pub struct Checkers {
    /// The highest view that was ever declared to be in effect.
    pub in_effect: ViewNumber,
    views: BTreeMap<ViewNumber, View>,
    lives: BTreeMap<Incarnation, u64>,
    out: BTreeSet<Incarnation>,
    /// Who left at rest by a view that was in effect.
    pub at_rest: BTreeSet<Incarnation>,
    proposed: Option<(ViewNumber, u64)>,
    leased: BTreeMap<Incarnation, u64>,
}

impl Checkers {
    /// What is said on the wire: a view number means one view; an incarnation is one life of one process.
    pub fn sent(&mut self, process: u64, message: &Message) -> Result<(), String> {
        match &message.body {
            Body::Propose(view) => {
                let known = self.views.entry(view.number()).or_insert_with(|| view.clone());
                if known != view {
                    return Err(format!("view {} was {known:?} and is {view:?}", view.number()));
                }
            }
            Body::Grant(standing) | Body::Stand(standing) => {
                self.out.extend(&standing.out);
                if standing.in_effect {
                    self.in_effect = self.in_effect.max(standing.view);
                }
            }
            Body::Join { .. } => {
                let life = *self.lives.entry(message.from).or_insert(process);
                if life != process {
                    return Err(format!("incarnation {} is used by processes {life} and {process}", message.from));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What a keeper that runs says of its newest view.
    pub fn declared(&mut self, now: u64, newest: Option<&View>, in_effect: bool) -> Result<(), String> {
        let Some(view) = newest else { return Ok(()) };
        let number = view.number();
        if number < self.in_effect {
            return Err(format!("view {number} after {} was in effect", self.in_effect));
        }
        if let Some(gone) = view.departed().iter().find(|gone| gone.at_rest && gone.since < number) {
            return Err(format!("kept: {} left at rest and {number} still lists it", gone.incarnation));
        }
        if in_effect {
            self.in_effect = number;
            self.at_rest.extend(view.departed().iter().filter(|gone| gone.at_rest).map(|gone| gone.incarnation));
            self.out.extend(view.departed().iter().map(|gone| gone.incarnation));
            self.proposed = None;
        } else {
            let (proposed, since) = *self.proposed.get_or_insert((number, now));
            if proposed != number {
                self.proposed = Some((number, now));
            } else if now.saturating_sub(since) > BLOCKED_AFTER {
                return Err(format!("blocked: {number} is proposed for {} ms", (now - since) / 1_000_000));
            }
        }
        for member in view.members() {
            let leased = *self.leased.entry(member.incarnation).or_insert(now);
            if now.saturating_sub(leased) > HELD_AFTER && !self.out.contains(&member.incarnation) {
                return Err(format!("held: {} had no lease for {} ms", member.incarnation, (now - leased) / 1_000_000));
            }
        }
        Ok(())
    }

    /// The keeper was stopped, killed, or started: what takes how long counts anew.
    pub fn keeper_disturbed(&mut self, now: u64) {
        self.proposed = None;
        self.leased.values_mut().for_each(|leased| *leased = now);
    }

    /// The keeper has waited so long for the register to say that its record is stored, in vain.
    pub fn record_unanswered(&mut self, lost: u64) {
        let leased = self.leased.values_mut();
        let since = self.proposed.iter_mut().map(|(_, since)| since);
        since.chain(leased).for_each(|since| *since += lost);
    }

    /// What a process may do at `now`, `local` on its own clock.
    pub fn acting(&mut self, now: u64, local: verbena_terms::Time, process: &Process) -> Result<(), String> {
        let Some(view) = process.word.valid_at(local) else { return Ok(()) };
        let who = process.participant.incarnation();
        if view < self.in_effect {
            return Err(format!("acting: {who} may act in {view} while {} is in effect", self.in_effect));
        }
        if process.word.in_effect > self.in_effect {
            return Err(format!("early: {who} believes that {} is in effect", process.word.in_effect));
        }
        if self.out.contains(&who) {
            return Err(format!("out: {who} was said to be out and may act in {view}"));
        }
        if self.views.get(&view).is_none_or(|view| view.member(who).is_none()) {
            return Err(format!("stranger: {who} may act in {view} without being named by it"));
        }
        self.leased.insert(who, now);
        Ok(())
    }
}
