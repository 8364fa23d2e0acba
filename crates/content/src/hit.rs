//! Whether a copy may be served: rule P1, as a pure function without allocation.
//!
//! The words must have been read after the request arrived, in one batch, in the view `posted`; the lease must have
//! been looked at after the words were in hand. A lease looked at before the read would let a proxy that was paused
//! in between serve what was changed without it.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_cluster::Lease;
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::table::Word;

/// Words of a page as they were read at its home, in any order but in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Words {
    /// The home whose table they were read from.
    pub home: Incarnation,
    /// The page word.
    pub word: Word,
    /// The everything word.
    pub everything: Word,
    /// The purge word.
    pub purge: Word,
    /// The clock word.
    pub clock: u64,
}

/// By what a copy is found to be good, and so with which word of all pages it is compared beside its own (rule H1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Its words alone say that it is what the application would say: it is compared with the everything word.
    Coherent,
    /// Its words say that it was not purged, and RFC 9111 says for how long it is good: it is compared with the purge word. What updates
    /// that name nothing touch does not concern it.
    Standard,
}

impl Words {
    /// The word of all pages that copies of this kind are compared with.
    pub fn common(&self, kind: Kind) -> Word {
        match kind {
            Kind::Coherent => self.everything,
            Kind::Standard => self.purge,
        }
    }

    /// What matters of them for copies of this kind: what else moved concerns none.
    pub(crate) fn of(self, kind: Kind) -> Words {
        match kind {
            Kind::Coherent => Words { purge: Word(0), ..self },
            Kind::Standard => Words { everything: Word(0), ..self },
        }
    }

    /// Whether an update is open that touches copies of this kind.
    pub fn are_busy(&self, kind: Kind) -> bool {
        self.word.is_busy() || self.common(kind).is_busy()
    }
}

/// What a copy was stored under: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    home: u64,
    word: u64,
    /// `[generation : 63 | 1 for a page that depends on everything, which compares the clock too (rule P4)]`. That the word was busy, if a page
    /// was stored under such a one, is noted in the page word: it is never fresh then.
    common: u64,
    /// The clock word that it compares; of one that compares none, whether it is of [`Kind::Standard`].
    clock: u64,
}

/// What `clock` says of a standard page.
const STANDARD: u64 = 1;

/// What a look at the words says of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Verdict {
    /// It may be served.
    #[error("fresh")]
    Fresh,
    /// An update that touches it is open.
    #[error("an update is open")]
    Busy,
    /// It has moved.
    #[error("changed since it was stored")]
    Moved,
    /// Its home is another one now.
    #[error("its home is another one now")]
    OtherHome,
    /// The view changed while the words were read.
    #[error("the view changed while the words were read")]
    OtherView,
    /// This node has no lease.
    #[error("this node has no lease")]
    NoLease,
}

impl Stamp {
    /// Of a page that its home accepted: the word that it gave, the everything word that was read before the page was asked for, and the clock
    /// of then if it depends on everything (rules P2, P4).
    pub fn new(home: Incarnation, word: Word, everything: Word, clock: Option<u64>) -> Self {
        Stamp {
            home: home.to_word(),
            word: word.0 | u64::from(everything.is_busy()),
            common: (everything.0 & !1) | u64::from(clock.is_some()),
            clock: clock.unwrap_or(0),
        }
    }

    /// The same of a page of [`Kind::Standard`], with the purge word that was read before (rule H1).
    pub fn standard(home: Incarnation, word: Word, purge: Word) -> Self {
        Stamp { clock: STANDARD, ..Stamp::new(home, word, purge, None) }
    }

    /// As a copy carries it to another node.
    pub fn to_words(&self) -> [u64; 4] {
        [self.home, self.word, self.common, self.clock]
    }

    /// The inverse of [`to_words`](Self::to_words).
    pub fn from_words([home, word, common, clock]: [u64; 4]) -> Self {
        Stamp { home, word, common, clock }
    }

    /// The home whose words it is compared with.
    pub fn home(&self) -> Incarnation {
        Incarnation::from_word(self.home)
    }

