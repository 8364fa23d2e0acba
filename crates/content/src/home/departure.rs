//! Members that left: settled when nothing of theirs can reach the database any more (rules P5, P6).

use std::collections::BTreeSet;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_terms::{Incarnation, Time};

use super::{Came, Home, HomeAction};
use crate::change::Change;
use crate::names::Scope;

/// How far the settling of one departed incarnation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Departure {
    /// It may still have something at the database.
    Waiting {
        /// When its record is read, if that is to come: its lease ends then.
        read: Option<Time>,
        /// When it is settled whatever its record says: its lease, and the longest transaction after that, end then.
        until: Time,
    },
    /// Done; remembered for as long as views name it as departed.
    Settled,
}

/// What the updates of a departed incarnation keep out of the cache at a home (rule P6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptOut {
    /// The departed incarnation.
    pub by: Incarnation,
    /// Those of them that this home knows to be open.
    pub updates: usize,
    /// No page of this home is cached: what was open is not known, or one of them touches everything.
    pub everything: bool,
    /// Its record of open updates is to be read yet, when its lease is over.
    pub is_unread: bool,
    /// When it is settled at the latest: its lease and the longest transaction after that are over then.
    pub until: Time,
}

impl Departure {
    pub(super) fn is_settled(&self) -> bool {
        *self == Departure::Settled
    }

    fn next(&self) -> Option<Time> {
        match *self {
            Departure::Waiting { read, until } => Some(read.unwrap_or(until).min(until)),
            Departure::Settled => None,
        }
    }
}

/// The updaters whose updates a home that begins in this view cannot know: those of this view and of every
/// earlier one.
pub(super) fn updaters_until(view: &View) -> BTreeSet<Incarnation> {
    let present =
        view.members().iter().filter(|member| member.roles.has(Role::Updater)).map(|member| member.incarnation);
    present.chain(view.departed().iter().map(|gone| gone.incarnation)).collect()
}

impl Home {
    /// Time has passed: settles the members that are dead for long enough, and asks for the records of those whose lease
    /// has ended.
    pub fn tick(&mut self, now: Time, out: &mut Vec<HomeAction>) {
        let is_due = |departure: &Departure| departure.next().is_some_and(|at| at <= now);
        let due: Vec<(Incarnation, Departure)> =
            self.leaving.iter().filter(|(_, departure)| is_due(departure)).map(|(&who, &how)| (who, how)).collect();
        for (who, departure) in due {
            match departure {
                Departure::Waiting { until, .. } if until <= now => self.settle(who, out),
                Departure::Waiting { until, .. } => {
                    self.leaving.insert(who, Departure::Waiting { read: None, until });
                    out.push(HomeAction::ReadRecord { of: who, lease_is_over: true });
                }
                Departure::Settled => {}
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.leaving.values().filter_map(Departure::next).min()
    }

    /// The record of a departed incarnation, read when that could forward nothing more: these updates were open, and no
    /// other can reach the database. With none it is settled; otherwise what they touch waits, and nothing else.
    pub fn recorded(&mut self, who: Incarnation, open: &[(u64, Scope)], out: &mut Vec<HomeAction>) {
        let Some(&Departure::Waiting { until, .. }) = self.leaving.get(&who) else { return };
        if open.is_empty() {
            return self.settle(who, out);
        }
        self.leaving.insert(who, Departure::Waiting { read: None, until });
        let over: Vec<u64> =
            self.numbers_of(who).filter(|held| open.iter().all(|(number, _)| number != held)).collect();
        for (number, scope) in open {
            if !self.open.contains_key(&(who, *number)) {
                // What it was is not in the record: the most that it can have been.
                self.begin(who, *number, (scope.clone(), Change::Hard), out);
            }
        }
        for number in over {
            self.end(who, number, Came::Something, out);
        }
        self.no_longer_awaits(who, out);
    }

    /// The departed incarnations whose updates keep pages of this home out of the cache.
    pub fn kept_out(&self) -> impl Iterator<Item = KeptOut> + '_ {
        self.leaving.iter().filter_map(|(&by, departure)| match *departure {
            Departure::Waiting { until, read } => {
                let known: Vec<_> = self.numbers_of(by).collect();
                let is_everything = |number: &u64| {
                    self.open
                        .get(&(by, *number))
                        .is_some_and(|open| matches!(open.scope, Scope::Everything | Scope::All))
                };
                let unknown = self.awaiting.iter().flatten().any(|who| *who == by);
                let everything = unknown || known.iter().any(is_everything);
                Some(KeptOut { by, updates: known.len(), everything, is_unread: read.is_some(), until })
            }
            Departure::Settled => None,
        })
    }

    pub(super) fn notice_departures(&mut self, view: &View, now: Time, out: &mut Vec<HomeAction>) {
        self.leaving.retain(|who, departure| !departure.is_settled() || view.has_departed(*who));
        if !self.rules.dead_settled {
            return;
        }
        let wait = match self.rules.dead_outlast {
            true => self.limits.lease + self.limits.max_transaction_time,
            false => Duration::ZERO,
        };
        let known = self.open.keys().map(|&(updater, _)| updater).chain(self.streams.keys().copied());
        let gone: BTreeSet<Incarnation> = known
            .chain(self.awaiting.iter().flatten().copied())
            .filter(|&who| view.member(who).is_none())
            .chain(view.departed().iter().map(|gone| gone.incarnation))
            .filter(|who| !self.leaving.contains_key(who))
            .collect();
        for of in gone {
            // No update of an incarnation that left at rest can reach the database, and its own word says so.
            if view.departed().iter().any(|gone| gone.incarnation == of && gone.at_rest) {
                self.leaving.insert(of, Departure::Waiting { read: None, until: now });
                continue;
            }
            let outlasts = self.rules.records_outlast;
            let read = outlasts.then(|| now + self.limits.lease);
            self.leaving.insert(of, Departure::Waiting { read, until: now + wait });
            out.push(HomeAction::ReadRecord { of, lease_is_over: !outlasts });
        }
    }

    fn settle(&mut self, who: Incarnation, out: &mut Vec<HomeAction>) {
        self.leaving.insert(who, Departure::Settled);
        self.streams.remove(&who);
        let open: Vec<u64> = self.numbers_of(who).collect();
        for number in open {
            self.end(who, number, Came::Something, out);
        }
        self.no_longer_awaits(who, out);
        out.push(HomeAction::Settled(who));
    }

    /// This incarnation's open updates are known, or over. With the last of them a new home is ready.
    pub(super) fn no_longer_awaits(&mut self, who: Incarnation, out: &mut Vec<HomeAction>) {
        let Some(awaiting) = &mut self.awaiting else { return };
        if awaiting.remove(&who) && awaiting.is_empty() && self.rules.new_homes_busy {
            self.release_as_new(out);
        }
    }

    /// A home that is new in this view now knows what is open everywhere: pages of both kinds may be cached (rules
    /// P5, H1).
    pub(super) fn release_as_new(&mut self, out: &mut Vec<HomeAction>) {
        self.board.release_everything(true, out);
        self.board.release_purge(true, out);
    }
}
