//! Gets and puts of a node, on segments that it has found.

use verbena_terms::Time;

use super::correspondence::Purpose;
use super::handles::CachedValue;
use super::{Action, Doing, LOOK_AGAIN, Memory, Origin};
use crate::access::{Outcome, Step};
use crate::get::{Get, Got};
use crate::layout::{End, Word, word_at};
use crate::put::{Next, Put};
use crate::request::{Answer, RequestId, Wish};
use crate::wire::Question;
use crate::{Coherence, Refusal, SegmentId, Value};

impl Memory {
    /// Its segment is found, and nothing is wrong with it.
    pub(super) fn operate(&mut self, id: RequestId, segment: SegmentId, wish: &Wish, out: &mut Vec<Action>) {
        match wish {
            Wish::Put { offset, bytes, named, stamp_ns, .. } => {
                let Some(handle) = self.handles.get_mut(segment) else { return };
                let put = Put::new(*offset, bytes.clone(), *named, *stamp_ns);
                let is_first = handle.queue_put(id);
                let Some(request) = self.requests.get_mut(&id) else { return };
                request.stage = if is_first { Doing::Putting(put) } else { Doing::Queued };
                if is_first && self.begin_put(id, segment, out) {
                    self.put_ended(segment, id, out);
                }
            }
            Wish::Get { .. } | Wish::Stat { .. } => self.begin_get(id, segment, out),
            Wish::Window { .. } => {
                let Some(segment) = self.handles.get(segment).map(|handle| handle.segment().clone()) else { return };
                if segment.home != self.membership.me() {
                    self.refuse(id, Refusal::Elsewhere { id: segment.id, home: segment.home }, out);
                } else if self.key.is_some() {
                    self.answer(id, Answer::Window(segment, self.membership.view_number()), out);
                } else if let Some(request) = self.requests.get_mut(&id) {
                    // It has found none in this view so far.
                    request.stage = Doing::Waiting("the memory of this node");
                }
            }
            _ => {}
        }
    }

    // Gets.

    fn begin_get(&mut self, id: RequestId, segment: SegmentId, out: &mut Vec<Action>) {
        let (rules, now) = (self.options.rules, self.membership.now());
        let Some(handle) = self.handles.get(segment) else { return };
        let coherence = handle.segment().wanted.coherence;
        let Some(request) = self.requests.get_mut(&id) else { return };
        let is_get = matches!(request.wish, Wish::Get { .. });
        if let Some(copy) = handle.copy().filter(|_| is_get) {
            let is_young = coherence.patience().is_some_and(|patience| now.since(copy.since) <= patience);
            let is_unasked = matches!(coherence, Coherence::Delta(_)) && !rules.delta_compared
                || coherence == Coherence::Strict && !rules.word_read;
            if is_young || is_unasked {
                return self.serve_copy(id, segment, out);
            }
            if let Coherence::Delta(_) = coherence {
                request.stage = Doing::Comparing;
                let steps = vec![Step::ReadWord(word_at(handle.segment().control))];
                return self.post_for(id, segment, steps, out);
            }
        }
        self.read_value(id, segment, out);
    }

    fn read_value(&mut self, id: RequestId, segment: SegmentId, out: &mut Vec<Action>) {
        let keeps = self.keeps_copies(segment);
        let (Some(handle), Some(request)) = (self.handles.get(segment), self.requests.get_mut(&id)) else { return };
        let (all, guess) = (handle.segment().wanted.bytes, handle.word());
        let (get, bytes) = match &request.wish {
            // All of it, for the copy.
            Wish::Get { .. } if keeps => (Get::new(0, all, guess), all),
            Wish::Get { offset, length, .. } => {
                let bytes = length.unwrap_or(all - offset);
                (Get::new(*offset, bytes, guess), bytes)
            }
            _ => (Get::looking(guess), 0),
        };
        if let Err(refusal) = request.takes(bytes, &mut self.under_way) {
            return self.refuse(id, refusal, out);
        }
        let steps = get.steps(handle.segment());
        request.stage = Doing::Getting { get, since: self.membership.now() };
        self.post_for(id, segment, steps, out);
    }

    fn keeps_copies(&self, segment: SegmentId) -> bool {
        let coherence = self.handles.get(segment).map(|handle| handle.segment().wanted.coherence);
        coherence.is_some_and(|coherence| {
            coherence.has_copies() || coherence == Coherence::Strict && !self.options.rules.word_read
        })
    }

