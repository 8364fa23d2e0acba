//! The requests of this node's programs: each is admitted, finds its segment, does its work there, and is answered once.
//!
//! ```text
//!             a view, a lease          its segment is known
//!   waiting ------------------> asking ---------------------> getting or putting ---> answered
//!      ^  |                        |                                |
//!      |  +----> looking, listing -|--------------------------------|---------------> answered
//!      +---------------------------+--------------------------------+
//!                     the view ends, or the segment moves
//! ```
//!
//! A stage with more than one step is a type of its own: [`Looking`], [`Listing`], [`Getting`], [`Putting`]. Each owns its data and its steps. [`Requests`] hands
//! it events, and does what its [`Progress`] says. How a request comes from one stage to the next is in [`finding`].

mod allocating;
mod budget;
mod finding;
mod getting;
mod listing;
mod putting;

use std::collections::{BTreeMap, VecDeque};

use verbena_terms::{Incarnation, Time};

use self::allocating::{Looking, Placer};
use self::budget::{Budget, Charge};
use self::getting::Getting;
use self::listing::Listing;
use self::putting::Putting;
use super::REQUESTS;
use super::handles::Handles;
use super::in_flight::Origin;
use super::membership::Membership;
use crate::access::{Outcome, Step};
use crate::layout::End;
use crate::request::{Answer, RequestId, Wish};
use crate::wire::{Question, Reply};
use crate::{Refusal, Rules, Segment, SegmentId};

/// What a request wants done.
pub(super) enum RequestAction {
    Ask { id: RequestId, to: Incarnation, question: Question, until: Time },
    Post { origin: Origin, home: Incarnation, steps: Vec<Step>, until: Time },
    Answer(RequestId, Answer),
}

/// The node, as its requests see it: what they know of it, and what they want done.
pub(super) struct NodeState<'a> {
    pub(super) rules: Rules,
    pub(super) membership: &'a Membership,
    pub(super) handles: &'a mut Handles,
    /// The node's own memory of this view is there.
    pub(super) has_memory: bool,
    pub(super) out: &'a mut Vec<RequestAction>,
}

#[derive(Default)]
pub(super) struct Requests {
    open: BTreeMap<RequestId, Request>,
    shared: Shared,
}

/// What all requests have together.
#[derive(Default)]
struct Shared {
    budget: Budget,
    placer: Placer,
}

struct Request {
    terms: Terms,
    stage: RequestStage,
}

/// What a request has in each stage.
struct Terms {
    id: RequestId,
    wish: Wish,
    until: Time,
    /// Answered already, as unknown or timed out: the request only waits for what is in flight.
    is_over: bool,
    /// It was asked for at this home, maybe in an earlier view.
    asked_at: Option<Incarnation>,
    /// It was: the end of that view took the answer.
    was_asked: bool,
    /// How often it was sent from one home to another since it was begun.
    sent_on: u8,
    charge: Charge,
}

