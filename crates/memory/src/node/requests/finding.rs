//! How a request finds its segment: by the handle that the node has, or from homes and registrars; and what their answers mean to it.

use std::time::Duration;

use verbena_terms::Incarnation;

use super::getting::Getting;
use super::listing::Listing;
use super::putting::Putting;
use super::{NodeState, Progress, Request, RequestAction, RequestStage, Shared};
use crate::layout::End;
use crate::request::{Answer, Target, Wish};
use crate::segment::registrar_of;
use crate::wire::{Question, Reply};
use crate::{Refusal, SegmentId};

/// How long after its asker has given up an allocation is waited for, to be released.
const ORPHANS: Duration = Duration::from_secs(2);
/// Homes that send it on to the next one, before a request waits for another view.
const MOST_HOMES_IN_TURN: u8 = 64;

impl Request {
    /// As far as this node knows its segment, if the node may act.
    pub(super) fn go_on(&mut self, shared: &mut Shared, node: &mut NodeState<'_>) -> Progress {
        if !node.membership.acts() {
            return Progress::Stays;
        }
        self.terms.sent_on = 0;
        match &self.terms.wish {
            Wish::Allocate { .. } => self.place(shared, node),
            Wish::List { prefix } => {
                let mut listing = Listing::new(prefix);
                let progress = listing.begin(node.membership.homes(), &self.terms, node.out);
                self.stage = RequestStage::Listing(listing);
                progress
            }
            // Answered where it is asked.
            Wish::Reclaim { .. } => Progress::Stays,
            wish => match wish.target() {
                Some((Target::Id(segment), _)) => {
                    let segment = *segment;
                    self.go_on_at(segment, shared, node)
                }
                Some((Target::Name(name), _)) => match node.handles.named(name) {
                    Some(segment) => self.go_on_at(segment, shared, node),
                    None => {
                        let to = node.membership.view().and_then(|view| name.registrar(view));
                        let question = Question::Find(name.clone());
                        self.ask(to, question, "the registrar of the name", node.out)
                    }
                },
                None => Progress::Stays,
            },
        }
    }

    fn go_on_at(&mut self, segment: SegmentId, shared: &mut Shared, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get(segment) else { return self.ask_where(segment, node) };
        let at = handle.segment();
        if let Some(end) = handle.end() {
            return Progress::segment_ended(at, end);
        }
        if let Err(refusal) = self.terms.wish.check_for(at) {
            return Progress::refuses(refusal);
        }
        match self.terms.wish {
            Wish::Release { user, .. } => {
                let (home, question) = (at.home, Question::Release { id: segment, owner: user });
                self.terms.asked_at = Some(home);
                self.ask(Some(home), question, "the segment's home", node.out)
            }
            Wish::Put { .. } => {
                let mut putting = Putting::new(segment);
                let is_first = node.handles.get_mut(segment).is_some_and(|handle| handle.queue_put(self.terms.id));
                let progress = match is_first {
                    true => putting.begin(&mut self.terms, &mut shared.budget, node),
                    false => Progress::Stays,
                };
                self.stage = RequestStage::Putting(putting);
                progress
            }
            Wish::Get { .. } | Wish::Stat { .. } => {
                let mut getting = Getting::new(segment);
                let progress = getting.begin(&mut self.terms, &mut shared.budget, node);
                self.stage = RequestStage::Getting(getting);
                progress
            }
            Wish::Window { .. } if at.home != node.membership.me() => {
                Progress::refuses(Refusal::Elsewhere { id: segment, home: at.home })
            }
            Wish::Window { .. } if node.has_memory => {
                Progress::Answers(Answer::Window(at.clone(), node.membership.view_number()))
            }
            // The node has found none in this view so far.
            Wish::Window { .. } => Progress::Waits("the memory of this node"),
            Wish::Allocate { .. } | Wish::List { .. } | Wish::Reclaim { .. } => Progress::Stays,
        }
    }

