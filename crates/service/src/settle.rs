//! Finds out what became of a batch whose answer is missing: its effects are settled one after the other, in their order (rule F2).

use std::task::Context;
use std::time::Duration;

use verbena_fabric::{Class, Error, OperationId, Pending, Settled, SharedRemote};
use verbena_terms::Time;

/// How long a target may take to answer about one effect.
const SETTLE_DEADLINE: Duration = Duration::from_secs(1);
/// Pause before a target that could not be asked is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// The effects of one batch whose outcome is being found out.
pub struct Settlement {
    remote: SharedRemote,
    class: Class,
    next: OperationId,
    last: OperationId,
    /// An effect before `next` never will be executed.
    is_barred: bool,
    query: Query,
}

enum Query {
    /// To be sent at this time.
    Due(Time),
    Sent(Pending<Settled>),
}

/// What was found out about the next effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The effect was executed and gave this word.
    Executed(u64),
    /// No effects are left: those not reported never will be executed.
    All,
    /// The fabric is closed, or the target broke the protocol: no more will be found out.
    Closed,
    /// The target does not remember what became of this one.
    Forgotten(OperationId),
}

impl Settlement {
    /// For a batch of this class that ended with `error`; `None` unless effects are to be settled.
    pub fn after(error: &Error, remote: SharedRemote, class: Class, now: Time) -> Option<Self> {
        let Error::Unknown { first: Some(next), last: Some(last), .. } = *error else { return None };
        Some(Settlement { remote, class, next, last, is_barred: false, query: Query::Due(now) })
    }

    /// What has been found out since the last call, one effect at a time; asks on.
    pub fn poll(&mut self, now: Time) -> Option<Finding> {
        while self.next <= self.last {
            let answer = match &mut self.query {
                Query::Due(at) if *at > now => return None,
                Query::Due(_) => {
                    let sent = self.remote.settle(self.next, self.class, now + SETTLE_DEADLINE);
                    self.query = Query::Sent(sent);
                    continue;
                }
                Query::Sent(sent) => sent.poll_now()?,
            };
            self.query = Query::Due(now);
            let found = match answer {
                Ok(Settled::Executed(word)) if !self.is_barred => Some(Finding::Executed(word)),
                // Nothing behind it was executed either; each is settled all the same, for the window's sake.
                Ok(Settled::Barred) => {
                    self.is_barred = true;
                    None
                }
                Ok(Settled::Executed(_)) => {
                    tracing::error!(owner = %self.remote.key().owner, "a batch was executed from its middle on");
                    return Some(Finding::Closed);
                }
                Err(Error::Closed) => return Some(Finding::Closed),
                Err(Error::Forgotten { operation, .. }) => return Some(Finding::Forgotten(operation)),
                Err(_) => {
                    self.query = Query::Due(now + AGAIN_AFTER);
                    continue;
                }
            };
            self.next = OperationId(self.next.0 + 1);
            if found.is_some() {
                return found;
            }
        }
        Some(Finding::All)
    }

    /// Whether an answer is awaited.
    pub fn is_awaiting(&self) -> bool {
        matches!(self.query, Query::Sent(_))
    }

    /// Whether an answer has come that [`poll`](Self::poll) has not looked at; if not, wakes the task when it comes.
    pub fn has_answer(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.query {
            Query::Sent(sent) => sent.is_there(context),
            Query::Due(_) => false,
        }
    }

    /// When the target is to be asked again.
    pub fn next_deadline(&self) -> Option<Time> {
        match self.query {
            Query::Due(at) => Some(at),
            Query::Sent(_) => None,
        }
    }
}
