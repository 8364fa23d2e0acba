//! Who believes to hold what, and what must hold of it at every moment.

use std::sync::Arc;

use verbena_cluster::LeaseWord;
use verbena_lock::{Mode, RequestId, Token};
use verbena_terms::Clock;

use crate::storm::settings::MOST_NAMES;

verbena_testkit::counts! {
    /// What clients and homes saw.
    pub struct Seen {
        pub granted: u64,
        pub shared: u64,
        pub waited: u64,
        pub survived: u64,
        pub lost: u64,
        pub deadlocks: u64,
        pub cancelled: u64,
        /// Locks that a node held on to, for a client that asked again at once.
        pub held_on: u64,
        pub refused: u64,
        pub overwritten: u64,
        /// Locks that homes evicted.
        pub evictions: u64,
        /// Words that homes used again.
        pub reused: u64,
    }
}

/// What a client believes to hold: until it has released it, was told that it is lost, or sees that its node's lease is over.
pub struct Held {
    pub node: usize,
    pub run: u64,
    pub id: RequestId,
    pub name: u64,
    pub mode: Mode,
    pub token: Token,
    pub lease: Arc<LeaseWord>,
    pub clock: Arc<dyn Clock>,
}

pub struct Checker {
    looks_at_lease: bool,
    held: Vec<Held>,
    /// Of all tokens of a name, and of its writers'.
    highest: Vec<(Token, Token)>,
    pub broken: Vec<String>,
    pub seen: Seen,
}

impl Checker {
    pub fn new(looks_at_lease: bool) -> Checker {
        let highest = vec![Default::default(); MOST_NAMES as usize];
        Checker { looks_at_lease, held: vec![], highest, broken: vec![], seen: Seen::default() }
    }

    pub fn believes(&self, held: &Held) -> bool {
        !self.looks_at_lease || held.clock.now() < held.lease.load().until
    }

    pub fn granted(&mut self, held: Held) {
        let Held { node, name, mode, token, .. } = held;
        let (highest, writers) = &mut self.highest[name as usize];
        let grows = match mode {
            Mode::Exclusive => token > *highest,
            // Those who read together across the end of a view may have different ones.
            Mode::Shared => token > *writers,
        };
        if !grows {
            self.broken.push(format!("node {node} has {name} {mode:?} with {token}, after {highest} and {writers}"));
        }
        *highest = token.max(*highest);
        self.seen.granted += 1;
        match mode {
            Mode::Exclusive => *writers = token,
            Mode::Shared => self.seen.shared += 1,
        }
        self.held.push(held);
        self.check();
    }

    /// The client believes so no longer. Gives what it had.
    pub fn ended(&mut self, node: usize, run: u64, id: RequestId) -> Option<Held> {
        let at = self.held.iter().position(|held| (held.node, held.run, held.id) == (node, run, id))?;
        Some(self.held.swap_remove(at))
    }

    /// The client lets others read with it.
    pub fn shares(&mut self, node: usize, run: u64, id: RequestId) {
        let mut held = self.held.iter_mut();
        if let Some(held) = held.find(|held| (held.node, held.run, held.id) == (node, run, id)) {
            held.mode = Mode::Shared;
        }
    }

    /// Of this process of this node.
    pub fn of(&self, node: usize, run: u64) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| (held.node, held.run) == (node, run))
    }

    /// Writers are alone.
    pub fn check(&mut self) {
        for name in 0..MOST_NAMES {
            let believe = |held: &&Held| held.name == name && self.believes(held);
            let holders: Vec<(usize, Mode, Token)> =
                self.held.iter().filter(believe).map(|held| (held.node, held.mode, held.token)).collect();
            if holders.len() > 1 && holders.iter().any(|(_, mode, _)| *mode == Mode::Exclusive) {
                self.broken.push(format!("{name} is held by {holders:?}"));
            }
        }
    }
}
