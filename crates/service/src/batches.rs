//! Batches in flight, until it is certain what became of each (rule F2).
//!
//! ```text
//!              region is open        answered, and more is left
//!   waiting <----------------> posted -------------------------> waiting
//!      ^                         |  \ answered, and complete ----> ended
//!      |  the rest was barred    v                                  no answer
//!      +---------------------- settling, one effect after the other <---------> not asked: again in 2 ms
//! ```
//!
//! A [`Request`] may take several batches, one after the other. An effect that was executed is not posted again: after a lost answer the effects are settled, and
//! what is posted next is only what certainly never will be executed. When the view ends the callers need no answers any more. The effects are settled all the same,
//! because a fabric's window has room for a limited number of unsettled ones.

use std::task::{Context, Poll};
use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Error, Fabric, Pending, Result, SharedRemote};
use verbena_terms::{Incarnation, Time};

use crate::peers::RegionUse;
use crate::settle::{Finding, Settlement};

/// Pause before a batch that could not be posted is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// One-sided operations on one member's region, of which the caller wants the outcome.
pub trait Request {
    /// What the caller knows it by.
    type Id: Copy;
    /// What the caller is told.
    type Outcome;
    /// How long the fabric may take for one batch.
    const TIMEOUT: Duration;
    /// What it works on, for the log: "a lock's word".
    const SUBJECT: &'static str;

    /// What the caller knows it by.
    fn id(&self) -> Self::Id;
    /// The member whose region it works on.
    fn target(&self) -> Incarnation;
    /// Which of the member's regions.
    fn region(&self) -> RegionUse {
        RegionUse::ONLY
    }
    /// When it ends as [`End::Late`] if it waits to be posted then. The default is never.
    fn deadline(&self) -> Time {
        Time::FAR
    }
    /// Whether a caller waits for the outcome. If none does, nothing wakes a thread for this request: it is looked at in the turns that there are, and it is settled
    /// for the window's sake alone.
    fn is_awaited(&self) -> bool {
        true
    }
    /// The next batch, of what was not executed so far. `None` where there is no buffer for it at the moment.
    fn batch(&mut self, fabric: &dyn Fabric) -> Option<(Batch, Class)>;
    /// All of the last batch was executed, and gave this.
    fn completed(&mut self, done: Completed);
    /// The next effect of the last batch was executed and gave this word. Reads before it gave nothing.
    fn executed(&mut self, word: u64);
    /// The last batch did not reach the region, and nothing of it is to be settled. It is posted again, unless the request is complete now: given up.
    fn missed(&mut self) {}
    /// Whether nothing is left to post. It is asked when the last batch was executed, settled or missed.
    fn is_complete(&self) -> bool;
    /// What the caller is told at the end; `None` if it waits until the view ends.
    fn outcome(&mut self, end: End) -> Option<Self::Outcome>;
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All was executed.
    Complete,
    /// It was not posted before its deadline.
    Late,
    /// The member has made its region anew, has left, or does not remember what it executed: the view is about to end.
    Gone,
}

/// The requests of one service in flight, and the outcomes of those that have ended.
pub struct Batches<R> {
    in_flight: Vec<InFlight<R>>,
}

struct InFlight<R> {
    request: R,
    /// Its view has ended: the caller waits no longer.
    is_abandoned: bool,
    stage: Stage,
}

enum Stage {
    /// To be posted at this time, once the region is open.
    Waiting(Time),
    Posted(SharedRemote, Class, Pending<Completed>),
    /// Until the target has answered, this holds up all that is behind it.
    Settling(Settlement),
}

enum Step {
    Unchanged,
    Continue,
    Ended(End),
}

impl<R> Default for Batches<R> {
    fn default() -> Self {
        Batches { in_flight: vec![] }
    }
}

impl<R: Request> Batches<R> {
    /// Adds a request, which [`poll`](Self::poll) posts.
    pub fn submit(&mut self, request: R, now: Time) {
        self.in_flight.push(InFlight { request, is_abandoned: false, stage: Stage::Waiting(now) });
    }

    /// The view ends: no caller waits any longer. What is posted stays until it is settled, unless its target is no member of the next view.
    pub fn end_view(&mut self, is_member: impl Fn(Incarnation) -> bool) {
        self.in_flight.retain(|one| !matches!(one.stage, Stage::Waiting(_)) && is_member(one.request.target()));
        self.in_flight.iter_mut().for_each(|one| one.is_abandoned = true);
    }

    /// Posts what can be posted and gives the outcomes of what has ended.
    pub fn poll(
        &mut self,
        now: Time,
        fabric: &dyn Fabric,
        region: impl Fn(Incarnation, RegionUse) -> Option<SharedRemote>,
    ) -> Vec<(R::Id, R::Outcome)> {
        let mut ended = vec![];
        self.in_flight.retain_mut(|one| match one.advance(now, fabric, &region) {
            None => true,
            Some(end) => {
                let outcome = if one.is_abandoned { None } else { one.request.outcome(end) };
                ended.extend(outcome.map(|outcome| (one.request.id(), outcome)));
                false
            }
        });
        ended
    }

