//! The caller's side of one target and class, without input or output: what waits, what is under way, which identifiers are open.
//!
//! An operation is *queued* when it is posted and *under way* once it was put into a frame; only then does it take its
//! identifiers, so that those which never left leave no gap. What is queued when its time or the target is up was not sent and
//! says so ([`Error::Late`], [`Error::Unreachable`]); what is under way then ends as [`Error::Unknown`], and its
//! identifiers stay *open* until they are settled (F2). None is given out that the target would forget an open
//! one for ([`Identifiers`]).
//!
//! Methods that end operations put them into an [`Endings`], to be handed over when no lock is held.

use std::collections::VecDeque;
use std::time::Duration;

use verbena_terms::{Incarnation, Time, ViewNumber};

use super::shape::{check_shape, check_sizes, complete, to_element};
use super::wire::{Answer, BatchHead, FrameWriter, LARGEST_MESSAGE};
use crate::completion::Pending;
use crate::ending::{Endings, MOST_UNDER_WAY, Outcome, RegionId, queue_full, refusal, unknown};
use crate::error::{Error, Result};
use crate::identifiers::Identifiers;
use crate::message::Port;
use crate::operation::{Batch, Completed, Operation, OperationId, Settled};
use crate::region::RegionKey;

mod entry;
#[cfg(test)]
mod tests;

use entry::{Queued, UnderWay, What};

/// Bytes of writes and messages that are queued.
const MOST_QUEUED_BYTES: usize = 16 << 20;
/// A poster sends the queue itself if it has at most `FEW` operations and `FEW_BYTES` bytes of writes and messages: the
/// reader of answers waits meanwhile.
const FEW: usize = 16;
const FEW_BYTES: usize = 4 << 10;

pub(super) struct Ledger {
    target: Incarnation,
    pub(super) address: String,
    state: State,
    queue: VecDeque<Queued>,
    queued_effects: u64,
    queued_bytes: usize,
    /// In the order in which the answers come.
    under_way: VecDeque<UnderWay>,
    /// Number of the first in `under_way`.
    oldest_number: u32,
    open: Identifiers,
    /// When the timer goes off: not after the earliest deadline.
    armed: Time,
    heard: Time,
}

enum State {
    /// There is no connection, or not yet.
    Down,
    Up,
    /// The last attempt failed for this reason; the next one is not before this moment.
    Resting(Time, String),
    Closed,
}

/// The tasks to wake after a post.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) writer: bool,
    pub(super) timer: bool,
}

/// What the timer has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// Go off then.
    pub(super) at: Time,
    /// Nothing was heard for longer than patience has it: the connection is to be given up.
    pub(super) silent: bool,
}

impl Ledger {
    pub(super) fn new(target: Incarnation, address: String) -> Self {
        Ledger {
            target,
            address,
            state: State::Down,
            queue: VecDeque::new(),
            queued_effects: 0,
            queued_bytes: 0,
            under_way: VecDeque::new(),
            oldest_number: 0,
            open: Identifiers::default(),
            armed: Time::FAR,
            heard: Time::ZERO,
        }
    }

