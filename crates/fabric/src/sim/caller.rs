//! The caller's side of one-sided operations: what is checked before anything is sent, the numbers (F2), and the
//! three ways an operation ends: answered, refused, unknown.

use smallvec::SmallVec;
use verbena_terms::{Incarnation, Time};

use crate::capability::Capabilities;
use crate::completion::{Completer, Pending};
use crate::error::{Error, Result};
use crate::memory::check_range;
use crate::message::Class;
use crate::operation::{Batch, Completed, Done, LARGEST_BATCH, Operation, OperationId, Settled};
use crate::pool::Buffer;
use crate::region::RegionKey;

use super::executor::Frame;
use super::network::Fate;
use super::node::Line;
use super::state::{Event, Moment, Outgoing, State, Step};
use super::trace::What;

/// Operations of one node that may be under way.
const UNDER_WAY: usize = 4096;

/// Something posted: it stays until it has ended and the last of its frames is gone.
pub(super) struct Post {
    pub(super) caller: usize,
    pub(super) from: Incarnation,
    pub(super) key: RegionKey,
    pub(super) class: Class,
    pub(super) work: Work,
    reply: Reply,
    /// When it ends as unknown. `None` if the caller said never.
    pub(super) deadline: Option<Moment>,
    /// Requests and answers of it that are under way.
    pub(super) frames: u32,
    /// Whether its request was sent more than once.
    pub(super) copied: bool,
}

/// What the target is to do.
#[expect(clippy::large_enum_variant, reason = "nearly all are batches, and those take no allocation for being large")]
pub(super) enum Work {
    Batch {
        elements: SmallVec<[Element; 4]>,
        /// The bytes of all block writes, one behind the other.
        payload: Vec<u8>,
        /// The caller's buffers, in order, to be given back.
        buffers: SmallVec<[Buffer; 1]>,
        /// Identifier of the first element with an effect, and how many there are.
        first: u64,
        effects: u64,
    },
    Settle {
        operation: OperationId,
    },
}

enum Reply {
    Batch(Completer<Completed>),
    Settle(Completer<Settled>),
    Ended,
}

/// An element as it travels: without the caller's buffers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Element {
    ReadWord { at: u64 },
    WriteWord { at: u64, value: u64 },
    CompareSwap { at: u64, expected: u64, desired: u64 },
    FetchAdd { at: u64, addend: u64 },
    Read { at: u64, length: usize },
    Write { at: u64, length: usize, payload_at: usize },
}

impl Element {
    pub(super) const fn has_effect(&self) -> bool {
        !matches!(self, Element::ReadWord { .. } | Element::Read { .. })
    }

    /// Refuses what a region of `region_bytes` does not hold, and what is more than the fabric can do at once.
    pub(super) fn check(&self, region_bytes: u64, capabilities: &Capabilities) -> Result<()> {
        let (what, at, length, most) = match *self {
            Element::ReadWord { at }
            | Element::WriteWord { at, .. }
            | Element::CompareSwap { at, .. }
            | Element::FetchAdd { at, .. } => return check_range(at, 8, true, region_bytes),
            Element::Read { at, length } => ("a read", at, length as u64, capabilities.largest_read),
            Element::Write { at, length, .. } => ("a write", at, length as u64, capabilities.largest_write),
        };
        if length > u64::from(most) {
            return Err(Error::TooLarge { what, asked: length, most: most.into() });
        }
        check_range(at, length, false, region_bytes)
    }

    /// Whether an adapter has to wait between `before` and this one (F1).
    pub(super) const fn needs_fence_after(&self, before: &Element) -> bool {
        let fetches = !matches!(before, Element::WriteWord { .. } | Element::Write { .. });
        fetches && self.has_effect()
    }
}

impl State {
    /// Posts a batch: refused at once, or under way.
    pub(super) fn post(
        &mut self,
        caller: usize,
        key: &RegionKey,
        batch: Batch,
        class: Class,
        deadline: Time,
    ) -> Pending<Completed> {
        if batch.operations().is_empty() {
            return Pending::ready(Ok(Completed::new()));
        }
        let effects = batch.effects();
        let first = match self.may_post(caller, key.owner, &batch, class, deadline) {
            Ok(first) => first,
            Err(error) => return Pending::ready(Err(error)),
        };
        let (mut elements, mut payload, mut buffers) = (SmallVec::new(), Vec::new(), SmallVec::new());
        for operation in batch.into_operations() {
            elements.push(match operation {
                Operation::ReadWord { at } => Element::ReadWord { at },
                Operation::WriteWord { at, value } => Element::WriteWord { at, value },
                Operation::CompareSwap { at, expected, desired } => Element::CompareSwap { at, expected, desired },
                Operation::FetchAdd { at, addend } => Element::FetchAdd { at, addend },
                Operation::Read { at, into } => {
                    let length = into.len();
                    buffers.push(into);
                    Element::Read { at, length }
                }
                Operation::Write { at, from } => {
                    let payload_at = payload.len();
                    payload.extend_from_slice(from.bytes());
                    let length = from.len();
                    buffers.push(from);
                    Element::Write { at, length, payload_at }
                }
            });
        }
        let from = self.nodes[caller].incarnation;
        self.record(What::Post, from, key.owner, elements.len() as u64, if effects > 0 { first } else { 0 });
        let (completer, pending) = Pending::new(Error::Closed);
        let work = Work::Batch { elements, payload, buffers, first, effects };
        self.ask(caller, key, class, work, Reply::Batch(completer), deadline);
        pending
    }

