//! A message of a member comes to the part of the node that it is for: the home, the registrar, or what this node knows and wants itself.

use verbena_terms::{Incarnation, Time};

use super::correspondence::Purpose;
use super::handles::Farewell;
use super::{Action, Memory};
use crate::SegmentId;
use crate::actions::{QuestionId, Said};
use crate::layout::End;
use crate::wire::{Message, Question, Reply};

/// Which part of a member a question is for.
enum Role {
    /// It holds segments.
    Home,
    /// It knows segments by their names.
    Registrar,
    /// It may have copies, and operations in flight.
    Member,
}

impl Question {
    fn role(&self) -> Role {
        match self {
            Question::Allocate { .. }
            | Question::Reserve(_)
            | Question::Hold(_)
            | Question::Drop { .. }
            | Question::Yield(_)
            | Question::Leave(_)
            | Question::Adopt(_)
            | Question::Release { .. }
            | Question::Where(_)
            | Question::Notice(_)
            | Question::List { .. } => Role::Home,
            Question::Moved(_)
            | Question::Find(_)
            | Question::Holder(_)
            | Question::Bury { .. }
            | Question::Report { .. }
            | Question::Register(_)
            | Question::Unregister { .. } => Role::Registrar,
            Question::Key | Question::Forget { .. } => Role::Member,
        }
    }

    fn is_report(&self) -> bool {
        matches!(self, Question::Report { .. })
    }
}

impl Memory {
    pub(super) fn message(&mut self, from: Incarnation, message: Message, out: &mut Vec<Action>) {
        match message {
            Message::Ask { number, oldest, question } => self.asked(QuestionId { from, number }, oldest, question, out),
            Message::Answer { number, answer } => self.answered(from, number, answer, out),
        }
    }

    fn answered(&mut self, from: Incarnation, number: u64, reply: Reply, out: &mut Vec<Action>) {
        let Some(open) = self.correspondence.answered(from, number) else { return };
        let oldest = self.correspondence.oldest_of_requests().unwrap_or(u64::MAX);
        self.handles.answered_before(oldest.min(open.order));
        match (open.purpose, reply) {
            (Purpose::Key, Reply::Key(key)) if key.owner == from => out.push(Action::Open(key)),
            (Purpose::Report, _) => {
                if let Question::Report { segments, .. } = &open.question {
                    self.registrar.was_told(segments);
                }
            }
            (Purpose::Home(id), reply) => {
                self.home_acts(out, |hosting, membership, actions| {
                    let Some(view) = membership.view() else { return };
                    hosting.answered((id, &open.question), from, reply, view, actions);
                });
            }
            (Purpose::Request(id), reply) if self.requests.has(id) => {
                self.requests_act(out, |requests, node| requests.answered(id, from, (reply, open.order), node));
            }
            // It gave up.
            (Purpose::Request(_), Reply::Segment(segment)) => {
                if let Question::Allocate { wanted, .. } = &open.question {
                    let question = Question::Release { id: segment.id, owner: wanted.owner };
                    self.ask(from, question, Purpose::Abandoned, Time::FAR, out);
                }
            }
            _ => {}
        }
    }

    fn asked(&mut self, asker: QuestionId, oldest: u64, question: Question, out: &mut Vec<Action>) {
        if question == Question::Key {
            // A key is given however old the question is.
            if let Some(key) = self.hosting.key().filter(|_| self.hosting.is_open() && self.membership.acts()) {
                self.correspondence.answer(asker, Reply::Key(key.clone()), &self.membership, out);
            }
            return;
        }
        if !self.correspondence.admits(asker, oldest, &self.membership, out) {
            return;
        }
        let mut actions = vec![];
        let said = match question.role() {
            Role::Home => self.hosting.on(asker, question, &self.membership, &mut actions),
            // What homes report it hears before it is open.
            Role::Registrar if question.is_report() || self.registrar.is_open() && self.membership.acts() => {
                self.registrar.on(asker.from, question)
            }
            Role::Registrar => Said::Nothing,
            Role::Member => {
                if let Question::Forget { id, end } = question {
                    self.forget(asker, id, end, out);
                }
                return;
            }
        };
        match said {
            Said::Kept(reply) => {
                self.correspondence.begin(asker);
                self.carry_out(actions, out);
                self.correspondence.reply(asker, reply, &self.membership, out);
            }
            Said::Later => {
                self.correspondence.begin(asker);
                self.carry_out(actions, out);
            }
            Said::Anew(answer) => self.correspondence.answer(asker, answer, &self.membership, out),
            Said::Nothing => {}
        }
    }

