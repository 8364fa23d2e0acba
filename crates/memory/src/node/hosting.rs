//! What a node does for its share: its memory is made anew in each view, and what its home says is done.

use std::time::Duration;

use verbena_cluster::Role;
use verbena_fabric::RegionKey;
use verbena_terms::Time;

use super::correspondence::Purpose;
use super::{Action, Memory, Origin, RENEW_AGAIN};
use crate::access::Given;
use crate::actions::{HomeAction, Stands};
use crate::home::Home;
use crate::request::Answer;
use crate::{Refusal, SegmentId};

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

impl Memory {
    /// Free bytes of its own share, and those of the largest piece.
    pub fn free(&self) -> (u64, u64) {
        self.home.free()
    }

    /// How its share stands.
    pub fn standing(&self) -> Standing {
        let (free, largest) = self.home.free();
        let share = if self.key.is_some() { self.options.bytes } else { 0 };
        let (taken, going) = (self.home.taken(), self.home.going_bytes());
        let offered = self.home.offered().min(share);
        Standing { segments: self.home.held(), share, free, largest, offered, taken, going }
    }

    /// Whether it is a home whose memory could not be made in this view so far.
    pub(super) fn has_no_memory(&self) -> bool {
        !self.home.is_open() && self.renew_at > Time::ZERO && self.renew_at < Time::FAR
    }

    /// No node acts in older views any longer: homes make their memory, and then report their segments.
    pub(super) fn come_into_effect(&mut self, out: &mut Vec<Action>) {
        let is_home = self.membership.is_home(self.membership.me());
        if !self.membership.is_in_effect() || !self.membership.acts() || !is_home {
            return;
        }
        if !self.home.is_open() && self.membership.now() >= self.renew_at {
            self.renew_at = Time::FAR;
            out.push(Action::Renew(self.home.renewal()));
        }
    }

    /// Its memory is there, in the view it was asked for in, and these words stand in it; or it is not.
    pub fn renewed(&mut self, made: Option<(RegionKey, Vec<Stands>)>, out: &mut Vec<Action>) {
        let Some(view) = self.membership.view().cloned() else { return };
        match made {
            Some((key, stand)) if view.number() == key.view => {
                let bytes = key.bytes;
                self.key = Some(key);
                self.home_acts(out, |home, actions| home.renewed(bytes, &stand, &view, actions));
                // Work that needed the memory has waited for this.
                self.go_on_all(out);
            }
            _ => self.renew_at = self.membership.now() + RENEW_AGAIN,
        }
        // What is kept may have been released or given to another segment: its words say so.
        let is_known = self.home.is_open() || !self.home.keeps_any();
        if is_known && !std::mem::replace(&mut self.has_reported, true) {
            let led = self.home.led(&view);
            for to in view.homes().map(|member| member.incarnation) {
                for question in self.registrar.reports(to, &view, &led) {
                    self.ask(to, question, Purpose::Report, Time::FAR, out);
                }
            }
        }
        self.serve_self(out);
    }

    /// This node offers `bytes` bytes from now on.
    pub(super) fn reclaim(&mut self, bytes: u64, notice: Duration, out: &mut Vec<Action>) -> Answer {
        let most = self.options.bytes;
        if bytes > most {
            return Answer::Refused(Refusal::OverShare { asked: bytes, most });
        }
        let member = self.membership.member(self.membership.me());
        if member.is_some_and(|member| !member.roles.has(Role::Home)) {
            return Answer::Refused(Refusal::NoHome { who: "this node".into() });
        }
        let now = self.membership.now();
        self.home_acts(out, |home, actions| home.set_offer(bytes, notice, now, actions));
        Answer::Reclaims(self.home.reclaims(now))
    }

    pub(super) fn reclaim_if_due(&mut self, out: &mut Vec<Action>) {
        let now = self.membership.now();
        let is_due = self.home.reclaim_at().is_some_and(|at| at <= now || !self.options.rules.notice_kept);
        let Some(view) = self.membership.view().cloned().filter(|_| is_due && self.membership.acts()) else { return };
        self.home_acts(out, |home, actions| home.reclaim(&view, now, actions));
    }

    pub(super) fn home_completed(&mut self, id: SegmentId, given: Vec<Given>, out: &mut Vec<Action>) {
        let Some(view) = self.membership.view().cloned() else { return };
        self.home_acts(out, |home, actions| home.completed(id, &given, &view, actions));
    }

    pub(super) fn home_acts<T>(
        &mut self,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Home, &mut Vec<HomeAction>) -> T,
    ) -> T {
        let mut actions = vec![];
        let said = event(&mut self.home, &mut actions);
        self.carry_out(actions, out);
        said
    }

    pub(super) fn carry_out(&mut self, actions: Vec<HomeAction>, out: &mut Vec<Action>) {
        for action in actions {
            match action {
                HomeAction::Post { id, at, steps } => self.post(Origin::Home(id), at, steps, Time::FAR, out),
                HomeAction::Ask { id, to, question } => self.ask(to, question, Purpose::Home(id), Time::FAR, out),
                HomeAction::Tell { to, question } => self.ask(to, question, Purpose::Abandoned, Time::FAR, out),
                HomeAction::Reply { to, reply } => self.correspondence.reply(to, reply, &self.membership, out),
                HomeAction::Store { at, word } => out.push(Action::Store { at, word }),
                HomeAction::Discard { at, bytes } => out.push(Action::Discard { at, bytes }),
                HomeAction::Note(note) => out.push(Action::Note(note)),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use verbena_terms::ViewNumber;

    use super::*;
    use crate::dialogue::rank;
    use crate::dialogue::{Node, segment};
    use crate::layout::{End, Word};
    use crate::wire::{Message, Question, Reply};
    use crate::{Answer, RequestId, Segment, Target, Wish};

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
