//! An allocation: the home that makes the segment is chosen, maybe by how much is free at each.

use std::collections::BTreeSet;

use verbena_terms::{Incarnation, Time};

use super::{NodeState, Progress, Request, RequestAction, RequestStage, Shared, Terms};
use crate::access::{Outcome, Step};
use crate::layout::FREE_AT;
use crate::node::in_flight::Origin;
use crate::node::membership::Membership;
use crate::request::Wish;
use crate::wire::{MOST_HOMES, Question, Token};
use crate::{Placement, Refusal, Wanted};

/// Chooses a home for each new segment.
#[derive(Default)]
pub(super) struct Placer {
    /// Segments that were spread.
    spread: u64,
}

enum Choice {
    /// This home makes it. The others may hold copies.
    At(Incarnation, Vec<Incarnation>),
    /// The one of these that has most free.
    MostFree(Vec<Incarnation>),
    Nowhere(Refusal),
}

impl Placer {
    /// `asked_at` is the home that was asked for the segment before.
    fn choose(
        &mut self,
        wanted: &Wanted,
        placement: Placement,
        asked_at: Option<Incarnation>,
        membership: &Membership,
    ) -> Choice {
        let homes = membership.homes();
        let is_home = |home: &Incarnation| homes.contains(home);
        let are_few = wanted.is_replicated() && (1..usize::from(wanted.copies)).contains(&homes.len());
        if wanted.is_replicated() && asked_at.is_some_and(|home| are_few || !is_home(&home)) {
            // A copy of what was made may be there.
            return Choice::Nowhere(Refusal::Unknown);
        }
        if are_few {
            return Choice::Nowhere(Refusal::FewHomes { asked: wanted.copies, homes: homes.len() });
        }
        // Where it was asked before, it is asked again: it may have been made.
        let chosen = asked_at.filter(is_home).or_else(|| match placement {
            Placement::Local => Some(membership.me()).filter(is_home),
            Placement::Node(rank) => homes.iter().find(|home| home.rank == rank).copied(),
            Placement::Spread => {
                self.spread += 1;
                homes.get((self.spread - 1) as usize % homes.len().max(1)).copied()
            }
            Placement::MostFree => None,
        });
        let no_home = |who: String| Choice::Nowhere(Refusal::NoHome { who });
        match (chosen, placement) {
            (Some(home), _) => {
                let first = homes.iter().position(|other| *other == home).unwrap_or(0);
                let others = homes.iter().cycle().skip(first + 1).take(homes.len() - 1).copied().collect();
                Choice::At(home, others)
            }
            (None, Placement::MostFree) if !homes.is_empty() => Choice::MostFree(homes),
            (None, Placement::Node(rank)) => no_home(format!("node {rank}")),
            (None, Placement::Local) => no_home("this node".into()),
            (None, _) => no_home("this view".into()),
        }
    }
}

/// The words of homes that say how much is free are read.
pub(super) struct Looking {
    until: Time,
    found: Vec<(u64, Incarnation)>,
    left: BTreeSet<Incarnation>,
}

impl Looking {
    fn begin(homes: Vec<Incarnation>, until: Time, terms: &Terms, out: &mut Vec<RequestAction>) -> Looking {
        let left = homes.iter().copied().collect();
        for home in homes {
            let (origin, steps) = (Origin::Look(terms.id, home), vec![Step::ReadWord(FREE_AT)]);
            out.push(RequestAction::Post { origin, home, steps, until });
        }
        Looking { until, found: vec![], left }
    }

    /// A home's word was read, or could not be in time. When that is so of all: those that were read, the one with most free first.
    fn completed(&mut self, home: Incarnation, outcome: Outcome) -> Option<Vec<Incarnation>> {
        if let Outcome::Done(given) = outcome {
            self.found.push((given.first().map_or(0, |given| given.word()), home));
        }
        self.left.remove(&home);
        if !self.left.is_empty() {
            return None;
        }
        self.found.sort_by_key(|(free, home)| (std::cmp::Reverse(*free), *home));
        Some(self.found.iter().map(|(_, home)| *home).collect())
    }
}

impl Request {
    pub(super) fn place(&mut self, shared: &mut Shared, node: &mut NodeState<'_>) -> Progress {
        let Wish::Allocate { wanted, placement } = &self.terms.wish else { return Progress::Stays };
        match shared.placer.choose(wanted, *placement, self.terms.asked_at, node.membership) {
            Choice::At(home, others) => self.allocate_at(home, others, node),
            Choice::MostFree(homes) => {
                // Some may have no memory: those that have are to be asked in time.
                let now = node.membership.now();
                let until = now + self.terms.until.since(now) / 2;
                self.stage = RequestStage::Looking(Looking::begin(homes, until, &self.terms, node.out));
                Progress::Stays
            }
            Choice::Nowhere(refusal) => Progress::refuses(refusal),
        }
    }

    fn allocate_at(&mut self, home: Incarnation, mut others: Vec<Incarnation>, node: &mut NodeState<'_>) -> Progress {
        let Wish::Allocate { wanted, .. } = &self.terms.wish else { return Progress::Stays };
        self.terms.asked_at = Some(home);
        others.truncate(if wanted.is_replicated() { MOST_HOMES } else { 0 });
        let token = Token { asker: node.membership.me(), request: self.terms.id.0 };
        let question = Question::Allocate { token, wanted: wanted.clone(), others };
        self.ask(Some(home), question, "the home", node.out)
    }

    /// How much is free at a home.
    pub(super) fn looked(&mut self, home: Incarnation, outcome: Outcome, node: &mut NodeState<'_>) -> Progress {
        let RequestStage::Looking(looking) = &mut self.stage else { return Progress::Stays };
        let Some(found) = looking.completed(home, outcome) else { return Progress::Stays };
        let (is_last, until) = (looking.until >= self.terms.until, self.terms.until);
        let homes = node.membership.homes();
        match found.split_first() {
            Some((home, others)) => {
                // Those that did not say may have room for a copy.
                let silent = homes.iter().filter(|home| !found.contains(home));
                let others = others.iter().chain(silent).copied().collect();
                self.allocate_at(*home, others, node)
            }
            None if is_last => self.out_of_time(),
            // None has memory yet.
            None => {
                self.stage = RequestStage::Looking(Looking::begin(homes, until, &self.terms, node.out));
                Progress::Stays
            }
        }
    }
}

#[cfg(test)]
mod tests;
