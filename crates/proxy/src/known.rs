//! What the answers of pages were known to be a while ago.

use std::time::Duration;

use verbena_caching::Key;
use verbena_terms::Time;

/// Pages; the oldest are forgotten.
const MOST: usize = 16_384;
/// How long it is remembered.
const FOR: Duration = Duration::from_secs(60);

/// Pages of which something is known for a while.
pub(crate) struct Known(quick_cache::sync::Cache<Key, Time>);

impl Known {
    pub fn new() -> Self {
        Known(quick_cache::sync::Cache::new(MOST))
    }

    pub fn has(&self, page: Key, now: Time) -> bool {
        self.0.get(&page).is_some_and(|until| now < until)
    }

    pub fn remember(&self, page: Key, now: Time) {
        self.0.insert(page, now + FOR);
    }
}
