//! What a caller has asked of one target in one class, and what became of it: decides, does no input or output.
//!
//! Batches wait until there is a connection with room for them, are posted as work requests of its queue pair, and complete in the order in which they were
//! posted. A reliable connection executes each request once or, if it ends, leaves open how far it came; what that means for each batch (F2):
//!
//! | how the connection ended | the request it ended at | what stood behind it |
//! |---|---|---|
//! | the target's adapter refused a request (its key is revoked) | was not executed | was not executed: it is posted again on the next connection |
//! | a request failed, no acknowledgement came | in doubt | in doubt |
//! | it was ended here | unknown | unknown |
//!
//! What is *in doubt* may have been refused: an adapter refuses once, and if that answer is lost there is no other;
//! adapters of iWARP, which only read, never say. The caller asks the owner whether the key is still good, also for a
//! connection that stands still before it has ended. If not, it is revoked, and what was executed before that is in
//! memory that is never read again (F4). If it is, reads are posted again, and the rest is unknown.
//!
//! An operation that ended as unknown is *settled* by its own completion, if that comes late; the transport sends again
//! for so long that only the end of the connection takes this away. Then it is barred by the next connection: a target
//! takes one from a caller only when it has destroyed the former. No side has kept what of it was executed before, so
//! its outcome is [`Error::Forgotten`]: executed once or not at all, and never later.

use std::collections::VecDeque;

use smallvec::SmallVec;
use verbena_terms::{Incarnation, Time};

use super::batches::{Place, effects, refusal, results, unfenced};
use super::entries::{Asked, DEPTH, Entry, Failure, Posted, Refusals, Request, Retired};
use super::outcomes::{Outcome, Outcomes};
use super::standstill::Standstill;
use crate::completion::Pending;
use crate::ending::{Endings, MOST_UNDER_WAY, RegionId, at_most, queue_full, unknown};
use crate::error::{Error, Result};
use crate::identifiers::Identifiers;
use crate::operation::{Batch, Completed, LARGEST_BATCH, Operation, OperationId, Settled};
use crate::pool::Pool;
use crate::region::RegionKey;

pub(super) struct Ledger {
    target: Incarnation,
    /// The pool whose buffers the adapter reaches.
    pool: Pool,
    identifiers: Identifiers,
    waiting: VecDeque<Entry>,
    /// Identifiers that what waits will take.
    waiting_effects: u64,
    posted: VecDeque<Posted>,
    /// What was under way on a connection that has failed, until it is known why.
    doubts: Vec<Posted>,
    refusals: Refusals,
    /// Number of the next work request on this connection.
    next: u64,
    is_connected: bool,
    is_closed: bool,
    asked: Vec<Asked>,
    outcomes: Outcomes,
    armed: Time,
    retired: Retired,
    standstill: Standstill,
}

impl Ledger {
    pub(super) fn new(target: Incarnation, pool: Pool, refusals: Refusals) -> Self {
        Ledger {
            target,
            pool,
            identifiers: Identifiers::default(),
            waiting: VecDeque::new(),
            waiting_effects: 0,
            posted: VecDeque::new(),
            doubts: Vec::new(),
            refusals,
            next: 0,
            is_connected: false,
            is_closed: false,
            asked: Vec::new(),
            outcomes: Outcomes::default(),
            armed: Time::FAR,
            retired: Vec::new(),
            standstill: Standstill::default(),
        }
    }