    /// Ready when a batch has completed that [`poll`](Self::poll) has not looked at; otherwise wakes the task when one does.
    pub fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut has_completed = false;
        for one in self.in_flight.iter_mut().filter(|one| one.request.is_awaited()) {
            has_completed |= match &mut one.stage {
                Stage::Waiting(_) => false,
                Stage::Posted(_, _, completed) => completed.is_there(context),
                Stage::Settling(settlement) => settlement.has_answer(context),
            };
        }
        if has_completed { Poll::Ready(()) } else { Poll::Pending }
    }

    /// When there is something to do if nothing completes. A request whose region is not open waits for that, and at most until its deadline.
    pub fn next_deadline(&self, is_open: impl Fn(Incarnation, RegionUse) -> bool) -> Option<Time> {
        let due = |one: &InFlight<R>| match &one.stage {
            Stage::Waiting(at) if is_open(one.request.target(), one.request.region()) => Some(*at),
            Stage::Waiting(_) => Some(one.request.deadline()).filter(|deadline| *deadline != Time::FAR),
            Stage::Settling(settlement) => settlement.next_deadline(),
            Stage::Posted(..) => None,
        };
        self.in_flight.iter().filter(|one| one.request.is_awaited()).filter_map(due).min()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether the fabric owes an answer that a caller waits for.
    pub fn is_awaiting(&self) -> bool {
        self.in_flight.iter().any(|one| {
            one.is_wanted()
                && match &one.stage {
                    Stage::Waiting(_) => false,
                    Stage::Posted(..) => true,
                    Stage::Settling(settlement) => settlement.is_awaiting(),
                }
        })
    }
}

impl<R: Request> InFlight<R> {
    /// Whether a caller waits for its outcome still.
    fn is_wanted(&self) -> bool {
        !self.is_abandoned && self.request.is_awaited()
    }

    /// How it has ended, if it has.
    fn advance(
        &mut self,
        now: Time,
        fabric: &dyn Fabric,
        region: &impl Fn(Incarnation, RegionUse) -> Option<SharedRemote>,
    ) -> Option<End> {
        loop {
            let step = match &mut self.stage {
                Stage::Waiting(_) if now >= self.request.deadline() || self.is_abandoned => Step::Ended(End::Late),
                Stage::Waiting(at) if *at > now => Step::Unchanged,
                Stage::Waiting(_) => {
                    let remote = region(self.request.target(), self.request.region());
                    remote.map_or(Step::Unchanged, |remote| self.post(remote, fabric, now))
                }
                Stage::Posted(remote, class, completed) => match completed.poll_now() {
                    None => Step::Unchanged,
                    Some(answer) => {
                        let (remote, class) = (remote.clone(), *class);
                        self.answered(answer, remote, class, now)
                    }
                },
                Stage::Settling(settlement) => match settlement.poll(now) {
                    None => Step::Unchanged,
                    Some(finding) => self.settled(finding, now),
                },
            };
            match step {
                Step::Unchanged => return None,
                Step::Ended(end) => return Some(end),
                Step::Continue => {}
            }
        }
    }

    fn post(&mut self, remote: SharedRemote, fabric: &dyn Fabric, now: Time) -> Step {
        let Some((batch, class)) = self.request.batch(fabric) else {
            self.stage = Stage::Waiting(now + AGAIN_AFTER);
            return Step::Unchanged;
        };
        let completed = remote.post(batch, class, now + R::TIMEOUT);
        self.enter(Stage::Posted(remote, class, completed))
    }

    fn answered(&mut self, answer: Result<Completed>, remote: SharedRemote, class: Class, now: Time) -> Step {
        match answer {
            Ok(done) => {
                self.request.completed(done);
                self.complete_or_wait(now)
            }
            Err(Error::Revoked { .. } | Error::Closed) => Step::Ended(End::Gone),
            Err(error) => match Settlement::after(&error, remote, class, now) {
                Some(settlement) => self.enter(Stage::Settling(settlement)),
                None => {
                    tracing::debug!(home = %self.request.target(), %error, "{} was not reached", R::SUBJECT);
                    self.request.missed();
                    self.complete_or_wait(now + AGAIN_AFTER)
                }
            },
        }
    }

    fn settled(&mut self, finding: Finding, now: Time) -> Step {
        match finding {
            Finding::Executed(word) => {
                self.request.executed(word);
                Step::Continue
            }
            Finding::All => self.complete_or_wait(now),
            Finding::Closed => Step::Ended(End::Gone),
            Finding::Forgotten(operation) => {
                if self.is_wanted() {
                    let home = self.request.target();
                    tracing::error!(%home, %operation, "it is not known whether {} was changed", R::SUBJECT);
                }
                Step::Ended(End::Gone)
            }
        }
    }

    fn complete_or_wait(&mut self, until: Time) -> Step {
        if self.request.is_complete() { Step::Ended(End::Complete) } else { self.enter(Stage::Waiting(until)) }
    }

    fn enter(&mut self, stage: Stage) -> Step {
        self.stage = stage;
        Step::Continue
    }
}
