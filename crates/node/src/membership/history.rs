//! The views that this process has learnt, for people: when, who came, who went, and why.
//!
//! History is for display alone: it depends on nothing, and nothing depends on it. A view lists its members; this
//! module derives the nodes that came and went from the view learnt before, of whichever incarnation. So it skips views
//! without this node. The keeper gives the reason for a departure once, before or after the view itself arrives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbena_cluster::{MAX_MEMBERS, Member, Parting, View};
use verbena_protocol::wire::{Change, Concerned, PART_NAMES, Seen, Why};
use verbena_terms::{Incarnation, Time, ViewNumber};

/// Views that are remembered.
const KEPT: usize = 64;

/// The newest views.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// At most [`KEPT`], in order of number.
    views: VecDeque<Learnt>,
    /// Reasons for departures of members that the newest view still has. At most [`MAX_MEMBERS`].
    explained: BTreeMap<Incarnation, Parting>,
}

#[derive(Debug)]
struct Learnt {
    view: Arc<View>,
    at: Time,
    in_effect: Option<Time>,
    /// The view learnt before, with its members.
    before: Option<Arc<View>>,
    /// Reasons for departures, as far as the keeper gave them.
    partings: BTreeMap<Incarnation, Parting>,
}

impl History {
    /// This view was learnt at `now`.
    pub(crate) fn learn(&mut self, view: Arc<View>, now: Time) {
        let before = self.views.back().map(|learnt| learnt.view.clone());
        let went = before.iter().flat_map(|before| gone(before, &view)).map(|member| member.incarnation);
        let partings = went.filter_map(|who| Some((who, self.explained.remove(&who)?))).collect();
        if self.views.len() == KEPT {
            self.views.pop_front();
        }
        self.views.push_back(Learnt { view, at: now, in_effect: None, before, partings });
    }

    /// This view was heard to be in effect at `now`.
    pub(crate) fn is_in_effect(&mut self, view: ViewNumber, now: Time) {
        if let Some(learnt) = self.views.back_mut().filter(|learnt| learnt.view.number() == view) {
            learnt.in_effect.get_or_insert(now);
        }
    }

    /// The keeper says why.
    pub(crate) fn explain(&mut self, dropped: Vec<(Incarnation, Parting)>) {
        for (who, parting) in dropped {
            match self.views.back_mut().filter(|learnt| learnt.view.member(who).is_none()) {
                Some(learnt) => drop(learnt.partings.insert(who, parting)),
                None => drop(self.explained.insert(who, parting)),
            }
        }
        while self.explained.len() > MAX_MEMBERS {
            self.explained.pop_first();
        }
    }

    /// The first view after `after`, with the incarnations that it concerns from the `from`th on.
    pub(crate) fn part(&self, after: ViewNumber, from: usize, now: Time) -> Option<Seen> {
        let learnt = self.views.iter().find(|learnt| learnt.view.number() > after)?;
        let concerned = learnt.concerned();
        Some(Seen {
            view: learnt.view.number(),
            learnt_ms_ago: millis(now.since(learnt.at)),
            in_effect_after_ms: learnt.in_effect.map(|at| millis(at.since(learnt.at))),
            more: concerned.len() > from.saturating_add(PART_NAMES),
            concerned: concerned.into_iter().skip(from).take(PART_NAMES).collect(),
        })
    }

    /// What an incarnation that has gone was called, if it is remembered.
    pub(crate) fn name_of(&self, who: Incarnation) -> Option<&str> {
        let views = self.views.iter().rev().flat_map(|learnt| learnt.before.iter().chain([&learnt.view]));
        views.into_iter().find_map(|view| view.member(who)).map(|member| member.name.as_str())
    }
}

impl Learnt {
    /// The members, and those who went, in order.
    fn concerned(&self) -> Vec<Concerned> {
        let was_in = |who| self.before.as_ref().is_some_and(|before| before.member(who).is_some());
        let change = |who| if was_in(who) { Change::Stayed } else { Change::Came };
        let members = self.view.members().iter().map(|member| concerned(member, change(member.incarnation)));
        let went = self.before.iter().flat_map(|before| gone(before, &self.view));
        let went = went.map(|member| concerned(member, Change::Went(self.why(member.incarnation))));
        let mut all: Vec<_> = members.chain(went).collect();
        all.sort_by_key(|one| one.incarnation);
        all
    }

    fn why(&self, who: Incarnation) -> Why {
        match self.partings.get(&who) {
            Some(Parting::LeftAtRest) => Why::LeftAtRest,
            Some(Parting::LeftOpen) => Why::LeftOpen,
            Some(Parting::RanOut) => Why::RanOut,
            Some(Parting::Expelled) => Why::Expelled,
            Some(Parting::Superseded) => Why::Superseded,
            // The view itself says that much.
            None if self.view.departed().iter().any(|gone| gone.incarnation == who && gone.at_rest) => Why::LeftAtRest,
            None => Why::Untold,
        }
    }
}

