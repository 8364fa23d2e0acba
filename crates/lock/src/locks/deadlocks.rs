//! Probes of a node's clients that wait for each other ([`crate::deadlock`]).

use verbena_terms::{Incarnation, Time};

use super::{Locks, LocksAction};
use crate::action::ProtocolViolation;
use crate::deadlock::{Cycle, MOST_WAITERS, Probe, Sighting, Waiter};
use crate::local_queue::{Answer, RequestId};
use crate::wire::MemberMessage;

impl Locks {
    /// Asks for those that have waited long enough.
    pub(super) fn probe(&mut self, now: Time, out: &mut Vec<LocksAction>) {
        for asker in self.askers.take_due(now) {
            let waits: Vec<RequestId> = self.askers.waits(asker).map(|(id, _)| id).collect();
            for id in waits {
                if let Some(waiter) = self.waiter(id, None) {
                    self.ask_all(Probe { started: now, waiters: vec![waiter] });
                }
            }
        }
        self.hear_self(out);
    }

    /// A probe: which clients of this node hold the lock that its last waiter waits for, and wait too?
    pub(super) fn probed(&mut self, probe: Probe, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        let (first, last) = probe.first().zip(probe.last()).ok_or(ProtocolViolation("an empty probe"))?;
        if probe.waiters.len() > MOST_WAITERS {
            return Err(ProtocolViolation("a probe of too many"));
        }
        let first = (first.node, first.asker, first.waits);
        let Some(here) = self.here.get(&last.name) else { return Ok(()) };
        for holds in here.local.holders().to_vec() {
            let Some(asker) = self.askers.get(holds).map(|asked| asked.asker) else { continue };
            if (self.me, asker) == (first.0, first.1) {
                self.closed(probe.clone().closed(holds), first.2, out);
                continue;
            }
            let waits: Vec<RequestId> = self.askers.waits(asker).map(|(id, _)| id).collect();
            for id in waits {
                let on = self.waiter(id, Some(holds)).and_then(|waiter| probe.behind(waiter));
                if let Some(on) = on {
                    self.ask_all(on);
                }
            }
        }
        Ok(())
    }

    /// A request of a client here is to be refused, because it waits for itself. Nothing happens if it does not wait any more.
    pub(super) fn refused_as_youngest(&mut self, id: RequestId, cycle: Cycle, out: &mut Vec<LocksAction>) {
        let Some(name) = self.askers.get(id).map(|asked| asked.name.clone()) else { return };
        self.with(&name, out, |local, actions| local.give_up(id, Answer::Deadlock(cycle), actions));
    }

    /// A probe that began with this request of a client here has come back to it.
    fn closed(&mut self, probe: Probe, id: RequestId, out: &mut Vec<LocksAction>) {
        let Some(asked) = self.askers.get(id) else { return };
        if !asked.seen.as_ref().is_some_and(|seen| seen.is_confirmed_by(&probe)) {
            return self.askers.seen(id, Sighting::of(&probe, self.now), self.now);
        }
        let cycle = Cycle::of(probe);
        let Some((node, youngest)) = cycle.youngest().map(|waiter| (waiter.node, waiter.waits)) else { return };
        if node == self.me {
            self.refused_as_youngest(youngest, cycle, out);
        } else {
            self.members.say(node, MemberMessage::Deadlock { request: youngest, cycle });
        }
    }

    fn waiter(&self, id: RequestId, holds: Option<RequestId>) -> Option<Waiter> {
        let asked = self.askers.get(id)?;
        let (node, name, waited): (Incarnation, _, _) = (self.me, asked.name.clone(), self.now.since(asked.since));
        Some(Waiter { node, asker: asked.asker, waits: id, name, waited, holds })
    }

    fn ask_all(&mut self, probe: Probe) {
        self.members.say_to_all(&MemberMessage::Waits(probe));
    }
}