    fn serve_copy(&mut self, id: RequestId, segment: SegmentId, out: &mut Vec<Action>) {
        let copy = self.handles.get(segment).and_then(|handle| handle.copy());
        let (Some(copy), Some(request)) = (copy, self.requests.get(&id)) else { return };
        let value = part_of(&copy.value, &request.wish);
        self.answer(id, Answer::Value(value), out);
    }

    // Puts.

    /// Whether it is over at once.
    fn begin_put(&mut self, id: RequestId, segment: SegmentId, out: &mut Vec<Action>) -> bool {
        let rules = self.options.rules;
        let (Some(handle), Some(request)) = (self.handles.get_mut(segment), self.requests.get_mut(&id)) else {
            return false;
        };
        // What puts a part into a value holds the whole of it.
        let wanted = &handle.segment().wanted;
        let whole = if wanted.coherence == Coherence::Null { 0 } else { wanted.bytes };
        let its = request.wish.bytes().unwrap_or_default();
        if let Err(refusal) = request.takes(its.max(whole), &mut self.under_way) {
            self.refuse(id, refusal, out);
            return true;
        }
        let Doing::Putting(put) = &mut request.stage else { return false };
        let (target, known) = handle.words();
        let next = put.begin(target, known, rules);
        self.put_goes_on(id, segment, next, out)
    }

    /// Whether it is over.
    fn put_goes_on(&mut self, id: RequestId, segment: SegmentId, next: Next, out: &mut Vec<Action>) -> bool {
        let Some(request) = self.requests.get_mut(&id) else { return false };
        let again = self.membership.now() + LOOK_AGAIN;
        match next {
            // A decided put will be seen, so the node completes it even if its request is over.
            Next::Post(home, steps) if matches!(&request.stage, Doing::Putting(put) if put.is_decided()) => {
                self.post(Origin::Request(id, segment), home, steps, Time::FAR, out);
            }
            // The request is over, and its put was not done.
            Next::Post(..) | Next::Wait if request.is_over => {
                self.done_with(id);
                return true;
            }
            Next::Post(home, steps) => {
                let until = request.until;
                self.post(Origin::Request(id, segment), home, steps, until, out);
            }
            Next::Wait => {
                let stage = std::mem::replace(&mut request.stage, Doing::Queued);
                if let Doing::Putting(put) = stage {
                    request.stage = Doing::Pausing(put, again);
                }
            }
            Next::Put(version) => {
                self.handles.drop_copy(segment);
                let answer =
                    if self.membership.acts() { Answer::Put(version) } else { Answer::Refused(Refusal::Unknown) };
                self.answer(id, answer, out);
                return true;
            }
            Next::Refused(refusal) => {
                let refusal =
                    if self.membership.acts() { refusal } else { Refusal::TimedOut { why: "a lease".into() } };
                self.refuse(id, refusal, out);
                return true;
            }
        }
        false
    }

    /// The next put of this node begins, if that was the one at work; and one after the other, as long as they are over at once.
    pub(super) fn put_ended(&mut self, segment: SegmentId, id: RequestId, out: &mut Vec<Action>) {
        let mut ended = id;
        loop {
            let Some(handle) = self.handles.get_mut(segment) else { return };
            let Some(next) = handle.put_ended(ended) else { return };
            if let Some(request) = self.requests.get_mut(&next)
                && let Wish::Put { offset, bytes, named, stamp_ns, .. } = &request.wish
            {
                request.stage = Doing::Putting(Put::new(*offset, bytes.clone(), *named, *stamp_ns));
                if !self.begin_put(next, segment, out) {
                    return;
                }
            }
            ended = next;
        }
    }

    /// It looks for a free slot again.
    pub(super) fn put_again(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Doing::Pausing(put, _) = std::mem::replace(&mut request.stage, Doing::Queued) else { return };
        request.stage = Doing::Putting(put);
        if let Some(segment) = self.handles.queue_of(id).filter(|segment| self.begin_put(id, *segment, out)) {
            self.put_ended(segment, id, out);
        }
    }

    // What came of posts.

    /// At the home of its segment.
    fn post_for(&mut self, id: RequestId, segment: SegmentId, steps: Vec<Step>, out: &mut Vec<Action>) {
        let Some(home) = self.handles.get(segment).map(|handle| handle.segment().home) else { return };
        let until = self.until(id);
        self.post(Origin::Request(id, segment), home, steps, until, out);
    }

