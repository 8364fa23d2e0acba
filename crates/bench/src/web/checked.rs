//! What came of holding answers against the updates that had been acknowledged when they were asked for.

use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Answers that were held against what was acknowledged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// Those that lacked an acknowledged update, and one of them.
    pub(crate) stale: u64,
    pub(crate) stale_one: String,
    /// All.
    pub(crate) checked: u64,
}

impl Checked {
    /// An error if any was stale; `under` says what was being measured.
    pub(crate) fn none_stale(&self, under: &str) -> Result<(), BenchError> {
        match self.stale {
            0 => Ok(()),
            stale => {
                let (under, one) = (under.to_owned(), self.stale_one.clone());
                Err(BenchError::Stale { stale, of: self.checked, under, one })
            }
        }
    }
}
