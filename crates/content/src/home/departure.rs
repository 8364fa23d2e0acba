//! Members that left: settled when nothing of theirs can reach the database any more (rules P5, P6).

use std::collections::BTreeSet;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_terms::{Incarnation, Time};

use super::{Home, HomeAction};

/// How far the settling of one departed incarnation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Departure {
    /// Its lease, and the longest transaction after that, end then.
    At(Time),
    /// Done; remembered for as long as views name it as departed.
    Settled,
}

/// Whose updates a home that begins in this view cannot know: the updaters of this view and of every earlier one.
pub(super) fn updaters_until(view: &View) -> BTreeSet<Incarnation> {
    let present =
        view.members().iter().filter(|member| member.roles.has(Role::Updater)).map(|member| member.incarnation);
    present.chain(view.departed().iter().map(|gone| gone.incarnation)).collect()
}

impl Home {
    /// Time has passed: settles whoever is dead for long enough.
    pub fn tick(&mut self, now: Time, out: &mut Vec<HomeAction>) {
        let is_due = |departure: &Departure| matches!(departure, Departure::At(at) if *at <= now);
        let due: Vec<Incarnation> =
            self.leaving.iter().filter(|(_, departure)| is_due(departure)).map(|(&who, _)| who).collect();
        for who in due {
            self.settle(who, out);
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Time> {
        let deadline = |departure: &Departure| match departure {
            Departure::At(at) => Some(*at),
            Departure::Settled => None,
        };
        self.leaving.values().filter_map(deadline).min()
    }

    pub(super) fn notice_departures(&mut self, view: &View, now: Time) {
        self.leaving.retain(|who, departure| *departure != Departure::Settled || view.has_departed(*who));
        if !self.rules.dead_settled {
            return;
        }
        let wait = match self.rules.dead_outlast {
            true => self.limits.lease + self.limits.max_transaction_time,
            false => Duration::ZERO,
        };
        let known = self.open.keys().map(|&(updater, _)| updater).chain(self.streams.keys().copied());
        // Nothing of who left at rest can reach the database, and its own word says so.
        for gone in view.departed().iter().filter(|gone| gone.at_rest) {
            self.leaving.entry(gone.incarnation).or_insert(Departure::At(now));
        }
        let gone: BTreeSet<Incarnation> = known
            .chain(self.awaiting.iter().flatten().copied())
            .filter(|&who| view.member(who).is_none())
            .chain(view.departed().iter().map(|gone| gone.incarnation))
            .collect();
        for who in gone {
            self.leaving.entry(who).or_insert(Departure::At(now + wait));
        }
    }

    fn settle(&mut self, who: Incarnation, out: &mut Vec<HomeAction>) {
        self.leaving.insert(who, Departure::Settled);
        self.streams.remove(&who);
        let open: Vec<u64> = self.numbers_of(who).collect();
        for number in open {
            self.end(who, number, out);
        }
        self.no_longer_awaits(who, out);
        out.push(HomeAction::Settled(who));
    }

    /// This incarnation's open updates are known, or over. With the last of them a new home is ready.
    pub(super) fn no_longer_awaits(&mut self, who: Incarnation, out: &mut Vec<HomeAction>) {
        let Some(awaiting) = &mut self.awaiting else { return };
        if awaiting.remove(&who) && awaiting.is_empty() && self.rules.new_homes_busy {
            self.board.release_everything(true, out);
        }
    }
}
