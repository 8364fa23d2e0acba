//! What an update says of the copies that it touches, and what such a copy is still good for (rule H3).
//!
//! An update moves the words of what it touches, so no copy of before is a hit. That says that a copy is not known to be right; it does not say how
//! wrong it is. Three kinds of updates differ in that:
//!
//! | update | the copies of before are | a proxy may |
//! |---|---|---|
//! | [`Change::Hard`] | wrong | use them for nothing |
//! | [`Change::Write`] | old | ask the application whether they are right still (a 304) |
//! | [`Change::Soft`] | to be fetched anew | ask, and meanwhile answer with them as RFC 5861 allows |
//!
//! Beside each page word, and beside the purge word, stand two words: the *hard word* is the generation of the last hard purge, the *change word* that of the
//! last update that was not soft. A home stores both before it acknowledges the update. A copy of an earlier generation was stored before that. Only a
//! proxy that would use a copy that has moved reads them.
//!
//! A page word is bumped also where a home takes another dependency set for the page, or forgets it. From then on a hard purge of what the old set named does not
//! reach the word, so such a bump counts as a hard purge.

use serde::{Deserialize, Serialize};
use verbena_cluster::Lease;
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::hit::{Kind, Stamp};

/// What an update says of the copies that it touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Change {
    /// A hard purge: they are wrong.
    Hard,
    /// The application changes what they are made of: they are old.
    #[default]
    Write,
    /// A soft purge: they are to be fetched anew.
    Soft,
}

/// The generations of the last updates of a word (rule H3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Last {
    /// Of the last hard purge: the hard word.
    pub hard: u64,
    /// Of the last update that was not soft: the change word.
    pub changed: u64,
}

impl Last {
    pub(crate) const fn new(generation: u64) -> Self {
        Last { hard: generation, changed: generation }
    }

    /// An update of this kind has bumped the word to this generation.
    pub(crate) fn note(&mut self, change: Change, generation: u64) {
        match change {
            Change::Hard => *self = Last::new(generation),
            Change::Write => self.changed = generation,
            Change::Soft => {}
        }
    }
}

/// Hard and change words of a page, read at its home in one batch after it was seen that a copy has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LastChanges {
    home: Incarnation,
    page: Last,
    all: Last,
}

impl LastChanges {
    /// The words in the order of [`PageTable::last_change_offsets`](crate::PageTable::last_change_offsets).
    pub(crate) const fn new(home: Incarnation, [hard, changed, all_hard, all_changed]: [u64; 4]) -> Self {
        LastChanges { home, page: Last { hard, changed }, all: Last { hard: all_hard, changed: all_changed } }
    }
}

/// What a copy that has moved is good for. The later, the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rest {
    /// Nothing: it is wrong, or nothing is known of it.
    Nothing,
    /// The application may be asked whether it is right still, by a strong tag of the application's own.
    Question,
    /// That, and it may be answered where RFC 5861 allows a stale answer.
    Stale,
}

impl Stamp {
    /// What is left of a standard copy that has moved. Of a coherent one nothing: it is good by its words alone.
    ///
    /// `posted` is the view in which the read of the words was posted; `lease` and `now` were taken after they arrived, `now` first.
    pub fn rest(&self, last: &LastChanges, posted: ViewNumber, lease: &Lease, now: Time) -> Rest {
        let is_known = self.home() == last.home && lease.valid_at(now) == Some(posted);
        if !is_known || self.kind() != Kind::Standard {
            return Rest::Nothing;
        }
        let (own, common) = self.generations();
        let is_before = |page: u64, all: u64| own < page || common < all;
        if is_before(last.page.hard, last.all.hard) {
            Rest::Nothing
        } else if is_before(last.page.changed, last.all.changed) {
            Rest::Question
        } else {
            Rest::Stale
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Word;

    const HOME: Incarnation = Incarnation::new(1, 1);
    const VIEW: ViewNumber = ViewNumber(1);
    const LEASE: Lease = Lease { until: Time::from_nanos(10), acknowledged: VIEW, in_effect: VIEW };

    fn rest_of(stamp: Stamp, words: [u64; 4]) -> Rest {
        stamp.rest(&LastChanges::new(HOME, words), VIEW, &LEASE, Time::from_nanos(1))
    }

    #[test]
    fn a_copy_is_good_for_what_the_last_updates_left() {
        let stamp = Stamp::standard(HOME, Word::new(5, false), Word::new(8, false));
        assert_eq!(
            rest_of(stamp, [5, 5, 8, 8]),
            Rest::Stale,
            "what was stored after an update has its generation or a later one"
        );
        assert_eq!(rest_of(stamp, [5, 6, 8, 8]), Rest::Question);
        assert_eq!(rest_of(stamp, [5, 5, 8, 9]), Rest::Question);
        assert_eq!(rest_of(stamp, [6, 6, 8, 8]), Rest::Nothing);
        assert_eq!(rest_of(stamp, [5, 5, 9, 9]), Rest::Nothing);
    }

    #[test]
    fn of_another_home_or_kind_and_without_a_lease_nothing_is_left() {
        let (word, common) = (Word::new(5, false), Word::new(8, false));
        let old = [0; 4];
        assert_eq!(rest_of(Stamp::standard(Incarnation::new(1, 2), word, common), old), Rest::Nothing);
        assert_eq!(rest_of(Stamp::new(HOME, word, common, None), old), Rest::Nothing);
        let (stamp, last) = (Stamp::standard(HOME, word, common), LastChanges::new(HOME, old));
        assert_eq!(stamp.rest(&last, VIEW, &LEASE, Time::from_nanos(10)), Rest::Nothing, "the lease is over");
        assert_eq!(stamp.rest(&last, ViewNumber(2), &LEASE, Time::ZERO), Rest::Nothing, "the view is another");
    }

    #[test]
    fn a_soft_purge_leaves_both_words_and_a_hard_one_none() {
        let mut last = Last::new(1);
        last.note(Change::Soft, 2);
        assert_eq!(last, Last { hard: 1, changed: 1 });
        last.note(Change::Write, 3);
        assert_eq!(last, Last { hard: 1, changed: 3 });
        last.note(Change::Hard, 4);
        assert_eq!(last, Last { hard: 4, changed: 4 });
    }
}
