//! A put: a slot is claimed, filled, and published by one swap of the segment's word (rule M1).
//!
//! ```text
//!               the node has none       no slot is free: again in a moment
//!   begun -------> claiming ----------------------------------------------+
//!     |  it has one   |  a bit of the claims was swapped in   <-----------+
//!     |               v
//!     +----------> reading --------> filling and publishing --> done: the slot of the value that was replaced is the node's now
//!     |  a part only   ^               |        ^
//!     |                +---------------+        |  all of the value is put: the slot gets the number of the next version, and is swapped in
//!     +--- all of it       the swap found       |
//!                          another word --------+
//! ```
//!
//! So a node that puts again needs no claim: one round trip. What it does not use for a while it gives back. A node that dies keeps what it had claimed
//! until the view without it, which has new memory.
//!
//! Where there are copies a put goes along all of them: [`chain`].

mod chain;

use std::sync::Arc;

use verbena_terms::Incarnation;

use self::chain::{Chain, Linked};
use crate::access::{Given, Step};
use crate::get::{Get, Got};
use crate::layout::{FILLING, SLOT_HEAD_BYTES, Word, claims_at, word_at};
use crate::{Coherence, Place, Refusal, Rules, Segment};

/// What a node knows of a segment's words: what stood there when it looked last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub word: Word,
    pub claims: u64,
    /// The slot that it has claimed, and may fill.
    pub kept: Option<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Put {
    offset: u64,
    bytes: Arc<[u8]>,
    /// The version that it replaces, for [`Coherence::Version`].
    named: Option<u64>,
    stamp_ns: u64,
    /// The whole value, with the change in it, and the word that it replaces. Where all of a value is put the word is a guess.
    whole: Option<(Vec<u8>, Word)>,
    /// The word was read for this put, and is not a guess of an earlier time.
    has_read: bool,
    /// The slot holds the value at each copy, and only its version is another.
    is_filled: bool,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Begun,
    Claiming { slot: u8, found: u64 },
    Reading(Get),
    Publishing { slot: u8 },
    Chained(Chain),
    InPlace,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Post(Incarnation, Vec<Step>),
    /// All slots are claimed: again in a moment.
    Wait,
    /// It is done, and is this version.
    Put(u64),
    Refused(Refusal),
}

impl Put {
    pub(super) fn new(offset: u64, bytes: Arc<[u8]>, named: Option<u64>, stamp_ns: u64) -> Self {
        Put { offset, bytes, named, stamp_ns, whole: None, has_read: false, is_filled: false, stage: Stage::Begun }
    }

    /// Whether what is posted may change the value.
    pub(super) fn is_publishing(&self) -> bool {
        match &self.stage {
            Stage::Publishing { .. } | Stage::InPlace => true,
            Stage::Chained(chain) => chain.is_publishing(),
            _ => false,
        }
    }

    /// Whether it will be seen, and is only to be brought to the copies that are left.
    pub(super) fn is_decided(&self) -> bool {
        matches!(&self.stage, Stage::Chained(chain) if chain.is_decided())
    }

    /// Goes on, as far as is known.
    pub(super) fn begin(&mut self, segment: &Segment, known: &mut Known, rules: Rules) -> Next {
        if segment.wanted.coherence == Coherence::Null {
            self.stage = Stage::InPlace;
            let value = Step::Write(segment.at + SLOT_HEAD_BYTES + self.offset, self.bytes.to_vec());
            return Next::Post(segment.home, vec![value, Step::Add(word_at(segment.control), Word::VERSION)]);
        }
        if let Some(end) = known.word.end() {
            // A swap from this word would make it a segment again.
            return Next::Refused(segment.ended(end));
        }
        let Some(slot) = known.kept else { return self.claim(segment, known, rules) };
        let is_chained = is_chained(segment, rules);
        if is_chained && known.word == Word::default() {
            return self.look(segment, known.word);
        }
        let is_all = self.offset == 0 && self.bytes.len() as u64 == segment.wanted.bytes;
        if self.whole.is_none() && is_all {
            self.whole = Some((self.bytes.to_vec(), known.word));
        }
        match &mut self.whole {
            Some((_, word)) => {
                // It is the one that the put names, or the swap finds another.
                if let Some(named) = self.named.filter(|_| rules.version_compared)
                    && named != word.version()
                {
                    let current = word.version();
                    return self.named_another(segment, named, current, known);
                }
                if is_chained { self.fill_copies(segment, slot) } else { self.fill(segment, slot) }
            }
            None => self.read(segment, known.word),
        }
    }

