//! Questions to other members, asked again until they are answered, and answered once.
//!
//! The fabric loses and repeats messages (rule F5). So questions are numbered at each member who is asked, which remembers what it answered to those that
//! change something, as long as the asker says that it waits for one so old. A copy that comes later than that is dropped: it must not register a name again
//! that was given up meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use crate::held::Asked;
use crate::layout::End;
use crate::moving::MOVES_AT_ONCE;
use crate::node::{Action, AskOf, Memory};
use crate::wire::{Letter, Question, Reply};
use crate::{Refusal, SegmentId};

/// When a question is asked again, at first; then after twice as long, up to sixteen times that.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// What this node has asked.
#[derive(Default)]
pub(crate) struct Asks {
    open: BTreeMap<(Incarnation, u64), Ask>,
    /// Numbers that were given out, at each member.
    numbers: BTreeMap<Incarnation, u64>,
    /// Of all questions, in the order in which they were asked.
    asked: u64,
}

struct Ask {
    question: Question,
    of: AskOf,
    until: Time,
    again_at: Time,
    pause: Duration,
    order: u64,
}

impl Asks {
    /// The view has ended: nobody waits for answers of it.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.open.values().map(|ask| ask.again_at.min(ask.until)).min()
    }

    fn oldest_at(&self, to: Incarnation) -> u64 {
        let next = self.numbers.get(&to).map_or(1, |number| number + 1);
        self.open.range((to, 0)..=(to, u64::MAX)).next().map_or(next, |((_, number), _)| *number)
    }

    /// How many were asked, and the oldest of them that is open.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.asked, self.open.values().map(|ask| ask.order).min().unwrap_or(u64::MAX))
    }
}

/// What a member was answered.
#[derive(Default)]
pub(crate) struct Served {
    /// It waits for no answer below this.
    oldest: u64,
    /// To questions that change something; none while they are under way.
    replies: BTreeMap<u64, Option<Reply>>,
}

impl Memory {
    pub(crate) fn ask(&mut self, to: Incarnation, question: Question, of: AskOf, until: Time, out: &mut Vec<Action>) {
        let number = self.asks.numbers.entry(to).or_insert(0);
        *number += 1;
        let number = *number;
        self.asks.asked += 1;
        let (order, again_at) = (self.asks.asked, self.now + ASK_AGAIN);
        let letter = Ask { question: question.clone(), of, until, again_at, pause: ASK_AGAIN, order };
        self.asks.open.insert((to, number), letter);
        let oldest = self.asks.oldest_at(to);
        self.say(to, Letter::Ask { number, oldest, question }, out);
    }

    pub(crate) fn ask_again(&mut self, out: &mut Vec<Action>) {
        let now = self.now;
        self.asks.open.retain(|_, ask| ask.until > now);
        let mut again = vec![];
        for ((to, number), ask) in &mut self.asks.open {
            if ask.again_at <= now {
                ask.pause = (ask.pause * 2).min(16 * ASK_AGAIN);
                ask.again_at = now + ask.pause;
                again.push((*to, *number, ask.question.clone()));
            }
        }
        for (to, number, question) in again {
            let oldest = self.asks.oldest_at(to);
            self.say(to, Letter::Ask { number, oldest, question }, out);
        }
    }

    pub(crate) fn letter(&mut self, from: Incarnation, letter: Letter, out: &mut Vec<Action>) {
        match letter {
            Letter::Ask { number, oldest, question } => self.asked(from, number, oldest, question, out),
            Letter::Answer { number, answer } => self.answered(from, number, answer, out),
        }
    }

    fn answered(&mut self, from: Incarnation, number: u64, reply: Reply, out: &mut Vec<Action>) {
        let Some(ask) = self.asks.open.remove(&(from, number)) else { return };
        let (_, oldest) = self.asks.span();
        self.forgotten.retain(|_, (before, _)| *before >= oldest.min(ask.order));
        match (ask.of, reply) {
            (AskOf::Key, Reply::Key(key)) if key.owner == from => out.push(Action::Open(key)),
            (AskOf::Report, _) => {
                if let Question::Report { segments, .. } = &ask.question {
                    self.registrar.was_told(segments);
                }
            }
            (AskOf::Home(id), reply) => {
                let Some(view) = self.view.clone() else { return };
                self.home_acts(out, |home, actions| match ask.question {
                    Question::Reserve(_) => home.reserved(id, from, reply, &view, actions),
                    Question::Where(_) => home.told_where(id, from, reply, &view, actions),
                    _ => home.answered(id, from, reply, &view, actions),
                });
            }
            (AskOf::Request(id), reply) if self.requests.contains_key(&id) => {
                self.told(id, from, reply, ask.order, out);
            }
            // It gave up.
            (AskOf::Request(_), Reply::Segment(segment)) => {
                if let Question::Allocate { wanted, .. } = &ask.question {
                    let question = Question::Release { id: segment.id, owner: wanted.owner };
                    self.ask(from, question, AskOf::Nobody, Time::FAR, out);
                }
            }
            _ => {}
        }
    }