    /// A segment has come to its end. Its home gets the answer when this node has nothing in flight to it.
    fn forget(&mut self, asker: QuestionId, id: SegmentId, end: End, out: &mut Vec<Action>) {
        let is_own = asker.from == self.membership.me();
        let is_known = self.handles.forget(id, end, asker, is_own);
        // An answer given before belongs to an open question. Without open questions, no such answer can arrive.
        if self.correspondence.oldest_of_requests().is_some() {
            self.handles.remember_end(id, end, self.correspondence.asked());
        }
        if is_known {
            self.forget_if_idle(id, out);
        } else {
            self.correspondence.answer(asker, Reply::Done, &self.membership, out);
        }
    }

    pub(super) fn forget_if_idle(&mut self, id: SegmentId, out: &mut Vec<Action>) {
        let Some(Farewell { segment, end, puts, asker }) = self.handles.drop_if_ended(id) else { return };
        // What waits here finds that.
        self.requests_act(out, |requests, node| requests.segment_ended(puts, (&segment, end), node));
        self.correspondence.answer(asker, Reply::Done, &self.membership, out);
        if end == End::Moved {
            self.go_on_all(out);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Refusal;
    use crate::dialogue::{Node, segment};
    use crate::node::correspondence::ASK_AGAIN;
    use crate::request::RequestId;
    use crate::wire::Token;

    fn id(number: u64) -> SegmentId {
        SegmentId { home: Incarnation::new(2, 1), number }
    }

    #[test]
    fn what_ended_is_remembered_only_while_an_answer_is_awaited() {
        let (home, mut node) = (Incarnation::new(2, 1), Node::of(1, &[1, 2]));
        let forget = |node: &mut Node, number| {
            node.asked(2, number, Question::Forget { id: id(number), end: End::Released });
            node.memory.handles.ends()
        };
        // The home was asked for its key, and has none to give as long as there is no memory for it.
        assert_eq!((1..100).map(|number| forget(&mut node, number)).max(), Some(0));
        let ask = |node: &mut Node| {
            let purpose = Purpose::Request(RequestId(1));
            node.does(|memory, _, out| memory.ask(home, Question::Where(id(1)), purpose, Time::FAR, out));
            match node.messages().pop() {
                Some((_, Message::Ask { number, .. })) => number,
                other => panic!("{other:?}"),
            }
        };
        let first = ask(&mut node);
        assert_eq!((forget(&mut node, 100), forget(&mut node, 101)), (1, 2));
        node.hears(2, Message::Answer { number: first, answer: Reply::Done });
        let second = ask(&mut node);
        node.hears(2, Message::Answer { number: second, answer: Reply::Done });
        assert_eq!(node.memory.handles.ends(), 0, "what was asked later knows of it");
    }

    #[test]
    fn who_waits_for_a_key_has_nobody_remember_old_answers_for_that() {
        let (home, mut node) = (Incarnation::new(2, 1), Node::of(1, &[1, 2]));
        node.messages();
        let ask = |node: &mut Node| {
            let until = node.now + ASK_AGAIN;
            node.does(|memory, _, out| memory.ask(home, Question::Leave(id(1)), Purpose::Abandoned, until, out));
            match node.messages().pop() {
                Some((_, Message::Ask { number, oldest, .. })) => (number, oldest),
                other => panic!("{other:?}"),
            }
        };
        let (number, oldest) = ask(&mut node);
        assert!(number > 1 && oldest == number, "{number} {oldest}");
        node.hears(2, Message::Answer { number, answer: Reply::Done });
        assert_eq!(ask(&mut node), (number + 1, number + 1));
    }

    #[test]
    fn a_key_is_given_however_old_the_question_is() {
        let (mut node, leave) = (Node::of(2, &[1, 2]), Question::Leave(id(1)));
        assert_eq!(node.asked(1, 1, Question::Key), None);
        node.is_made(vec![]);
        node.hears(1, Message::Ask { number: 9, oldest: 9, question: leave.clone() });
        assert_eq!(node.answer(1, 9), Some(Reply::Done));
        assert_eq!(node.asked(1, 2, leave), None, "nobody waits for this answer any more");
        assert!(matches!(node.asked(1, 1, Question::Key), Some(Reply::Key(_))));
    }

    #[test]
    fn a_home_without_memory_has_no_place_for_a_copy() {
        let mut node = Node::of(2, &[1, 2]);
        let reserve = || Question::Reserve(segment());
        assert_eq!(node.asked(1, 1, reserve()), None, "it may have memory soon");
        node.is_not_made();
        let answer = node.asked(1, 1, reserve());
        assert!(matches!(answer, Some(Reply::Refused(Refusal::NoHome { .. }))), "{answer:?}");
        node.passes(crate::node::hosting::RENEW_AGAIN);
        node.is_made(vec![]);
        assert_eq!(node.asked(1, 1, reserve()), answer, "the same question has the same answer");
        assert_eq!(node.asked(1, 2, reserve()), None);
        node.posts_are_done();
        assert!(matches!(node.answer(1, 2), Some(Reply::Place(_))));
    }

    /// The client that allocated it had not used the first answer when the segment began to move. A second answer that names the old place would have the
    /// client work there after it has said that it has forgotten it.
    #[test]
    fn an_allocation_that_is_asked_again_is_told_nothing_of_a_place_that_is_about_to_change() {
        let mut node = Node::of(1, &[1, 2, 3]);
        node.is_made(vec![]);
        let token = Token { asker: Incarnation::new(2, 1), request: 7 };
        let wanted = crate::Wanted::new(None, 8, crate::Coherence::Strict, 7);
        let allocate = || Question::Allocate { token, wanted: wanted.clone(), others: vec![] };
        assert_eq!(node.asked(2, 1, allocate()), None);
        node.posts_are_done();
        let Some(Reply::Segment(segment)) = node.answer(2, 1) else { panic!("it is made") };
        assert_eq!(node.asked(2, 2, allocate()), Some(Reply::Segment(segment.clone())), "it is made once");
        let wish = crate::Wish::Reclaim { bytes: 0, notice: Duration::ZERO };
        node.does(|memory, now, out| memory.request(RequestId(1), wish, now, now, out));
        node.passes(Duration::ZERO);
        let reserve = node.messages().into_iter().find_map(|(to, message)| match message {
            Message::Ask { number, question: Question::Reserve(_), .. } => Some((to, number)),
            _ => None,
        });
        let (to, number) = reserve.unwrap();
        assert!(matches!(node.asked(2, 3, allocate()), Some(Reply::Segment(_))), "it goes on meanwhile");
        let place = crate::Place { home: to, control: 0, at: 1024 };
        node.hears(to.rank.0, Message::Answer { number, answer: Reply::Place(place) });
        assert_eq!(node.asked(2, 4, allocate()), None, "everybody is about to forget where it was");
        node.hears(2, Message::Ask { number: 4, oldest: 4, question: allocate() });
        assert_eq!(node.answer(2, 4), None, "nor is it made a second time");
        assert_eq!(node.memory.hosting.made(), 1);
    }
}
