//! Every order of events where a home evicts locks that nobody uses, at any moment at which it may, and gives their words to others (rules L1, L2, L4).
//!
//! Of the home's directory what matters is here: which words are whose ([`Evicted`] is the one of a node). When it evicts, and which lock, is anybody's choice. What
//! home and member say to each other about one lock may come in any order; where words are, that they are to be forgotten and that they are come in the order
//! in which they were said, and after all that was said before about the same words.

mod events;
mod reduced;

use std::collections::VecDeque;
use std::fmt;

use stateright::{Checker, HasDiscoveries, Model, Property, Representative};
use verbena_lock::{Evicted, LockRole, Request, Rules, Scheme};

use crate::every_order::compared::{Sees, Watched, look_alike};
use crate::every_order::ends::end_well;
use crate::every_order::view::{Grants, View, writers_are_alone};
use crate::every_order::{Explored, READ, TRY_READ, TRY_WRITE, WRITE, checked, explore, is_long};

/// Locks of some names at a home with fewer words.
struct Evicting {
    scheme: Scheme,
    participants: usize,
    /// Requests that each makes, of any of the locks.
    each: u8,
    requests: Vec<Request>,
    names: usize,
    slots: usize,
    /// How often the home tries to evict one.
    evictions: u8,
    downgrades: bool,
    lost_swaps: Option<u32>,
    rules: Rules,
    is_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: Vec<Slot>,
    nodes: Vec<Node>,
    evicted: Evicted,
    /// Who wants words that there are none for, and for which lock.
    wanting: VecDeque<(usize, usize)>,
    /// In the order in which they were said, to and from each node.
    to_node: Vec<VecDeque<ToNode>>,
    to_home: Vec<VecDeque<ToHome>>,
    grants: Vec<Grants>,
    evictions: u8,
    was_used_again: bool,
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    view: View,
    is: Is,
    is_evicting: bool,
}

