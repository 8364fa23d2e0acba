//! Questions between members: asked again until they are answered, executed once, and answered the same each time.
//!
//! The fabric loses and repeats messages (rule F5). So questions are numbered at each member who is asked, which remembers what it answered to those that
//! change something, as long as the asker says that it waits for one so old. A copy that comes later than that is dropped: it must not register a name again
//! that was given up meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbena_cluster::View;
use verbena_terms::{Incarnation, Time};

use super::Action;
use super::membership::Membership;
use crate::actions::QuestionId;
use crate::wire::{Frame, Message, Question, Reply};
use crate::{RequestId, SegmentId};

/// When a question is asked again, at first; then after twice as long, up to sixteen times that.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The part of the node that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Request(RequestId),
    Home(SegmentId),
    Key,
    Report,
    /// None: an allocation whose request has ended is released, and a home tells another one something.
    Abandoned,
}

/// A question of this node without an answer.
pub(super) struct OpenQuestion {
    pub(super) question: Question,
    pub(super) purpose: Purpose,
    /// Its number among all that this node has asked.
    pub(super) order: u64,
    until: Time,
    again_at: Time,
    pause: Duration,
}

/// What this node and other members ask and answer each other.
#[derive(Default)]
pub(super) struct Correspondence {
    open: BTreeMap<(Incarnation, u64), OpenQuestion>,
    /// Numbers that were given out, at each member.
    numbers: BTreeMap<Incarnation, u64>,
    /// Questions of this node so far.
    asked: u64,
    replies: BTreeMap<Incarnation, Replies>,
    /// Messages of this node to itself.
    to_self: VecDeque<Message>,
}

/// What this node answers to one member.
#[derive(Default)]
struct Replies {
    /// The member waits for no answer below this.
    oldest: u64,
    /// To questions that change something; none while they are under way.
    replies: BTreeMap<u64, Option<Reply>>,
}

impl Correspondence {
    /// No question of the view that ends gets an answer.
    pub(super) fn view_ends(&mut self) {
        self.open.clear();
        self.to_self.clear();
    }

    /// Only members of the view ask from now on.
    pub(super) fn enter_view(&mut self, view: &View) {
        self.replies.retain(|asker, _| view.member(*asker).is_some());
    }

    // This node asks.

    pub(super) fn ask(
        &mut self,
        to: Incarnation,
        question: Question,
        purpose: Purpose,
        until: Time,
        membership: &Membership,
        out: &mut Vec<Action>,
    ) {
        let number = self.numbers.entry(to).or_insert(0);
        *number += 1;
        let number = *number;
        self.asked += 1;
        let (order, again_at) = (self.asked, membership.now() + ASK_AGAIN);
        let open = OpenQuestion { question: question.clone(), purpose, order, until, again_at, pause: ASK_AGAIN };
        self.open.insert((to, number), open);
        let oldest = self.oldest_at(to);
        self.say(to, Message::Ask { number, oldest, question }, membership, out);
    }

    pub(super) fn ask_again(&mut self, membership: &Membership, out: &mut Vec<Action>) {
        let now = membership.now();
        self.open.retain(|_, open| open.until > now);
        let mut again = vec![];
        for ((to, number), open) in &mut self.open {
            if open.again_at <= now {
                open.pause = (open.pause * 2).min(16 * ASK_AGAIN);
                open.again_at = now + open.pause;
                again.push((*to, *number, open.question.clone()));
            }
        }
        for (to, number, question) in again {
            let oldest = self.oldest_at(to);
            self.say(to, Message::Ask { number, oldest, question }, membership, out);
        }
    }

    /// When a question is asked again, or given up.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.open.values().map(|open| open.again_at.min(open.until)).min()
    }

    fn oldest_at(&self, to: Incarnation) -> u64 {
        let next = self.numbers.get(&to).map_or(1, |number| number + 1);
        // A home's key may be asked for as long as the view lasts, and it does not matter how often that is answered.
        let mut its = self.open.range((to, 0)..=(to, u64::MAX)).filter(|(_, open)| open.question != Question::Key);
        its.next().map_or(next, |((_, number), _)| *number)
    }

    /// A member has answered: the question, unless it was answered or given up before.
    pub(super) fn answered(&mut self, from: Incarnation, number: u64) -> Option<OpenQuestion> {
        self.open.remove(&(from, number))
    }

    /// Questions of this node so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// The order of the oldest open question of a request; `None` if there is none.
    pub(super) fn oldest_of_requests(&self) -> Option<u64> {
        let of_requests = self.open.values().filter(|open| matches!(open.purpose, Purpose::Request(_)));
        of_requests.map(|open| open.order).min()
    }

    // Members ask.

    /// Whether a question is to be worked on. A copy of one that has been answered gets its answer here, and other copies get none.
    pub(super) fn admits(
        &mut self,
        asker: QuestionId,
        oldest: u64,
        membership: &Membership,
        out: &mut Vec<Action>,
    ) -> bool {
        let its = self.replies.entry(asker.from).or_default();
        its.oldest = its.oldest.max(oldest);
        its.replies = its.replies.split_off(&its.oldest);
        if asker.number < its.oldest {
            return false;
        }
        match its.replies.get(&asker.number) {
            Some(Some(reply)) => {
                let reply = reply.clone();
                self.answer(asker, reply, membership, out);
                false
            }
            Some(None) => false,
            None => true,
        }
    }

    /// The question changes something from now on: it is not begun twice.
    pub(super) fn begin(&mut self, asker: QuestionId) {
        self.replies.entry(asker.from).or_default().replies.insert(asker.number, None);
    }

    /// Copies of the question get the same answer.
    pub(super) fn reply(&mut self, to: QuestionId, reply: Reply, membership: &Membership, out: &mut Vec<Action>) {
        if let Some(its) = self.replies.get_mut(&to.from)
            && to.number >= its.oldest
        {
            its.replies.insert(to.number, Some(reply.clone()));
        }
        self.answer(to, reply, membership, out);
    }

    /// Copies of the question are worked on anew.
    pub(super) fn answer(&mut self, to: QuestionId, answer: Reply, membership: &Membership, out: &mut Vec<Action>) {
        self.say(to.from, Message::Answer { number: to.number, answer }, membership, out);
    }

    // Both.

    fn say(&mut self, to: Incarnation, message: Message, membership: &Membership, out: &mut Vec<Action>) {
        let from = membership.me();
        if to == from {
            return self.to_self.push_back(message);
        }
        out.push(Action::Send(Frame { view: membership.view_number(), from, to, message }));
    }

    /// What this node has said to itself, and has not heard yet.
    pub(super) fn next_to_self(&mut self) -> Option<Message> {
        self.to_self.pop_front()
    }
}
