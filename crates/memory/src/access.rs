//! What is posted at a home, and what comes of it.

use verbena_terms::Incarnation;

/// Which post.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostId(pub u64);

/// One one-sided operation; those of a post are executed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads a word.
    ReadWord(u64),
    /// Reads bytes: where, and how many.
    Read(u64, u64),
    /// Stores a word that no atomic changes.
    WriteWord(u64, u64),
    /// Stores bytes.
    Write(u64, Vec<u8>),
    /// Stores the last if the word is the second.
    Swap(u64, u64, u64),
    /// Adds to a word.
    Add(u64, u64),
}

/// What one of them gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// A word that was read; what an atomic found.
    Word(u64),
    /// Bytes that were read; none for those that were written.
    Bytes(Vec<u8>),
}

impl Given {
    /// The word, of a step that gives one.
    pub fn word(&self) -> u64 {
        match self {
            Given::Word(word) => *word,
            Given::Bytes(_) => 0,
        }
    }

    /// The bytes, of a step that gives such.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Given::Word(_) => vec![],
            Given::Bytes(bytes) => bytes,
        }
    }
}

/// The outcome of a post. The driver settles unknown effects first (rule F2), so the outcome is certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was executed.
    Done(Vec<Given>),
    /// The last of its steps was not executed, and never will be: the home could not be reached in time.
    Late,
    /// The outcome can never be known, and the node can never reach these words again: the view is about to end.
    Gone,
}

/// Something to be posted at a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Its number.
    pub id: PostId,
    /// At whose memory.
    pub home: Incarnation,
    /// What.
    pub steps: Vec<Step>,
}
