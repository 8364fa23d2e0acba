//! What need not be tried because something else stands for it.

use verbena_lock::{LockRole, Message};

use super::{Event, Evicting, State, ToHome, ToNode};
use crate::every_order::view::Address;

impl Evicting {
    /// What of it has to be tried. The rest leads to the same states, or to states in which fewer hold the lock:
    ///
    /// * What is said above (`../reduced.rs`) of grants, requests, and messages that would only be noted. A request is made at once where its node does nothing else: its batch is
    ///   executed later, and finds what it would have found.
    /// * Where words are is asked and told at once: the request could have been made later, and its batch is executed later.
    /// * That words are forgotten is told at once: nothing follows but that they are made free, when that is executed.
    /// * Nobody else has to do with words that are made free.
    pub(super) fn needed(&self, state: &State, events: &mut Vec<Event>) {
        let mut all = vec![];
        self.possible(state, &mut all);
        let is_at_once = |event: &&Event| match **event {
            Event::Request(at, ..) => state.nodes[at].parts.iter().all(|part| part.role.is_idle()),
            Event::Deliver(slot, at) => state.slots[slot].view.is_at_once(at),
            Event::NodeHears(at) => matches!(state.to_node[at].front(), Some(ToNode::Found(..))),
            Event::HomeHears(at) => {
                matches!(state.to_home[at].front(), Some(ToHome::Resolve(_) | ToHome::Forgotten(..)))
            }
            Event::Step(slot, who) => {
                let reads = !self.has_gate() && state.slots[slot].view.only_reads(who);
                who == self.home() && (reads || state.evicted.is_freeing(slot as u32))
            }
            Event::Release(..) | Event::Downgrade(..) | Event::Evict(_) => false,
        };
        match all.iter().find(is_at_once) {
            Some(Event::Request(at, ..)) => {
                events.extend(all.iter().filter(|event| matches!(event, Event::Request(other, ..) if other == at)));
            }
            Some(event) => events.push(*event),
            None => events.extend(all.iter().filter(|event| match **event {
                Event::Deliver(slot, at) => !self.would_only_be_noted(state, slot, at),
                _ => true,
            })),
        }
    }

    fn would_only_be_noted(&self, state: &State, slot: usize, member_message: usize) -> bool {
        match state.slots[slot].view.wire[member_message] {
            (Address::Participant(to), _, Message::Join | Message::Behind { .. }) => {
                let at = (to.0 as usize).wrapping_sub(1);
                let name = (at < self.participants).then(|| self.name_at(state, at, slot)).flatten();
                name.is_some_and(|name| LockRole::would_only_note_it(&state.nodes[at].parts[name].role))
            }
            _ => false,
        }
    }

    /// What follows at once, because nobody can tell the difference: what came of a participant's batch, the read after a change unless the gate is looked at, and the
    /// first step of a writer's release.
    pub(super) fn goes_on(&self, state: &mut State, event: Event) {
        match event {
            Event::Release(at, name) | Event::Downgrade(at, name) => {
                let words = state.nodes[at].parts[name].words;
                if let super::Words::At(slot) = words
                    && state.slots[slot as usize].view.posted[at].is_some()
                {
                    state.slots[slot as usize].view.execute(at);
                    self.hears_of(state, slot as usize, at);
                }
            }
            Event::Step(slot, who) if who != self.home() => self.hears_of(state, slot, who),
            _ => {}
        }
    }

    fn hears_of(&self, state: &mut State, slot: usize, who: usize) {
        if state.slots[slot].view.goes_on(who, self.has_gate()) {
            self.happens(state, Event::Step(slot, who));
        }
    }

    fn has_gate(&self) -> bool {
        self.lost_swaps.is_some()
    }
}
