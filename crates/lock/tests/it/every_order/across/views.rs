//! The world in which a view ends.

use std::fmt;

use stateright::{Model, Property};
use verbena_lock::{LockRole, Mode, RecoveryHolder, Request, Survivor};
use verbena_terms::{Rank, ViewNumber};

use crate::every_order::Explored;
use crate::every_order::compared::{Sees, Watched};
use crate::every_order::view::{Grants, View, holders, writers_are_alone};
use crate::every_order::world::{FIRST, World};

pub(crate) const SECOND: ViewNumber = ViewNumber(2);
/// Their places in [`State::views`].
pub(crate) const OLD: usize = 0;
pub(crate) const NEW: usize = 1;

/// What happens in a view, and that the view ends.
pub(crate) struct Across {
    pub world: World,
    pub begins: Begins,
    /// At most one thing goes wrong: somebody is no member of the new view, or does not want any more what it asked for.
    pub fails: bool,
    /// A rule that is not kept.
    pub without: Option<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// With the old view.
    Old,
    /// With the old one, and any mixture of survivors of one before it.
    OldInherited,
    /// With the new one, and any mixture of survivors.
    NewInherited,
}

/// What the nodes do and not the machines: so here are the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The home opens when everybody has reported.
    AllReport,
    /// Who has learnt of the new view takes nothing of the old one.
    OldIsDropped,
    /// The token word begins with the number of its view.
    TokensOfTheView,
    /// The recovery holder stands in the word before others know of it.
    RecoveryHolderIsFirst,
    /// Whoever had the lock in the old view writes to the server, and whoever enters in the new one to the home.
    ServerHasItsAddress,
    /// Who is becoming a reader when it learns of the new view is one there.
    SharingIsReading,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub nodes: Vec<Node>,
    pub views: [View; 2],
    /// The node of the old home has learnt of the new view.
    pub home_has_learnt: bool,
    /// The new home has made the new words.
    pub is_open: bool,
    /// What may go wrong once has.
    pub has_failed: bool,
    pub grants: Grants,
    pub wrong: Option<&'static str>,
}

/// A participant's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub role: LockRole,
    pub left: u8,
    /// It has learnt of the new view, and is there.
    pub has_learnt: bool,
    /// Its lease has run out, and the new view began without it.
    pub is_out: bool,
    /// Nobody wants any more what it asked for.
    pub is_unwanted: bool,
    /// Whom it found at the tail.
    pub ahead: Rank,
    /// What it had when it learnt.
    pub report: Option<Survivor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Request(usize, Request),
    Release(usize),
    Downgrade(usize),
    /// Nobody wants what it asked for.
    Cancel(usize),
    /// Of this view.
    Deliver(usize, usize),
    /// In this view: the next step of what it posted is executed, or it hears what came of it.
    Step(usize, usize),
    /// It learns that the view has ended: a participant, or the home.
    Learns(usize),
    /// The home makes the new words, where survivors wait in one of the orders that can be; without somebody whose lease has run out.
    Opens {
        order: usize,
        without: Option<usize>,
    },
}

impl fmt::Display for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begins = match self.begins {
            Begins::Old => "a view ends",
            Begins::OldInherited => "a view ends after another",
            Begins::NewInherited => "a view has ended",
        };
        write!(f, "{begins}{}: {}", if self.fails { " and one fails" } else { "" }, self.world)?;
        self.without.map_or(Ok(()), |rule| write!(f, ", without {rule:?}"))
    }
}

impl Across {
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// In the lists of who has posted.
    pub(crate) fn home(&self) -> usize {
        self.world.participants
    }

    pub(crate) fn recovery_holder(&self) -> usize {
        self.world.participants + 1
    }

    pub(crate) fn node(&self, at: usize) -> Node {
        Node {
            role: self.world.participant(at),
            left: self.world.each,
            has_learnt: false,
            is_out: false,
            is_unwanted: false,
            ahead: Rank::NOBODY,
            report: None,
        }
    }

    fn first(&self) -> State {
        State {
            nodes: (0..self.world.participants).map(|at| self.node(at)).collect(),
            views: [self.world.view(FIRST), self.world.view(SECOND)],
            home_has_learnt: false,
            is_open: false,
            has_failed: !self.fails,
            // Of the view before the old one, where somebody has the lock from there.
            grants: Grants::none_of(ViewNumber(0)),
            wrong: None,
        }
    }

