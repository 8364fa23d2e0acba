//! Contenders that could change places.

use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Representative;
use verbena_lock::testing::Renamed;
use verbena_lock::{Outcome, To};
use verbena_terms::Rank;

use crate::world::{Letter, Posted, State, rank};

/// One of the worlds that differ only in who is who.
impl Representative for State {
    fn representative(&self) -> Self {
        let count = self.contenders.len();
        // What a contender is and does, without any names in it; ties may stay as they are.
        let nameless = |at: usize| {
            let anybody = |_| Rank(1);
            let own = rank(at);
            let posted = self.posted[at].as_ref().map(|posted| posted.renamed(&anybody));
            let from = self.wire.iter().filter(|(_, from, _)| *from == own).count();
            let to = self.wire.iter().filter(|(to, ..)| *to == To::Contender(own)).count();
            let stands_behind = self.contenders.iter().enumerate().map(|(other, contender)| {
                (other, contender.renamed(&|rank| if rank == own { Rank(2) } else { Rank(1) }))
            });
            let behind: u64 =
                stands_behind.filter(|(other, _)| *other != at).map(|(_, it)| hash(&it)).fold(0, u64::wrapping_add);
            hash(&(
                self.contenders[at].renamed(&anybody),
                self.left[at],
                posted,
                from,
                to,
                self.word.tail == own,
                behind,
            ))
        };
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_cached_key(|&at| nameless(at));
        let mut places = vec![0; count];
        order.iter().enumerate().for_each(|(place, &at)| places[at] = place);
        self.renamed(&|old: Rank| places.get(old.0 as usize - 1).map_or(old, |&place| rank(place)), &order)
    }
}

fn hash(it: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    it.hash(&mut hasher);
    hasher.finish()
}

impl Posted {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank) -> Self {
        let outcome = Outcome { before: self.outcome.before.renamed(name), ..self.outcome };
        Posted { rest: self.rest.renamed(name), outcome, ..*self }
    }
}

impl State {
    fn renamed(&self, name: &impl Fn(Rank) -> Rank, order: &[usize]) -> Self {
        let posted = order.iter().copied().chain([order.len()]);
        let letter = |(to, from, message): &Letter| (to.renamed(name), name(*from), message.renamed(name));
        let mut wire: Vec<Letter> = self.wire.iter().map(letter).collect();
        wire.sort_unstable();
        State {
            word: self.word.renamed(name),
            contenders: order.iter().map(|&at| self.contenders[at].renamed(name)).collect(),
            left: order.iter().map(|&at| self.left[at]).collect(),
            home: self.home.renamed(name),
            posted: posted.map(|at| self.posted[at].as_ref().map(|posted| posted.renamed(name))).collect(),
            wire,
            ..*self
        }
    }
}