fn concerned(member: &Member, change: Change) -> Concerned {
    Concerned { name: member.name.clone(), incarnation: member.incarnation, change }
}

fn gone<'a>(before: &'a View, after: &'a View) -> impl Iterator<Item = &'a Member> {
    before.members().iter().filter(|member| after.member(member.incarnation).is_none())
}

/// Whole milliseconds.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use verbena_cluster::{Departed, Roles};

    use super::*;

    fn who(rank: u32, start: u32) -> Incarnation {
        Incarnation::new(rank, start)
    }

    fn view(number: u32, members: &[(u32, u32)], at_rest: &[(u32, u32)]) -> Arc<View> {
        let member = |(rank, start): &(u32, u32)| Member {
            incarnation: who(*rank, *start),
            name: format!("n{rank}"),
            address: String::new(),
            roles: Roles::ALL,
        };
        let gone = |(rank, start): &(u32, u32)| Departed {
            incarnation: who(*rank, *start),
            since: ViewNumber(number),
            at_rest: true,
            is_relay: false,
        };
        let departed = at_rest.iter().map(gone).collect();
        Arc::new(View::new(ViewNumber(number), members.iter().map(member).collect(), departed).unwrap())
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn changes(history: &History, after: u32) -> Vec<(Incarnation, Change)> {
        let seen = history.part(ViewNumber(after), 0, at(0)).unwrap();
        seen.concerned.into_iter().map(|one| (one.incarnation, one.change)).collect()
    }

    #[test]
    fn who_came_and_went_is_the_difference_and_why_is_heard_before_or_after() {
        let mut history = History::default();
        history.learn(view(1, &[(1, 1), (2, 1), (3, 1), (4, 1)], &[]), at(10));
        history.is_in_effect(ViewNumber(1), at(15));
        history.explain(vec![(who(2, 1), Parting::Superseded)]);
        history.learn(view(2, &[(1, 1), (2, 2)], &[(4, 1)]), at(20));
        history.explain(vec![(who(3, 1), Parting::Expelled)]);
        let [first, second] = [0, 1].map(|after| history.part(ViewNumber(after), 0, at(50)).unwrap());
        assert_eq!((first.view, first.learnt_ms_ago, first.in_effect_after_ms), (ViewNumber(1), 40, Some(5)));
        assert_eq!((second.view, second.learnt_ms_ago, second.in_effect_after_ms), (ViewNumber(2), 30, None));
        assert_eq!(history.part(ViewNumber(2), 0, at(50)), None);
        assert_eq!(changes(&history, 0), [1, 2, 3, 4].map(|rank| (who(rank, 1), Change::Came)));
        let expected = [
            (who(1, 1), Change::Stayed),
            (who(2, 1), Change::Went(Why::Superseded)),
            (who(2, 2), Change::Came),
            (who(3, 1), Change::Went(Why::Expelled)),
            (who(4, 1), Change::Went(Why::LeftAtRest)),
        ];
        assert_eq!(changes(&history, 1), expected);
        assert_eq!((history.name_of(who(3, 1)), history.name_of(who(3, 2))), (Some("n3"), None));
        // Said of an older view, and again: what was written down stays.
        history.is_in_effect(ViewNumber(1), at(60));
        assert_eq!(history.part(ViewNumber(0), 0, at(50)).unwrap().in_effect_after_ms, Some(5));
        history.learn(view(5, &[(1, 1)], &[]), at(70));
        assert_eq!(changes(&history, 2), [(who(1, 1), Change::Stayed), (who(2, 2), Change::Went(Why::Untold))]);
    }

    #[test]
    fn the_newest_are_kept_and_come_in_parts() {
        let mut history = History::default();
        let everybody: Vec<_> = (1..=MAX_MEMBERS as u32).map(|rank| (rank, 1)).collect();
        for number in 1..=2 * KEPT as u32 {
            history.learn(view(number, &everybody, &[]), at(0));
        }
        let mut read = 0;
        while let Some(part) = history.part(ViewNumber(0), read, at(0)).filter(|part| !part.concerned.is_empty()) {
            assert_eq!(part.view, ViewNumber(KEPT as u32 + 1), "the oldest that is kept");
            read += part.concerned.len();
            assert_eq!(part.more, read < MAX_MEMBERS);
        }
        assert_eq!(read, MAX_MEMBERS);
        history.explain((1..=2 * MAX_MEMBERS as u32).map(|rank| (who(rank, 1), Parting::RanOut)).collect());
        assert!(history.explained.len() <= MAX_MEMBERS);
    }
}
