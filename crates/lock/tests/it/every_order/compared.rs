//! What is left out of a reduced world nobody can tell: no client by what it is told, and no two by what they hold at a time.
//!
//! Clients of different nodes do not see which of them was told first, but for tokens. So of each it is written down what it was told, with the tokens, and not between what of
//! others; and in the end the same must have been told. Who holds the lock at a moment is a rule's business (writers are alone), so the same must hold together.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use stateright::{Model, Property, Representative};
use verbena_lock::{LockRole, Mode, Request, Scheme, Token};

use crate::every_order::ends::walk;
use crate::every_order::symmetry::hash;
use crate::every_order::world::World;
use crate::every_order::{Explored, READ, TRY_READ, TRY_WRITE, WRITE, is_long, world};

/// A world of which it is known what clients see of it, one at each side of a lock.
pub(crate) trait Watched: Explored {
    fn sees(&self, state: &Self::State) -> Vec<Sees>;

    /// Which of them asks, and for what.
    fn asks(&self, event: Self::Action) -> Option<(usize, Request)>;

    /// In which order the representative has them.
    fn order(&self, state: &Self::State) -> Vec<usize>;
}

/// What a client sees at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    Nothing,
    /// It has asked, or has begun to release.
    Waits,
    Holds(Mode, Token),
    /// Its node has crashed, or goes on where nobody hears it.
    Gone,
}

impl From<&LockRole> for Sees {
    fn from(role: &LockRole) -> Self {
        match role.held() {
            Some((mode, token)) => Sees::Holds(mode, token),
            None if role.is_idle() => Sees::Nothing,
            None => Sees::Waits,
        }
    }
}

/// The world, with what clients were told.
struct Told<W>(W);

#[derive(Clone, PartialEq, Hash)]
struct State<Inner> {
    inner: Inner,
    clients: Vec<Client>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    waits_for: Option<Request>,
    told: Vec<Answer>,
}

/// What was asked for, if it is answered (who becomes a reader, or waited when the world began, had asked before); and how the client has the lock, if it was not refused.
type Answer = (Option<Request>, Option<(Mode, Token)>);

impl<W: Watched> Model for Told<W> {
    type State = State<W::State>;
    type Action = W::Action;

    fn init_states(&self) -> Vec<Self::State> {
        let begins = |inner| State { clients: vec![Client::default(); self.0.sees(&inner).len()], inner };
        self.0.init_states().into_iter().map(begins).collect()
    }

    fn actions(&self, state: &Self::State, events: &mut Vec<W::Action>) {
        self.0.actions(&state.inner, events);
    }

    fn next_state(&self, last: &Self::State, event: W::Action) -> Option<Self::State> {
        let mut clients = last.clients.clone();
        if let Some((who, request)) = self.0.asks(event.clone()) {
            clients[who].waits_for = Some(request);
        }
        let inner = self.0.next_state(&last.inner, event)?;
        let (saw, sees) = (self.0.sees(&last.inner), self.0.sees(&inner));
        for (client, (saw, sees)) in clients.iter_mut().zip(saw.into_iter().zip(sees)) {
            let has = match sees {
                Sees::Holds(mode, token) if sees != saw => Some((mode, token)),
                Sees::Nothing if client.waits_for.is_some() => None,
                _ => continue,
            };
            client.told.push((client.waits_for.take(), has));
        }
        Some(State { inner, clients })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![]
    }
}

/// What can be seen of a world, whoever is who.
struct Seen {
    states: HashSet<u64>,
    /// What they were told, when nothing more could happen.
    outcomes: HashSet<Vec<Client>>,
    /// What those were told who had the lock together.
    together: HashSet<Vec<Client>>,
}

impl Seen {
    fn of<W: Watched>(world: W, is_symmetric: bool) -> Self {
        println!("{world}{}", if is_symmetric { ", of those that could change places one order" } else { "" });
        let started = Instant::now();
        let told = Told(world);
        let mut seen = Seen { states: HashSet::new(), outcomes: HashSet::new(), together: HashSet::new() };
        let key = |state: &State<W::State>| {
            if !is_symmetric {
                return hash(state);
            }
            let clients: Vec<&Client> = told.0.order(&state.inner).iter().map(|&at| &state.clients[at]).collect();
            hash(&(state.inner.representative(), clients))
        };
        walk(&told, key, |state, _, next| {
            seen.states.insert(hash(state));
            let sees = told.0.sees(&state.inner);
            let holders = state.clients.iter().zip(sees).filter(|(_, sees)| matches!(sees, Sees::Holds(..)));
            seen.together.insert(sorted(holders.map(|(client, _)| client)));
            if next.is_empty() {
                seen.outcomes.insert(sorted(state.clients.iter()));
            }
        });
        let Seen { states, outcomes, together } = &seen;
        let (states, outcomes, together) = (states.len(), outcomes.len(), together.len());
        println!("  {states} states, {outcomes} outcomes, {together} together, {} ms", started.elapsed().as_millis());
        seen
    }
}

fn sorted<'a>(clients: impl Iterator<Item = &'a Client>) -> Vec<Client> {
    let mut clients: Vec<Client> = clients.cloned().collect();
    clients.sort_unstable();
    clients
}

/// The world in full beside the reduced one (`true`), and beside that where of the participants that could change places one order is explored.
pub(crate) fn look_alike<W: Watched>(world: impl Fn(bool) -> W) {
    let full = Seen::of(world(false), false);
    let is_symmetric = world(true).is_reduced();
    for is_symmetric in [false, true].into_iter().filter(|&it| is_symmetric || !it) {
        let reduced = Seen::of(world(true), is_symmetric);
        assert!(reduced.states.is_subset(&full.states), "a state that cannot be");
        assert!(reduced.states.len() < full.states.len(), "nothing is left out");
        are_the_same("told in the end", &full.outcomes, &reduced.outcomes);
        are_the_same("held together", &full.together, &reduced.together);
    }
}

fn are_the_same<Of: Eq + std::hash::Hash + fmt::Debug>(what: &str, full: &HashSet<Of>, reduced: &HashSet<Of>) {
    let missing: Vec<_> = full.difference(reduced).collect();
    assert!(missing.is_empty(), "{} are never {what} where it is reduced, such as {:?}", missing.len(), missing[0]);
    // All states of the reduced world are states of the full one, so there are no others.
    assert_eq!(full.len(), reduced.len(), "{what}");
}

#[test]
fn reduced_worlds_look_like_full_ones() {
    let any = [WRITE, READ];
    let all = [WRITE, READ, TRY_WRITE, TRY_READ];
    let either =
        |world: World| look_alike(|is_reduced| World { is_reduced, requests: world.requests.clone(), ..world });
    either(world(2, 2, &any));
    either(world(3, 1, &any));
    either(world(2, 1, &all));
    either(world(3, 1, &[WRITE, TRY_WRITE, TRY_READ]));
    either(World { downgrades: true, ..world(3, 1, &any) });
    either(World { lost_swaps: Some(0), ..world(2, 2, &any) });
    either(World { settled_at: Some(1), ..world(2, 2, &any) });
    either(World { scheme: Scheme::Dqnl, ..world(3, 1, &any) });
    either(World { scheme: Scheme::Srsl, ..world(3, 1, &all) });
    if is_long() {
        either(world(2, 2, &all));
        either(world(3, 1, &all));
        either(World { downgrades: true, ..world(2, 2, &any) });
        either(World { lost_swaps: Some(0), ..world(3, 1, &any) });
        either(World { settled_at: Some(1), ..world(3, 1, &any) });
        either(World { scheme: Scheme::Dqnl, ..world(3, 1, &all) });
    }
}