/// Whose words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Is {
    Of(usize),
    Evicted,
    Free,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    left: u8,
    /// What it has of each lock.
    parts: Vec<Part>,
    forgetting: Option<(u64, Vec<u32>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    role: LockRole,
    words: Words,
    wants: Option<Request>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Words {
    Unknown,
    Asked,
    At(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToNode {
    Found(usize, u32),
    Forget(u64, Vec<u32>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ToHome {
    Resolve(usize),
    Forgotten(u64, Vec<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Request(usize, usize, Request),
    Release(usize, usize),
    Downgrade(usize, usize),
    /// A message about the lock of a slot.
    Deliver(usize, usize),
    /// The next step of a batch on the words of a slot, or that its poster hears what came of it.
    Step(usize, usize),
    NodeHears(usize),
    HomeHears(usize),
    Evict(usize),
}

impl fmt::Display for Evicting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evicting { scheme, participants, each, names, slots, evictions, .. } = self;
        let requests: Vec<String> = self
            .requests
            .iter()
            .map(|request| format!("{}{:?}", if request.is_try { "Try" } else { "" }, request.mode))
            .collect();
        write!(f, "{scheme:?}: {participants} participants, {each} requests each of {}", requests.join(", "))?;
        write!(f, ", {names} locks, {slots} words, evicted {evictions} times")?;
        write!(f, "{}", if self.downgrades { ", downgrades" } else { "" })?;
        self.lost_swaps.map_or(Ok(()), |lost| write!(f, ", {lost} swaps lost at most"))?;
        write!(f, "{}", if self.is_full { "" } else { ", reduced" })
    }
}

impl Explored for Evicting {
    fn is_reduced(&self) -> bool {
        false
    }

    /// Who wants words that there are none for waits for them.
    fn is_over(&self, state: &State) -> bool {
        let has_ended = |(at, node): (usize, &Node)| {
            let waits = |(name, part): (usize, &Part)| part.wants.is_some() && !state.wanting.contains(&(at, name));
            node.parts.iter().all(|part| part.role.is_idle()) && !node.parts.iter().enumerate().any(waits)
        };
        state.nodes.iter().enumerate().all(has_ended)
            && state.slots.iter().all(|slot| match slot.is {
                Is::Of(_) | Is::Free => slot.view.is_over(),
                Is::Evicted => slot.view.word.is_evicted(),
            })
    }
}

/// Who is who is explored in full.
impl Representative for State {
    fn representative(&self) -> Self {
        self.clone()
    }
}

impl Watched for Evicting {
    fn sees(&self, state: &State) -> Vec<Sees> {
        let parts = state.nodes.iter().flat_map(|node| &node.parts);
        parts.map(|part| if part.wants.is_some() { Sees::Waits } else { Sees::from(&part.role) }).collect()
    }

    fn asks(&self, event: Event) -> Option<(usize, Request)> {
        match event {
            Event::Request(at, name, request) => Some((at * self.names + name, request)),
            _ => None,
        }
    }

    fn order(&self, _: &State) -> Vec<usize> {
        (0..self.participants * self.names).collect()
    }
}

impl Model for Evicting {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if self.is_full {
            self.possible(state, events);
        } else {
            self.needed(state, events);
        }
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        self.happens(&mut state, event);
        if !self.is_full {
            self.goes_on(&mut state, event);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("writers are alone", |world: &Evicting, state: &State| {
                (0..world.names).all(|name| writers_are_alone(state.nodes.iter().map(|node| &node.parts[name].role)))
            }),
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            // Who stands in the queue of words, or is about to, stands in that of its lock, or of none.
            Property::always("two names never share a word", |_, state: &State| {
                let parts = state.nodes.iter().flat_map(|node| node.parts.iter().enumerate());
                parts.filter(|(_, part)| !part.role.is_idle()).all(|(name, part)| match part.words {
                    Words::At(slot) => [Is::Of(name), Is::Evicted].contains(&state.slots[slot as usize].is),
                    Words::Unknown | Words::Asked => false,
                })
            }),
            Property::always("nothing is stuck", |world: &Evicting, state: &State| {
                let mut events = vec![];
                world.possible(state, &mut events);
                !events.is_empty() || world.is_over(state)
            }),
            Property::sometimes("evicted words are asked about, or used again", |world: &Evicting, state: &State| {
                let is_asked_for = || state.slots[0].is == Is::Evicted && !state.wanting.is_empty();
                if world.slots == 1 { state.was_used_again } else { is_asked_for() || state.slots[1].is == Is::Of(0) }
            }),
        ]
    }
}

/// One lock that is evicted, and comes back to other words.
fn one(participants: usize, each: u8, requests: &[Request]) -> Evicting {
    Evicting {
        scheme: Scheme::Ncosed,
        participants,
        each,
        requests: requests.to_vec(),
        names: 1,
        slots: 1,
        evictions: 1,
        downgrades: false,
        lost_swaps: None,
        rules: Rules::ALL,
        is_full: false,
    }
}

/// Two locks, and words for one.
fn two(participants: usize, each: u8, requests: &[Request]) -> Evicting {
    Evicting { names: 2, ..one(participants, each, requests) }
}

fn in_full(world: Evicting) -> Evicting {
    Evicting { is_full: true, ..world }
}

const ANY: [Request; 2] = [WRITE, READ];

#[test]
fn a_lock_that_is_evicted() {
    explore(one(2, 2, &ANY), 50_000);
    explore(Evicting { slots: 2, evictions: 2, ..one(2, 2, &ANY) }, 50_000);
    explore(Evicting { evictions: 2, ..one(3, 1, &ANY) }, 10_000);
    explore(in_full(one(2, 1, &ANY)), 2_000);
    if is_long() {
        explore(in_full(one(2, 2, &ANY)), 100_000);
        explore(one(3, 2, &ANY), 1_000_000);
    }
}

#[test]
fn words_that_are_used_again_for_another_name() {
    explore(two(2, 2, &ANY), 100_000);
    explore(two(3, 1, &ANY), 50_000);
    explore(Evicting { evictions: 3, ..two(2, 2, &ANY) }, 500_000);
    explore(in_full(two(2, 1, &ANY)), 10_000);
    if is_long() {
        explore(in_full(two(2, 2, &[WRITE])), 50_000);
        explore(two(3, 2, &[WRITE]), 300_000);
    }
}

#[test]
fn who_only_tries_evicted_words() {
    explore(one(2, 2, &[WRITE, READ, TRY_WRITE, TRY_READ]), 50_000);
    explore(two(2, 1, &[WRITE, TRY_WRITE, TRY_READ]), 2_000);
}

#[test]
fn gates_of_evicted_words() {
    let impatient = |world| Evicting { lost_swaps: Some(0), ..world };
    explore(impatient(one(2, 2, &ANY)), 50_000);
    explore(impatient(two(2, 1, &ANY)), 2_000);
    explore(impatient(two(2, 2, &[WRITE])), 10_000);
    if is_long() {
        explore(impatient(one(3, 1, &ANY)), 10_000);
    }
}

#[test]
fn evicted_words_of_writers_that_become_readers() {
    explore(Evicting { downgrades: true, ..one(2, 2, &ANY) }, 50_000);
}

#[test]
fn evicted_words_where_readers_do_not_share() {
    explore(Evicting { scheme: Scheme::Dqnl, ..one(2, 2, &ANY) }, 5_000);
    explore(Evicting { scheme: Scheme::Dqnl, ..two(2, 1, &ANY) }, 2_000);
}

#[test]
fn every_order_in_which_locks_are_evicted_ends_well() {
    end_well(one(2, 2, &ANY), 50_000);
    end_well(two(3, 1, &ANY), 50_000);
    end_well(in_full(two(2, 1, &ANY)), 10_000);
    let impatient = |world| Evicting { lost_swaps: Some(0), ..world };
    end_well(impatient(two(2, 2, &[WRITE])), 10_000);
    if is_long() {
        end_well(in_full(one(2, 2, &ANY)), 100_000);
        end_well(impatient(one(3, 1, &ANY)), 100_000);
        end_well(Evicting { evictions: 3, ..two(2, 2, &ANY) }, 500_000);
    }
}

#[test]
fn reduced_worlds_in_which_locks_are_evicted_look_like_full_ones() {
    let either = |world: Evicting| {
        look_alike(|is_reduced| Evicting { is_full: !is_reduced, requests: world.requests.clone(), ..world });
    };
    either(one(2, 1, &[WRITE, READ, TRY_WRITE, TRY_READ]));
    either(one(2, 2, &[WRITE]));
    either(two(2, 1, &ANY));
    either(Evicting { lost_swaps: Some(0), ..one(2, 1, &ANY) });
    if is_long() {
        either(one(2, 2, &ANY));
        either(Evicting { slots: 2, evictions: 2, ..one(2, 1, &ANY) });
    }
}

/// Without the rule something breaks.
fn is_found(property: &'static str, world: Evicting, rules: Rules) {
    let checker = checked(Evicting { rules, ..world }, HasDiscoveries::AnyFailures);
    let found = checker.discovery(property).unwrap_or_else(|| panic!("{property}, although a rule is off"));
    println!("  found in {} steps", found.into_actions().len());
}

#[test]
fn l4_a_lock_that_is_evicted_while_it_is_used_is_found() {
    let rules = Rules { evict_what_is_free: false, ..Rules::ALL };
    is_found("writers are alone", Evicting { slots: 2, ..one(2, 1, &[WRITE]) }, rules);
}

#[test]
fn l4_a_queue_in_evicted_words_is_found() {
    is_found("nothing is wrong", one(2, 1, &[WRITE]), Rules { evicted_is_no_queue: false, ..Rules::ALL });
}

#[test]
fn l4_who_asked_about_evicted_words_and_is_not_told_is_found() {
    let world = Evicting { lost_swaps: Some(0), ..one(2, 2, &[WRITE]) };
    is_found("nothing is stuck", world, Rules { tell_who_asked: false, ..Rules::ALL });
}

#[test]
fn l2_tokens_that_begin_below_the_floor_are_found() {
    let world = Evicting { slots: 2, ..one(2, 1, &[WRITE]) };
    is_found("nothing is wrong", world, Rules { begin_at_floor: false, ..Rules::ALL });
}

#[test]
fn l4_words_that_are_used_again_before_all_have_forgotten_them_are_found() {
    let rules = Rules { forgotten_before_reuse: false, ..Rules::ALL };
    is_found("two names never share a word", two(2, 1, &[WRITE]), rules);
}