    /// The first identifier that was not given out.
    pub(super) const fn next_id(&self) -> OperationId {
        self.open.next()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Before when no connection is to be attempted.
    pub(super) const fn rests_until(&self) -> Time {
        match self.state {
            State::Resting(until, _) => until,
            _ => Time::ZERO,
        }
    }

    pub(super) fn post(
        &mut self,
        now: Time,
        key: &RegionKey,
        batch: Batch,
        deadline: Time,
    ) -> (Pending<Completed>, Wake) {
        let bytes = match self.admit(now, &batch, deadline) {
            Ok(bytes) => bytes,
            Err(error) => return (Pending::ready(Err(error)), Wake::default()),
        };
        if batch.operations().is_empty() {
            return (Pending::ready(Ok(Completed::new())), Wake::default());
        }
        self.queued_effects += batch.effects();
        self.queued_bytes += bytes;
        let (completer, pending) = Pending::new(Error::Closed);
        let region = RegionId::from(key);
        self.queue.push_back(Queued::Batch { region, operations: batch.into_operations(), deadline, completer });
        (pending, self.wake(deadline))
    }

    pub(super) fn settle(&mut self, now: Time, id: OperationId, deadline: Time) -> (Pending<Settled>, Wake) {
        // One that was not given out must not be barred: the operation that is to have it would find it taken.
        let forgotten = Error::Forgotten { target: self.target, operation: id };
        let admitted = if self.open.was_given_out(id) { self.admit_anything(now, deadline) } else { Err(forgotten) };
        if let Err(error) = admitted {
            return (Pending::ready(Err(error)), Wake::default());
        }
        let (completer, pending) = Pending::new(Error::Closed);
        self.queue.push_back(Queued::Settle { id, deadline, completer });
        (pending, self.wake(deadline))
    }

    pub(super) fn send(&mut self, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<Wake> {
        if body.len() > LARGEST_MESSAGE {
            return Err(Error::TooLarge { what: "a message", asked: body.len() as u64, most: LARGEST_MESSAGE as u64 });
        }
        self.admit_anything(Time::ZERO, Time::FAR)?;
        self.admit_bytes(body.len())?;
        self.queued_bytes += body.len();
        self.queue.push_back(Queued::Message { view, port, number, body: body.to_vec() });
        Ok(self.wake(Time::FAR))
    }

    /// A connection stands, on which nothing was sent.
    pub(super) fn connected(&mut self, now: Time) {
        debug_assert!(self.under_way.is_empty(), "what was under way ended with its connection");
        if !matches!(self.state, State::Closed) {
            self.state = State::Up;
        }
        self.oldest_number = 0;
        self.heard = now;
    }

    /// An attempt failed. What waited for it shares its fate; messages are lost. The next one is not before `rest` is over.
    pub(super) fn attempt_failed(&mut self, rest: Time, reason: &str, endings: &mut Endings) {
        for queued in self.queue.drain(..) {
            queued.end(unreachable(self.target, &self.address, reason), endings);
        }
        (self.queued_effects, self.queued_bytes) = (0, 0);
        if !matches!(self.state, State::Closed) {
            self.state = State::Resting(rest, reason.to_owned());
        }
    }

    /// The connection is gone. What is still queued goes over the next one.
    pub(super) fn lost(&mut self, endings: &mut Endings) {
        while let Some(UnderWay { what, .. }) = self.under_way.pop_front() {
            self.end_as_unknown(what, endings);
        }
        if !matches!(self.state, State::Closed) {
            self.state = State::Down;
        }
    }

    /// The fabric is closed.
    pub(super) fn close(&mut self, endings: &mut Endings) {
        self.lost(endings);
        self.state = State::Closed;
        self.queue.drain(..).for_each(|queued| queued.end(Error::Closed, endings));
    }

    /// Puts what waits into a frame, up to a full one. From here on it may be executed.
    pub(super) fn gather(&mut self, now: Time, frame: &mut FrameWriter, endings: &mut Endings) {
        while !frame.is_full() {
            let Some(queued) = self.queue.pop_front() else { break };
            self.unqueue(&queued);
            if queued.deadline() <= now {
                queued.end(Error::Late, endings);
                continue;
            }
            let number = self.oldest_number.wrapping_add(self.under_way.len() as u32);
            match queued {
                Queued::Message { view, port, number, body } => frame.message(port, view, number, &body),
                Queued::Settle { id, deadline, mut completer } => {
                    frame.settle(number, id);
                    completer.if_dropped(unknown(self.target, Some((id, id))));
                    self.under_way.push_back(UnderWay { sent: now, deadline, what: What::Settle { id, completer } });
                }
                Queued::Batch { region, operations, deadline, mut completer } => {
                    let ids = self.open.take(&operations);
                    let RegionId { region: of, view, secret } = region;
                    let head = BatchHead { number, region: of, view, first: ids.map(|(first, _)| first), secret };
                    frame.batch(&head, operations.len());
                    operations.iter().for_each(|operation| frame.element(to_element(operation)));
                    completer.if_dropped(unknown(self.target, ids));
                    let what = What::Batch { region, operations, ids, completer };
                    self.under_way.push_back(UnderWay { sent: now, deadline, what });
                }
            }
        }
    }

    /// The same for a poster. Does nothing if the queue is not short, or if something in it would end: the poster may
    /// hold what the woken code then wants.
    pub(super) fn gather_few(&mut self, now: Time, frame: &mut FrameWriter) {
        let are_few = self.queue.len() <= FEW && self.queued_bytes <= FEW_BYTES;
        if are_few && self.queue.iter().all(|queued| queued.deadline() > now) {
            let mut none = Endings::default();
            self.gather(now, frame, &mut none);
            none.hand_over();
        }
    }

    /// Answers came in. An error says what about them cannot be: the connection is to be given up.
    pub(super) fn answered(
        &mut self,
        now: Time,
        answers: &[Answer<'_>],
        endings: &mut Endings,
    ) -> std::result::Result<(), String> {
        self.heard = now;
        for answer in answers {
            let (Answer::Results { number, .. } | Answer::Settled { number, .. }) = *answer;
            if number != self.oldest_number {
                return Err(format!("an answer to {number} where one to {} was due", self.oldest_number));
            }
            let asked =
                self.under_way.pop_front().ok_or_else(|| format!("an answer to {number}, which was not asked"))?;
            self.oldest_number = self.oldest_number.wrapping_add(1);
            match (asked.what, *answer) {
                (What::Over, _) => {}
                (
                    What::Batch { region, operations, ids, completer },
                    Answer::Results { outcome, done, payload, .. },
                ) => {
                    if let Err(reason) = check_shape(&operations, outcome, done, payload) {
                        self.end_as_unknown(What::Batch { region, operations, ids, completer }, endings);
                        return Err(reason);
                    }
                    match outcome {
                        Outcome::Unknown => self.open.lose(ids),
                        _ => self.open.close(ids),
                    }
                    let result = match refusal(self.target, region, &operations, outcome, done.into(), ids) {
                        Some(error) => Err(error),
                        None => Ok(complete(operations, payload)),
                    };
                    endings.batch(completer, result);
                }
                (What::Settle { id, completer }, Answer::Settled { settled, .. }) => {
                    self.open.close(Some((id, id)));
                    let forgotten = Error::Forgotten { target: self.target, operation: id };
                    endings.settle(completer, settled.ok_or(forgotten));
                }
                (what, _) => {
                    self.end_as_unknown(what, endings);
                    return Err(format!("an answer of another kind than request {number}"));
                }
            }
        }
        Ok(())
    }

    /// Ends what is past its deadline. The connection is silent when nothing came for `patience`, though something under way
    /// has waited as long.
    pub(super) fn expire(&mut self, now: Time, patience: Duration, endings: &mut Endings) -> Next {
        self.expire_queued(now, endings);
        let mut expired = false;
        for index in 0..self.under_way.len() {
            let entry = &mut self.under_way[index];
            if entry.deadline <= now && !matches!(entry.what, What::Over) {
                let what = std::mem::replace(&mut entry.what, What::Over);
                self.end_as_unknown(what, endings);
                expired = true;
            }
        }
        let waiting =
            self.under_way.iter().filter(|entry| !matches!(entry.what, What::Over)).map(|entry| entry.deadline);
        self.armed = waiting.chain(self.queue.iter().map(Queued::deadline)).min().unwrap_or(Time::FAR);
        let waited = self.under_way.front().is_some_and(|oldest| now.since(oldest.sent.max(self.heard)) > patience);
        Next { at: self.armed, silent: expired && waited }
    }

    fn expire_queued(&mut self, now: Time, endings: &mut Endings) {
        if !self.queue.iter().any(|queued| queued.deadline() <= now) {
            return;
        }
        for queued in std::mem::take(&mut self.queue) {
            if queued.deadline() > now {
                self.queue.push_back(queued);
                continue;
            }
            self.unqueue(&queued);
            let error = match &self.state {
                State::Up | State::Closed => Error::Late,
                State::Down => unreachable(self.target, &self.address, "no connection was made in time"),
                State::Resting(_, reason) => unreachable(self.target, &self.address, reason),
            };
            queued.end(error, endings);
        }
    }

    /// Whether a batch may be queued, and how many bytes it queues.
    fn admit(&self, now: Time, batch: &Batch, deadline: Time) -> Result<usize> {
        let written = check_sizes(batch)?;
        self.admit_anything(now, deadline)?;
        self.admit_bytes(written)?;
        self.open.room_for(self.target, self.queued_effects, batch.effects())?;
        Ok(written)
    }

    fn admit_anything(&self, now: Time, deadline: Time) -> Result<()> {
        match &self.state {
            State::Closed => return Err(Error::Closed),
            State::Resting(until, reason) if deadline <= *until => {
                return Err(unreachable(self.target, &self.address, reason));
            }
            _ if deadline <= now => return Err(Error::Late),
            _ => {}
        }
        if self.queue.len() + self.under_way.len() >= MOST_UNDER_WAY {
            return Err(queue_full());
        }
        Ok(())
    }

    fn admit_bytes(&self, bytes: usize) -> Result<()> {
        if self.queued_bytes + bytes > MOST_QUEUED_BYTES {
            return Err(Error::Full { what: "the queue of bytes to a node", most: MOST_QUEUED_BYTES });
        }
        Ok(())
    }

    fn wake(&mut self, deadline: Time) -> Wake {
        let timer = deadline < self.armed;
        self.armed = self.armed.min(deadline);
        Wake { writer: self.queue.len() == 1, timer }
    }

    fn end_as_unknown(&mut self, what: What, endings: &mut Endings) {
        match what {
            What::Batch { ids, completer, .. } => {
                self.open.lose(ids);
                endings.batch(completer, Err(unknown(self.target, ids)));
            }
            What::Settle { id, completer } => endings.settle(completer, Err(unknown(self.target, Some((id, id))))),
            What::Over => {}
        }
    }

    fn unqueue(&mut self, queued: &Queued) {
        match queued {
            Queued::Batch { operations, .. } => {
                for operation in operations {
                    self.queued_effects -= u64::from(operation.has_effect());
                    if let Operation::Write { from, .. } = operation {
                        self.queued_bytes -= from.len();
                    }
                }
            }
            Queued::Message { body, .. } => self.queued_bytes -= body.len(),
            Queued::Settle { .. } => {}
        }
    }
}

fn unreachable(target: Incarnation, address: &str, reason: &str) -> Error {
    Error::Unreachable { target, address: address.to_owned(), reason: reason.to_owned() }
}