    /// By what its copy is found to be good.
    #[inline]
    pub fn kind(&self) -> Kind {
        if self.common & 1 == 0 && self.clock == STANDARD { Kind::Standard } else { Kind::Coherent }
    }

    /// Generations of the page word and of the word of all pages that it was stored under.
    pub(crate) fn generations(&self) -> (u64, u64) {
        (self.word >> 1, self.common >> 1)
    }

    /// Whether `other` was stored under later words of the same home, so that this is no copy to keep in its place.
    pub fn is_before(&self, other: &Stamp) -> bool {
        let generations = |stamp: &Stamp| [stamp.word >> 1, stamp.common >> 1];
        let (own, others) = (generations(self), generations(other));
        let is_later = own != others && own.iter().zip(&others).all(|(own, other)| own <= other);
        self.home == other.home && self.kind() == other.kind() && is_later
    }

    #[inline]
    fn differs(&self, words: &Words) -> u64 {
        let clock_mask = (self.common & 1).wrapping_neg();
        let common = words.common(self.kind()).0;
        (self.home ^ words.home.to_word())
            | (self.word ^ words.word.0)
            | ((self.common ^ common) & !1)
            | ((self.clock ^ words.clock) & clock_mask)
            | ((words.word.0 | common) & 1)
    }
}

/// Whether a copy stored under `stamp` may be served now, and if not, why.
///
/// `posted` is the view in which the read of the words was posted; `lease` and `now` were taken after they
/// arrived, `now` first.
#[inline]
pub fn look(stamp: &Stamp, words: &Words, posted: ViewNumber, lease: &Lease, now: Time) -> Verdict {
    if stamp.differs(words) == 0 && lease.valid_at(now) == Some(posted) {
        return Verdict::Fresh;
    }
    why_not(stamp, words, posted, lease)
}

