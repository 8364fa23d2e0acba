//! The section `[locks]` of the configuration file.

use verbena_terms::{Contradiction, section};

use crate::{LocksOptions, Rules, Scheme};

section! {
    /// Locks.
    pub struct LocksConfig as "locks", checked by LocksConfig::check {
        /// Locks that may have words at this home at a time, 32 bytes each. When few words are left, unused locks lose theirs; when all are in use, one more lock is refused.
        pub words: u32 as "NUMBER" = 1 << 20,
    }
}

impl LocksConfig {
    /// What the service is started with.
    pub fn options(&self) -> LocksOptions {
        LocksOptions { scheme: Scheme::default(), slots: self.words, rules: Rules::ALL }
    }

    fn check(&self) -> Vec<Contradiction> {
        let is_none = self.words == 0;
        is_none.then(|| Contradiction::new("words", "no lock could be taken")).into_iter().collect()
    }
}
