//! What becomes of words that were evicted, until they are another lock's (rules L1, L2, L4).
//!
//! ```text
//!             swap [0:0] to             all members are         all of them               swap [NO_LOCK:n]         token stored,
//!             [NO_LOCK:0]               asked to forget         have                      to [0:0]                 for another name
//!   a lock's ----------------> evicted ----------------> asked -------------> forgotten -----------------> free -------------------> a lock's
//! ```
//!
//! A member may remember words for as long as the view lasts, and come to them by itself: so they are another lock's only when every member has said that it
//! does not, and has nothing on its way to them. What it sends its home is in order, so what it said of the old lock has been heard by then.
//!
//! Of the locks that had them nothing is remembered but one token, the largest that stood in any of their words: whichever of them gets words again goes on there.

use std::collections::{BTreeMap, BTreeSet};

use verbena_terms::Incarnation;

use crate::action::ProtocolViolation;
use crate::{Batch, LockWord, Outcome, Rules, Token};

/// Words that members are asked to forget at a time.
pub const MOST_FORGOTTEN: usize = 1024;

/// A home's evicted words in one view.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evicted {
    rules: Rules,
    members: Vec<Incarnation>,
    floor: Token,
    evicted: Vec<u32>,
    asked: Option<ForgetQuestion>,
    numbered: u64,
    forgotten: Vec<u32>,
    /// Swaps that make them free are on their way: of words that are believed to stand there.
    freeing: BTreeMap<u32, LockWord>,
    free: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ForgetQuestion {
    slots: Vec<u32>,
    /// Members that have not answered.
    awaited: BTreeSet<Incarnation>,
}

impl Evicted {
    /// Of a view with these members, before whose tokens this one is.
    pub fn new(members: Vec<Incarnation>, first: Token, rules: Rules) -> Self {
        Evicted {
            rules,
            members,
            floor: first,
            evicted: vec![],
            asked: None,
            numbered: 0,
            forgotten: vec![],
            freeing: BTreeMap::new(),
            free: vec![],
        }
    }

    /// What words begin with that are made now. No lock has had a writer with a larger token and lost its words since; so the token of its next
    /// writer, which is two more, is larger than all of its earlier ones, and its next reader's larger than all of its writers'.
    pub fn floor(&self) -> Token {
        self.floor
    }

    /// A lock that had words, and has none any more, had given this token.
    pub fn ended_at(&mut self, token: Token) {
        if self.rules.begin_at_floor {
            self.floor = self.floor.max(token);
        }
    }

    /// A lock is evicted from these words.
    pub fn evict(&mut self, slot: u32, token: Token) {
        self.ended_at(token);
        if self.rules.forgotten_before_reuse {
            self.evicted.push(slot);
        } else {
            self.forgotten.push(slot);
        }
    }

    /// Members are to be asked to forget these, by this number; one such question at a time.
    pub fn ask(&mut self) -> Option<(u64, Vec<u32>)> {
        if self.asked.is_some() || self.evicted.is_empty() {
            return None;
        }
        let kept = self.evicted.len().saturating_sub(MOST_FORGOTTEN);
        let slots = self.evicted.split_off(kept);
        self.numbered += 1;
        self.asked = Some(ForgetQuestion { slots: slots.clone(), awaited: self.members.iter().copied().collect() });
        Some((self.numbered, slots))
    }

    /// A member remembers none of those any more.
    ///
    /// # Errors
    /// When it was not asked.
    pub fn forgotten(&mut self, from: Incarnation, number: u64) -> Result<(), ProtocolViolation> {
        let asked = self.asked.as_mut().filter(|_| number == self.numbered);
        let asked = asked.filter(|asked| asked.awaited.contains(&from));
        let asked = asked.ok_or(ProtocolViolation("words that were forgotten unasked"))?;
        asked.awaited.remove(&from);
        let over = self.asked.take_if(|asked| asked.awaited.is_empty());
        self.forgotten.extend(over.into_iter().flat_map(|asked| asked.slots));
        Ok(())
    }

    /// Posts the batch that frees words which no member remembers, at most `at_once` at a time.
    pub fn free_next(&mut self, at_once: usize) -> Option<(u32, Batch)> {
        let slot = if self.freeing.len() < at_once { self.forgotten.pop() } else { None }?;
        Some((slot, self.free_from(slot, LockWord::EVICTED)))
    }

