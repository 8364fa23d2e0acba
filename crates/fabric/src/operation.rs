//! One-sided operations, the batches they are posted in, and what comes back.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::pool::Buffer;

/// Elements that one batch can have.
pub const LARGEST_BATCH: usize = 256;

/// One element of a batch. Addresses are bytes from the start of the region; word operations need multiples of 8.
#[derive(Debug)]
pub enum Operation {
    /// The word at `at`, never torn.
    ReadWord {
        /// Where.
        at: u64,
    },
    /// Stores a word, never torn. Never on a word that atomics change (F3).
    WriteWord {
        /// Where.
        at: u64,
        /// What.
        value: u64,
    },
    /// Stores `desired` if the word is `expected`.
    CompareSwap {
        /// Where.
        at: u64,
        /// What must be there.
        expected: u64,
        /// What is there afterwards.
        desired: u64,
    },
    /// Adds to the word, wrapping.
    FetchAdd {
        /// Where.
        at: u64,
        /// What is added.
        addend: u64,
    },
    /// Fills the buffer from the region. Only aligned words in it are untorn.
    Read {
        /// Where.
        at: u64,
        /// As many bytes as it is long, of the fabric's own pool; comes back in [`Done::Buffer`].
        into: Buffer,
    },
    /// Stores the buffer in the region. Only aligned words in it are untorn.
    Write {
        /// Where.
        at: u64,
        /// As many bytes as it is long, of the fabric's own pool; comes back in [`Done::Buffer`].
        from: Buffer,
    },
}

impl Operation {
    /// Whether it changes the region, and so is executed exactly once and carries an [`OperationId`] (F2).
    pub const fn has_effect(&self) -> bool {
        !matches!(self, Operation::ReadWord { .. } | Operation::Read { .. })
    }

    /// First byte and length in bytes of what it touches.
    pub fn range(&self) -> (u64, u64) {
        match self {
            Operation::ReadWord { at }
            | Operation::WriteWord { at, .. }
            | Operation::CompareSwap { at, .. }
            | Operation::FetchAdd { at, .. } => (*at, 8),
            Operation::Read { at, into } => (*at, into.len() as u64),
            Operation::Write { at, from } => (*at, from.len() as u64),
        }
    }

    /// Whether it works on one aligned word.
    pub const fn is_word(&self) -> bool {
        !matches!(self, Operation::Read { .. } | Operation::Write { .. })
    }
}

/// What an element gave.
#[derive(Debug)]
pub enum Done {
    /// The word that was read; for an atomic or a word write, the word as it was before (a word write may say 0).
    Word(u64),
    /// The buffer, filled for a read.
    Buffer(Buffer),
}

impl Done {
    /// The word, of a word operation.
    pub const fn word(&self) -> Option<u64> {
        match self {
            Done::Word(word) => Some(*word),
            Done::Buffer(_) => None,
        }
    }
}

/// One result for each element, in order.
pub type Completed = SmallVec<[Done; 4]>;

/// Operations that are posted together: executed in order, not atomically (F1), in one round trip where the provider
/// can. The first that is refused ends the batch: what stands before it was executed, what stands behind it is not. Only what
/// concerns the batch as a whole (too many elements, a passed deadline, a revoked key) is refused before any of it.
///
/// Up to four elements take no allocation.
#[derive(Debug, Default)]
pub struct Batch {
    operations: SmallVec<[Operation; 4]>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Adds an element at the end.
    pub fn push(&mut self, operation: Operation) -> &mut Self {
        self.operations.push(operation);
        self
    }

    /// A batch of word reads.
    pub fn read_words(addresses: &[u64]) -> Self {
        Batch { operations: addresses.iter().map(|&at| Operation::ReadWord { at }).collect() }
    }

    /// A batch of one element.
    pub fn one(operation: Operation) -> Self {
        let mut batch = Batch::new();
        batch.push(operation);
        batch
    }

    /// The elements, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The elements, in order, given away: what a provider executes.
    pub fn into_operations(self) -> SmallVec<[Operation; 4]> {
        self.operations
    }

    /// How many elements change the region, and so how many identifiers the batch takes.
    pub fn effects(&self) -> u64 {
        self.operations.iter().filter(|operation| operation.has_effect()).count() as u64
    }
}

/// The number of an operation with an effect: per caller incarnation, target incarnation and service class, from 1,
/// without gaps, never reused (F2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub u64);

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What became of an operation that ended as unknown (F2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    /// It was executed; this is what [`Done::Word`] would have said (0 for a [`Operation::Write`]).
    Executed(u64),
    /// It was refused, or had not been executed and never will be.
    Barred,
}
