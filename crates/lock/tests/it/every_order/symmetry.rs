//! Participants that could change places.

use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Representative;
use verbena_lock::testing::Renamed;
use verbena_lock::{LockRole, Outcome};
use verbena_terms::Rank;

use crate::every_order::view::{Address, MemberMessage, Posted, View, rank};
use crate::every_order::world::State;

/// One of the worlds that differ only in who is who.
impl Representative for State {
    fn representative(&self) -> Self {
        let order = self.order();
        let name = names(&order);
        State {
            view: self.view.renamed(&name, &order),
            participants: order.iter().map(|&at| self.participants[at].renamed(&name)).collect(),
            left: order.iter().map(|&at| self.left[at]).collect(),
            ..*self
        }
    }
}

impl State {
    /// In which its representative has its participants.
    pub(crate) fn order(&self) -> Vec<usize> {
        order(self.participants.len(), |at| {
            (
                nameless(&self.participants[at]),
                self.left[at],
                behind(self.participants.iter(), at),
                self.view.nameless(at),
            )
        })
    }
}

/// The participants, sorted by what each is and does without any names in it; ties may stay as they are.
pub(crate) fn order<Key: Hash>(count: usize, nameless: impl Fn(usize) -> Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_cached_key(|&at| hash(&nameless(at)));
    order
}

/// What they are called in this order. Who is no participant keeps its name.
pub(crate) fn names(order: &[usize]) -> impl Fn(Rank) -> Rank {
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &at)| places[at] = place);
    move |old: Rank| match old.0.checked_sub(1) {
        Some(at) => places.get(at as usize).map_or(old, |&place| rank(place)),
        None => old,
    }
}

/// The same for all that could change places.
pub(crate) fn nameless<Named: Renamed>(it: &Named) -> Named {
    it.renamed(&|_| Rank(1))
}

/// What others know of this participant.
pub(crate) fn behind<'a>(sides: impl Iterator<Item = &'a LockRole>, at: usize) -> u64 {
    let others = sides.enumerate().filter(|(other, _)| *other != at);
    others.map(|(_, role)| hash(&only(role, at))).fold(0, u64::wrapping_add)
}

fn only<Named: Renamed>(it: &Named, at: usize) -> Named {
    it.renamed(&|other| if other == rank(at) { Rank(2) } else { Rank(1) })
}

pub(crate) fn hash(it: &impl Hash) -> u64 {
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

impl Address {
    fn renamed(self, name: &impl Fn(Rank) -> Rank) -> Self {
        match self {
            Address::Participant(rank) => Address::Participant(name(rank)),
            Address::Survivor(rank) => Address::Survivor(name(rank)),
            Address::Home | Address::Server => self,
        }
    }
}

impl View {
    /// What there is in it of this participant.
    pub(crate) fn nameless(&self, at: usize) -> u64 {
        let own = rank(at);
        let posted = self.posted[at].as_ref().map(|posted| posted.renamed(&|_| Rank(1)));
        let from = self.wire.iter().filter(|(_, from, _)| *from == own).count();
        let to = self
            .wire
            .iter()
            .filter(|(to, ..)| [Address::Participant(own), Address::Survivor(own)].contains(to))
            .count();
        hash(&(
            posted,
            from,
            to,
            self.word.tail == own,
            self.recovery_holder.as_ref().map(|recovery_holder| only(recovery_holder, at)),
        ))
    }

    pub(crate) fn renamed(&self, name: &impl Fn(Rank) -> Rank, order: &[usize]) -> Self {
        let posted = order.iter().copied().chain(order.len()..self.posted.len());
        let member_message =
            |(to, from, message): &MemberMessage| (to.renamed(name), name(*from), message.renamed(name));
        let mut wire: Vec<MemberMessage> = self.wire.iter().map(member_message).collect();
        wire.sort_unstable();
        View {
            word: self.word.renamed(name),
            home: self.home.renamed(name),
            recovery_holder: self.recovery_holder.as_ref().map(|recovery_holder| recovery_holder.renamed(name)),
            posted: posted.map(|at| self.posted[at].as_ref().map(|posted| posted.renamed(name))).collect(),
            wire,
            ..*self
        }
    }
}