#[cold]
fn why_not(stamp: &Stamp, words: &Words, posted: ViewNumber, lease: &Lease) -> Verdict {
    if lease.acknowledged != posted {
        Verdict::OtherView
    } else if stamp.home != words.home.to_word() {
        Verdict::OtherHome
    } else if words.are_busy(stamp.kind()) {
        Verdict::Busy
    } else if stamp.differs(words) != 0 {
        Verdict::Moved
    } else {
        Verdict::NoLease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Incarnation = Incarnation::new(1, 1);
    const VIEW: ViewNumber = ViewNumber(3);
    const LEASE: Lease = Lease { until: Time::from_nanos(100), acknowledged: VIEW, in_effect: ViewNumber(2) };

    fn words() -> Words {
        let (word, everything, purge) = (Word::new(5, false), Word::new(6, false), Word::new(9, false));
        Words { home: HOME, word, everything, purge, clock: 7 }
    }

    #[test]
    fn a_stamp_is_before_those_of_later_words_of_its_home() {
        let of =
            |word, everything, clock| Stamp::new(HOME, Word::new(word, false), Word::new(everything, false), clock);
        let stamp = of(5, 6, None);
        for later in [of(6, 6, None), of(5, 7, None), of(6, 7, Some(9))] {
            assert!(stamp.is_before(&later) && !later.is_before(&stamp), "{later:?}");
        }
        let other_home = Stamp::new(Incarnation::new(1, 2), Word::new(9, false), Word::new(9, false), None);
        let standard = Stamp::standard(HOME, Word::new(9, false), Word::new(9, false));
        for neither in [stamp, of(5, 6, Some(9)), of(6, 5, None), other_home, standard] {
            assert!(!stamp.is_before(&neither) && !neither.is_before(&stamp), "{neither:?}");
        }
    }

    fn verdict(stamp_clock: Option<u64>, words: Words, lease: Lease, now: u64) -> Verdict {
        let stamp = Stamp::new(HOME, Word::new(5, false), Word::new(6, false), stamp_clock);
        look(&stamp, &words, VIEW, &lease, Time::from_nanos(now))
    }

    #[test]
    fn unchanged_words_and_a_lease_are_a_hit() {
        assert_eq!(verdict(None, words(), LEASE, 99), Verdict::Fresh);
        assert_eq!(verdict(Some(7), words(), LEASE, 99), Verdict::Fresh);
        assert_eq!(verdict(None, Words { clock: 8, ..words() }, LEASE, 99), Verdict::Fresh);
    }

    #[test]
    fn whatever_changed_is_a_miss_with_its_reason() {
        let look = |words: Words| verdict(Some(7), words, LEASE, 0);
        assert_eq!(look(Words { word: Word::new(6, false), ..words() }), Verdict::Moved);
        assert_eq!(look(Words { everything: Word::new(7, false), ..words() }), Verdict::Moved);
        assert_eq!(look(Words { clock: 8, ..words() }), Verdict::Moved);
        assert_eq!(look(Words { word: Word::new(5, true), ..words() }), Verdict::Busy);
        assert_eq!(look(Words { everything: Word::new(6, true), ..words() }), Verdict::Busy);
        assert_eq!(look(Words { home: Incarnation::new(1, 2), ..words() }), Verdict::OtherHome);
    }

    #[test]
    fn a_standard_copy_is_compared_with_the_purge_word_and_with_no_clock() {
        let stamp = Stamp::standard(HOME, Word::new(5, false), Word::new(9, false));
        let verdict = |words| look(&stamp, &words, VIEW, &LEASE, Time::ZERO);
        assert_eq!(stamp.kind(), Kind::Standard);
        let others = Words { everything: Word::new(7, true), clock: 8, ..words() };
        assert_eq!(verdict(others), Verdict::Fresh, "updates that name nothing do not concern it");
        assert_eq!(verdict(Words { purge: Word::new(10, false), ..words() }), Verdict::Moved);
        assert_eq!(verdict(Words { purge: Word::new(9, true), ..words() }), Verdict::Busy);
        assert_eq!(verdict(Words { word: Word::new(6, false), ..words() }), Verdict::Moved);
        for clock in [None, Some(1)] {
            let coherent = Stamp::new(HOME, Word::new(5, false), Word::new(6, false), clock);
            assert_eq!(coherent.kind(), Kind::Coherent);
        }
        assert_eq!(verdict_of_purged(), Verdict::Fresh, "a purge of all moves the everything word as well");
    }

    fn verdict_of_purged() -> Verdict {
        let stamp = Stamp::new(HOME, Word::new(5, false), Word::new(6, false), None);
        look(&stamp, &Words { purge: Word::new(10, false), ..words() }, VIEW, &LEASE, Time::ZERO)
    }

    #[test]
    fn a_stamp_is_the_same_at_another_node() {
        let standard = Stamp::standard(HOME, Word::new(5, false), Word::new(9, false));
        let coherent = Stamp::new(HOME, Word::new(5, false), Word::new(6, true), Some(7));
        for stamp in [standard, coherent] {
            assert_eq!(Stamp::from_words(stamp.to_words()), stamp);
        }
    }

    #[test]
    fn no_lease_and_another_view_are_misses() {
        assert_eq!(verdict(None, words(), LEASE, 100), Verdict::NoLease);
        let later = Lease { acknowledged: ViewNumber(4), ..LEASE };
        assert_eq!(verdict(None, words(), later, 0), Verdict::OtherView);
    }

    #[test]
    fn a_busy_word_is_never_fresh_even_if_it_were_stored() {
        let stamp = Stamp::new(HOME, Word::new(5, true), Word::new(6, false), None);
        let busy = Words { word: Word::new(5, true), ..words() };
        assert_eq!(look(&stamp, &busy, VIEW, &LEASE, Time::ZERO), Verdict::Busy);
        // An update that was not sent frees the word as it was.
        for clock in [None, Some(7)] {
            let stamp = Stamp::new(HOME, Word::new(5, false), Word::new(6, true), clock);
            assert_eq!(look(&stamp, &words(), VIEW, &LEASE, Time::ZERO), Verdict::Moved);
        }
    }
}
