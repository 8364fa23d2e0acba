//! What nodes say to each other about a lock.
//!
//! Each message is delivered exactly once within a view, or never because the view ends; in any order, however late (rules F5, L4).

use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

use crate::{Refusal, Request, Token};

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum To {
    /// The lock's home.
    Home,
    /// A participant.
    Participant(Rank),
    /// The survivor of an earlier view with this rank, from the lock's [`RecoveryHolder`](crate::RecoveryHolder).
    Survivor(Rank),
}

/// About one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Message {
    /// To the writer at the tail, from the writer that found it there: it stands behind you, after `readers` readers.
    Behind {
        /// The next writer.
        writer: Rank,
        /// The readers in between: each tells you itself.
        readers: u32,
    },
    /// To the writer at the tail, from a reader that found it there: it stands behind you.
    Join,
    /// The lock is yours.
    Grant {
        /// The token of the last writer.
        last: Token,
    },
    /// To the home: this writer is next, when `readers` readers have released.
    After {
        /// The next writer.
        writer: Rank,
        /// The readers that the word counted.
        readers: u32,
    },
    /// To the home: a reader has released.
    Released,
    /// To the home, from a writer whose compare-and-swaps were lost to others: put me into the queue.
    Enter,
    /// To the home, from a node that found the gate closed: tell me when I may enter.
    AskHome,
    /// To who asked to enter: come.
    Open,
    /// To a server ([`Srsl`](crate::Scheme::Srsl)): this is wanted.
    Ask(Request),
    /// To a server: a writer has released.
    Freed,
    /// To a server: a writer becomes a reader.
    Shared,
    /// From a server: no.
    Refuse(Refusal),
    /// From the home, to a node that asked to enter or asked to be put in: these words belong to no lock any longer (rule L4).
    Moved,
}
