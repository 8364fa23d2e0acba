//! Locks that are to be removed: their homes answer, or do not.

use std::collections::HashMap;
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use crate::Removal;

/// How long a home may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of a lock that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Its home says this.
    Is(Removal),
    /// Its home did not answer in time: it may be removed, or not.
    Silent(Incarnation),
    /// The node is in no view.
    Nowhere,
}

/// Is told that once. Must not block.
pub type OnRemoved = Box<dyn FnOnce(Removed) + Send>;

#[derive(Default)]
pub(super) struct Removals {
    begun: u64,
    open: HashMap<u64, (Incarnation, Time, OnRemoved)>,
}

impl Removals {
    /// The number of the next one.
    pub(super) fn next(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// This home was asked.
    pub(super) fn begin(&mut self, number: u64, home: Option<Incarnation>, told: OnRemoved, now: Time) {
        match home {
            Some(home) => drop(self.open.insert(number, (home, now + PATIENCE, told))),
            None => told(Removed::Nowhere),
        }
    }

    pub(super) fn heard(&mut self, number: u64, from: Incarnation, removal: Removal) {
        if self.open.get(&number).is_some_and(|(home, ..)| *home == from)
            && let Some((.., told)) = self.open.remove(&number)
        {
            told(Removed::Is(removal));
        }
    }

    /// Tells who has waited too long.
    pub(super) fn end(&mut self, now: Time) {
        for (_, (home, _, told)) in self.open.extract_if(|_, (_, until, _)| *until <= now) {
            told(Removed::Silent(home));
        }
    }

    /// When one has.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.open.values().map(|(_, until, _)| *until).min()
    }
}
