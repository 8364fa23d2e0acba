//! What happens in the world in which locks are evicted.

use std::collections::VecDeque;

use verbena_lock::{Action, Evicted, HomeRole, LockParticipant, LockRole, Message, Mode, ProtocolViolation, Token};
use verbena_terms::Incarnation;

use super::{Event, Evicting, Is, Node, Part, Slot, State, ToHome, ToNode, Words};
use crate::every_order::view::{Address, Grants, Posted, View, rank};
use crate::every_order::world::{FIRST, STRANGE, TOO_SMALL, TWO_BATCHES};

/// Whose action it is.
#[derive(Clone, Copy)]
enum Who {
    Node(usize, usize),
    Home,
}

impl Evicting {
    fn role(&self, at: usize) -> LockRole {
        match (LockRole::new(self.scheme, rank(at), self.rules), self.lost_swaps) {
            (LockRole::Ncosed(participant), Some(lost)) => {
                LockRole::Ncosed(LockParticipant::patient_for(participant, lost))
            }
            (role, _) => role,
        }
    }

    fn home_role(&self) -> HomeRole {
        HomeRole::new(self.scheme, Token::first_of(FIRST), self.rules)
    }

    pub(super) fn home(&self) -> usize {
        self.participants
    }

    fn member(&self, at: usize) -> Incarnation {
        Incarnation { rank: rank(at), start: 1 }
    }

    /// The first lock has words, which all know.
    pub(super) fn begin(&self) -> State {
        let view = || View::new(FIRST, self.home_role(), self.participants);
        let slot = |nth| Slot { view: view(), is: if nth == 0 { Is::Of(0) } else { Is::Free }, is_evicting: false };
        let node = |at| {
            let part = |name| Part {
                role: self.role(at),
                words: if name == 0 { Words::At(0) } else { Words::Unknown },
                wants: None,
            };
            Node { left: self.each, parts: (0..self.names).map(part).collect(), forgetting: None }
        };
        let members = (0..self.participants).map(|at| self.member(at)).collect();
        State {
            slots: (0..self.slots).map(slot).collect(),
            nodes: (0..self.participants).map(node).collect(),
            evicted: Evicted::new(members, Token::first_of(FIRST), self.rules),
            wanting: VecDeque::new(),
            to_node: vec![VecDeque::new(); self.participants],
            to_home: vec![VecDeque::new(); self.participants],
            grants: vec![Grants::none_of(FIRST); self.names],
            evictions: self.evictions,
            was_used_again: false,
            wrong: None,
        }
    }

    /// All that can happen next.
    pub(super) fn possible(&self, state: &State, events: &mut Vec<Event>) {
        for (at, node) in state.nodes.iter().enumerate() {
            for (name, part) in node.parts.iter().enumerate() {
                if part.role.is_idle() && part.wants.is_none() && node.left > 0 {
                    events.extend(self.requests.iter().map(|&request| Event::Request(at, name, request)));
                }
                if let Some((mode, _)) = part.role.held() {
                    events.push(Event::Release(at, name));
                    if self.downgrades && mode == Mode::Exclusive {
                        events.push(Event::Downgrade(at, name));
                    }
                }
            }
        }
        for (slot, Slot { view, is, .. }) in state.slots.iter().enumerate() {
            events.extend(view.posters().map(|who| Event::Step(slot, who)));
            events.extend(view.messages().map(|member_message| Event::Deliver(slot, member_message)));
            if matches!(is, Is::Of(_)) && view.home.is_at_rest() && state.evictions > 0 {
                events.push(Event::Evict(slot));
            }
        }
        for at in 0..self.participants {
            let is_last = |slots: &[u32], to_home: bool| {
                let said = slots.iter().flat_map(|slot| &state.slots[*slot as usize].view.wire);
                !said.into_iter().any(|(to, from, _)| match to_home {
                    true => *to == Address::Home && *from == rank(at),
                    false => *to == Address::Participant(rank(at)) && *from == rank(self.home()),
                })
            };
            match state.to_node[at].front() {
                Some(ToNode::Forget(_, slots)) if !is_last(slots, false) => {}
                Some(_) => events.push(Event::NodeHears(at)),
                None => {}
            }
            match state.to_home[at].front() {
                Some(ToHome::Forgotten(_, slots)) if !is_last(slots, true) => {}
                Some(_) => events.push(Event::HomeHears(at)),
                None => {}
            }
        }
    }

