//! The world whose orders of events are explored.

use std::fmt;

use stateright::{Model, Property};
use verbena_lock::{Action, HomeRole, LockRole, Mode, ProtocolViolation, Request, Rules, Scheme, Token};
use verbena_terms::ViewNumber;

use crate::every_order::Explored;
use crate::every_order::compared::{Sees, Watched};
use crate::every_order::view::{Address, Grants, Posted, View, holders, rank, writers_are_alone};

pub(crate) const STRANGE: &str = "a machine hears what breaks the protocol";
pub(crate) const TWO_BATCHES: &str = "a machine has two batches on their way";
pub(crate) const TOO_SMALL: &str = "a token is not larger than earlier ones";

/// The view in which everything begins.
pub(crate) const FIRST: ViewNumber = ViewNumber(1);

pub(crate) struct World {
    pub scheme: Scheme,
    pub participants: usize,
    /// Requests that each makes.
    pub each: u8,
    /// What is asked for: any of these at any time.
    pub requests: Vec<Request>,
    /// Writers may become readers.
    pub downgrades: bool,
    /// Swaps that a writer loses before it asks the home; as in a node where that is not said.
    pub lost_swaps: Option<u32>,
    /// Released readers at which the home takes them off the count of a word in use; as in a node where that is not said.
    pub settled_at: Option<u32>,
    pub rules: Rules,
    /// Of orders that differ only in what nobody can tell, one is taken ([`Model::actions`]).
    pub is_reduced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub view: View,
    pub participants: Vec<LockRole>,
    pub left: Vec<u8>,
    pub grants: Grants,
    pub wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Request(usize, Request),
    Release(usize),
    Downgrade(usize),
    Deliver(usize),
    /// The next step of what it posted is executed, or it hears what came of it.
    Step(usize),
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World { scheme, participants, each, requests, .. } = self;
        let kinds: Vec<String> = requests
            .iter()
            .map(|request| format!("{}{:?}", if request.is_try { "Try" } else { "" }, request.mode))
            .collect();
        write!(f, "{scheme:?}: {participants} participants, {each} requests each of {}", kinds.join(", "))?;
        write!(f, "{}", if self.downgrades { ", downgrades" } else { "" })?;
        self.lost_swaps.map_or(Ok(()), |lost| write!(f, ", {lost} swaps lost at most"))?;
        self.settled_at.map_or(Ok(()), |readers| write!(f, ", settled at {readers}"))?;
        write!(f, "{}", if self.is_reduced { ", reduced" } else { "" })
    }
}

impl World {
    /// A participant that has nothing to do with the lock.
    pub(crate) fn participant(&self, at: usize) -> LockRole {
        match (LockRole::new(self.scheme, rank(at), self.rules), self.lost_swaps) {
            (LockRole::Ncosed(participant), Some(lost)) => LockRole::Ncosed(participant.patient_for(lost)),
            (role, _) => role,
        }
    }

    /// A view in which nothing has happened.
    pub(crate) fn view(&self, number: ViewNumber) -> View {
        let home = match (HomeRole::new(self.scheme, Token::first_of(number), self.rules), self.settled_at) {
            (HomeRole::Words(home), Some(readers)) => HomeRole::Words(home.settling_at(readers)),
            (home, _) => home,
        };
        View::new(number, home, self.participants)
    }

    pub(crate) fn home(&self) -> usize {
        self.participants
    }

    /// Somebody may ask the home to be put into the queue.
    pub(crate) fn has_gate(&self) -> bool {
        self.lost_swaps.is_some()
    }
}

impl State {
    fn readers(&self) -> usize {
        holders(self.participants.iter(), Mode::Shared)
    }

