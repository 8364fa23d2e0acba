//! The outcome of a request to evict a lock.

use serde::{Deserialize, Serialize};

/// What its home says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Removal {
    /// The lock was evicted.
    Removed,
    /// It has a holder or a waiter.
    InUse,
    /// It had no words.
    Unknown,
    /// Most of the tokens that this view has left would be used up with it, for all locks of this home: it keeps its words until the next view.
    TokensUsedUp,
}