    // The other side.

    fn asked(&mut self, from: Incarnation, number: u64, oldest: u64, question: Question, out: &mut Vec<Action>) {
        let served = self.served.entry(from).or_default();
        served.oldest = served.oldest.max(oldest);
        let oldest = served.oldest;
        served.replies = served.replies.split_off(&oldest);
        if number < oldest {
            return;
        }
        match served.replies.get(&number) {
            Some(Some(reply)) => {
                let answer = reply.clone();
                return self.say(from, Letter::Answer { number, answer }, out);
            }
            Some(None) => return,
            None => {}
        }
        let asker = Asked { from, number };
        let is_home = self.home.is_open && self.acts();
        let is_registrar = self.registrar.is_open() && self.acts();
        let done = |done: Result<(), Refusal>| done.map_or_else(Reply::Refused, |()| Reply::Done);
        let found = |found: Result<&crate::Segment, Refusal>| {
            found.map_or_else(Reply::Refused, |segment| Reply::Segment(segment.clone()))
        };
        // Where copies are its home alone can say.
        let known = |segment: &crate::Segment| match segment.has_copies() || segment.home != segment.id.home {
            true => Reply::Held { id: segment.id, by: segment.home },
            false => Reply::Segment(segment.clone()),
        };
        let elsewhere = |id| self.home.elsewhere(id, self.view.as_deref()?);
        match question {
            Question::Key => {
                if let Some(key) = self.key.clone().filter(|_| is_home) {
                    self.say(from, Letter::Answer { number, answer: Reply::Key(key) }, out);
                }
            }
            Question::Allocate { token, wanted, others } if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.allocate(asker, token, wanted, others, actions));
            }
            Question::Reserve(segment) if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.reserve(asker, segment, actions));
            }
            Question::Hold(segment) if is_home => {
                self.remember(asker);
                let answer = self.home.hold(segment);
                self.reply(from, number, answer, out);
            }
            Question::Drop { id, end } if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.drop_copy(id, end, actions));
                self.reply(from, number, Reply::Done, out);
            }
            Question::Release { id, .. } | Question::Where(id) | Question::Notice(id) | Question::Yield(id)
                if self.home.is_comparing(id) => {}
            Question::Release { id, .. } | Question::Where(id) | Question::Notice(id)
                if is_home && elsewhere(id).is_some() =>
            {
                let answer = elsewhere(id).unwrap_or(Reply::Elsewhere(id));
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::Yield(_) if self.home.moving() >= MOVES_AT_ONCE => {}
            Question::Yield(id) if is_home => {
                let Some(view) = self.view.clone() else { return };
                if self.home.find(id).is_err() {
                    return self.say(from, Letter::Answer { number, answer: Reply::Done }, out);
                }
                let is_begun = self.home_acts(out, |home, actions| home.begin_move(id, from, &view, actions));
                if is_begun {
                    self.remember(asker);
                    self.reply(from, number, Reply::Done, out);
                }
            }
            Question::Leave(id) if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.leave(id, actions));
                self.reply(from, number, Reply::Done, out);
            }
            Question::Adopt(segment) if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.adopted(asker, segment, actions));
            }
            Question::Moved(id) if is_registrar => {
                self.remember(asker);
                self.registrar.has_moved(id, from);
                self.reply(from, number, Reply::Done, out);
            }
            Question::List { .. } if self.home.is_comparing_any() => {}
            Question::Release { id, owner } if is_home => {
                self.remember(asker);
                self.home_acts(out, |home, actions| home.release(asker, id, owner, actions));
            }
            Question::Where(id) if is_home => {
                let answer = found(self.home.find(id));
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::Notice(id) if is_home => {
                let answer = self.home.find(id).map(|segment| self.home.goes_in(segment.id, self.now));
                let answer = answer.map_or_else(Reply::Refused, Reply::Notice);
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::List { after, prefix } if is_home => {
                let answer = self.home.list(after, &prefix, self.now);
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::Find(name) if is_registrar => {
                let answer = self.registrar.find(&name).map_or_else(Reply::Refused, known);
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::Holder(id) if is_registrar => {
                let answer = self.registrar.holder(id).map_or_else(Reply::Refused, |by| Reply::Held { id, by });
                self.say(from, Letter::Answer { number, answer }, out);
            }
            Question::Bury { name, owner } if is_registrar => {
                self.remember(asker);
                let answer = done(self.registrar.bury(&name, owner));
                self.reply(from, number, answer, out);
            }
            Question::Report { page, pages, segments } => {
                self.registrar.heard(from, page, pages, segments);
                self.say(from, Letter::Answer { number, answer: Reply::Done }, out);
            }
            Question::Register(segment) if is_registrar => {
                self.remember(asker);
                let answer = done(self.registrar.register(segment));
                self.reply(from, number, answer, out);
            }
            Question::Unregister { name, id, end } if is_registrar => {
                self.remember(asker);
                self.registrar.unregister(&name, id, from, end);
                self.reply(from, number, Reply::Done, out);
            }
            Question::Forget { id, end } => self.forget(from, number, id, end, out),
            // It is asked again until this node can say.
            _ => {}
        }
    }

    /// It is not begun twice.
    fn remember(&mut self, asked: Asked) {
        self.served.entry(asked.from).or_default().replies.insert(asked.number, None);
    }

    pub(crate) fn reply(&mut self, to: Incarnation, number: u64, answer: Reply, out: &mut Vec<Action>) {
        if let Some(served) = self.served.get_mut(&to)
            && number >= served.oldest
        {
            served.replies.insert(number, Some(answer.clone()));
        }
        self.say(to, Letter::Answer { number, answer }, out);
    }

    /// A segment has come to its end: when nothing is on its way to it, its home is told.
    fn forget(&mut self, from: Incarnation, number: u64, id: SegmentId, end: End, out: &mut Vec<Action>) {
        // An answer that was given before is of a question that is open: without one there is none to come.
        if !self.asks.open.is_empty() {
            self.forgotten.insert(id, (self.asks.span().0, end));
        }
        match self.handles.get_mut(&id) {
            Some(handle) => {
                handle.forget = Some((from, number, end));
                self.forget_if_idle(id, out);
            }
            None => self.say(from, Letter::Answer { number, answer: Reply::Done }, out),
        }
    }

    pub(crate) fn forget_if_idle(&mut self, id: SegmentId, out: &mut Vec<Action>) {
        let Some(handle) = self.handles.get(&id).filter(|handle| handle.open == 0) else { return };
        let Some((from, number, end)) = handle.forget else { return };
        // What waits here finds that.
        let waiting: Vec<_> = handle.puts.iter().copied().collect();
        for request in waiting {
            self.ended(request, id, end, out);
        }
        self.drop_handle(id);
        self.say(from, Letter::Answer { number, answer: Reply::Done }, out);
        if end == End::Moved {
            self.go_on_all(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryOptions, Rules};

    #[test]
    fn what_ended_is_remembered_only_while_an_answer_is_awaited() {
        let (home, owner_bytes) = (Incarnation::new(2, 1), u64::MAX);
        let options = MemoryOptions { bytes: 0, segments: 0, owner_bytes, copies_bytes: 0, rules: Rules::ALL };
        let (mut memory, mut out) = (Memory::new(options), vec![]);
        let mut forget = |memory: &mut Memory, number| {
            let question = Question::Forget { id: SegmentId { home, number }, end: End::Released };
            memory.letter(home, Letter::Ask { number, oldest: number, question }, &mut out);
            memory.forgotten.len()
        };
        assert_eq!((1..100).map(|number| forget(&mut memory, number)).max(), Some(0));
        memory.ask(home, Question::Key, AskOf::Nobody, Time::FAR, &mut vec![]);
        assert_eq!((forget(&mut memory, 100), forget(&mut memory, 101)), (1, 2));
        for number in [1, 2] {
            memory.letter(home, Letter::Answer { number, answer: Reply::Done }, &mut vec![]);
            memory.ask(home, Question::Key, AskOf::Nobody, Time::FAR, &mut vec![]);
        }
        assert_eq!(memory.forgotten.len(), 0, "what was asked later knows of it");
    }
}
