//! The world whose orders of events are explored.

use std::fmt;

use stateright::{Model, Property};
use verbena_lock::{
    Action, Batch, Change, HomeSide, LockWord, Message, Mode, Outcome, Request, Rules, Scheme, Side, To, Token,
};
use verbena_terms::{Rank, ViewNumber};

pub(crate) struct World {
    pub scheme: Scheme,
    pub contenders: usize,
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
    pub word: LockWord,
    pub token: Token,
    pub is_closed: bool,
    pub contenders: Vec<Side>,
    pub left: Vec<u8>,
    pub home: HomeSide,
    /// What each contender, and last the home, has posted.
    pub posted: Vec<Option<Posted>>,
    /// In order, for it does not matter.
    pub wire: Vec<Letter>,
    /// Of all grants so far, and of those to writers.
    pub highest: Token,
    pub highest_writer: Token,
    pub wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Posted {
    pub rest: Batch,
    pub outcome: Outcome,
    /// It changes nothing.
    pub is_reading: bool,
}

pub(crate) type Letter = (To, Rank, Message);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Request(usize, Request),
    Release(usize),
    Downgrade(usize),
    Deliver(usize),
    /// The next step of what it posted is executed, or it hears what came of it.
    Step(usize),
}

pub(crate) fn rank(at: usize) -> Rank {
    Rank(at as u32 + 1)
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World { scheme, contenders, each, requests, .. } = self;
        let kinds: Vec<String> = requests
            .iter()
            .map(|request| format!("{}{:?}", if request.is_try { "Try" } else { "" }, request.mode))
            .collect();
        write!(f, "{scheme:?}: {contenders} contenders, {each} requests each of {}", kinds.join(", "))?;
        write!(f, "{}", if self.downgrades { ", downgrades" } else { "" })?;
        self.lost_swaps.map_or(Ok(()), |lost| write!(f, ", {lost} swaps lost at most"))?;
        self.settled_at.map_or(Ok(()), |readers| write!(f, ", settled at {readers}"))?;
        write!(f, "{}", if self.is_reduced { ", reduced" } else { "" })
    }
}

impl World {
    pub(crate) fn home(&self) -> usize {
        self.contenders
    }

    /// Somebody may ask the home to be put into the queue.
    pub(crate) fn has_door(&self) -> bool {
        self.lost_swaps.is_some()
    }
}

impl State {
    fn act(&mut self, who: usize, said: Result<(), verbena_lock::Strange>, actions: Vec<Action>) {
        if said.is_err() {
            self.wrong = Some("a machine finds strange what it heard");
        }
        for action in actions {
            match action {
                Action::Access(batch) => {
                    let is_reading = batch == Batch { read: true, ..Batch::default() };
                    let posted = Posted { rest: batch, outcome: Outcome::default(), is_reading };
                    if self.posted[who].replace(posted).is_some() {
                        self.wrong = Some("a machine has two batches on their way");
                    }
                }
                Action::Send(to, message) => {
                    let letter = (to, rank(who), message);
                    let at = self.wire.partition_point(|other| *other < letter);
                    self.wire.insert(at, letter);
                }
                Action::Granted(mode, token) => self.granted(who, mode, token),
                Action::Refused(_) | Action::Left => {}
            }
        }
    }

    fn granted(&mut self, who: usize, mode: Mode, token: Token) {
        let grows = match mode {
            Mode::Exclusive => token > self.highest,
            // Where readers do not share, a writer that becomes one goes on as it was.
            Mode::Shared if matches!(self.contenders[who], Side::Dqnl(..)) => token >= self.highest,
            Mode::Shared => token >= self.highest && token > self.highest_writer,
        };
        if !grows {
            self.wrong = Some("a token is not larger than earlier ones");
        }
        self.highest = self.highest.max(token);
        if mode == Mode::Exclusive {
            self.highest_writer = token;
        }
    }

    fn holders(&self, mode: Mode) -> usize {
        self.contenders.iter().filter(|contender| contender.held().is_some_and(|(held, _)| held == mode)).count()
    }

