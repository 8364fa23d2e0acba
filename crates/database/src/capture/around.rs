//! Which transactions of the database's log the relay has held, and which went around it (rule Q21).
//!
//! A log does not say by which connection a transaction came. So each commit that the relay holds is *expected*, with what it touches, and each transaction of the log is taken for the oldest one that
//! touches all that it has written, and that no other is taken for. A transaction for which there is none went around the relay.
//!
//! When the log has passed the moment at which a commit was answered, the commit has come, or wrote nothing, and is dropped. If no transaction was taken for it, one that was taken for another, which is still to come, was
//! its own: the other is expected again.
//!
//! **Weaker than a hold.** A transaction that goes around the relay may be taken for a commit of the relay's that touches the same, and the commit, when it comes, is found in its place: what was taken for it is purged
//! too. Only if that commit wrote nothing is none found. So nothing rests on this: it is a net for what should not be done.

use std::collections::{BTreeSet, VecDeque};

use verbena_statements::{CATALOG, Name, Names};
use verbena_terms::Time;

/// How a row was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Insert,
    Update,
    Delete,
    /// All rows at once, or the table itself.
    Table,
}

/// What a transaction of the log has written: the tables, by the names of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub tables: BTreeSet<(Vec<u8>, Kind)>,
    /// There was more than has room.
    pub is_more: bool,
}

/// Tables that a transaction is remembered by, each way of writing for itself.
const TABLES: usize = 256;

impl Written {
    pub(crate) fn add(&mut self, table: Vec<u8>, kind: Kind) {
        if self.tables.len() < TABLES {
            self.tables.insert((table, kind));
        } else {
            self.is_more |= !self.tables.contains(&(table, kind));
        }
    }

    /// More than is known.
    pub(crate) fn everything() -> Written {
        Written { tables: BTreeSet::new(), is_more: true }
    }

    fn join(&mut self, other: &Written) {
        self.is_more |= other.is_more;
        for (table, kind) in &other.tables {
            self.add(table.clone(), *kind);
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.tables.is_empty() && !self.is_more
    }

    /// What is purged for it: each read of the tables.
    pub(crate) fn names(&self) -> Names {
        if self.is_more {
            return Names::Everything;
        }
        let all = self.tables.iter().map(|(table, _)| (table.clone(), [Name::Table].into()));
        Names::Of(all.collect())
    }
}

#[derive(Debug)]
struct Expected {
    number: u64,
    names: Names,
    /// When the database had answered; never, where the outcome is not known.
    answered: Option<Time>,
    /// The transaction that was taken for it.
    came: Option<Written>,
}

impl Expected {
    fn is_passed(&self, at: Time) -> bool {
        self.answered.is_some_and(|answered| answered < at)
    }
}

/// The commits that are expected in the log.
#[derive(Debug, Default)]
pub(crate) struct Around {
    /// In the order of their numbers.
    expected: VecDeque<Expected>,
    next: u64,
    /// The log is read: without that nothing is expected in it.
    is_read: bool,
}

/// Commits that are remembered. Beyond it the oldest go, and are found to have gone around: right, and a purge too many.
const EXPECTED: usize = 65_536;

impl Around {
    /// A commit that touches this is about to be forwarded.
    pub(crate) fn held(&mut self, names: Names) -> u64 {
        if !self.is_read {
            return 0;
        }
        if self.expected.len() == EXPECTED {
            self.expected.pop_front();
        }
        self.next += 1;
        self.expected.push_back(Expected { number: self.next, names, answered: None, came: None });
        self.next
    }

    /// The database has answered it by now, or it is known that it never will.
    pub(crate) fn answered(&mut self, number: u64, now: Time) {
        if let Ok(place) = self.expected.binary_search_by_key(&number, |expected| expected.number) {
            self.expected[place].answered = Some(now);
        }
    }

    /// The log is read from now on.
    pub(crate) fn begins(&mut self) {
        self.is_read = true;
    }

    /// It is not read any more: what will have been written until it is again is not known.
    pub(crate) fn rests(&mut self) {
        self.is_read = false;
        self.expected.retain(|expected| expected.answered.is_none());
    }

    /// It was never forwarded.
    pub(crate) fn unsent(&mut self, number: u64) {
        if let Ok(place) = self.expected.binary_search_by_key(&number, |expected| expected.number) {
            self.expected.remove(place);
        }
    }

    /// The log shows a transaction. Nothing, if it is one of the relay's; else what went around: it, and what was taken for commits that may as well have written this one.
    pub(crate) fn committed(&mut self, written: &Written) -> Option<Written> {
        let is_ours = self.take(written, |names| *names != Names::Everything && covers(names, written))
            || self.take(written, |names| *names == Names::Everything);
        if is_ours {
            return None;
        }
        let others = self.expected.iter().filter(|expected| covers(&expected.names, written));
        let taken = others.filter_map(|expected| expected.came.as_ref());
        let mut around = written.clone();
        taken.for_each(|came| around.join(came));
        Some(around)
    }

    /// Whether the relay has held a definition that the log shows: the oldest commit that changes the catalog or a whole table, or touches everything.
    pub(crate) fn defined(&mut self) -> bool {
        let is_definition = |names: &Names| match names {
            Names::Everything => true,
            Names::Of(tables) => {
                tables.contains_key(CATALOG) || tables.values().any(|names| names.contains(&Name::Table))
            }
        };
        self.take(&Written::everything(), is_definition)
    }

    fn take(&mut self, written: &Written, is_it: impl Fn(&Names) -> bool) -> bool {
        let mut all = self.expected.iter_mut();
        let found = all.find(|expected| expected.came.is_none() && is_it(&expected.names));
        found.map(|expected| expected.came = Some(written.clone())).is_some()
    }

    /// Something is expected that may never come.
    pub(crate) fn is_waiting(&self) -> bool {
        self.expected.iter().any(|expected| expected.answered.is_some())
    }

    /// The log was read up to where it stood at this moment, or later.
    pub(crate) fn passed(&mut self, at: Time) {
        while let Some(place) = self.expected.iter().position(|expected| expected.is_passed(at)) {
            let Some(Expected { names, came: None, .. }) = self.expected.remove(place) else { continue };
            let mut others = self.expected.iter_mut().filter(|other| !other.is_passed(at));
            let own = others.find(|other| other.came.as_ref().is_some_and(|written| covers(&names, written)));
            if let Some(other) = own {
                other.came = None;
            }
        }
    }
}

/// Whether a commit that touches this may have written that.
fn covers(names: &Names, written: &Written) -> bool {
    let Names::Of(tables) = names else { return true };
    let is_covered = |(table, kind): &(Vec<u8>, Kind)| {
        tables.get(table).is_some_and(|names| names.iter().any(|name| is_of(name, *kind)))
    };
    !written.is_more && written.tables.iter().all(is_covered)
}

/// Whether a write that touches this name may show as this (rules Q15, Q16).
fn is_of(name: &Name, kind: Kind) -> bool {
    match name {
        Name::Table => true,
        Name::Rows | Name::New(_) | Name::Value(..) => kind == Kind::Insert,
        Name::Values | Name::Moved(_) => kind == Kind::Update,
        Name::Gone | Name::Window => kind == Kind::Delete,
        Name::Row(_) | Name::Any => false,
    }
}

#[cfg(test)]
mod tests;
