//! The node as a home: its memory is made anew in each view, its home works there, and what stands there is reported once a view.

use std::time::Duration;

use verbena_cluster::View;
use verbena_fabric::RegionKey;
use verbena_terms::{Incarnation, Time};

use super::membership::Membership;
use crate::access::Given;
use crate::actions::{HomeAction, QuestionId, Renewal, Said, Stands};
use crate::home::{Home, Reclaims};
use crate::wire::{Question, Reply};
use crate::{MemoryOptions, Refusal, Segment, SegmentId};

/// When a home that found no memory for a view tries again.
pub(super) const RENEW_AGAIN: Duration = Duration::from_secs(1);

/// How a node's share stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Segments in it.
    pub segments: usize,
    /// Its bytes; 0 where this node is no home in this view.
    pub share: u64,
    /// Those that are free.
    pub free: u64,
    /// Those of the largest free piece.
    pub largest: u64,
    /// Bytes that it offers at the moment.
    pub offered: u64,
    /// Bytes that segments have.
    pub taken: u64,
    /// Bytes of segments that have notice to go, or are about to.
    pub going: u64,
}

pub(super) struct Hosting {
    options: MemoryOptions,
    home: Home,
    /// The node's memory in this view.
    key: Option<RegionKey>,
    /// When it is to be made, if it could not be.
    renew_at: Time,
    /// What the home knows was reported in this view.
    has_reported: bool,
    /// Outcomes for the home that came while the node had no lease.
    held_back: Vec<(SegmentId, Vec<Given>)>,
}

impl Hosting {
    pub(super) fn new(options: MemoryOptions) -> Self {
        Hosting::of(Home::new(Incarnation::default(), options), options)
    }

    fn of(home: Home, options: MemoryOptions) -> Self {
        Hosting { options, home, key: None, renew_at: Time::ZERO, has_reported: false, held_back: vec![] }
    }

    /// Empty, with the offer of the incarnation before.
    pub(super) fn start_incarnation(&mut self, me: Incarnation) {
        *self = Hosting::of(Home::after(&self.home, me), self.options);
    }

    /// What does not stand is no more, and what stands is not served before there is memory in the next view.
    pub(super) fn view_ends(&mut self) {
        (self.key, self.has_reported, self.renew_at) = (None, false, Time::ZERO);
        self.held_back.clear();
        self.home.view_ends();
    }

    /// The node's memory, if there is one in this view.
    pub(super) fn key(&self) -> Option<&RegionKey> {
        self.key.as_ref()
    }

    pub(super) fn is_open(&self) -> bool {
        self.home.is_open()
    }

    /// Free bytes, and those of the largest piece.
    pub(super) fn free(&self) -> (u64, u64) {
        self.home.free()
    }

    pub(super) fn standing(&self) -> Standing {
        let (free, largest) = self.home.free();
        let share = if self.key.is_some() { self.options.bytes } else { 0 };
        let (taken, going) = (self.home.taken(), self.home.going_bytes());
        let offered = self.home.offered().min(share);
        Standing { segments: self.home.held(), share, free, largest, offered, taken, going }
    }

    // Memory.

    /// Whether it is a home whose memory could not be made in this view so far.
    fn has_no_memory(&self) -> bool {
        !self.home.is_open() && self.renew_at > Time::ZERO && self.renew_at < Time::FAR
    }

    /// No node acts in older views any longer: what the home's memory is to hold, if it is to be made now.
    pub(super) fn renewal(&mut self, membership: &Membership) -> Option<Renewal> {
        let serves = membership.is_in_effect() && membership.acts() && membership.is_home(membership.me());
        if !serves || self.home.is_open() || membership.now() < self.renew_at {
            return None;
        }
        self.renew_at = Time::FAR;
        Some(self.home.renewal())
    }

    /// The memory is there, and these words stand in it.
    pub(super) fn renewed(&mut self, key: RegionKey, stand: &[Stands], view: &View, out: &mut Vec<HomeAction>) {
        let bytes = key.bytes;
        self.key = Some(key);
        self.home.renewed(bytes, stand, view, out);
    }

    /// The memory could not be made.
    pub(super) fn not_renewed(&mut self, now: Time) {
        self.renew_at = now + RENEW_AGAIN;
    }

    /// What is to be reported, once a view, when it is known.
    pub(super) fn report(&mut self, view: &View) -> Option<Vec<Segment>> {
        // What is kept may have been released or given to another segment: its words say so.
        let is_known = self.home.is_open() || !self.home.keeps_any();
        (is_known && !std::mem::replace(&mut self.has_reported, true)).then(|| self.home.led(view))
    }

    // The offer.

    /// This node offers `bytes` bytes from now on.
    ///
    /// # Errors
    /// If it cannot: nothing is changed.
    pub(super) fn set_offer(
        &mut self,
        bytes: u64,
        notice: Duration,
        membership: &Membership,
        out: &mut Vec<HomeAction>,
    ) -> Result<(), Refusal> {
        let (most, me) = (self.options.bytes, membership.me());
        if bytes > most {
            return Err(Refusal::OverShare { asked: bytes, most });
        }
        if membership.member(me).is_some() && !membership.is_home(me) {
            return Err(Refusal::NoHome { who: "this node".into() });
        }
        self.home.set_offer(bytes, notice, membership.now(), out);
        Ok(())
    }

    pub(super) fn reclaims(&self, now: Time) -> Reclaims {
        self.home.reclaims(now)
    }

    /// Whose notice is over goes.
    pub(super) fn reclaim_if_due(&mut self, membership: &Membership, out: &mut Vec<HomeAction>) {
        let now = membership.now();
        let is_due = self.home.reclaim_at().is_some_and(|at| at <= now || !self.options.rules.notice_kept);
        if let Some(view) = membership.view().filter(|_| is_due && membership.acts()) {
            self.home.reclaim(view, now, out);
        }
    }