    /// The next step of the batch; `None` when all have been made.
    pub(crate) fn execute(&mut self, who: usize) -> Option<()> {
        let Posted { rest, outcome, .. } = self.posted[who].as_mut()?;
        if let Some(door) = rest.door.take() {
            self.is_closed = door;
        } else if let Some(token) = rest.token.take() {
            self.token = token;
        } else if let Some(change) = rest.change.take() {
            outcome.before = self.word;
            match change {
                Change::Swap { expected, new } if self.word == expected => self.word = new,
                Change::Swap { .. } | Change::Look => {}
                Change::AddReader => self.word = LockWord::from_bits(self.word.to_bits() + LockWord::READER),
            }
        } else if std::mem::take(&mut rest.read) {
            (outcome.token, outcome.is_closed) = (self.token, self.is_closed);
        } else {
            return None;
        }
        Some(())
    }
}

impl Model for World {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let first = Token::first_of(ViewNumber(1));
        let contender = |at| match (Side::new(self.scheme, rank(at), self.rules), self.lost_swaps) {
            (Side::Ncosed(contender), Some(lost)) => Side::Ncosed(contender.patient_for(lost)),
            (side, _) => side,
        };
        let home = match (HomeSide::new(self.scheme, first, self.rules), self.settled_at) {
            (HomeSide::Words(home), Some(readers)) => HomeSide::Words(home.settling_at(readers)),
            (home, _) => home,
        };
        vec![State {
            word: LockWord::FREE,
            token: first,
            is_closed: false,
            contenders: (0..self.contenders).map(contender).collect(),
            left: vec![self.each; self.contenders],
            home,
            posted: vec![None; self.contenders + 1],
            wire: vec![],
            highest: first,
            highest_writer: first,
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
            Property::always("writers are alone", |_, state: &State| {
                let (writers, readers) = (state.holders(Mode::Exclusive), state.holders(Mode::Shared));
                writers == 0 || (writers == 1 && readers == 0)
            }),
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            // No request can be made and nothing is on its way: then everybody has had what they wanted, and the word says so.
            Property::always("nothing is stuck", |world: &World, state: &State| {
                let mut events = vec![];
                world.actions(state, &mut events);
                let is_over = state.contenders.iter().all(Side::is_idle)
                    && state.word == LockWord::FREE
                    && state.home.is_at_rest();
                !events.is_empty() || is_over
            }),
            match self.scheme {
                Scheme::Ncosed | Scheme::Srsl => {
                    Property::sometimes("readers share", |_, state: &State| state.holders(Mode::Shared) > 1)
                }
                Scheme::Dqnl => {
                    Property::always("readers are alone too", |_, state: &State| state.holders(Mode::Shared) < 2)
                }
            },
        ]
    }
}

impl World {
    /// All that can happen next.
    pub(crate) fn possible(&self, state: &State, events: &mut Vec<Event>) {
        for (at, contender) in state.contenders.iter().enumerate() {
            if contender.is_idle() && state.left[at] > 0 {
                events.extend(self.requests.iter().map(|&request| Event::Request(at, request)));
            }
            if let Some((mode, _)) = contender.held() {
                events.push(Event::Release(at));
                if self.downgrades && mode == Mode::Exclusive {
                    events.push(Event::Downgrade(at));
                }
            }
        }
        events.extend((0..state.posted.len()).filter(|&who| state.posted[who].is_some()).map(Event::Step));
        let same = |at: &usize| *at > 0 && state.wire[*at] == state.wire[*at - 1];
        events.extend((0..state.wire.len()).filter(|at| !same(at)).map(Event::Deliver));
    }

    pub(crate) fn happens(&self, state: &mut State, event: Event) {
        let mut out = vec![];
        let (who, said) = match event {
            Event::Request(who, request) => {
                state.left[who] -= 1;
                (who, state.contenders[who].request(request, &mut out))
            }
            Event::Release(who) => (who, state.contenders[who].release(&mut out)),
            Event::Downgrade(who) => (who, state.contenders[who].downgrade(&mut out)),
            Event::Deliver(at) => match state.wire.remove(at) {
                (To::Home, from, message) => (self.home(), state.home.heard(from, message, &mut out)),
                (To::Contender(to) | To::Survivor(to), from, message) => {
                    let who = to.0 as usize - 1;
                    (who, state.contenders[who].heard(from, message, &mut out))
                }
            },
            Event::Step(who) => {
                if state.execute(who).is_some() {
                    return;
                }
                let Some(Posted { outcome, .. }) = state.posted[who].take() else { return };
                let said = match state.contenders.get_mut(who) {
                    Some(contender) => contender.completed(&outcome, &mut out),
                    None => state.home.completed(&outcome, &mut out),
                };
                (who, said)
            }
        };
        state.act(who, said, out);
    }
}
