//! What a home holds, and how far each of it is.

use std::collections::BTreeSet;

use verbena_terms::Incarnation;

use crate::access::Step;
use crate::layout::{End, Word, claims_at, word_at};
use crate::moving::{Adopting, Moving};
use crate::reclaim::Note;
use crate::replicas::Copying;
use crate::wire::{Question, Reply, Token};
use crate::{Coherence, Place, Segment, SegmentId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) number: u32,
    pub(crate) word: Word,
    pub(crate) claims: u64,
}

impl Control {
    /// What stands in it when it is a new segment's.
    pub(crate) fn next(self) -> Word {
        Word::new(self.word.version() + 1, 0)
    }

    /// What makes it that of a place with no value.
    pub(crate) fn emptied(self) -> Vec<Step> {
        vec![
            Step::Swap(claims_at(self.number), self.claims, 1),
            Step::Swap(word_at(self.number), self.word.to_bits(), 0),
        ]
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) segment: Segment,
    /// Where it is here.
    pub(crate) place: Place,
    /// The allocation that made it; `None` for a copy.
    pub(crate) token: Option<Token>,
    pub(crate) stage: Stage,
    /// The question that its end answers.
    pub(crate) asker: Option<QuestionId>,
    /// How it comes to its end, if it does.
    pub(crate) end: End,
}

impl Held {
    /// Its puts go to its home alone, so a copy of it could not be served.
    pub(crate) fn is_null(&self) -> bool {
        self.segment.wanted.coherence == Coherence::Null
    }
}

/// The node that asked, and the number of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuestionId {
    pub(crate) from: Incarnation,
    pub(crate) number: u64,
}

/// What a part makes of a question.
pub(crate) enum Said {
    /// This, and the same to each copy of the question: it changed something.
    Kept(Reply),
    /// This, and to a copy of the question what is right then.
    Anew(Reply),
    /// It changes something, and an action answers it in time.
    Later,
    /// Nothing: it is asked again until there is an answer.
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Others that may hold copies.
    Making(Control, Vec<Incarnation>),
    Registering(Control),
    Standing,
    /// At the nth of its places.
    Marking(usize, Word),
    Unregistering,
    Forgetting(BTreeSet<Incarnation>),
    Settling,
    /// Its copies are made, or compared.
    Copying(Box<Copying>),
    /// Of an earlier view, in which there were copies.
    Kept,
    /// A copy, of what another home leads.
    Backup {
        word: Word,
        /// Its leader has spoken of it in this view.
        is_told: bool,
    },
    /// A place for a copy.
    Emptying,
    /// The segment is out of use, or will be soon.
    Moving(Box<Moving>),
    /// Another home led it, and gives it to this one.
    Adopting(Adopting),
}

impl Stage {
    /// Whether it is coming to its end: no node gets or puts it any longer.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self, Stage::Marking(..) | Stage::Unregistering | Stage::Forgetting(_) | Stage::Settling)
    }

    /// Whether it is a copy, or a place for one, of what another home leads.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self, Stage::Backup { .. } | Stage::Emptying)
    }

    /// Whether it is more than an intention when the view ends.
    pub(crate) fn lasts(&self, has_copies: bool) -> bool {
        match self {
            Stage::Standing | Stage::Moving(_) | Stage::Adopting(_) => true,
            // What is marked shows in the words.
            Stage::Kept | Stage::Backup { .. } | Stage::Marking(..) => has_copies,
            Stage::Copying(copying) => copying.is_heard_of(),
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HomeAction {
    /// On a home's memory.
    Post {
        id: SegmentId,
        at: Incarnation,
        steps: Vec<Step>,
    },
    Ask {
        id: SegmentId,
        to: Incarnation,
        question: Question,
    },
    /// As that, and it does not matter what is answered.
    Tell {
        to: Incarnation,
        question: Question,
    },
    Reply {
        to: QuestionId,
        reply: Reply,
    },
    /// A word that peers read.
    Store {
        at: u64,
        word: u64,
    },
    /// Unused bytes, with no operation in flight to them.
    Discard {
        at: u64,
        bytes: u64,
    },
    Note(Note),
}

/// What is to be copied from a view's memory to the next one's. Words stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Bytes of the region.
    pub bytes: u64,
    /// Bytes that are enough for what stands and what is offered: where memory is pinned the region has no more.
    pub least: u64,
    /// What stands in it, and where.
    pub segments: Vec<Stay>,
}

/// A segment that stands in the memory of the next view too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Where its slots begin in the memory that there is.
    pub from: u64,
    /// Where it is to be.
    pub place: Place,
    /// What it is.
    pub segment: Segment,
}

/// What stands in the memory of a view from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stands {
    /// Of which segment.
    pub id: SegmentId,
    /// Its word; 0 in a place for a copy that was never filled.
    pub word: Word,
}
