//! What becomes of a lock that somebody wants forgotten.

use serde::{Deserialize, Serialize};

/// What its home says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Removal {
    /// Its words are nobody's now.
    Removed,
    /// Somebody holds it or waits for it.
    InUse,
    /// It had no words.
    Unknown,
}