    pub(super) fn happens(&self, state: &mut State, event: Event) {
        let mut out = vec![];
        match event {
            Event::Request(at, name, request) => {
                let node = &mut state.nodes[at];
                (node.left, node.parts[name].wants) = (node.left - 1, Some(request));
                self.advance(state, at, name);
            }
            Event::Release(at, name) => {
                let said = state.nodes[at].parts[name].role.release(&mut out);
                self.node_acts(state, (at, name), said, out);
            }
            Event::Downgrade(at, name) => {
                let said = state.nodes[at].parts[name].role.downgrade(&mut out);
                self.node_acts(state, (at, name), said, out);
            }
            Event::Deliver(slot, at) => match state.slots[slot].view.wire.remove(at) {
                (Address::Participant(to), from, message) if (1..=self.participants).contains(&(to.0 as usize)) => {
                    let at = to.0 as usize - 1;
                    let Some(name) = self.name_at(state, at, slot) else { return state.wrong = Some(STRANGE) };
                    let said = state.nodes[at].parts[name].role.heard(from, message, &mut out);
                    self.node_acts(state, (at, name), said, out);
                }
                (Address::Home, from, message) => match state.slots[slot].is {
                    Is::Of(_) => {
                        let said = state.slots[slot].view.home.heard(from, message, &mut out);
                        self.home_acts(state, slot, said, out);
                    }
                    Is::Evicted if matches!(message, Message::AskHome | Message::Enter) => {
                        if self.rules.tell_who_asked {
                            let moved = (Address::Participant(from), rank(self.home()), Message::Moved);
                            state.slots[slot].view.send(moved);
                        }
                    }
                    Is::Evicted | Is::Free => state.wrong = Some(STRANGE),
                },
                _ => state.wrong = Some("somebody writes to who is nobody"),
            },
            Event::Step(slot, who) => self.steps(state, slot, who),
            Event::Evict(slot) => {
                state.evictions -= 1;
                state.slots[slot].is_evicting = true;
                let said = state.slots[slot].view.home.evict(&mut out);
                self.home_acts(state, slot, said, out);
            }
            Event::NodeHears(at) => match state.to_node[at].pop_front() {
                Some(ToNode::Found(name, slot)) => {
                    state.nodes[at].parts[name].words = Words::At(slot);
                    self.advance(state, at, name);
                }
                Some(ToNode::Forget(number, slots)) => {
                    if state.nodes[at].forgetting.replace((number, slots)).is_some() {
                        state.wrong = Some("two questions at a time");
                    }
                    self.forget(state, at);
                }
                None => {}
            },
            Event::HomeHears(at) => match state.to_home[at].pop_front() {
                Some(ToHome::Resolve(name)) => {
                    state.wanting.push_back((at, name));
                    self.tend(state);
                }
                Some(ToHome::Forgotten(number, _)) => {
                    if state.evicted.forgotten(self.member(at), number).is_err() {
                        state.wrong = Some(STRANGE);
                    }
                    self.tend(state);
                }
                None => {}
            },
        }
    }

    fn steps(&self, state: &mut State, slot: usize, who: usize) {
        if state.slots[slot].view.execute(who).is_some() {
            return;
        }
        let Some(Posted { outcome, .. }) = state.slots[slot].view.posted[who].take() else { return };
        let mut out = vec![];
        if who < self.home() {
            let Some(name) = self.name_at(state, who, slot) else { return state.wrong = Some(STRANGE) };
            let said = state.nodes[who].parts[name].role.completed(&outcome, &mut out);
            self.node_acts(state, (who, name), said, out);
        } else if state.evicted.is_freeing(slot as u32) {
            match state.evicted.freed(slot as u32, &outcome) {
                Some(batch) => drop(state.slots[slot].view.post(self.home(), batch)),
                None => state.slots[slot].is = Is::Free,
            }
            self.tend(state);
        } else {
            // What it posts again is for another end, unless a rule is off.
            state.slots[slot].is_evicting = false;
            let said = state.slots[slot].view.home.completed(&outcome, &mut out);
            self.home_acts(state, slot, said, out);
        }
    }

    /// The lock whose words the node believes to be there.
    pub(super) fn name_at(&self, state: &State, at: usize, slot: usize) -> Option<usize> {
        state.nodes[at].parts.iter().position(|part| part.words == Words::At(slot as u32))
    }

    /// The node asks for what its client wants, or where the words are.
    fn advance(&self, state: &mut State, at: usize, name: usize) {
        let Part { role, words, wants } = &mut state.nodes[at].parts[name];
        let Some(request) = wants.filter(|_| role.is_idle()) else { return };
        match words {
            Words::At(_) => {
                let mut out = vec![];
                let said = role.request(request, &mut out);
                self.node_acts(state, (at, name), said, out);
            }
            Words::Unknown => {
                *words = Words::Asked;
                state.to_home[at].push_back(ToHome::Resolve(name));
            }
            Words::Asked => {}
        }
    }