    /// Asks what became of an operation.
    pub(super) fn settle(
        &mut self,
        caller: usize,
        key: &RegionKey,
        operation: OperationId,
        class: Class,
        deadline: Time,
    ) -> Pending<Settled> {
        let target = key.owner;
        if let Err(error) = self.may_ask(caller, deadline) {
            return Pending::ready(Err(error));
        }
        let numbers = self.nodes[caller].numbers.get(&(target, class as u8));
        if !numbers.is_some_and(|numbers| numbers.can_settle(operation.0)) {
            return Pending::ready(Err(Error::Forgotten { target, operation }));
        }
        self.record(What::Settle, self.nodes[caller].incarnation, target, operation.0, 0);
        let (completer, pending) = Pending::new(Error::Closed);
        self.ask(caller, key, class, Work::Settle { operation }, Reply::Settle(completer), deadline);
        pending
    }

    /// Whether anything may be asked at all. What is wrong with one element its target finds, when its turn comes (F1).
    fn may_ask(&self, caller: usize, deadline: Time) -> Result<()> {
        let node = &self.nodes[caller];
        if !node.alive {
            return Err(Error::Closed);
        }
        if node.under_way >= UNDER_WAY {
            return Err(Error::Full { what: "the table of operations under way", most: UNDER_WAY });
        }
        if deadline <= self.local_time(caller) {
            return Err(Error::Late);
        }
        Ok(())
    }

    /// Takes identifiers for the elements with an effect, and gives the first.
    fn may_post(
        &mut self,
        caller: usize,
        target: Incarnation,
        batch: &Batch,
        class: Class,
        deadline: Time,
    ) -> Result<u64> {
        self.may_ask(caller, deadline)?;
        let (asked, most) = (batch.operations().len() as u64, LARGEST_BATCH as u64);
        if asked > most {
            return Err(Error::TooLarge { what: "a batch", asked, most });
        }
        match batch.effects() {
            0 => Ok(0),
            effects => self.nodes[caller].numbers.entry((target, class as u8)).or_default().take(target, effects),
        }
    }

    fn ask(&mut self, caller: usize, key: &RegionKey, class: Class, work: Work, reply: Reply, deadline: Time) {
        let from = self.nodes[caller].incarnation;
        self.nodes[caller].under_way += 1;
        let copied = self.dice.happens(self.faults.request_copy_per_mille);
        let key = key.clone();
        let target = key.owner;
        let line = match work {
            Work::Batch { .. } if self.keeps_order() => {
                Some(Line::Requests { to: target, class: class as u8, region: key.region })
            }
            _ => None,
        };
        let post = self.posts.insert(Post { caller, from, key, class, work, reply, deadline: None, frames: 0, copied });
        let at = self.nodes[caller].clock.world(deadline.nanos());
        if at < u64::MAX {
            let moment = self.schedule(at, Event::Deadline(post));
            self.posts[post].deadline = Some(moment);
        }
        for _ in 0..1 + usize::from(copied) {
            let frame = self.frames.insert(Frame::new(post));
            match self.launch(from, target, self.faults.request_loss_per_mille, line, Event::Arrive(frame)) {
                Fate::UnderWay => self.posts[post].frames += 1,
                Fate::Lost => drop(self.frames.remove(frame)),
            }
        }
    }

