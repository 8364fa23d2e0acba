//! Locks that a client has released and is expected to acquire again at once. The node keeps such a lock for that long.
//! To all other clients and nodes, the lock is still held.
//!
//! A client that takes and releases a lock in a loop would otherwise see it go to another node each time, and wait for
//! it to come back: a handover takes longer than one use. Where others wait, a client is favoured like that for
//! [`SERIES`] and no longer.

use std::time::Duration;

use verbena_terms::Time;

use super::{Locks, LocksAction};
use crate::action::ProtocolViolation;
use crate::askers::Asker;
use crate::local_queue::RequestId;
use crate::name::Name;
use crate::{Mode, Request};

/// For so long, from when it first got it, a client may hold a lock on though others of its node wait; and clients of a node, from when the node got it, though other nodes do.
/// About what it takes to pass it on to another node twice, where two cores do all of it.
pub(super) const SERIES: Duration = Duration::from_micros(500);

impl Locks {
    /// A client releases a lock, and may acquire it again before the next request of any client or a call of
    /// [`settle`](Self::settle). Until then the node keeps the lock.
    ///
    /// # Errors
    /// When it does not hold it, or not any more.
    pub fn release_soon(&mut self, id: RequestId, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        self.settle(out);
        if !self.may_hold_on(id) {
            return self.let_go(id, out);
        }
        self.kept = Some(id);
        Ok(())
    }

    /// Whether the client of this request may hold on what was granted to it, now.
    fn may_hold_on(&mut self, id: RequestId) -> bool {
        let Some(asked) = self.askers.get(id) else { return false };
        let Some(here) = self.here.get_mut(&asked.name) else { return false };
        here.local.may_grant(self.may_grant);
        let is_over = |since: Time| self.now >= since + SERIES;
        let since = self.askers.holds_since(asked.asker, &asked.name).unwrap_or(Time::ZERO);
        here.local.may_hold_on(id)
            && (here.local.waiting().len() == 0 || !is_over(since))
            && (!here.local.is_waited_for() || !is_over(here.got))
    }

    /// Whether something is kept.
    pub fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Releases the kept lock for all.
    pub fn settle(&mut self, out: &mut Vec<LocksAction>) {
        if let Some(kept) = self.kept.take() {
            // Its client has the answer to its release already, whatever has become of the lock since.
            let _ = self.let_go(kept, out);
        }
    }

    /// If it is kept for this client it holds it on, by its new request. Whether it does.
    pub(super) fn holds_on(
        &mut self,
        id: RequestId,
        asker: Asker,
        name: &Name,
        request: Request,
        out: &mut Vec<LocksAction>,
    ) -> bool {
        let Some(kept) = self.kept else { return false };
        let is_its = self.askers.get(kept).is_some_and(|asked| asked.asker == asker && asked.name == *name);
        // Others may have come since.
        if !is_its || request.mode != Mode::Exclusive || !self.may_hold_on(kept) {
            return false;
        }
        let holds_on = self.with(name, out, |local, actions| local.hold_on(kept, id, actions)) == Some(true);
        if holds_on {
            self.kept = None;
            self.askers.goes_on(kept, id, self.now);
        }
        holds_on
    }
}