    fn free_from(&mut self, slot: u32, expected: LockWord) -> Batch {
        self.freeing.insert(slot, expected);
        Batch::swap(expected, LockWord::FREE)
    }

    /// Whether they are being made free.
    pub fn is_freeing(&self, slot: u32) -> bool {
        self.freeing.contains_key(&slot)
    }

    /// The words are free, or the swap is repeated, because readers had counted themselves. No further reader does so.
    pub fn freed(&mut self, slot: u32, outcome: &Outcome) -> Option<Batch> {
        if self.freeing.remove(&slot) != Some(outcome.before) {
            return Some(self.free_from(slot, outcome.before));
        }
        self.free.push(slot);
        None
    }

    /// Free words: they are another lock's now.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many will be.
    pub fn coming(&self) -> usize {
        let asked = self.asked.as_ref().map_or(0, |asked| asked.slots.len());
        self.evicted.len() + asked + self.forgotten.len() + self.freeing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use verbena_terms::ViewNumber;

    fn member(rank: u32) -> Incarnation {
        Incarnation::new(rank, 1)
    }

    fn evicted() -> Evicted {
        Evicted::new(vec![member(1), member(2)], Token::first_of(ViewNumber(3)), Rules::ALL)
    }

    #[test]
    fn words_are_free_when_all_members_have_forgotten_them() {
        let mut words = evicted();
        words.evict(7, words.floor());
        assert_eq!((words.take(), words.free_next(1), words.coming()), (None, None, 1));
        assert_eq!(words.ask(), Some((1, vec![7])));
        words.evict(8, words.floor());
        assert_eq!(words.ask(), None, "one question at a time");
        words.forgotten(member(2), 1).unwrap();
        assert!(words.forgotten(member(2), 1).is_err() && words.forgotten(member(1), 2).is_err());
        assert_eq!((words.take(), words.free_next(1), words.free()), (None, None, 0));
        words.forgotten(member(1), 1).unwrap();
        assert_eq!((words.free_next(0), words.take()), (None, None));
        assert_eq!(words.free_next(1), Some((7, Batch::swap(LockWord::EVICTED, LockWord::FREE))));
        assert!(words.is_freeing(7) && words.coming() == 2);
        let before = LockWord { count: 3, ..LockWord::EVICTED };
        let outcome = Outcome { before, ..Outcome::default() };
        assert_eq!(words.freed(7, &outcome), Some(Batch::swap(before, LockWord::FREE)));
        assert_eq!((words.take(), words.freed(7, &outcome)), (None, None));
        assert_eq!((words.take(), words.take(), words.coming()), (Some(7), None, 1));
        assert_eq!(words.ask(), Some((2, vec![8])));
        assert!(words.forgotten(member(1), 1).is_err());
    }

    #[test]
    fn a_question_has_its_size() {
        let mut words = evicted();
        (0..2500).for_each(|slot| words.evict(slot, words.floor()));
        let sizes = [1, 2, 3].map(|number| {
            let (asked, slots) = words.ask().unwrap();
            assert_eq!(asked, number);
            (1..=2).for_each(|rank| words.forgotten(member(rank), number).unwrap());
            slots.len()
        });
        let freed = std::iter::from_fn(|| words.free_next(usize::MAX)).count();
        assert_eq!((sizes, freed), ([MOST_FORGOTTEN, MOST_FORGOTTEN, 2500 - 2 * MOST_FORGOTTEN], 2500));
    }

    #[test]
    fn the_floor_is_the_largest_token_and_the_next_ones_are_larger() {
        let mut words = evicted();
        let first = words.floor();
        let writer = first.next(Mode::Exclusive).unwrap().next(Mode::Exclusive).unwrap();
        let reader = writer.next(Mode::Shared).unwrap();
        words.evict(0, writer);
        words.evict(1, first);
        assert_eq!(words.floor(), writer);
        assert!(words.floor().next(Mode::Exclusive).unwrap() > reader);
        assert!(words.floor().next(Mode::Shared).unwrap() > writer);
    }
}