    /// Whether no caller waits for anything here.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.posted.is_empty() && self.asked.is_empty() && self.doubts.is_empty()
    }

    /// What is to be given back when the connection that has ended is destroyed.
    pub(super) fn take_retired(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }

    /// Something has completed.
    pub(super) fn moves(&mut self, now: Time) {
        self.standstill.moves(now);
    }

    /// Whether what is under way has stood still for too long.
    pub(super) fn is_stalled(&self, now: Time) -> bool {
        !self.posted.is_empty() && self.standstill.is_stalled(now, self.refusals)
    }

    /// Whether something waits for a connection.
    pub(super) fn wants_connection(&self) -> bool {
        !self.is_connected && (!self.waiting.is_empty() || !self.asked.is_empty())
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn armed(&self) -> Time {
        self.armed
    }

    pub(super) fn post(
        &mut self,
        now: Time,
        key: &RegionKey,
        place: Place,
        batch: Batch,
        deadline: Time,
    ) -> Pending<Completed> {
        let mut operations = batch.into_operations();
        let refusal = match self.check(now, key, place, &mut operations, deadline) {
            Ok(refusal) if operations.is_empty() => {
                return Pending::ready(refusal.map_or_else(|| Ok(Completed::new()), Err));
            }
            Ok(refusal) => refusal,
            Err(error) => return Pending::ready(Err(error)),
        };
        // Whatever ends it without a word, it was not posted.
        let (completer, pending) = Pending::new(Error::Closed);
        self.armed = self.armed.min(deadline);
        self.waiting_effects += effects(&operations);
        self.waiting.push_back(Entry {
            operations,
            place,
            id: RegionId::from(key),
            revoked: Error::Revoked { target: key.owner, region: key.region, view: key.view },
            refusal,
            completer: Some(completer),
            deadline,
            ids: None,
            done: SmallVec::new(),
        });
        pending
    }

    /// Cuts a batch off before its first element that is refused, and says why that is.
    fn check(
        &self,
        now: Time,
        key: &RegionKey,
        place: Place,
        operations: &mut SmallVec<[Operation; 4]>,
        deadline: Time,
    ) -> Result<Option<Error>> {
        at_most("a batch", operations.len(), LARGEST_BATCH)?;
        if self.is_closed {
            return Err(Error::Closed);
        }
        if deadline <= now {
            return Err(Error::Late);
        }
        if self.waiting.len() + self.posted.len() + self.doubts.len() >= MOST_UNDER_WAY {
            return Err(queue_full());
        }
        let refused = |operation: &Operation| refusal(&self.pool, key, place, operation).err();
        let refused = operations.iter().enumerate().find_map(|(at, operation)| Some((at, refused(operation)?)));
        if let Some((at, _)) = refused {
            operations.truncate(at);
        }
        if !operations.is_empty() {
            self.identifiers.room_for(self.target, self.waiting_effects, effects(operations))?;
        }
        Ok(refused.map(|(_, error)| error))
    }

    /// Takes what is next and has room: a batch, or a part of one up to a fence. Its requests are those of [`newest`](Self::newest).
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let under_way = self.posted.front().map_or(0, |oldest| self.next - oldest.first) as usize;
        let Some(entry) = self.waiting.front() else { return false };
        let count = unfenced(&entry.operations[entry.done.len()..]);
        if !self.is_connected || under_way + count > DEPTH {
            return false;
        }
        let Some(mut entry) = self.waiting.pop_front() else { return false };
        if entry.ids.is_none() && entry.done.is_empty() {
            self.waiting_effects -= effects(&entry.operations);
            entry.ids = self.identifiers.take(&entry.operations);
        }
        if let Some(completer) = &mut entry.completer {
            completer.if_dropped(unknown(self.target, entry.ids));
        }
        if self.posted.is_empty() {
            self.standstill.moves(now);
        }
        let posted = Posted { entry, first: self.next, count };
        self.next = posted.end();
        self.posted.push_back(posted);
        true
    }

    /// The requests of what was taken last, and where they go.
    pub(super) fn newest(&self) -> Option<(Place, impl Iterator<Item = Request<'_>>)> {
        let posted = self.posted.back()?;
        let Posted { entry, first, count } = posted;
        let operations = entry.operations.iter().skip(entry.done.len()).take(*count);
        let last = posted.end() - 1;
        let requests = (*first..).zip(operations);
        let requests =
            requests.map(move |(number, operation)| Request { number, operation, is_signaled: number == last });
        Some((entry.place, requests))
    }

    /// All requests up to this one are complete; `word` is what each of them fetched.
    pub(super) fn completed(&mut self, number: u64, word: impl Fn(u64, &Operation) -> u64, endings: &mut Endings) {
        while self.posted.front().is_some_and(|posted| posted.end() <= number + 1) {
            let Some(mut posted) = self.posted.pop_front() else { return };
            let end = posted.end();
            posted.note_done(end, &word);
            let entry = posted.entry;
            if entry.done.len() < entry.operations.len() && entry.completer.is_some() {
                self.waiting.push_front(entry);
            } else {
                drop(self.conclude(entry, 0, None, endings));
            }
        }
        self.answer(endings);
    }

    /// This request failed, and with it the connection. All before it are complete, where the adapter says which it was.
    pub(super) fn failed(
        &mut self,
        number: u64,
        failure: Failure,
        word: impl Fn(u64, &Operation) -> u64,
        endings: &mut Endings,
    ) {
        if self.refusals == Refusals::Told {
            self.completed_before(number, word, endings);
        }
        match (self.refusals, failure) {
            (Refusals::Told, Failure::Refused) => self.end(failure, endings),
            _ => self.doubt(endings),
        }
    }

    fn completed_before(&mut self, number: u64, word: impl Fn(u64, &Operation) -> u64, endings: &mut Endings) {
        if let Some(before) = number.checked_sub(1) {
            self.completed(before, &word, endings);
        }
        if let Some(oldest) = self.posted.front_mut() {
            oldest.note_done(number, &word);
        }
    }

    /// The connection ended at the first request that is not complete.
    fn end(&mut self, failure: Failure, endings: &mut Endings) {
        self.is_connected = false;
        let mut behind = std::mem::take(&mut self.posted);
        if let Some(Posted { entry, count, .. }) = behind.pop_front() {
            let rest = self.conclude(entry, count, Some(failure), endings);
            self.retired.extend(rest);
        }
        for Posted { entry, count, .. } in behind.into_iter().rev() {
            if failure == Failure::Refused && entry.completer.is_some() {
                self.waiting.push_front(entry);
                continue;
            }
            let ended = (failure == Failure::Lost).then_some(failure);
            let rest = self.conclude(entry, count, ended, endings);
            self.retired.extend(rest);
        }
        self.answer(endings);
    }

    /// The connection is no more, wherever it was.
    pub(super) fn lost(&mut self, endings: &mut Endings) {
        self.end(Failure::Lost, endings);
    }

    /// The connection has failed, or was ended, for an unknown reason. Its queue pair has failed too: nothing comes to
    /// its buffers any more.
    fn doubt(&mut self, endings: &mut Endings) {
        self.is_connected = false;
        for posted in std::mem::take(&mut self.posted) {
            if posted.entry.completer.is_some() {
                self.doubts.push(posted);
            } else {
                self.lose(posted, endings);
            }
        }
        self.answer(endings);
    }

    /// A key of which the owner is to be asked whether it is still good: of what is in doubt, or stands still.
    pub(super) fn doubted(&self, now: Time) -> Option<RegionId> {
        let still = self.posted.front().filter(|_| self.standstill.is_suspect(now));
        self.doubts.first().or(still).map(|posted| posted.entry.id)
    }

    /// What the owner says of a key; `None` if it says nothing. Whether the connection is to be ended, because what stands still on it was refused.
    pub(super) fn told(&mut self, id: &RegionId, is_good: Option<bool>, endings: &mut Endings) -> bool {
        let mut again = Vec::new();
        let (meant, others) = std::mem::take(&mut self.doubts).into_iter().partition(|posted| posted.entry.id == *id);
        self.doubts = others;
        for posted in Vec::<Posted>::into_iter(meant) {
            match is_good {
                Some(true) if effects(&posted.entry.operations) == 0 => again.push(posted.entry),
                Some(false) => drop(self.conclude(posted.entry, 0, Some(Failure::Refused), endings)),
                _ => self.lose(posted, endings),
            }
        }
        again.into_iter().rev().for_each(|entry| self.waiting.push_front(entry));
        self.answer(endings);
        let is_oldest = self.posted.front().is_some_and(|oldest| oldest.entry.id == *id);
        if is_oldest {
            self.standstill.asked();
        }
        is_oldest && is_good == Some(false)
    }

    fn lose(&mut self, posted: Posted, endings: &mut Endings) {
        drop(self.conclude(posted.entry, posted.count, Some(Failure::Lost), endings));
    }

    /// There is a connection, and the target has destroyed the former one.
    pub(super) fn connected(&mut self, endings: &mut Endings) {
        debug_assert!(self.posted.is_empty(), "what was posted ended with its connection");
        self.is_connected = true;
        self.next = 0;
        self.answer(endings);
    }

    /// A batch is over: of what stands behind the done elements the first `open` were under way when the connection
    /// failed, and the others never were. This does not give the rest back to the poster.
    fn conclude(
        &mut self,
        entry: Entry,
        open: usize,
        failure: Option<Failure>,
        endings: &mut Endings,
    ) -> Option<SmallVec<[Operation; 4]>> {
        let is_whole = entry.done.len() == entry.operations.len();
        if entry.completer.is_some() && (is_whole || failure == Some(Failure::Refused)) {
            self.identifiers.close(entry.ids);
        } else {
            // How it ended is unknown, or the poster has got that outcome: each of its operations is remembered.
            self.identifiers.lose(entry.ids);
            if let Some((first, _)) = entry.ids {
                let open = if failure == Some(Failure::Lost) { open } else { 0 };
                self.outcomes.note(first, &entry.operations, &entry.done, open);
                self.outcomes.forget_before(self.identifiers.next());
            }
        }
        let Entry { operations, completer, refusal, revoked, ids, done, .. } = entry;
        let (result, rest) = match (failure, refusal) {
            (None, None) if is_whole => (Ok(results(operations, &done)), None),
            (None, Some(refusal)) if is_whole => (Err(refusal), Some(operations)),
            (Some(Failure::Refused), _) => (Err(revoked), Some(operations)),
            _ => (Err(unknown(self.target, ids)), Some(operations)),
        };
        if let Some(completer) = completer {
            endings.batch(completer, result);
        }
        rest
    }

    pub(super) fn settle(&mut self, now: Time, id: OperationId, deadline: Time) -> Pending<Settled> {
        if self.is_closed {
            return Pending::ready(Err(Error::Closed));
        }
        let forgotten = Error::Forgotten { target: self.target, operation: id };
        if let Some(answer) = self.outcome_of(id) {
            return Pending::ready(answer);
        }
        let within = |entry: &Entry| entry.ids.is_some_and(|(first, last)| first <= id && id <= last);
        let entries = self.posted.iter().chain(&self.doubts).map(|posted| &posted.entry).chain(&self.waiting);
        let is_open = self.outcomes.has(id) || entries.into_iter().any(within);
        if !self.identifiers.was_given_out(id) || !is_open {
            return Pending::ready(Err(forgotten));
        }
        if deadline <= now {
            return Pending::ready(Err(Error::Late));
        }
        let (completer, pending) = Pending::new(Error::Closed);
        self.asked.push(Asked { id, deadline, completer });
        self.armed = self.armed.min(deadline);
        pending
    }

    /// What a settle says, if it can be said.
    fn outcome_of(&mut self, id: OperationId) -> Option<Result<Settled>> {
        let answer = match self.outcomes.of(id)? {
            Outcome::Known(settled) => Ok(settled),
            Outcome::Ambiguous if self.is_connected => Err(Error::Forgotten { target: self.target, operation: id }),
            Outcome::Ambiguous => return None,
        };
        self.identifiers.close(Some((id, id)));
        Some(answer)
    }

    fn answer(&mut self, endings: &mut Endings) {
        for asked in std::mem::take(&mut self.asked) {
            match self.outcome_of(asked.id) {
                Some(answer) => endings.settle(asked.completer, answer),
                None => self.asked.push(asked),
            }
        }
    }

    /// Ends what has reached its deadline.
    pub(super) fn expire(&mut self, now: Time, why_not_connected: &Error, endings: &mut Endings) {
        if now < self.armed {
            return;
        }
        let mut armed = Time::FAR;
        for at in 0..self.posted.len() {
            let entry = &mut self.posted[at].entry;
            if entry.deadline > now {
                armed = armed.min(entry.deadline);
            } else if let Some(completer) = entry.completer.take() {
                let ids = entry.ids;
                self.identifiers.lose(ids);
                endings.batch(completer, Err(unknown(self.target, ids)));
            }
        }
        for posted in std::mem::take(&mut self.doubts) {
            if posted.entry.deadline > now {
                armed = armed.min(posted.entry.deadline);
                self.doubts.push(posted);
            } else {
                self.lose(posted, endings);
            }
        }
        for entry in std::mem::take(&mut self.waiting) {
            if entry.deadline > now {
                armed = armed.min(entry.deadline);
                self.waiting.push_back(entry);
            } else {
                let reason = if self.is_connected { Error::Late } else { why_not_connected.clone() };
                self.give_up(entry, reason, endings);
            }
        }
        for asked in std::mem::take(&mut self.asked) {
            if asked.deadline > now {
                armed = armed.min(asked.deadline);
                self.asked.push(asked);
            } else {
                endings.settle(asked.completer, Err(unknown(self.target, Some((asked.id, asked.id)))));
            }
        }
        self.armed = armed;
    }

    /// The target is not there: what waits for a connection ends with this.
    pub(super) fn unreachable(&mut self, error: &Error, endings: &mut Endings) {
        for posted in std::mem::take(&mut self.doubts) {
            self.lose(posted, endings);
        }
        for entry in std::mem::take(&mut self.waiting) {
            self.give_up(entry, error.clone(), endings);
        }
        for asked in std::mem::take(&mut self.asked) {
            endings.settle(asked.completer, Err(error.clone()));
        }
    }

    /// Ends what waits: of it nothing more will be executed.
    fn give_up(&mut self, entry: Entry, error: Error, endings: &mut Endings) {
        if !entry.done.is_empty() {
            drop(self.conclude(entry, 0, None, endings));
            return;
        }
        match entry.ids {
            None => self.waiting_effects -= effects(&entry.operations),
            ids => self.identifiers.close(ids),
        }
        if let Some(completer) = entry.completer {
            endings.batch(completer, Err(error));
        }
    }

    /// Ends everything: the fabric is closed.
    pub(super) fn close(&mut self, endings: &mut Endings) {
        self.lost(endings);
        self.unreachable(&Error::Closed, endings);
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests;
