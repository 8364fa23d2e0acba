//! The target's side of one-sided operations: a request arrives, is executed element by element with others acting in
//! between (F1), each effect exactly once (F2), and answered.

use smallvec::SmallVec;
use verbena_terms::Incarnation;

use crate::capability::{BatchTrips, Ordering};
use crate::error::{Error, Result};
use crate::operation::{OperationId, Settled};
use crate::region::Rights;
use crate::window::Claim;

use super::caller::{Element, Post, Work};
use super::dice::nanos;
use super::network::Fate;
use super::state::{Event, State, Step};
use super::trace::What;

/// One copy of a request, and then of its answer.
pub(super) struct Frame {
    pub(super) post: usize,
    /// Where it is executed.
    target: usize,
    /// The element that is next, and how many effects stand before it.
    element: usize,
    effects: u64,
    has_read: bool,
    /// The memory that its key opened when it began: it stays with it, even if the region is made anew (F4).
    memory: Option<usize>,
    /// A block element that is half done.
    torn: Option<Torn>,
    /// One word for each element that was executed.
    pub(super) outcomes: SmallVec<[u64; 4]>,
    /// What the block reads fetched.
    pub(super) bytes: Vec<u8>,
    pub(super) refusal: Option<Error>,
    pub(super) settled: Option<Settled>,
}

/// Where a block element is cut in two, at a word's edge, and which half comes second.
#[derive(Clone, Copy)]
struct Torn {
    cut: usize,
    second_is_front: bool,
}

/// How a step of an execution went.
enum Progress {
    More,
    Finished,
    /// This copy is not answered: another one is or was executed, or it was barred.
    Swallowed(OperationId),
}

impl Frame {
    pub(super) fn new(post: usize) -> Self {
        Frame {
            post,
            target: usize::MAX,
            element: 0,
            effects: 0,
            has_read: false,
            memory: None,
            torn: None,
            outcomes: SmallVec::new(),
            bytes: Vec::new(),
            refusal: None,
            settled: None,
        }
    }
}

impl State {
    /// Whether batches of one caller to one region in one class are executed in the order they were posted.
    pub(super) fn keeps_order(&self) -> bool {
        self.capabilities.ordering == Ordering::Posted
    }

    /// A request comes to an address.
    pub(super) fn arrive(&mut self, frame: usize) -> Step {
        let post = &self.posts[self.frames[frame].post];
        let (caller, meant, copied) = (post.from, post.key.owner, post.copied);
        let turn = (caller, post.class as u8, post.key.region);
        let takes_turns = self.keeps_order() && matches!(post.work, Work::Batch { .. });
        let home = self.newest_at(meant.rank).filter(|&home| self.nodes[home].alive);
        let is_meant = home.is_some_and(|home| self.nodes[home].incarnation == meant);
        let target = if is_meant { home } else { self.memory_left_by(meant).or(home) };
        let Some(target) = target else {
            self.drop_frame(frame);
            return Step::Inside;
        };
        if !self.capabilities.target_cpu_free && self.wait_for(target, Event::Arrive(frame)) {
            return Step::Inside;
        }
        let here = self.nodes[target].incarnation;
        if here != meant {
            self.record(What::Misaddressed, here, meant, 0, 0);
            if copied {
                // The other copy may have been executed while the incarnation that was meant lived.
                self.drop_frame(frame);
            } else {
                let key = &self.posts[self.frames[frame].post].key;
                self.frames[frame].refusal = Some(Error::Revoked { target: meant, region: key.region, view: key.view });
                self.send_answer(frame, here);
            }
            return Step::Inside;
        }
        self.frames[frame].target = target;
        if takes_turns {
            let waiting = self.nodes[target].turns.entry(turn).or_default();
            waiting.push_back(frame);
            if waiting.len() > 1 {
                return Step::Inside;
            }
        }
        self.execute_later(frame, 0);
        Step::Inside
    }

    /// The next element of a request is executed, or one half of it.
    pub(super) fn execute(&mut self, frame: usize) -> Step {
        let target = self.frames[frame].target;
        if !self.nodes[target].alive && !self.nodes[target].leaves_memory {
            self.leave(frame);
            self.drop_frame(frame);
            return Step::Inside;
        }
        if !self.capabilities.target_cpu_free && self.wait_for(target, Event::Execute(frame)) {
            return Step::Inside;
        }
        let here = self.nodes[target].incarnation;
        match self.progress(frame) {
            Progress::More => {
                let fence = self.fence_before(frame);
                self.execute_later(frame, fence);
            }
            Progress::Finished => {
                self.leave(frame);
                self.send_answer(frame, here);
            }
            Progress::Swallowed(operation) => {
                let caller = self.posts[self.frames[frame].post].from;
                self.record(What::Swallow, here, caller, operation.0, 0);
                self.leave(frame);
                self.drop_frame(frame);
            }
        }
        Step::Inside
    }

