//! Since when nothing has completed on a connection on which something is under way, and what follows from that.

use std::time::Duration;

use verbena_terms::Time;

use super::entries::Refusals;

/// After so long the owner is asked about the key of what is oldest: an adapter that has refused it says so once. Soft-RoCE then asks for ever (rxe_comp.c takes seven
/// retries for endless).
const SUSPECT: Duration = Duration::from_secs(1);
/// After so long a connection has failed without a word: its transport gives up after 2.1 s, at most 8.6.
pub(super) const STALLED: Duration = Duration::from_secs(10);
/// The same where the transport is TCP, which gives up after minutes, and what was under way is only read again: it has sent four times by then.
const STALLED_READS: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Standstill {
    /// When something completed last, or was posted where nothing was under way.
    moved: Time,
    /// Whether the owner was asked since then.
    was_asked: bool,
}

impl Standstill {
    /// Something has completed, or is the first to be under way.
    pub(super) fn moves(&mut self, now: Time) {
        *self = Standstill { moved: now, was_asked: false };
    }

    /// The owner has been asked.
    pub(super) fn asked(&mut self) {
        self.was_asked = true;
    }

    /// Whether the owner is to be asked.
    pub(super) fn is_suspect(&self, now: Time) -> bool {
        !self.was_asked && now.since(self.moved) >= SUSPECT
    }

    /// Whether the connection is to be ended.
    pub(super) fn is_stalled(&self, now: Time, refusals: Refusals) -> bool {
        let patience = match refusals {
            Refusals::Told => STALLED,
            Refusals::Untold => STALLED_READS,
        };
        now.since(self.moved) >= patience
    }
}
