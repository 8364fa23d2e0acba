//! Which guards hold.

/// All do, except in tests that show what a guard is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// An entry says at which position it stands.
    pub position: bool,
    /// An entry ends with a hash of its words.
    pub hash: bool,
    /// Reads were recorded from the first look to the second.
    pub epoch: bool,
    /// What a transaction showed that is older than the fill is not stored (rule Q7).
    pub moment: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { position: true, hash: true, epoch: true, moment: true }
    }
}