    pub(super) fn worked(&mut self, id: RequestId, segment: SegmentId, outcome: Outcome, out: &mut Vec<Action>) {
        let (acts, rules) = (self.membership.acts(), self.options.rules);
        let (Some(request), Some(handle)) = (self.requests.get_mut(&id), self.handles.get_mut(segment)) else {
            return;
        };
        let given = match outcome {
            Outcome::Done(given) => given,
            Outcome::Late | Outcome::Gone => return self.came_to_nothing(id, segment, outcome == Outcome::Gone, out),
        };
        match &mut request.stage {
            Doing::Putting(put) => {
                let (target, known) = handle.words();
                let next = put.completed(target, known, rules, given);
                if self.put_goes_on(id, segment, next, out) {
                    self.put_ended(segment, id, out);
                }
            }
            // What came does not count: it may be of a memory that others have left.
            Doing::Comparing | Doing::Getting { .. } if !acts => request.stage = Doing::Waiting("a lease"),
            Doing::Comparing => {
                let word = Word::from_bits(given.first().map_or(0, |given| given.word()));
                let Coherence::Delta(most) = handle.segment().wanted.coherence else { return };
                handle.set_word(word);
                if let Some(end) = word.end() {
                    let refusal = handle.segment().ended(end);
                    return self.ended(id, end, refusal, out);
                }
                match handle.copy().map(|copy| copy.value.version) {
                    Some(version) if word.version().saturating_sub(version) <= u64::from(most) => {
                        self.serve_copy(id, segment, out);
                    }
                    _ => self.read_value(id, segment, out),
                }
            }
            Doing::Getting { get, since } => match get.completed(handle.segment(), rules, given) {
                Got::Ended(end) => {
                    let refusal = handle.segment().ended(end);
                    self.ended(id, end, refusal, out);
                }
                Got::Again => {
                    let steps = get.steps(handle.segment());
                    *since = self.membership.now();
                    self.post_for(id, segment, steps, out);
                }
                Got::Value(value, word) => {
                    let since = if rules.age_from_question { *since } else { self.membership.now() };
                    handle.set_word(word);
                    let is_any_going = get.is_any_going;
                    self.got(id, segment, value, since, is_any_going, out);
                }
            },
            _ => {}
        }
    }

    fn got(
        &mut self,
        id: RequestId,
        segment: SegmentId,
        value: Value,
        since: Time,
        is_any_going: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let wish = request.wish.clone();
        if matches!(wish, Wish::Stat { .. }) {
            let Some(handle) = self.handles.get(segment) else { return };
            let (segment, version, stamp_ns) = (handle.segment().clone(), value.version, value.stamp_ns);
            if !is_any_going {
                return self.answer(id, Answer::Stat { segment, version, stamp_ns, goes_in: None }, out);
            }
            let (until, home, question) = (request.until, segment.home, Question::Notice(segment.id));
            request.stage = Doing::Stating { segment, version, stamp_ns };
            return self.ask(home, question, Purpose::Request(id), until, out);
        }
        if !self.keeps_copies(segment) {
            return self.answer(id, Answer::Value(value), out);
        }
        let part = part_of(&value, &wish);
        self.handles.keep_copy(segment, CachedValue { value, since });
        self.answer(id, Answer::Value(part), out);
    }

    /// Its segment has come to its end, or waits to be found elsewhere.
    pub(super) fn ended(&mut self, id: RequestId, end: End, refusal: Refusal, out: &mut Vec<Action>) {
        if let Some(request) = self.requests.get_mut(&id).filter(|_| end == End::Moved) {
            request.stage = Doing::Waiting("its segment, which is moved");
            return;
        }
        self.refuse(id, refusal, out);
    }

    fn came_to_nothing(&mut self, id: RequestId, segment: SegmentId, is_gone: bool, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let is_unknown = is_gone && matches!(&request.stage, Doing::Putting(put) if put.is_publishing());
        match &request.stage {
            Doing::Putting(_) => {
                if let Some(handle) = self.handles.get_mut(segment).filter(|_| is_unknown) {
                    // Its slot may be the value's.
                    handle.loses_slot();
                }
                let why = "the segment's home".into();
                let refusal = if is_unknown { Refusal::Unknown } else { Refusal::TimedOut { why } };
                self.refuse(id, refusal, out);
                self.put_ended(segment, id, out);
            }
            // The view is about to end.
            _ if is_gone => request.stage = Doing::Waiting("a view in effect"),
            _ => self.out_of_time(id, out),
        }
    }
}

/// What a get wants of a whole value.
fn part_of(whole: &Value, wish: &Wish) -> Value {
    let Wish::Get { offset, length, .. } = wish else { return whole.clone() };
    let from = *offset as usize;
    let until = length.map_or(whole.bytes.len(), |length| from + length as usize);
    Value { bytes: whole.bytes[from..until].to_vec(), ..whole.clone() }
}

#[cfg(test)]
mod tests;
