//! The messages about locks between a program and its helper.

use serde::{Deserialize, Serialize};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockMode {
    /// With others that hold it so.
    Shared,
    /// Alone.
    Exclusive,
}

/// What a program asks. A ticket is a number that it chose for a lock that it wants, and does not use for another one before that
/// is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockRequest {
    /// It wants a lock. Answered when it has it, or does not get it.
    Acquire {
        /// What it calls this from now on.
        ticket: u64,
        /// The lock's name: any 1 to 1024 bytes.
        name: Vec<u8>,
        /// How.
        mode: LockMode,
        /// Only if it is free.
        is_try: bool,
    },
    /// It is done with it.
    Release {
        /// Which.
        ticket: u64,
    },
    /// Others may read with it. Answered when it holds it shared.
    Share {
        /// Which.
        ticket: u64,
    },
    /// It does not want it any more, whether it has it or not.
    Cancel {
        /// Which.
        ticket: u64,
    },
    /// The holders and waiters of each lock, on all nodes.
    List {
        /// Behind this lock at this rank. `None` for the first part.
        after: Option<(Vec<u8>, u32)>,
        /// Of locks whose names begin so.
        prefix: Vec<u8>,
    },
    /// Forget a lock that is not in use.
    Remove {
        /// Its name.
        name: Vec<u8>,
    },
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockAnswer {
    /// The lock is the program's.
    Held {
        /// How.
        mode: LockMode,
        /// Larger than those of all who held it alone before, and of a program that holds it alone larger than all before.
        token: u64,
        /// What [`BOARD_LAPSES`] counted when it was granted.
        lapses: u64,
    },
    /// To an attempt: it is not free.
    NotFree,
    /// The lock was held, and was lost.
    Lost,
    /// What was cancelled is not held.
    Cancelled,
    /// It is done.
    Done,
    /// To a request that waited in a cycle: the clients ahead of it wait for locks that this program holds. The text
    /// names the cycle, for people.
    Deadlock(String),
    /// To [`LockRequest::List`].
    List {
        /// In the order of names and ranks.
        locks: Vec<LockAt>,
        /// Names of members that did not answer: what their programs have is not in it.
        silent: Vec<String>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`LockRequest::Remove`]: it is forgotten.
    Removed {
        /// Whether its home knew it.
        was_known: bool,
    },
}

/// How a lock stands at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockAt {
    /// Which.
    pub name: Vec<u8>,
    /// The node's rank.
    pub rank: u32,
    /// The node's name.
    pub node: String,
    /// While the node waits: the rank of the writer behind which it stands, as far as it knows; 0 otherwise.
    pub ahead: u32,
    /// Programs that hold it, in the order in which they got it; the first of them if there are many.
    pub holders: Vec<LockUser>,
    /// How many more do.
    pub more_holders: u32,
    /// Programs that wait for it, in the order in which they asked; the first of them if there are many.
    pub waiting: Vec<LockUser>,
    /// How many more do.
    pub more_waiting: u32,
}

/// One program's request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockUser {
    /// Its process when it connected, on its node's machine; 0 if that is not known.
    pub pid: u32,
    /// How it holds it, or wants to.
    pub mode: LockMode,
    /// What it holds it with. None while it waits, or is about to share it.
    pub token: Option<u64>,
    /// For how long it has held it, or waited, in milliseconds.
    pub age_ms: u64,
}
