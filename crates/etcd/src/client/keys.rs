//! Where under the prefix everything is: `verbena_cluster::register` has the list.

use verbena_terms::{Rank, ViewNumber};

/// The keys of one cluster.
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned() }
    }

    pub(super) fn office(&self) -> String {
        format!("{}/office", self.prefix)
    }

    pub(super) fn beat(&self) -> String {
        format!("{}/beat", self.prefix)
    }

    pub(super) fn record(&self) -> String {
        format!("{}/record", self.prefix)
    }

    pub(super) fn view(&self, number: ViewNumber) -> String {
        format!("{}/views/{:010}", self.prefix, number.0)
    }

    /// After the last view.
    pub(super) fn views_end(&self) -> String {
        format!("{}/views/:", self.prefix)
    }

    pub(super) fn last_rank(&self) -> String {
        format!("{}/rank", self.prefix)
    }

    pub(super) fn era(&self) -> String {
        format!("{}/era", self.prefix)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn rank(&self, rank: Rank) -> String {
        format!("{}/ranks/{:010}", self.prefix, rank.0)
    }
}
