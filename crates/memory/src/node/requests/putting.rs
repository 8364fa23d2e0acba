//! A put, which may wait behind other puts of this node to the segment, or for a slot.
//!
//! ```text
//!                 it is the first          all slots are claimed
//!   queued ---------------------> working ----------------------> pausing
//!                                  |   ^                             |
//!              it is done or not <-+   +-----------------------------+
//!                                                in a moment
//! ```
//!
//! [`Put`] has the protocol. Where a put is over the next of its segment begins.

use std::time::Duration;

use verbena_terms::Time;

use super::budget::Budget;
use super::{NodeState, Progress, RequestAction, Terms};
use crate::access::Given;
use crate::node::in_flight::Origin;
use crate::node::put::{Next, Put};
use crate::request::{Answer, Wish};
use crate::{Coherence, Refusal, SegmentId};

/// When a put that found no free slot looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(super) struct Putting {
    segment: SegmentId,
    step: PutStep,
}

enum PutStep {
    Queued,
    Working(Put),
    /// Until then.
    Pausing(Put, Time),
}

impl Putting {
    pub(super) fn new(segment: SegmentId) -> Self {
        Putting { segment, step: PutStep::Queued }
    }

    pub(super) fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Whether what is posted may change the value.
    pub(super) fn is_publishing(&self) -> bool {
        matches!(&self.step, PutStep::Working(put) if put.is_publishing())
    }

    /// When it looks for a free slot again.
    pub(super) fn pauses_until(&self) -> Option<Time> {
        match self.step {
            PutStep::Pausing(_, until) => Some(until),
            PutStep::Queued | PutStep::Working(_) => None,
        }
    }

    /// It is the first of its segment.
    pub(super) fn begin(&mut self, terms: &mut Terms, budget: &mut Budget, node: &mut NodeState<'_>) -> Progress {
        let Wish::Put { offset, bytes, named, stamp_ns, .. } = &terms.wish else { return Progress::Stays };
        self.step = PutStep::Working(Put::new(*offset, bytes.clone(), *named, *stamp_ns));
        self.work(terms, budget, node)
    }

    /// It looks for a free slot again.
    pub(super) fn look_again(&mut self, terms: &mut Terms, budget: &mut Budget, node: &mut NodeState<'_>) -> Progress {
        match std::mem::replace(&mut self.step, PutStep::Queued) {
            PutStep::Pausing(put, _) => self.step = PutStep::Working(put),
            other => {
                self.step = other;
                return Progress::Stays;
            }
        }
        self.work(terms, budget, node)
    }

    fn work(&mut self, terms: &mut Terms, budget: &mut Budget, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get_mut(self.segment) else { return Progress::Stays };
        // What puts a part into a value holds the whole of it.
        let wanted = &handle.segment().wanted;
        let whole = if wanted.coherence == Coherence::Null { 0 } else { wanted.bytes };
        let its = terms.wish.bytes().unwrap_or_default();
        if let Err(refusal) = budget.charge(&mut terms.charge, its.max(whole)) {
            return Progress::refuses(refusal);
        }
        let PutStep::Working(put) = &mut self.step else { return Progress::Stays };
        let (segment, known) = handle.words();
        let next = put.begin(segment, known, node.rules);
        self.follow(next, terms, node)
    }

    /// What was posted was executed.
    pub(super) fn completed(&mut self, given: Vec<Given>, terms: &Terms, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get_mut(self.segment) else { return Progress::Stays };
        let PutStep::Working(put) = &mut self.step else { return Progress::Stays };
        let (segment, known) = handle.words();
        let next = put.completed(segment, known, node.rules, given);
        self.follow(next, terms, node)
    }

    fn follow(&mut self, next: Next, terms: &Terms, node: &mut NodeState<'_>) -> Progress {
        let acts = node.membership.acts();
        match next {
            Next::Post(home, steps) => {
                // A decided put will be seen, so the node completes it even if its request is over.
                let is_decided = matches!(&self.step, PutStep::Working(put) if put.is_decided());
                if terms.is_over && !is_decided {
                    return Progress::Ends;
                }
                let (origin, until) = (Origin::Request(terms.id, self.segment), terms.until);
                let until = if is_decided { Time::FAR } else { until };
                node.out.push(RequestAction::Post { origin, home, steps, until });
                Progress::Stays
            }
            // The request is over, and its put was not done.
            Next::Wait if terms.is_over => Progress::Ends,
            Next::Wait => {
                if let PutStep::Working(put) = std::mem::replace(&mut self.step, PutStep::Queued) {
                    self.step = PutStep::Pausing(put, node.membership.now() + LOOK_AGAIN);
                }
                Progress::Stays
            }
            Next::Put(version) => {
                node.handles.drop_copy(self.segment);
                if acts { Progress::Answers(Answer::Put(version)) } else { Progress::refuses(Refusal::Unknown) }
            }
            Next::Refused(refusal) => {
                Progress::refuses(if acts { refusal } else { Refusal::TimedOut { why: "a lease".into() } })
            }
        }
    }

    /// What was posted was not executed, or its outcome can never be known. `None` if nothing was posted.
    pub(super) fn failed(&self, is_gone: bool, node: &mut NodeState<'_>) -> Option<Progress> {
        let PutStep::Working(put) = &self.step else { return None };
        if !is_gone || !put.is_publishing() {
            return Some(Progress::times_out("the segment's home"));
        }
        if let Some(handle) = node.handles.get_mut(self.segment) {
            handle.loses_slot();
        }
        Some(Progress::refuses(Refusal::Unknown))
    }

    pub(super) fn out_of_time(&self) -> Progress {
        match &self.step {
            // The request waits for what is in flight: then it is known which slots are free.
            PutStep::Working(put) if put.is_publishing() => Progress::AnswersEarly(Answer::Refused(Refusal::Unknown)),
            PutStep::Working(_) => {
                let why = "the segment's home".into();
                Progress::AnswersEarly(Answer::Refused(Refusal::TimedOut { why }))
            }
            PutStep::Queued => Progress::times_out("other puts of this node to the segment"),
            PutStep::Pausing(..) => Progress::times_out("a slot of the segment that no other writer fills"),
        }
    }
}