    /// What was posted was executed.
    pub(super) fn completed(
        &mut self,
        segment: &Segment,
        known: &mut Known,
        rules: Rules,
        mut given: Vec<Given>,
    ) -> Next {
        let ended = |word: Word| Next::Refused(segment.ended(word.end().unwrap_or_default()));
        match &mut self.stage {
            Stage::Begun => self.begin(segment, known, rules),
            Stage::Claiming { slot, found } => {
                let (slot, expected, claims) = (*slot, *found, given[0].word());
                let is_mine = claims == expected;
                known.claims = if is_mine { claims | 1 << slot } else { claims };
                if is_mine {
                    known.kept = Some(slot);
                }
                self.begin(segment, known, rules)
            }
            Stage::Reading(get) => match get.completed(segment, rules, given) {
                Got::Ended(end) => Next::Refused(segment.ended(end)),
                Got::Again => Next::Post(segment.home, get.steps(segment)),
                Got::Value(value, word) => {
                    (known.word, self.has_read) = (word, true);
                    let mut whole = value.bytes;
                    let from = self.offset as usize;
                    whole[from..from + self.bytes.len()].copy_from_slice(&self.bytes);
                    (self.whole, self.is_filled) = (Some((whole, word)), false);
                    self.begin(segment, known, rules)
                }
            },
            Stage::Publishing { slot } => {
                let slot = *slot;
                let found = Word::from_bits(given.pop().map_or(0, |given| given.word()));
                known.word = found;
                let Some(before) = found.slot() else { return ended(found) };
                let Some((_, word)) = &mut self.whole else { return Next::Wait };
                if found == *word {
                    let published = word.next_in(slot);
                    // The put that replaces a value takes over its slot.
                    (known.word, known.kept) = (published, Some(before));
                    return Next::Put(published.version());
                }
                if let Some(named) = self.named.filter(|_| rules.version_compared) {
                    return self.named_another(segment, named, found.version(), known);
                }
                let is_all = self.bytes.len() as u64 == segment.wanted.bytes;
                if is_all || may_be_older(segment, rules) {
                    *word = found;
                    return Next::Post(segment.home, publish(segment, segment.primary(), slot, found));
                }
                self.whole = None;
                self.begin(segment, known, rules)
            }
            Stage::Chained(chain) => {
                let found = Word::from_bits(given.pop().map_or(0, |given| given.word()));
                match chain.completed(segment, found) {
                    Linked::On => self.chain_goes_on(segment),
                    Linked::Put { replaced, now } => {
                        (known.word, known.kept) = (now, replaced.slot());
                        let published = replaced.version() + 1;
                        // It was released before it was read, or after.
                        if now.slot().is_none() && now.version() < published {
                            ended(now)
                        } else {
                            Next::Put(published)
                        }
                    }
                    Linked::Other(word) => self.overtaken(segment, known, rules, word),
                }
            }
            Stage::InPlace => {
                let found = Word::from_bits(given.pop().map_or(0, |given| given.word()));
                if found.slot().is_none() { ended(found) } else { Next::Put(found.version() + 1) }
            }
        }
    }

    fn claim(&mut self, segment: &Segment, known: &mut Known, rules: Rules) -> Next {
        let free = (0..segment.wanted.slots()).find(|slot| known.claims & 1 << slot == 0);
        match free {
            Some(slot) if rules.claims_first => {
                let claims = known.claims;
                self.stage = Stage::Claiming { slot, found: claims };
                Next::Post(segment.home, vec![Step::Swap(claims_at(segment.control), claims, claims | 1 << slot)])
            }
            // Switched off: any slot but the value's, even one that another put fills.
            _ if !rules.claims_first => {
                known.kept = Some(known.word.slot().map_or(0, |slot| (slot + 1) % segment.wanted.slots()));
                self.begin(segment, known, rules)
            }
            _ => {
                // One may be given back: it is looked again.
                known.claims &= !(1 << (segment.wanted.slots() - 1));
                self.stage = Stage::Begun;
                Next::Wait
            }
        }
    }