    /// The node whose memory answers although this incarnation of it is gone.
    fn memory_left_by(&self, gone: Incarnation) -> Option<usize> {
        self.nodes.iter().position(|node| node.leaves_memory && node.incarnation == gone)
    }

    fn execute_later(&mut self, frame: usize, fence: u64) {
        let mut wait = fence + self.dice.below(nanos(self.faults.execution_max) + 1);
        if self.dice.happens(self.faults.late_per_mille) {
            wait += self.dice.below(nanos(self.faults.late_max) + 1);
        }
        self.schedule(self.now + wait, Event::Execute(frame));
    }

    /// The round trip that an adapter takes more before the next element, if it does (F1).
    fn fence_before(&mut self, frame: usize) -> u64 {
        if self.capabilities.batch != BatchTrips::OneAndFences || self.frames[frame].torn.is_some() {
            return 0;
        }
        let Work::Batch { elements, .. } = &self.posts[self.frames[frame].post].work else { return 0 };
        let next = self.frames[frame].element;
        if elements[next].needs_fence_after(&elements[next - 1]) { self.travel() + self.travel() } else { 0 }
    }

    /// A request is finished at its target, whichever way: its memory is let go, and the next in line has its turn.
    fn leave(&mut self, frame: usize) {
        if let Some(memory) = self.frames[frame].memory.take() {
            self.let_go(memory);
        }
        let post = &self.posts[self.frames[frame].post];
        if !self.keeps_order() || !matches!(post.work, Work::Batch { .. }) {
            return;
        }
        let turn = (post.from, post.class as u8, post.key.region);
        let Some(waiting) = self.nodes[self.frames[frame].target].turns.get_mut(&turn) else { return };
        waiting.pop_front();
        if let Some(&next) = waiting.front() {
            self.execute_later(next, 0);
        }
    }

    fn send_answer(&mut self, frame: usize, from: Incarnation) {
        let caller = self.posts[self.frames[frame].post].from;
        let loss = self.faults.answer_loss_per_mille;
        if self.launch(from, caller, loss, None, Event::Answer(frame)) == Fate::Lost {
            self.drop_frame(frame);
        }
    }

    fn progress(&mut self, frame: usize) -> Progress {
        let Post { from: caller, class, work, .. } = &self.posts[self.frames[frame].post];
        let (caller, class) = (*caller, *class);
        let (element, operation, last) = match work {
            Work::Batch { elements, first, .. } => {
                let Frame { element, effects, .. } = self.frames[frame];
                (elements[element], OperationId(first + effects), element + 1 == elements.len())
            }
            Work::Settle { operation } => {
                let operation = *operation;
                let target = self.frames[frame].target;
                let settled = self.nodes[target].window(caller, class).settle(operation);
                self.frames[frame].settled = settled;
                let said = match settled {
                    Some(Settled::Barred) => 0,
                    Some(Settled::Executed(_)) => 1,
                    None => 2,
                };
                self.record(What::SettleAnswer, self.nodes[target].incarnation, caller, operation.0, said);
                return Progress::Finished;
            }
        };
        let target = self.frames[frame].target;
        let claims = element.has_effect() && self.frames[frame].torn.is_none();
        if claims {
            match self.nodes[target].window(caller, class).claim(operation) {
                Claim::Execute => {}
                // What this copy has read may be newer than what another copy has done since: then only that one may
                // answer, or a read would find what stands behind it in its own batch (F1).
                Claim::Executed(outcome) if !self.frames[frame].has_read => {
                    return self.advance(frame, &element, outcome, last);
                }
                Claim::Executed(_) | Claim::Barred | Claim::Unknown => return Progress::Swallowed(operation),
            }
        }
        match self.memory_for(frame, &element) {
            Ok(memory) => match self.perform(frame, memory, &element) {
                Some(outcome) => {
                    if element.has_effect() {
                        self.nodes[target].window(caller, class).executed(operation, outcome);
                    }
                    self.advance(frame, &element, outcome, last)
                }
                None => Progress::More,
            },
            Err(error) => {
                if claims {
                    self.nodes[target].window(caller, class).refused(operation);
                }
                let region = self.posts[self.frames[frame].post].key.region;
                let here = self.nodes[target].incarnation;
                self.record(What::Refuse, here, caller, self.frames[frame].element as u64, region.into());
                self.frames[frame].refusal = Some(error);
                Progress::Finished
            }
        }
    }