    /// This node does not know the segment: its maker does, or where that has gone the segment's registrar.
    fn ask_where(&mut self, segment: SegmentId, node: &mut NodeState<'_>) -> Progress {
        let Some(view) = node.membership.view() else { return Progress::Stays };
        if node.membership.member(segment.home).is_some() {
            return self.ask(Some(segment.home), Question::Where(segment), "the segment's home", node.out);
        }
        match registrar_of(segment, view) {
            Some(registrar) => self.ask_holder(segment, Some(registrar), node.out),
            None => Progress::refuses(Refusal::Lost { id: segment }),
        }
    }

    fn ask_holder(
        &mut self,
        segment: SegmentId,
        registrar: Option<Incarnation>,
        out: &mut Vec<RequestAction>,
    ) -> Progress {
        self.ask(registrar, Question::Holder(segment), "the registrar of the segment", out)
    }

    pub(super) fn ask(
        &mut self,
        to: Option<Incarnation>,
        question: Question,
        whom: &'static str,
        out: &mut Vec<RequestAction>,
    ) -> Progress {
        let Some(to) = to else { return Progress::refuses(Refusal::NoHome { who: "this view".into() }) };
        self.stage = RequestStage::Asking(whom);
        let changes = matches!(question, Question::Release { .. } | Question::Allocate { .. });
        let until = self.terms.until + if changes { ORPHANS } else { Duration::ZERO };
        self.terms.ask(to, question, until, out);
        Progress::Stays
    }

    /// The answer to a question of this request. `order` is the question's number among all.
    pub(super) fn answered(
        &mut self,
        from: Incarnation,
        (reply, order): (Reply, u64),
        shared: &mut Shared,
        node: &mut NodeState<'_>,
    ) -> Progress {
        match (&self.terms.wish, reply) {
            (Wish::List { .. }, Reply::Page { segments, is_last, going }) => match &mut self.stage {
                RequestStage::Listing(listing) => listing.page(from, (segments, going), is_last, &self.terms, node.out),
                _ => Progress::Stays,
            },
            (Wish::Stat { .. }, Reply::Notice(goes_in)) => match &self.stage {
                RequestStage::Getting(getting) => getting.noticed(goes_in),
                _ => Progress::Stays,
            },
            (wish, Reply::Segment(segment)) => {
                let is_made = matches!(wish, Wish::Allocate { .. });
                // Of one that has come to its end since it was asked for, nothing is believed.
                match node.handles.end_since(segment.id, order) {
                    Some(End::Moved) => return self.go_on(shared, node),
                    Some(end) => return Progress::refuses(segment.ended(end)),
                    None => {}
                }
                node.handles.learn(segment.clone(), node.membership.now());
                if is_made { Progress::Answers(Answer::Allocated(segment)) } else { self.go_on(shared, node) }
            }
            (_, Reply::Held { id: segment, by }) => {
                self.terms.sent_on += 1;
                if self.terms.sent_on > MOST_HOMES_IN_TURN {
                    return Progress::Waits("homes that name each other as the segment's");
                }
                self.ask(Some(by), Question::Where(segment), "the segment's home", node.out)
            }
            (_, Reply::Elsewhere(segment)) => {
                let registrar = node.membership.view().and_then(|view| registrar_of(segment, view));
                self.ask_holder(segment, registrar, node.out)
            }
            (Wish::Release { target, user }, Reply::Refused(Refusal::Lost { id: segment })) => match target {
                Target::Name(name) => {
                    let to = node.membership.view().and_then(|view| name.registrar(view));
                    let question = Question::Bury { name: name.clone(), owner: *user };
                    self.ask(to, question, "the registrar of the name", node.out)
                }
                Target::Id(_) => Progress::refuses(Refusal::Lost { id: segment }),
            },
            (Wish::Release { .. }, Reply::Refused(Refusal::Released { .. } | Refusal::NotFound { .. }))
                if self.terms.was_asked =>
            {
                Progress::Answers(Answer::Released)
            }
            (Wish::Release { .. }, Reply::Done) => Progress::Answers(Answer::Released),
            (_, Reply::Refused(refusal)) => Progress::refuses(refusal),
            (
                _,
                Reply::Done | Reply::Key(_) | Reply::Page { .. } | Reply::Place(_) | Reply::Holds(_) | Reply::Notice(_),
            ) => Progress::Stays,
        }
    }
}
