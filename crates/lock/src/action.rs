//! What machines return.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_terms::Rank;

use crate::{Batch, Message, Mode, To, Token};

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Post this at the lock's words, and say `completed` when it is certain what came of it. One at a time.
    Access(Batch),
    /// Deliver this.
    Send(To, Message),
    /// A participant holds the lock now. After a downgrade it says so once more, in the other mode.
    Granted(Mode, Token),
    /// A participant does not get the lock, and stands in no queue.
    Refused(Refusal),
    /// A participant has nothing to do with the lock any more, and may request it again.
    Left,
    /// The participant is in no queue: the words that it used belong to no lock any longer. The home knows where the
    /// lock's words are (rule L4).
    Moved,
    /// A home has evicted the lock from its words. The token word held this.
    Evicted(Token),
}

impl Action {
    /// The lock is this participant's, after the writer that had this token.
    pub(crate) fn grant(to: Rank, last: Token) -> Self {
        Action::Send(To::Participant(to), Message::Grant { last })
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// It was a try, and the lock was not free.
    #[error("the lock is not free")]
    Busy,
    /// All 2^32 tokens of this view have been given out; the next view has more.
    #[error("the tokens of this view are used up")]
    TokensUsedUp,
    /// Its home has no words left for another lock in this view.
    #[error("the lock's home has no room for another lock")]
    NoRoom,
    /// The same client holds it shared, and would wait for itself.
    #[error("the same client holds it shared: it cannot have it alone before it has released that")]
    Upgrade,
    /// The node leaves the cluster.
    #[error("the node leaves the cluster, and gives out no more locks")]
    Leaving,
}

/// A message or a call that fits no order of events, so the sender broke the protocol. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ProtocolViolation(pub(crate) &'static str);
