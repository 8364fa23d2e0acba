//! What need not be tried when a view ends, because something else stands for it.

use verbena_lock::Message;

use crate::every_order::across::events::is_recovery_holder;
use crate::every_order::across::views::{Across, Event, NEW, OLD, State};
use crate::every_order::view::Address;

impl Across {
    /// What of it has to be tried. What is taken together within a view ([`needed`](crate::every_order::world::World::needed)) is taken together here too, but for requests
    /// before the new home opens: who has made one when it learns of the new view waits there, and who has not makes it there.
    ///
    /// That a node learns of the new view comes between none of them, for it might as well have learnt before the first: a grant, or that a writer is next,
    /// is lost then in either case; and so is what came of a batch, which is executed all the same.
    pub(crate) fn needed(&self, state: &State, events: &mut Vec<Event>) {
        let mut all = vec![];
        self.possible(state, &mut all);
        let is_at_once = |event: &&Event| match **event {
            Event::Request(..) => state.is_open,
            // The recovery holder of the old view has sent it before the world begins, so nobody can learn of the new view before that.
            Event::Deliver(view, at) => {
                let is_of_recovery_holder = view == OLD && matches!(state.views[view].wire[at].0, Address::Survivor(_));
                state.views[view].is_at_once(at) && !is_of_recovery_holder
            }
            Event::Step(view, who) => {
                who == self.home()
                    && !self.world.has_gate()
                    && state.views[view].only_reads(who)
                    && self.is_in(state, view, who)
            }
            _ => false,
        };
        match all.iter().find(is_at_once) {
            Some(Event::Request(who, _)) => {
                events.extend(all.iter().filter(|event| matches!(event, Event::Request(other, _) if other == who)));
            }
            Some(event) => events.push(*event),
            None => events.extend(all.iter().filter(|event| match **event {
                Event::Deliver(view, at) => match state.views[view].wire[at] {
                    (Address::Participant(to), _, Message::Join | Message::Behind { .. })
                        if !is_recovery_holder(to) =>
                    {
                        !state.nodes[to.0 as usize - 1].role.would_only_note_it()
                    }
                    _ => true,
                },
                _ => true,
            })),
        }
    }

    /// What follows at once, because nobody can tell the difference: the same as within a view. What a survivor says to the server is as what a reader says
    /// to the home.
    pub(crate) fn goes_on(&self, state: &mut State, event: Event) {
        match event {
            Event::Release(who) | Event::Downgrade(who) => {
                let view = if state.nodes[who].has_learnt { NEW } else { OLD };
                if state.views[view].posted[who].is_some() {
                    state.views[view].execute(who);
                    self.hears_of(state, view, who);
                } else if state.nodes[who].left == 0
                    && (view == OLD || state.is_open)
                    && let Some(at) = state.views[view].release_of(who)
                {
                    self.happens(state, Event::Deliver(view, at));
                }
            }
            Event::Step(view, who) if who != self.home() && self.is_in(state, view, who) => {
                self.hears_of(state, view, who);
            }
            _ => {}
        }
    }

    fn hears_of(&self, state: &mut State, view: usize, who: usize) {
        if state.views[view].goes_on(who, self.world.has_gate()) {
            self.happens(state, Event::Step(view, who));
        }
    }
}