    /// Not the version that was named stands in the word that is known: it is refused when it is certain that it does not stand there any more.
    fn named_another(&mut self, segment: &Segment, named: u64, current: u64, known: &Known) -> Next {
        if current > named || self.has_read {
            return Next::Refused(Refusal::Conflict { named, current });
        }
        self.whole = None;
        self.read(segment, known.word)
    }

    fn read(&mut self, segment: &Segment, guess: Word) -> Next {
        let get = Get::new(0, segment.wanted.bytes, guess);
        let steps = get.steps(segment);
        self.stage = Stage::Reading(get);
        Next::Post(segment.home, steps)
    }

    fn fill(&mut self, segment: &Segment, slot: u8) -> Next {
        let Some((whole, word)) = &self.whole else { return Next::Wait };
        let place = segment.primary();
        let mut steps = filling(segment, place, slot, self.stamp_ns, whole);
        steps.append(&mut publish(segment, place, slot, *word));
        self.stage = Stage::Publishing { slot };
        Next::Post(place.home, steps)
    }

    // Where there are copies.

    /// The word that is read is not the one that the put would replace, or not known yet.
    fn look(&mut self, segment: &Segment, decided: Word) -> Next {
        self.stage = Stage::Chained(Chain::looking(decided));
        self.chain_goes_on(segment)
    }

    fn fill_copies(&mut self, segment: &Segment, slot: u8) -> Next {
        let Some((_, word)) = &self.whole else { return Next::Wait };
        self.stage = Stage::Chained(Chain::filling(segment, slot, *word));
        self.chain_goes_on(segment)
    }

    fn chain_goes_on(&mut self, segment: &Segment) -> Next {
        let Stage::Chained(chain) = &self.stage else { return Next::Wait };
        let value = self.whole.as_ref().map(|(whole, _)| whole).filter(|_| !self.is_filled);
        let (place, steps) = chain.steps(segment, |place, slot| match value {
            Some(whole) => filling(segment, place, slot, self.stamp_ns, whole),
            None => vec![],
        });
        self.is_filled |= chain.is_publishing();
        Next::Post(place.home, steps)
    }

    /// Another word is read by now, and is at all copies.
    fn overtaken(&mut self, segment: &Segment, known: &mut Known, rules: Rules, word: Word) -> Next {
        (known.word, self.has_read) = (word, true);
        let is_all = self.bytes.len() as u64 == segment.wanted.bytes;
        match &mut self.whole {
            Some((_, replaced)) if is_all || may_be_older(segment, rules) => *replaced = word,
            _ => (self.whole, self.is_filled) = (None, false),
        }
        self.begin(segment, known, rules)
    }
}

/// Whether a put is brought to copies.
fn is_chained(segment: &Segment, rules: Rules) -> bool {
    !segment.backups.is_empty() && rules.copies_first
}

/// Whether what a put changes a part of may have been replaced meanwhile.
fn may_be_older(segment: &Segment, rules: Rules) -> bool {
    segment.wanted.coherence == Coherence::Read || !rules.base_read_again
}

/// The slot becomes unreadable, and then holds the value.
fn filling(segment: &Segment, place: Place, slot: u8, stamp_ns: u64, value: &[u8]) -> Vec<Step> {
    let at = segment.slot_at(place, slot);
    vec![
        Step::WriteWord(at, FILLING),
        Step::WriteWord(at + 8, stamp_ns),
        Step::Write(at + SLOT_HEAD_BYTES, value.to_vec()),
    ]
}

/// The slot gets the next version, and then all may read it.
fn publish(segment: &Segment, place: Place, slot: u8, word: Word) -> Vec<Step> {
    let next = word.next_in(slot);
    let head = Step::WriteWord(segment.slot_at(place, slot), next.version());
    vec![head, Step::Swap(word_at(place.control), word.to_bits(), next.to_bits())]
}