    /// Any mixture of who holds, waits behind anybody, or has nothing to do with the lock, in any order; where the home of this view has opened.
    fn inherited(&self, view: usize) -> Vec<State> {
        let mut mixtures = vec![State { home_has_learnt: view == NEW, is_open: view == NEW, ..self.first() }];
        for at in 0..self.world.participants {
            mixtures = mixtures.iter().flat_map(|state| self.with_any(state, at, view)).collect();
        }
        mixtures.retain(State::writers_are_alone);
        let mut states = vec![];
        for state in mixtures {
            for order in self.orders(&state, None) {
                let mut opened = state.clone();
                self.inherits(&mut opened, view, order);
                if !states.contains(&opened) {
                    states.push(opened);
                }
            }
        }
        states
    }

    /// Whatever this participant may have when this view begins.
    fn with_any(&self, state: &State, at: usize, view: usize) -> Vec<State> {
        let but = |role: LockRole, report: Option<Survivor>, ahead: u32| {
            let mut state = state.clone();
            let left = self.world.each - u8::from(report.is_some());
            let has_learnt = view == NEW;
            state.nodes[at] = Node { role, left, has_learnt, report, ahead: Rank(ahead), ..self.node(at) };
            state
        };
        let has = |survivor, ahead| but(LockRole::of(survivor), Some(survivor), ahead);
        let mut states = vec![but(self.world.participant(at), None, 0)];
        for mode in [Mode::Shared, Mode::Exclusive] {
            states.extend(state.grants.highest.next(mode).map(|token| has(Survivor::Holds(mode, token), 0)));
            states.extend((0..=self.world.participants as u32).map(|ahead| has(Survivor::Waits(mode), ahead)));
        }
        states
    }
}

impl State {
    /// Those whose clients believe that they have the lock, or may have it.
    fn members(&self) -> impl Iterator<Item = &LockRole> + Clone {
        self.nodes.iter().filter(|node| !node.is_out).map(|node| &node.role)
    }

    fn writers_are_alone(&self) -> bool {
        writers_are_alone(self.members())
    }

    /// Whether who waits comes behind the writer that it stood behind. Where that is a cycle, because one of it was about to be granted the lock and the one
    /// before it stands in the queue again, one of them comes first.
    pub(crate) fn keep_order(&self, order: &[(Rank, Survivor)]) -> bool {
        let waits =
            |rank: Rank| order.iter().position(|(other, it)| *other == rank && matches!(it, Survivor::Waits(_)));
        let ahead_of = |rank: Rank| {
            let ahead = self.nodes[rank.0 as usize - 1].ahead;
            waits(ahead).filter(|&at| order[at].1 == Survivor::Waits(Mode::Exclusive)).map(|_| ahead)
        };
        let is_on_cycle = |rank: Rank| {
            let chain = std::iter::successors(ahead_of(rank), |&next| ahead_of(next));
            chain.take(order.len()).any(|next| next == rank)
        };
        order
            .iter()
            .filter(|(rank, _)| waits(*rank).is_some())
            .all(|&(rank, _)| ahead_of(rank).is_none_or(|ahead| waits(ahead) < waits(rank) || is_on_cycle(rank)))
    }
}

impl Explored for Across {
    fn is_reduced(&self) -> bool {
        self.world.is_reduced
    }

    fn is_over(&self, state: &State) -> bool {
        state.is_open && state.members().all(LockRole::is_idle) && state.views[NEW].is_over()
    }
}

impl Watched for Across {
    fn sees(&self, state: &State) -> Vec<Sees> {
        state.nodes.iter().map(|node| if node.is_out { Sees::Gone } else { Sees::from(&node.role) }).collect()
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

impl Model for Across {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        match self.begins {
            Begins::Old => vec![self.first()],
            Begins::OldInherited => self.inherited(OLD),
            Begins::NewInherited => self.inherited(NEW),
        }
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if self.world.is_reduced {
            self.needed(state, events);
        } else {
            self.possible(state, events);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.happens(&mut state, event);
        if self.world.is_reduced {
            self.goes_on(&mut state, event);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("writers are alone", |_, state: &State| state.writers_are_alone()),
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            Property::always("nothing is stuck", |across: &Across, state: &State| {
                let mut events = vec![];
                across.actions(state, &mut events);
                !events.is_empty() || across.is_over(state)
            }),
            Property::sometimes("readers share in the new view", |_, state: &State| {
                state.is_open && holders(state.members(), Mode::Shared) > 1
            }),
            Property::sometimes("somebody comes while a recovery holder stands", |_, state: &State| {
                let has_recovery_holder =
                    state.views[NEW].recovery_holder.as_ref().is_some_and(|recovery_holder| !recovery_holder.is_over());
                has_recovery_holder && state.views[NEW].wire.iter().any(|(_, to, _)| *to != RecoveryHolder::RANK)
            }),
        ]
    }
}