    /// When memory is made or taken back, if the node acts then.
    pub(super) fn next_deadline(&self, membership: &Membership) -> Option<Time> {
        let renewal = self.has_no_memory().then_some(self.renew_at);
        renewal.into_iter().chain(self.home.reclaim_at()).min().filter(|_| membership.acts())
    }

    // The home's questions and posts.

    /// A member asks.
    pub(super) fn on(
        &mut self,
        asker: QuestionId,
        question: Question,
        membership: &Membership,
        out: &mut Vec<HomeAction>,
    ) -> Said {
        match membership.view().filter(|_| self.home.is_open() && membership.acts()) {
            Some(view) => self.home.on(asker, question, (view, membership.now()), out),
            // Others may have room.
            None if matches!(question, Question::Reserve(_)) && self.has_no_memory() => {
                Said::Kept(Reply::Refused(Refusal::NoHome { who: membership.me().to_string() }))
            }
            None => Said::Nothing,
        }
    }

    /// A member has answered a question of the home.
    pub(super) fn answered(
        &mut self,
        (id, question): (SegmentId, &Question),
        from: Incarnation,
        reply: Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        match question {
            Question::Reserve(_) => self.home.reserved(id, from, reply, view, out),
            Question::Where(_) => self.home.told_where(id, from, reply, view, out),
            _ => self.home.answered(id, from, reply, view, out),
        }
    }

    /// What was posted for a segment was executed.
    pub(super) fn completed(
        &mut self,
        id: SegmentId,
        given: Vec<Given>,
        membership: &Membership,
        out: &mut Vec<HomeAction>,
    ) {
        match membership.view() {
            Some(view) if membership.acts() => self.home.completed(id, &given, view, out),
            // It may have been done in a memory that others have left.
            _ => self.held_back.push((id, given)),
        }
    }

    /// The node has a lease again: the outcomes that came meanwhile.
    pub(super) fn held_back(&mut self) -> Vec<(SegmentId, Vec<Given>)> {
        std::mem::take(&mut self.held_back)
    }

    /// Segments that the home made.
    #[cfg(test)]
    pub(super) fn made(&self) -> u64 {
        self.home.made()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use verbena_terms::ViewNumber;

    use super::RENEW_AGAIN;
    use crate::actions::Stands;
    use crate::dialogue::{Node, rank, segment};
    use crate::layout::{End, Word};
    use crate::wire::{Message, Question, Reply};
    use crate::{Action, Answer, RequestId, Segment, Target, Wish};

    /// Segments that it has reported, or none if it has not; and now it knows that it was heard.
    fn reported(node: &mut Node) -> Option<usize> {
        let mut all = None;
        for (to, message) in node.messages() {
            if let Message::Ask { number, question: Question::Report { segments, .. }, .. } = message {
                *all.get_or_insert(0) += segments.len();
                node.hears(to.rank.0, Message::Answer { number, answer: Reply::Done });
            }
        }
        all
    }

    #[test]
    fn who_kept_something_reports_when_its_words_are_known() {
        let holder = || {
            let mut node = Node::of(2, &[1, 2, 3]);
            node.is_made(vec![]);
            assert_eq!(reported(&mut node), Some(0));
            assert_eq!(node.asked(1, 1, Question::Reserve(segment())), None);
            node.posts_are_done();
            let Some(Reply::Place(place)) = node.answer(1, 1) else { panic!() };
            let held = Segment { backups: vec![place], ..segment() };
            assert_eq!(node.asked(1, 2, Question::Hold(held)), Some(Reply::Holds(0)));
            node.next_view(&[2, 3]);
            node.is_not_made();
            assert_eq!(reported(&mut node), None, "it may be another's by now, or nobody's");
            node.passes(RENEW_AGAIN);
            node
        };
        let stands = |word| vec![Stands { id: segment().id, word }];
        let mut released = holder();
        released.is_made(stands(Word::new(5, 0).ended(End::Released)));
        assert_eq!(reported(&mut released), Some(0));
        let mut standing = holder();
        standing.is_made(stands(Word::new(5, 0)));
        assert!(reported(&mut standing) > Some(0));
    }

    #[test]
    fn who_has_nothing_to_say_says_so_without_memory_too() {
        let mut node = Node::of(2, &[1, 2]);
        node.is_not_made();
        assert_eq!(reported(&mut node), Some(0));
        node.passes(RENEW_AGAIN);
        node.is_made(vec![]);
        assert_eq!(reported(&mut node), None, "once in a view");
    }

    #[test]
    fn who_wants_to_look_into_memory_that_is_not_there_yet_waits_for_it() {
        let mut node = Node::of(2, &[1, 2]);
        node.is_not_made();
        let (id, until) = (RequestId(1), node.now + RENEW_AGAIN * 3);
        let here = Segment { home: rank(2), ..segment() };
        let (target, user) = (Target::Id(here.id), here.wanted.owner);
        node.does(|memory, now, out| {
            memory.handles.learn(here.clone(), now);
            memory.request(id, Wish::Window { target, user }, until, now, out);
        });
        let is_answer = |action: &Action| matches!(action, Action::Answer(..));
        assert!(!node.did().iter().any(is_answer), "there is nothing to look into");
        node.passes(RENEW_AGAIN);
        node.is_made(vec![]);
        let answers: Vec<Action> = node.did().into_iter().filter(is_answer).collect();
        assert_eq!(answers, [Action::Answer(id, Answer::Window(here, ViewNumber(1)))]);
    }
}