    fn act(&mut self, who: usize, said: Result<(), ProtocolViolation>, actions: Vec<Action>) {
        if said.is_err() {
            self.wrong = Some(STRANGE);
        }
        for action in actions {
            match action {
                Action::Access(batch) => {
                    if !self.view.post(who, batch) {
                        self.wrong = Some(TWO_BATCHES);
                    }
                }
                Action::Send(to, message) => self.view.send((to.into(), rank(who), message)),
                Action::Granted(mode, token) => {
                    if !self.grants.grow(&self.participants[who], mode, token) {
                        self.wrong = Some(TOO_SMALL);
                    }
                }
                Action::Refused(_) | Action::Left => {}
                Action::Moved | Action::Evicted(_) => self.wrong = Some(STRANGE),
            }
        }
    }
}

impl Explored for World {
    fn is_reduced(&self) -> bool {
        self.is_reduced
    }

    fn is_over(&self, state: &State) -> bool {
        state.participants.iter().all(LockRole::is_idle) && state.view.is_over()
    }
}

impl Watched for World {
    fn sees(&self, state: &State) -> Vec<Sees> {
        state.participants.iter().map(Sees::from).collect()
    }

    fn asks(&self, event: Event) -> Option<(usize, Request)> {
        match event {
            Event::Request(who, request) => Some((who, request)),
            _ => None,
        }
    }

    fn order(&self, state: &State) -> Vec<usize> {
        state.order()
    }
}

impl Model for World {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            view: self.view(FIRST),
            participants: (0..self.participants).map(|at| self.participant(at)).collect(),
            left: vec![self.each; self.participants],
            grants: Grants::none_of(FIRST),
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if self.is_reduced {
            self.needed(state, events);
        } else {
            self.possible(state, events);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.happens(&mut state, event);
        if self.is_reduced {
            self.goes_on(&mut state, event);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("writers are alone", |_, state: &State| writers_are_alone(state.participants.iter())),
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            // No request can be made and nothing is on its way: then everybody has had what they wanted, and the word says so.
            Property::always("nothing is stuck", |world: &World, state: &State| {
                let mut events = vec![];
                world.actions(state, &mut events);
                !events.is_empty() || world.is_over(state)
            }),
            match self.scheme {
                Scheme::Ncosed | Scheme::Srsl => {
                    Property::sometimes("readers share", |_, state: &State| state.readers() > 1)
                }
                Scheme::Dqnl => Property::always("readers are alone too", |_, state: &State| state.readers() < 2),
            },
        ]
    }
}

impl World {
    /// All that can happen next.
    pub(crate) fn possible(&self, state: &State, events: &mut Vec<Event>) {
        for (at, participant) in state.participants.iter().enumerate() {
            if participant.is_idle() && state.left[at] > 0 {
                events.extend(self.requests.iter().map(|&request| Event::Request(at, request)));
            }
            if let Some((mode, _)) = participant.held() {
                events.push(Event::Release(at));
                if self.downgrades && mode == Mode::Exclusive {
                    events.push(Event::Downgrade(at));
                }
            }
        }
        events.extend(state.view.posters().map(Event::Step));
        events.extend(state.view.messages().map(Event::Deliver));
    }

    pub(crate) fn happens(&self, state: &mut State, event: Event) {
        let mut out = vec![];
        let (who, said) = match event {
            Event::Request(who, request) => {
                state.left[who] -= 1;
                (who, state.participants[who].request(request, &mut out))
            }
            Event::Release(who) => (who, state.participants[who].release(&mut out)),
            Event::Downgrade(who) => (who, state.participants[who].downgrade(&mut out)),
            Event::Deliver(at) => match state.view.wire.remove(at) {
                (Address::Home | Address::Server, from, message) => {
                    (self.home(), state.view.home.heard(from, message, &mut out))
                }
                (Address::Participant(to) | Address::Survivor(to), from, message) => {
                    let who = to.0 as usize - 1;
                    (who, state.participants[who].heard(from, message, &mut out))
                }
            },
            Event::Step(who) => {
                if state.view.execute(who).is_some() {
                    return;
                }
                let Some(Posted { outcome, .. }) = state.view.posted[who].take() else { return };
                let said = match state.participants.get_mut(who) {
                    Some(participant) => participant.completed(&outcome, &mut out),
                    None => state.view.home.completed(&outcome, &mut out),
                };
                (who, said)
            }
        };
        state.act(who, said, out);
    }
}
