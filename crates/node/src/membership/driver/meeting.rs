//! How this node and its keeper find each other: keeps this node's card in place, and reports a keeper that is not
//! found.

use std::time::Duration;

use verbena_terms::{BootClock, Clock};

use super::Driver;
use crate::membership::waiting::Leaving;

/// How long a node without a lease is silent about it.
const PATIENT: Duration = Duration::from_secs(3);
/// Between two looks at the files by which others find this node.
const KEEP_FILES: Duration = Duration::from_secs(1);

impl Driver {
    /// Something may remove the card by which others of this machine find this node.
    pub(super) fn keep_files(&mut self) {
        let now = BootClock.now();
        let Some(opened) = self.opened.as_ref().filter(|_| now >= self.waiting.keep_files_at) else { return };
        self.waiting.keep_files_at = now + KEEP_FILES;
        match opened.finder.keep() {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the card by which others find this node was removed: it is put back"),
            Err(error) => tracing::error!(%error, "the card by which others find this node cannot be put back"),
        }
    }

    /// A node without a lease names the node that it waits for: once in the log, and in its status while it waits.
    pub(super) fn say_what_it_waits_for(&mut self) {
        let now = BootClock.now();
        let is_waiting = self.keeping.keeper.is_none()
            && self.waiting.leaving == Leaving::No
            && self.parts.lease.load().until <= now;
        if !is_waiting {
            if self.waiting.without_since.take().is_some() {
                self.parts.status.change(|facts| facts.waits = None);
            }
            self.waiting.is_said = false;
            return;
        }
        let since = *self.waiting.without_since.get_or_insert(now);
        if now.since(since) < PATIENT {
            return;
        }
        let rank = self.parts.membership.keeper();
        let keeper = rank.and_then(|rank| self.parts.membership.configured(rank));
        let keeper = keeper.map_or_else(|| "not known yet".into(), |line| line.name.clone());
        let why = self.waiting.not_found.clone();
        let why = why.unwrap_or_else(|| "it was found, and grants no lease".into());
        let text = format!(
            "the keeper, {keeper}: {why}. Is it running, and does it have the same runtime directory and cluster.members?"
        );
        self.parts.status.change(|facts| facts.waits = Some(text.clone()));
        if !std::mem::replace(&mut self.waiting.is_said, true) {
            self.trouble("this node has had no lease for three seconds and serves nothing: it waits for", &text);
        }
    }
}