    fn advance(&mut self, frame: usize, element: &Element, outcome: u64, last: bool) -> Progress {
        let frame = &mut self.frames[frame];
        frame.outcomes.push(outcome);
        frame.has_read |= !element.has_effect();
        frame.element += 1;
        frame.effects += u64::from(element.has_effect());
        if last { Progress::Finished } else { Progress::More }
    }

    /// The memory that the request works on, if its key opens it and allows this element, and the element is inside.
    fn memory_for(&mut self, frame: usize, element: &Element) -> Result<usize> {
        let key = &self.posts[self.frames[frame].post].key;
        let memory = match self.frames[frame].memory {
            Some(memory) => memory,
            None => {
                let memory = self.nodes[self.frames[frame].target].admit(key)?.memory;
                self.memories[memory].holders += 1;
                self.frames[frame].memory = Some(memory);
                memory
            }
        };
        if element.has_effect() && key.rights == Rights::Read {
            return Err(Error::Denied { target: key.owner, region: key.region });
        }
        element.check(self.memories[memory].bytes, &self.capabilities)?;
        Ok(memory)
    }

    /// Does one element, or one half of it. `None` if the other half is still to come.
    fn perform(&mut self, frame: usize, memory: usize, element: &Element) -> Option<u64> {
        let here = self.nodes[self.frames[frame].target].incarnation;
        let caller = self.posts[self.frames[frame].post].from;
        let outcome = match *element {
            Element::ReadWord { at } => {
                let word = self.memories[memory].words.load(at);
                self.record(What::ReadWord, here, caller, at, word);
                word
            }
            Element::WriteWord { at, value } => {
                self.memories[memory].assert_plain(at, 8, &caller);
                self.memories[memory].words.store(at, value);
                self.record(What::WriteWord, here, caller, at, value);
                0
            }
            Element::CompareSwap { at, expected, desired } => {
                self.memories[memory].mark_atomic(at);
                let found = self.memories[memory].words.compare_swap(at, expected, desired);
                self.record(What::CompareSwap, here, caller, at, found);
                found
            }
            Element::FetchAdd { at, addend } => {
                self.memories[memory].mark_atomic(at);
                let found = self.memories[memory].words.fetch_add(at, addend);
                self.record(What::FetchAdd, here, caller, at, found);
                found
            }
            Element::Read { at, length } => {
                if self.frames[frame].torn.is_none() {
                    let room = self.frames[frame].bytes.len() + length;
                    self.frames[frame].bytes.resize(room, 0);
                }
                let (from, to, done) = self.part(frame, at, length);
                let bytes = &mut self.frames[frame].bytes;
                let start = bytes.len() - length;
                self.memories[memory].words.copy_out(at + from as u64, &mut bytes[start + from..start + to]);
                self.record(What::ReadPart, here, caller, at + from as u64, (to - from) as u64);
                return done.then_some(0);
            }
            Element::Write { at, length, payload_at } => {
                let (from, to, done) = self.part(frame, at, length);
                let Work::Batch { payload, .. } = &self.posts[self.frames[frame].post].work else { return Some(0) };
                let bytes = &payload[payload_at + from..payload_at + to];
                self.memories[memory].assert_plain(at + from as u64, bytes.len() as u64, &caller);
                self.memories[memory].words.copy_in(at + from as u64, bytes);
                self.record(What::WritePart, here, caller, at + from as u64, (to - from) as u64);
                return done.then_some(0);
            }
        };
        Some(outcome)
    }

    /// Which part of a block element is done now, and whether that was the last: only aligned words are untorn, so
    /// others act between the halves.
    fn part(&mut self, frame: usize, at: u64, length: usize) -> (usize, usize, bool) {
        if let Some(Torn { cut, second_is_front }) = self.frames[frame].torn.take() {
            return if second_is_front { (0, cut, true) } else { (cut, length, true) };
        }
        let edge = (at.next_multiple_of(8) - at) as usize;
        let first = if edge > 0 { edge } else { 8 };
        if length <= first {
            return (0, length, true);
        }
        let edges = (length - first).div_ceil(8) as u64;
        let cut = first + 8 * self.dice.below(edges) as usize;
        let second_is_front = self.dice.happens(500);
        self.frames[frame].torn = Some(Torn { cut, second_is_front });
        if second_is_front { (cut, length, false) } else { (0, cut, false) }
    }
}