    /// Answers the home if it has nothing to do any more with what it is to forget.
    fn forget(&self, state: &mut State, at: usize) {
        let Some((number, slots)) = state.nodes[at].forgetting.take() else { return };
        let mut is_over = true;
        for &slot in &slots {
            let is_posted = state.slots[slot as usize].view.posted[at].is_some();
            let part = state.nodes[at].parts.iter_mut().find(|part| part.words == Words::At(slot));
            let forgets = !is_posted && part.as_ref().is_none_or(|part| part.role.clone().forget());
            is_over &= forgets;
            if let Some(part) = part.filter(|_| forgets) {
                part.role.forget();
                part.words = Words::Unknown;
            }
        }
        if is_over {
            state.to_home[at].push_back(ToHome::Forgotten(number, slots));
        } else {
            state.nodes[at].forgetting = Some((number, slots));
        }
    }

    /// The home does about its words what is to be done.
    fn tend(&self, state: &mut State) {
        if let Some((number, slots)) = state.evicted.ask() {
            state.to_node.iter_mut().for_each(|said| said.push_back(ToNode::Forget(number, slots.clone())));
        }
        while let Some((slot, batch)) = state.evicted.free_next(usize::MAX) {
            if !state.slots[slot as usize].view.post(self.home(), batch) {
                state.wrong = Some(TWO_BATCHES);
            }
        }
        while let Some(&(at, name)) = state.wanting.front() {
            let known = state.slots.iter().position(|slot| slot.is == Is::Of(name));
            let slot = match known {
                // Whether it is there is not known yet.
                Some(slot) if state.slots[slot].is_evicting => return,
                Some(slot) => slot,
                None => {
                    let again = state.evicted.take().map(|slot| slot as usize);
                    state.was_used_again |= again.is_some();
                    let new = || state.slots.iter().position(|slot| slot.is == Is::Free);
                    let Some(slot) = again.or_else(new) else { return };
                    self.make(state, slot, name);
                    slot
                }
            };
            state.wanting.pop_front();
            state.to_node[at].push_back(ToNode::Found(name, slot as u32));
        }
    }

    fn make(&self, state: &mut State, slot: usize, name: usize) {
        let Slot { view, is, .. } = &mut state.slots[slot];
        if !view.is_over() || view.is_closed || (self.rules.forgotten_before_reuse && !view.wire.is_empty()) {
            state.wrong = Some("words that are not free become a lock's");
        }
        (view.token, *is) = (state.evicted.floor(), Is::Of(name));
    }

    fn node_acts(&self, state: &mut State, who: (usize, usize), said: Result<(), ProtocolViolation>, out: Vec<Action>) {
        let (at, name) = who;
        if let Words::At(slot) = state.nodes[at].parts[name].words {
            self.acts(state, slot as usize, Who::Node(at, name), said, out);
        }
        self.advance(state, at, name);
        self.forget(state, at);
    }

    fn home_acts(&self, state: &mut State, slot: usize, said: Result<(), ProtocolViolation>, out: Vec<Action>) {
        self.acts(state, slot, Who::Home, said, out);
        self.tend(state);
    }

    fn acts(
        &self,
        state: &mut State,
        slot: usize,
        who: Who,
        said: Result<(), ProtocolViolation>,
        actions: Vec<Action>,
    ) {
        if said.is_err() {
            state.wrong = Some(STRANGE);
        }
        let number = match who {
            Who::Node(at, _) => at,
            Who::Home => self.home(),
        };
        for action in actions {
            match (action, who) {
                (Action::Access(batch), _) => {
                    if !state.slots[slot].view.post(number, batch) {
                        state.wrong = Some(TWO_BATCHES);
                    }
                }
                (Action::Send(to, message), _) => state.slots[slot].view.send((to.into(), rank(number), message)),
                (Action::Granted(mode, token), Who::Node(at, name)) => {
                    let part = &mut state.nodes[at].parts[name];
                    part.wants = None;
                    if !state.grants[name].grow(&part.role, mode, token) {
                        state.wrong = Some(TOO_SMALL);
                    }
                }
                (Action::Refused(_), Who::Node(at, name)) => state.nodes[at].parts[name].wants = None,
                (Action::Moved, Who::Node(at, name)) => state.nodes[at].parts[name].words = Words::Unknown,
                (Action::Left, Who::Node(..)) => {}
                (Action::Evicted(token), Who::Home) => {
                    state.slots[slot].is = Is::Evicted;
                    state.evicted.evict(slot as u32, token);
                }
                _ => state.wrong = Some(STRANGE),
            }
        }
    }
}
