//! What a program and its helper say to each other about locks, and what the program reads without asking.

use serde::{Deserialize, Serialize};

/// The word of the helper's board that says until when its node has a lease: nanoseconds of CLOCK_BOOTTIME (rule L6). What is
/// held is held until then, and longer if the word has grown by then.
pub const BOARD_LEASE: usize = 0;
/// The word of the helper's board that counts how often all that its clients held was lost. What was granted at another count is lost.
pub const BOARD_LAPSES: usize = 1;

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
    /// To a request that waited: for ever, because those for whom it waits wait for locks that this program holds. Who waits for whom, for people.
    Deadlock(String),
}
