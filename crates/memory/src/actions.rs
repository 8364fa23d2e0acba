//! What a home is asked, what it makes of questions, and what it wants done.

use verbena_terms::Incarnation;

use crate::access::Step;
use crate::home::Note;
use crate::layout::Word;
use crate::wire::{Question, Reply};
use crate::{Place, Segment, SegmentId};

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

/// What a home wants done.
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