enum RequestStage {
    /// For a view, a lease, or its segment.
    Waiting(&'static str),
    /// The request has asked a member and waits for the answer.
    Asking(&'static str),
    /// How much is free where.
    Looking(Looking),
    Listing(Listing),
    Getting(Getting),
    Putting(Putting),
}

/// What follows when a request has taken an event.
enum Progress {
    /// The same stage, or one that was entered.
    Stays,
    /// The request waits for this, and then goes on from the beginning.
    Waits(&'static str),
    Answers(Answer),
    /// As that, but something of it is in flight yet.
    AnswersEarly(Answer),
    /// It was answered before.
    Ends,
}

impl Progress {
    fn refuses(refusal: Refusal) -> Self {
        Progress::Answers(Answer::Refused(refusal))
    }

    fn times_out(why: &str) -> Self {
        Progress::refuses(Refusal::TimedOut { why: why.into() })
    }

    /// The segment has come to its end, or waits to be found elsewhere.
    fn segment_ended(segment: &Segment, end: End) -> Self {
        match end {
            End::Moved => Progress::Waits("its segment, which is moved"),
            End::Released | End::Reclaimed => Progress::refuses(segment.ended(end)),
        }
    }
}

impl Terms {
    fn ask(&self, to: Incarnation, question: Question, until: Time, out: &mut Vec<RequestAction>) {
        out.push(RequestAction::Ask { id: self.id, to, question, until });
    }

    /// At the home of its segment.
    fn post(&self, segment: &Segment, steps: Vec<Step>, out: &mut Vec<RequestAction>) {
        let (origin, home) = (Origin::Request(self.id, segment.id), segment.home);
        out.push(RequestAction::Post { origin, home, steps, until: self.until });
    }
}

impl Request {
    /// What was posted for it at this segment has an outcome.
    fn completed(
        &mut self,
        segment: SegmentId,
        outcome: Outcome,
        shared: &mut Shared,
        node: &mut NodeState<'_>,
    ) -> Progress {
        if node.handles.get(segment).is_none() {
            return Progress::Stays;
        }
        let is_gone = outcome == Outcome::Gone;
        let terms = &mut self.terms;
        match (&mut self.stage, outcome) {
            (RequestStage::Putting(putting), Outcome::Done(given)) => putting.completed(given, terms, node),
            (RequestStage::Getting(getting), Outcome::Done(given)) => {
                getting.completed(given, terms, &mut shared.budget, node)
            }
            (_, Outcome::Done(_)) => Progress::Stays,
            (stage, Outcome::Late | Outcome::Gone) => match stage.put_failed(is_gone, node) {
                Some(progress) => progress,
                // The view is about to end.
                None if is_gone => Progress::Waits("a view in effect"),
                None => self.out_of_time(),
            },
        }
    }

    /// It is the first put of its segment.
    fn begin_put(&mut self, shared: &mut Shared, node: &mut NodeState<'_>) -> Progress {
        let RequestStage::Putting(putting) = &mut self.stage else { return Progress::Stays };
        putting.begin(&mut self.terms, &mut shared.budget, node)
    }

    fn put_again(&mut self, shared: &mut Shared, node: &mut NodeState<'_>) -> Progress {
        let RequestStage::Putting(putting) = &mut self.stage else { return Progress::Stays };
        putting.look_again(&mut self.terms, &mut shared.budget, node)
    }

    /// The end of its patience.
    fn out_of_time(&mut self) -> Progress {
        let changes = matches!(self.terms.wish, Wish::Allocate { .. } | Wish::Release { .. });
        match &mut self.stage {
            RequestStage::Listing(listing) => Progress::Answers(listing.answer()),
            RequestStage::Putting(putting) => putting.out_of_time(),
            // Also where it was asked in an earlier view.
            stage if changes && (self.terms.was_asked || matches!(stage, RequestStage::Asking(_))) => {
                Progress::refuses(Refusal::Unknown)
            }
            RequestStage::Waiting(why) | RequestStage::Asking(why) => Progress::times_out(why),
            RequestStage::Looking(_) => Progress::times_out("how much is free at the homes"),
            RequestStage::Getting(_) => Progress::times_out("the segment's home"),
        }
    }

    fn next_deadline(&self) -> Time {
        let Terms { until, .. } = self.terms;
        self.stage.pauses_until().map_or(until, |pause| pause.min(until))
    }
}

impl RequestStage {
    /// Whether what is posted may change the value.
    fn is_publishing(&self) -> bool {
        matches!(self, RequestStage::Putting(putting) if putting.is_publishing())
    }

    fn pauses_until(&self) -> Option<Time> {
        let RequestStage::Putting(putting) = self else { return None };
        putting.pauses_until()
    }

    fn put_failed(&self, is_gone: bool, node: &mut NodeState<'_>) -> Option<Progress> {
        let RequestStage::Putting(putting) = self else { return None };
        putting.failed(is_gone, node)
    }
}

impl Requests {
    /// A program wants something, until then.
    ///
    /// # Errors
    /// If that cannot be, or too much is under way.
    pub(super) fn admit(&mut self, id: RequestId, wish: Wish, until: Time) -> Result<(), Refusal> {
        if self.open.len() >= REQUESTS {
            return Err(Refusal::Overloaded { most: REQUESTS });
        }
        wish.check()?;
        let puts = if let Wish::Put { bytes, .. } = &wish { bytes.len() as u64 } else { 0 };
        let mut charge = Charge::default();
        self.shared.budget.charge(&mut charge, puts)?;
        let (is_over, asked_at, was_asked, sent_on) = (false, None, false, 0);
        let terms = Terms { id, wish, until, is_over, asked_at, was_asked, sent_on, charge };
        self.open.insert(id, Request { terms, stage: RequestStage::Waiting("a lease") });
        Ok(())
    }

    /// Whether the request has not ended. One that was answered early has not before nothing of it is in flight.
    pub(super) fn has(&self, id: RequestId) -> bool {
        self.open.contains_key(&id)
    }

    /// Bytes of the long values of all of them.
    pub(super) fn under_way(&self) -> u64 {
        self.shared.budget.under_way()
    }

    /// No post and no question of the view gets an outcome. What was in flight is unknown, or starts again.
    pub(super) fn view_ends(&mut self, out: &mut Vec<RequestAction>) {
        let ids: Vec<RequestId> = self.open.keys().copied().collect();
        for id in ids {
            let Some(Request { terms, stage }) = self.open.get_mut(&id) else { continue };
            let is_unknown = stage.is_publishing();
            *stage = RequestStage::Waiting("a view in effect");
            terms.was_asked = terms.asked_at.is_some();
            if terms.is_over {
                self.end(id, None, out);
            } else if is_unknown {
                self.end(id, Some(Answer::Refused(Refusal::Unknown)), out);
            }
        }
    }

    /// Requests that wait for a view or a lease go on, if it has come.
    pub(super) fn go_on_all(&mut self, node: &mut NodeState<'_>) {
        for id in self.those(|request| matches!(request.stage, RequestStage::Waiting(_))) {
            self.go_on(id, node);
        }
    }

    pub(super) fn go_on(&mut self, id: RequestId, node: &mut NodeState<'_>) {
        self.advance(id, node, Request::go_on);
    }

    /// A member has answered a question of the request. `order` is the question's number among all.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        from: Incarnation,
        (reply, order): (Reply, u64),
        node: &mut NodeState<'_>,
    ) {
        self.advance(id, node, |request, shared, node| request.answered(from, (reply, order), shared, node));
    }

    /// A home's word that says how much is free there was read, or could not be.
    pub(super) fn looked(&mut self, id: RequestId, home: Incarnation, outcome: Outcome, node: &mut NodeState<'_>) {
        self.advance(id, node, |request, _, node| request.looked(home, outcome, node));
    }

    /// What was posted for a request at a segment has an outcome.
    pub(super) fn completed(&mut self, id: RequestId, segment: SegmentId, outcome: Outcome, node: &mut NodeState<'_>) {
        self.advance(id, node, |request, shared, node| request.completed(segment, outcome, shared, node));
    }

    /// The puts that waited for a segment find that it has come to its end.
    pub(super) fn segment_ended(
        &mut self,
        puts: VecDeque<RequestId>,
        (segment, end): (&Segment, End),
        node: &mut NodeState<'_>,
    ) {
        for id in puts {
            self.advance(id, node, |_, _, _| Progress::segment_ended(segment, end));
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, node: &mut NodeState<'_>) {
        let now = node.membership.now();
        for id in self.those(|Request { terms, .. }| terms.until <= now && !terms.is_over) {
            self.advance(id, node, |request, _, _| request.out_of_time());
        }
        for id in self.those(|request| request.stage.pauses_until().is_some_and(|until| until <= now)) {
            self.advance(id, node, Request::put_again);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.open.values().filter(|request| !request.terms.is_over).map(Request::next_deadline).min()
    }

    fn those(&self, are: impl Fn(&Request) -> bool) -> Vec<RequestId> {
        self.open.iter().filter(|(_, request)| are(request)).map(|(id, _)| *id).collect()
    }

    /// A request takes an event, and what follows is done. Where a put is over the next of its segment begins, and one after the other as long as they are over at once.
    fn advance(
        &mut self,
        id: RequestId,
        node: &mut NodeState<'_>,
        event: impl FnOnce(&mut Request, &mut Shared, &mut NodeState<'_>) -> Progress,
    ) {
        let Some(request) = self.open.get_mut(&id) else { return };
        let progress = event(request, &mut self.shared, node);
        let Some(segment) = self.enter(id, progress, node.out) else { return };
        let mut ended = id;
        while let Some(next) = node.handles.get_mut(segment).and_then(|handle| handle.put_ended(ended)) {
            if let Some(request) = self.open.get_mut(&next) {
                let progress = request.begin_put(&mut self.shared, node);
                if self.enter(next, progress, node.out).is_none() {
                    return;
                }
            }
            ended = next;
        }
    }

    /// Gives the segment of a put that is over.
    fn enter(&mut self, id: RequestId, progress: Progress, out: &mut Vec<RequestAction>) -> Option<SegmentId> {
        match progress {
            Progress::Stays => None,
            Progress::Waits(why) => {
                self.open.get_mut(&id)?.stage = RequestStage::Waiting(why);
                None
            }
            Progress::Answers(answer) => self.end(id, Some(answer), out),
            Progress::AnswersEarly(answer) => {
                self.open.get_mut(&id)?.terms.is_over = true;
                out.push(RequestAction::Answer(id, answer));
                None
            }
            Progress::Ends => self.end(id, None, out),
        }
    }

    /// Nothing of the request is in flight any more. Gives the segment of a put.
    fn end(&mut self, id: RequestId, answer: Option<Answer>, out: &mut Vec<RequestAction>) -> Option<SegmentId> {
        let Request { terms, stage } = self.open.remove(&id)?;
        self.shared.budget.release(terms.charge);
        out.extend(answer.filter(|_| !terms.is_over).map(|answer| RequestAction::Answer(id, answer)));
        match stage {
            RequestStage::Putting(putting) => Some(putting.segment()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
