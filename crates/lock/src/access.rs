//! What a machine wants done with the words of a lock, and what came of it.

use crate::{LockWord, Token};

/// One batch on the words of one lock: executed in this order, each step by itself, and others act in between (rule F1). An outcome that is unknown
/// is settled first (rule F2): the machines hear of a batch once, when it is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    /// First the gate word is written: whether the gate is closed.
    pub gate: Option<bool>,
    /// Then the token word.
    pub token: Option<Token>,
    /// Then the lock word is changed, or looked at.
    pub change: Option<Change>,
    /// Then token word and gate word are read.
    pub read: bool,
}

/// What happens to the lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Compare and swap.
    Swap {
        /// What must stand there.
        expected: LockWord,
        /// What stands there then.
        new: LockWord,
    },
    /// One reader more, by fetch-and-add.
    AddReader,
    /// It is read.
    Look,
}

/// What a batch found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The lock word before it was changed.
    pub before: LockWord,
    /// The token word, where it was read.
    pub token: Token,
    /// Whether the gate is closed, where that was read.
    pub is_closed: bool,
}

impl Batch {
    pub(crate) fn swap(expected: LockWord, new: LockWord) -> Self {
        Batch { change: Some(Change::Swap { expected, new }), ..Batch::default() }
    }

    pub(crate) fn and_read(self) -> Self {
        Batch { read: true, ..self }
    }
}
