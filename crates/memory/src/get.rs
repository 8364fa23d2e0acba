//! A get: the word, the slot that it names, and the slot's head before and behind (rule M1).

use crate::access::{Given, Step};
use crate::layout::{End, GOING_AT, SLOT_HEAD_BYTES, Word, word_at};
use crate::{Coherence, Rules, Segment};

/// A value, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes that were asked for.
    pub bytes: Vec<u8>,
    /// Grows by one with each put, from 1 or more on. For `null` as well, where it says nothing about the bytes.
    pub version: u64,
    /// When it was put, in nanoseconds since 1970, by the clock of its writer; 0 for one that was never put, and for `null`.
    pub stamp_ns: u64,
}

/// One reading of a range of a segment's value. It begins anew until it has found one version, whole.
#[derive(Clone, Debug)]
pub(crate) struct Get {
    offset: u64,
    length: u64,
    /// Which slot is read: the one that the word named last.
    guess: Word,
    /// It is looked whether anything has notice to go at the segment's home; and whether it has.
    looks: bool,
    pub(crate) is_any_going: bool,
}

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Value(Value, Word),
    /// The slot was another, or was used again meanwhile.
    Again,
    Ended(End),
}

impl Get {
    pub(crate) fn new(offset: u64, length: u64, guess: Word) -> Self {
        Get { offset, length, guess, looks: false, is_any_going: false }
    }

    /// Of no bytes: how old the value is, and whether anything has notice to go.
    pub(crate) fn looking(guess: Word) -> Self {
        Get { looks: true, ..Get::new(0, 0, guess) }
    }

    pub(crate) fn steps(&self, segment: &Segment) -> Vec<Step> {
        let mut steps = self.reading(segment);
        steps.extend(self.looks.then_some(Step::ReadWord(GOING_AT)));
        steps
    }

    fn reading(&self, segment: &Segment) -> Vec<Step> {
        let head = slot_at(segment, self.guess.slot().unwrap_or(0));
        let word = Step::ReadWord(word_at(segment.control));
        let value = Step::Read(head + SLOT_HEAD_BYTES + self.offset, self.length);
        if segment.wanted.coherence == Coherence::Null {
            return vec![word, value];
        }
        vec![word, Step::ReadWord(head), Step::ReadWord(head + 8), value, Step::ReadWord(head)]
    }

    pub(crate) fn completed(&mut self, segment: &Segment, rules: Rules, mut given: Vec<Given>) -> Got {
        if self.looks {
            self.is_any_going = given.pop().is_some_and(|going| going.word() > 0);
        }
        let word = Word::from_bits(given[0].word());
        let Some(slot) = word.slot() else { return Got::Ended(word.end().unwrap_or_default()) };
        if segment.wanted.coherence == Coherence::Null {
            let bytes = given.into_iter().nth(1).map(Given::into_bytes).unwrap_or_default();
            return Got::Value(Value { bytes, version: word.version(), stamp_ns: 0 }, word);
        }
        let is_where = self.guess.slot() == Some(slot);
        self.guess = word;
        let heads = (given[1].word(), given[4].word());
        let is_whole = heads == (word.version(), word.version());
        if !is_where || !is_whole && rules.heads_compared {
            return Got::Again;
        }
        let stamp_ns = given[2].word();
        let bytes = given.into_iter().nth(3).map(Given::into_bytes).unwrap_or_default();
        Got::Value(Value { bytes, version: word.version(), stamp_ns }, word)
    }
}

/// Where a slot begins in the home's region.
pub(crate) fn slot_at(segment: &Segment, slot: u8) -> u64 {
    segment.slot_at(segment.primary(), slot)
}
