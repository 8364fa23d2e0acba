//! What need not be tried because something else stands for it.

use verbena_lock::{Batch, Message};

use crate::every_order::view::{Address, MemberMessage, Posted, View, rank};
use crate::every_order::world::{Event, State, World};

impl World {
    /// What of it has to be tried. The rest leads to the same states, or to states in which fewer hold the lock:
    ///
    /// * A grant is delivered at once: until then who it is for can do nothing, and after it need not. So is what the home reads for it: nobody writes
    ///   the token word before who waits for it does.
    /// * That a writer is next after readers is told at once: until it is, the home can only find that a writer is at the tail.
    /// * A request is made at once: its batch is executed later.
    /// * A participant that waits hears who stands behind it when it holds the lock: before that it would only note it.
    pub(crate) fn needed(&self, state: &State, events: &mut Vec<Event>) {
        let mut all = vec![];
        self.possible(state, &mut all);
        let is_at_once = |event: &&Event| match event {
            Event::Request(..) => true,
            Event::Deliver(at) => state.view.is_at_once(*at),
            Event::Step(who) => *who == self.home() && !self.has_gate() && state.view.only_reads(*who),
            Event::Release(_) | Event::Downgrade(_) => false,
        };
        match all.iter().find(is_at_once) {
            Some(Event::Request(who, _)) => {
                events.extend(all.iter().filter(|event| matches!(event, Event::Request(other, _) if other == who)));
            }
            Some(event) => events.push(*event),
            None => events.extend(all.iter().filter(|event| match event {
                Event::Deliver(at) => match state.view.wire[*at] {
                    (Address::Participant(to), _, Message::Join | Message::Behind { .. }) => {
                        !state.participants[to.0 as usize - 1].would_only_note_it()
                    }
                    _ => true,
                },
                _ => true,
            })),
        }
    }

    /// What follows at once, because nobody can tell the difference:
    ///
    /// * The first step of a writer's release: until then it might as well hold the lock.
    /// * What came of a participant's batch: it does the same if a message comes in between. (A home would not.)
    /// * The read after a change, unless the gate is looked at: whoever is in finds the token that the last writer left.
    /// * That a reader has released, if it is its last request: until then it might as well hold the lock.
    pub(crate) fn goes_on(&self, state: &mut State, event: Event) {
        match event {
            Event::Release(who) | Event::Downgrade(who) => {
                if state.view.posted[who].is_some() {
                    state.view.execute(who);
                    self.hears(state, who);
                } else if state.left[who] == 0
                    && let Some(at) = state.view.release_of(who)
                {
                    self.happens(state, Event::Deliver(at));
                }
            }
            Event::Step(who) if who != self.home() => self.hears(state, who),
            _ => {}
        }
    }

    fn hears(&self, state: &mut State, who: usize) {
        if state.view.goes_on(who, self.has_gate()) {
            self.happens(state, Event::Step(who));
        }
    }
}

impl View {
    /// A grant, or that a writer is next after readers.
    pub(crate) fn is_at_once(&self, member_message: usize) -> bool {
        matches!(self.wire[member_message].2, Message::Grant { .. } | Message::After { .. })
    }

    pub(crate) fn only_reads(&self, home: usize) -> bool {
        self.posted[home].as_ref().is_some_and(|posted| posted.is_reading)
    }

    /// The message that says that it has released, which it did as a reader or as a survivor.
    pub(crate) fn release_of(&self, who: usize) -> Option<usize> {
        let is_release = |(_, from, message): &MemberMessage| {
            *from == rank(who) && matches!(message, Message::Released | Message::Freed | Message::Shared)
        };
        self.wire.iter().position(is_release)
    }

    /// Makes the step that nobody can tell from the one before it. Whether all have been made.
    pub(crate) fn goes_on(&mut self, who: usize, has_gate: bool) -> bool {
        let Some(Posted { rest, .. }) = &self.posted[who] else { return false };
        if rest.change.is_none() && rest.token.is_none() && rest.read && !has_gate {
            self.execute(who);
        }
        self.posted[who].as_ref().is_some_and(|posted| posted.rest == Batch::default())
    }
}
