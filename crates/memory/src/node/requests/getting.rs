//! A get, or a look at how a value is: served from a copy, or read at the segment's home.
//!
//! ```text
//!            a copy that may be old       it is too old
//!   begun -------------------> comparing --------------> reading ---> answered
//!     |  none                      | it is young enough  ^   | how it is, and something goes: the home says when
//!     +----------------------------|---------------------+   v
//!                                  +--> answered           stating ---> answered
//! ```

use std::time::Duration;

use verbena_terms::Time;

use super::budget::Budget;
use super::{NodeState, Progress, Terms};
use crate::access::{Given, Step};
use crate::get::{Get, Got};
use crate::layout::{Word, word_at};
use crate::node::handles::CachedValue;
use crate::request::{Answer, Wish};
use crate::wire::Question;
use crate::{Coherence, Rules, Segment, SegmentId, Value};

pub(super) struct Getting {
    segment: SegmentId,
    step: GetStep,
}

enum GetStep {
    Begun,
    /// The word alone is read, to know how old a copy is.
    Comparing,
    /// Since then.
    Reading(Get, Time),
    /// The value's version and stamp are known, and the home is asked when the segment goes.
    Stating {
        segment: Segment,
        version: u64,
        stamp_ns: u64,
    },
}

impl Getting {
    pub(super) fn new(segment: SegmentId) -> Self {
        Getting { segment, step: GetStep::Begun }
    }

    pub(super) fn begin(&mut self, terms: &mut Terms, budget: &mut Budget, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get(self.segment) else { return Progress::Stays };
        let coherence = handle.segment().wanted.coherence;
        let is_get = matches!(terms.wish, Wish::Get { .. });
        if let Some(copy) = handle.copy().filter(|_| is_get) {
            let age = node.membership.now().since(copy.since);
            let is_young = coherence.patience().is_some_and(|patience| age <= patience);
            let is_unasked = matches!(coherence, Coherence::Delta(_)) && !node.rules.delta_compared
                || coherence == Coherence::Strict && !node.rules.word_read;
            if is_young || is_unasked {
                return serve_copy(copy, terms);
            }
            if let Coherence::Delta(_) = coherence {
                self.step = GetStep::Comparing;
                terms.post(handle.segment(), vec![Step::ReadWord(word_at(handle.segment().control))], node.out);
                return Progress::Stays;
            }
        }
        self.read(terms, budget, node)
    }

    fn read(&mut self, terms: &mut Terms, budget: &mut Budget, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get(self.segment) else { return Progress::Stays };
        let (all, guess) = (handle.segment().wanted.bytes, handle.word());
        let (get, bytes) = match &terms.wish {
            // All of it, for the copy.
            Wish::Get { .. } if keeps_copies(handle.segment(), node.rules) => (Get::new(0, all, guess), all),
            Wish::Get { offset, length, .. } => {
                let bytes = length.unwrap_or(all - offset);
                (Get::new(*offset, bytes, guess), bytes)
            }
            _ => (Get::looking(guess), 0),
        };
        if let Err(refusal) = budget.charge(&mut terms.charge, bytes) {
            return Progress::refuses(refusal);
        }
        terms.post(handle.segment(), get.steps(handle.segment()), node.out);
        self.step = GetStep::Reading(get, node.membership.now());
        Progress::Stays
    }

    /// What was posted was executed.
    pub(super) fn completed(
        &mut self,
        given: Vec<Given>,
        terms: &mut Terms,
        budget: &mut Budget,
        node: &mut NodeState<'_>,
    ) -> Progress {
        let (acts, now, rules) = (node.membership.acts(), node.membership.now(), node.rules);
        let Some(handle) = node.handles.get_mut(self.segment) else { return Progress::Stays };
        match &mut self.step {
            GetStep::Begun | GetStep::Stating { .. } => Progress::Stays,
            // What came does not count: it may be of a memory that others have left.
            GetStep::Comparing | GetStep::Reading(..) if !acts => Progress::Waits("a lease"),
            GetStep::Comparing => {
                let word = Word::from_bits(given.first().map_or(0, |given| given.word()));
                let Coherence::Delta(most) = handle.segment().wanted.coherence else { return Progress::Stays };
                handle.set_word(word);
                if let Some(end) = word.end() {
                    return Progress::segment_ended(handle.segment(), end);
                }
                match handle.copy() {
                    Some(copy) if word.version().saturating_sub(copy.value.version) <= u64::from(most) => {
                        serve_copy(copy, terms)
                    }
                    _ => self.read(terms, budget, node),
                }
            }
            GetStep::Reading(get, since) => match get.completed(handle.segment(), rules, given) {
                Got::Ended(end) => Progress::segment_ended(handle.segment(), end),
                Got::Again => {
                    *since = now;
                    terms.post(handle.segment(), get.steps(handle.segment()), node.out);
                    Progress::Stays
                }
                Got::Value(value, word) => {
                    let since = if rules.age_from_question { *since } else { now };
                    handle.set_word(word);
                    let is_any_going = get.is_any_going;
                    self.got(CachedValue { value, since }, is_any_going, terms, node)
                }
            },
        }
    }

    fn got(&mut self, read: CachedValue, is_any_going: bool, terms: &Terms, node: &mut NodeState<'_>) -> Progress {
        let Some(handle) = node.handles.get(self.segment) else { return Progress::Stays };
        if matches!(terms.wish, Wish::Stat { .. }) {
            let (version, stamp_ns) = (read.value.version, read.value.stamp_ns);
            let segment = handle.segment().clone();
            if !is_any_going {
                return Progress::Answers(Answer::Stat { segment, version, stamp_ns, goes_in: None });
            }
            terms.ask(segment.home, Question::Notice(segment.id), terms.until, node.out);
            self.step = GetStep::Stating { segment, version, stamp_ns };
            return Progress::Stays;
        }
        if !keeps_copies(handle.segment(), node.rules) {
            return Progress::Answers(Answer::Value(read.value));
        }
        let answer = serve_copy(&read, terms);
        node.handles.keep_copy(self.segment, read);
        answer
    }

    /// The home has said when the segment goes, if it does.
    pub(super) fn noticed(&self, goes_in: Option<Duration>) -> Progress {
        let GetStep::Stating { segment, version, stamp_ns } = &self.step else { return Progress::Stays };
        let (segment, version, stamp_ns) = (segment.clone(), *version, *stamp_ns);
        Progress::Answers(Answer::Stat { segment, version, stamp_ns, goes_in })
    }
}

fn keeps_copies(segment: &Segment, rules: Rules) -> bool {
    let coherence = segment.wanted.coherence;
    coherence.has_copies() || coherence == Coherence::Strict && !rules.word_read
}

/// What a get wants of a whole value.
fn serve_copy(copy: &CachedValue, terms: &Terms) -> Progress {
    let whole = &copy.value;
    let Wish::Get { offset, length, .. } = &terms.wish else { return Progress::Answers(Answer::Value(whole.clone())) };
    let from = *offset as usize;
    let until = length.map_or(whole.bytes.len(), |length| from + length as usize);
    Progress::Answers(Answer::Value(Value { bytes: whole.bytes[from..until].to_vec(), ..*whole }))
}