    /// An answer is back at the caller.
    pub(super) fn answer(&mut self, frame: usize) -> Step {
        let post = self.frames[frame].post;
        let caller = self.posts[post].caller;
        if self.wait_for(caller, Event::Answer(frame)) {
            return Step::Inside;
        }
        let frame = self.frames.remove(frame);
        self.posts[post].frames -= 1;
        let (node, target) = (self.posts[post].from, self.posts[post].key.owner);
        let ended = match std::mem::replace(&mut self.posts[post].reply, Reply::Ended) {
            Reply::Ended => {
                self.record(What::LateAnswer, node, target, 0, 0);
                self.forget_if_done(post);
                return Step::Inside;
            }
            Reply::Batch(completer) => {
                let result = self.conclude(post, frame);
                let refused = result.is_err();
                self.outgoing.push(Outgoing::Batch(completer, result));
                refused
            }
            Reply::Settle(completer) => {
                let result = match (frame.refusal, frame.settled) {
                    (Some(error), _) => Err(error),
                    (None, Some(settled)) => Ok(settled),
                    (None, None) => Err(Error::Unknown { target, first: None, last: None }),
                };
                if let (Ok(_), Work::Settle { operation }) = (&result, &self.posts[post].work) {
                    let (class, id) = (self.posts[post].class as u8, operation.0);
                    self.nodes[caller].numbers.entry((target, class)).or_default().ended(id, 1);
                }
                let refused = result.is_err();
                self.outgoing.push(Outgoing::Settle(completer, result));
                refused
            }
        };
        self.record(What::Answer, node, target, ended.into(), 0);
        self.end(post);
        Step::Completed { node }
    }

    /// The result of an answered batch.
    fn conclude(&mut self, post: usize, frame: Frame) -> Result<Completed> {
        let Post { caller, class, key, work, .. } = &mut self.posts[post];
        let Work::Batch { elements, buffers, first, effects, .. } = work else {
            unreachable!("invariant: a batch's reply belongs to a batch")
        };
        if *effects > 0 {
            let numbers = self.nodes[*caller].numbers.entry((key.owner, *class as u8)).or_default();
            numbers.ended(*first, *effects);
        }
        if let Some(error) = frame.refusal {
            return Err(error);
        }
        let mut buffers = std::mem::take(buffers).into_iter();
        let mut fetched = &frame.bytes[..];
        let mut buffer = || buffers.next().expect("invariant: one buffer for each block element");
        let results = elements.iter().zip(&frame.outcomes).map(|(element, &outcome)| match element {
            Element::Read { length, .. } => {
                let mut buffer = buffer();
                let (bytes, rest) = fetched.split_at(*length);
                fetched = rest;
                buffer.bytes_mut().copy_from_slice(bytes);
                Done::Buffer(buffer)
            }
            Element::Write { .. } => Done::Buffer(buffer()),
            _ => Done::Word(outcome),
        });
        Ok(results.collect())
    }

    /// No answer came in time: the operation may still be executed (F2).
    pub(super) fn deadline(&mut self, post: usize) -> Step {
        let caller = self.posts[post].caller;
        if self.wait_for(caller, Event::Deadline(post)) {
            return Step::Inside;
        }
        let (node, target, class) = (self.posts[post].from, self.posts[post].key.owner, self.posts[post].class as u8);
        self.posts[post].deadline = None;
        let (mut first, mut last) = (None, None);
        if let Work::Batch { first: id, effects: effects @ 1.., .. } = self.posts[post].work {
            self.nodes[caller].numbers.entry((target, class)).or_default().unknown(id, effects);
            (first, last) = (Some(OperationId(id)), Some(OperationId(id + effects - 1)));
        }
        self.record(What::Deadline, node, target, first.map_or(0, |id| id.0), last.map_or(0, |id| id.0));
        let error = Error::Unknown { target, first, last };
        match std::mem::replace(&mut self.posts[post].reply, Reply::Ended) {
            Reply::Batch(completer) => self.outgoing.push(Outgoing::Batch(completer, Err(error))),
            Reply::Settle(completer) => self.outgoing.push(Outgoing::Settle(completer, Err(error))),
            Reply::Ended => unreachable!("invariant: what ends takes its deadline along"),
        }
        self.end(post);
        Step::Completed { node }
    }

    /// The caller is gone and no longer waits for the operation, which may still be executed.
    pub(super) fn abandon(&mut self, post: usize) {
        match std::mem::replace(&mut self.posts[post].reply, Reply::Ended) {
            Reply::Batch(completer) => self.outgoing.push(Outgoing::Batch(completer, Err(Error::Closed))),
            Reply::Settle(completer) => self.outgoing.push(Outgoing::Settle(completer, Err(Error::Closed))),
            Reply::Ended => return,
        }
        self.end(post);
    }

    fn end(&mut self, post: usize) {
        self.nodes[self.posts[post].caller].under_way -= 1;
        if let Some(moment) = self.posts[post].deadline.take() {
            self.unschedule(moment);
        }
        if let Work::Batch { buffers, .. } = &mut self.posts[post].work {
            buffers.clear();
        }
        self.forget_if_done(post);
    }

    /// Drops a request or an answer that goes no further.
    pub(super) fn drop_frame(&mut self, frame: usize) {
        let post = self.frames.remove(frame).post;
        self.posts[post].frames -= 1;
        self.forget_if_done(post);
    }

    fn forget_if_done(&mut self, post: usize) {
        if self.posts[post].frames == 0 && matches!(self.posts[post].reply, Reply::Ended) {
            self.posts.remove(post);
        }
    }
}
