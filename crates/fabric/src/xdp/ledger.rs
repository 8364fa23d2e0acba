//! The caller's side of one target in class Control, without input or output: what waits, which frames are under way, which
//! identifiers are open. Frames can be lost, doubled, late and out of order, both ways.
//!
//! A batch is cut into *parts*, each of which is one item of a frame. They are sent one after the other, each when the one before
//! it was answered: frames overtake each other, and the elements of a batch must not (F1). What is not answered is sent
//! again with the same identifiers, of which the target's window executes each once (F2), in a frame with a
//! serial of its own. An answer to any copy is the answer.
//!
//! An operation is *queued* when it is posted and has *left* once some of it was put into a frame; only then does it take its
//! identifiers. What is queued when its time is up was not sent and says so ([`Error::Late`]). What has left ends as
//! [`Error::Unknown`] then, and the identifiers of the whole batch stay open until they are settled, also those of parts that were
//! answered: its caller does not know which these are.
//!
//! At most [`MOST_FRAMES`] frames are under way. What is posted meanwhile shares the next one, so that the small operations of many
//! requests are few frames. The wait that this adds is a round trip, or the time to the first copy ([`FIRST_RESEND`]) if
//! that is shorter: a frame that is sent again has room for what is new, too. It is longer only where more is posted than so many frames hold, or
//! nothing at all is answered.
//!
//! Methods that end operations put them into an [`Endings`], to be handed over when no lock is held.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use super::wire::{Answer, Datagram, FrameWriter, TagKey};
use crate::completion::Pending;
use crate::ending::{Endings, MOST_UNDER_WAY, Outcome, RegionId, at_most, queue_full, refusal, unknown};
use crate::error::{Error, Result};
use crate::identifiers::Identifiers;
use crate::operation::{Batch, Completed, LARGEST_BATCH, Operation, OperationId, Settled};
use crate::region::RegionKey;

mod frames;
mod part;
#[cfg(test)]
mod target;
mod task;
#[cfg(test)]
mod tests;

use frames::{Carried, Frames, Item};
use part::Work;
use task::{Task, What};

/// Frames that are sent, and neither answered nor given up.
const MOST_FRAMES: usize = 8;
/// From the first copy to the second.
const FIRST_RESEND: Duration = Duration::from_millis(4);
/// Each copy is waited for twice as long as the one before it, up to this.
const LONGEST_RESEND: Duration = Duration::from_millis(64);
/// Bytes of the largest read. It is cut, so that its answers fit frames.
pub(super) const LARGEST_READ: usize = 64 << 10;
/// Bytes of the largest write. It is not cut: it has one identifier, and is executed once or not at all (F2).
pub(super) const LARGEST_WRITE: usize = 1024;

pub(super) struct Ledger {
    target: Incarnation,
    /// By what the target knows this caller. Nothing is sent without.
    introduction: Option<(u32, TagKey)>,
    closed: bool,
    next_serial: u64,
    next_task: u64,
    /// By number, in the order in which they were posted.
    tasks: BTreeMap<u64, Task>,
    /// Of what is to be sent for the first time, first the next parts of what has left. Some may have ended.
    queue: VecDeque<u64>,
    queued_effects: u64,
    frames: Frames,
    open: Identifiers,
    armed: Time,
    counts: Counts,
}

/// What came of the frames to a target, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that were sent.
    pub sent: u64,
    /// Of those, such as carry something that was sent before.
    pub resent: u64,
    /// Datagrams that are no answers, or none to what was asked.
    pub malformed: u64,
    /// Answers to what is not waited for.
    pub stray: u64,
    /// Batches and settles that have left.
    pub operations: u64,
}

impl Counts {
    /// Of both together.
    #[must_use]
    pub fn and(self, other: Counts) -> Counts {
        Counts {
            sent: self.sent + other.sent,
            resent: self.resent + other.resent,
            malformed: self.malformed + other.malformed,
            stray: self.stray + other.stray,
            operations: self.operations + other.operations,
        }
    }
}

/// What a datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// An answer: frames may be sent that could not be before.
    Answered,
    /// One that was expected no longer, or never.
    Stray,
    /// None, or none to what was asked.
    Malformed,
    /// The target does not know this caller any more, who is to be introduced again.
    Stranger,
}

impl Ledger {
    /// Frames carry `first_serial`, at least 1, and those that come after it. None of them may have been used at this target before.
    pub(super) fn new(target: Incarnation, first_serial: u64) -> Self {
        debug_assert!(first_serial > 0, "a target takes 0 for a serial that was used");
        Ledger {
            target,
            introduction: None,
            closed: false,
            next_serial: first_serial,
            next_task: 0,
            tasks: BTreeMap::new(),
            queue: VecDeque::new(),
            queued_effects: 0,
            frames: Frames::default(),
            open: Identifiers::default(),
            armed: Time::FAR,
            counts: Counts::default(),
        }
    }

    /// The first identifier that was not given out: where the target's window begins when this caller is introduced.
    /// Stays as it is as long as the ledger is not introduced.
    pub(super) const fn next_id(&self) -> OperationId {
        self.open.next()
    }

    /// The target knows this caller, with a window that begins with [`Ledger::next_id`] as it is now. Of a ledger that is introduced
    /// already nothing changes: what is under way would execute again in another window (F2).
    pub(super) fn introduced(&mut self, caller: u32, key: TagKey) {
        if !self.closed {
            self.introduction.get_or_insert((caller, key));
        }
    }

    pub(super) const fn is_introduced(&self) -> bool {
        self.introduction.is_some()
    }

    /// The target does not know this caller any more. What has left ends as unknown, and asked to settle it the new window will say
    /// that it is forgotten; what is queued waits for the next introduction.
    pub(super) fn forget_introduction(&mut self, endings: &mut Endings) {
        self.introduction = None;
        let left = self.tasks.iter().filter(|(_, task)| task.left).map(|(number, _)| *number).collect();
        self.end_all(left, &Error::Closed, endings);
        self.frames.forget();
    }

    /// The fabric is closed.
    pub(super) fn close(&mut self, endings: &mut Endings) {
        self.closed = true;
        self.introduction = None;
        self.end_all(self.tasks.keys().copied().collect(), &Error::Closed, endings);
        self.frames.forget();
    }

    /// Whether nothing is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The target's process is found to be gone: what has left ends as unknown, and what waits as unreachable. It is asked again when
    /// something is posted again.
    pub(super) fn gone(&mut self, error: &Error, endings: &mut Endings) {
        self.end_all(self.tasks.keys().copied().collect(), error, endings);
        self.frames.forget();
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// When [`Ledger::expire`] is to be called next, or earlier than that.
    pub(super) const fn armed(&self) -> Time {
        self.armed
    }

    /// Queues a batch. Its elements with an effect take their identifiers when it leaves.
    pub(super) fn post(&mut self, now: Time, key: &RegionKey, batch: Batch, deadline: Time) -> Pending<Completed> {
        if let Err(error) = self.admit(now, &batch, deadline) {
            return Pending::ready(Err(error));
        }
        if batch.operations().is_empty() {
            return Pending::ready(Ok(Completed::new()));
        }
        self.queued_effects += batch.effects();
        let (completer, pending) = Pending::new(Error::Closed);
        let work = Work::new(RegionId::from(key), batch.into_operations());
        self.queue(Task::new(deadline, What::Batch { work, completer }));
        pending
    }

    /// Queues a question for what became of an operation (F2).
    pub(super) fn settle(&mut self, now: Time, id: OperationId, deadline: Time) -> Pending<Settled> {
        // One that was not given out must not be barred: the operation that is to have it would find it taken.
        let forgotten = Error::Forgotten { target: self.target, operation: id };
        let admitted = if self.open.was_given_out(id) { self.admit_anything(now, deadline) } else { Err(forgotten) };
        if let Err(error) = admitted {
            return Pending::ready(Err(error));
        }
        let (completer, pending) = Pending::new(Error::Closed);
        self.queue(Task::new(deadline, What::Settle { id, completer }));
        pending
    }

    /// Puts what is due into a frame, and the frame into `bytes`: what is to be sent again, then what is queued. False
    /// if nothing is due; call it until it says so, after each post and arrival and when the time of [`Ledger::expire`]
    /// has come. From here on what is in the frame may be executed.
    pub(super) fn gather(
        &mut self,
        now: Time,
        frame: &mut FrameWriter,
        bytes: &mut Vec<u8>,
        endings: &mut Endings,
    ) -> bool {
        debug_assert!(frame.is_empty(), "every frame that was begun was finished");
        let Some((caller, key)) = self.introduction else { return false };
        let mut items = Vec::new();
        for carried in self.frames.due(now) {
            if !self.put_again(now, carried, frame, &mut items, endings) {
                break;
            }
        }
        let again = !items.is_empty();
        while !self.frames.is_full() && self.put_queued(now, frame, &mut items, endings) {}
        if items.is_empty() {
            return false;
        }
        self.armed = items.iter().filter_map(|item| item.due).fold(self.armed, Time::min);
        self.frames.sent(self.next_serial, items);
        frame.finish(caller, self.next_serial, key, bytes);
        self.next_serial += 1;
        self.counts.sent += 1;
        self.counts.resent += u64::from(again);
        true
    }

    /// Whether there may be room for another one.
    fn put_again(
        &mut self,
        now: Time,
        carried: Carried,
        frame: &mut FrameWriter,
        items: &mut Vec<Item>,
        endings: &mut Endings,
    ) -> bool {
        let Some(task) = self.tasks.get_mut(&carried.task) else { return true };
        if task.deadline <= now {
            self.end(carried.task, &Error::Late, endings);
            return true;
        }
        if task.words() > frame.room() {
            return false;
        }
        if let Some(newest) = task.serials.last() {
            self.frames.sent_again(*newest, carried);
        }
        task.write(frame);
        items.push(Item { carried, due: Some(task.sent(now, self.next_serial, self.target)) });
        true
    }

    /// Whether there may be another one, and room for it.
    fn put_queued(&mut self, now: Time, frame: &mut FrameWriter, items: &mut Vec<Item>, endings: &mut Endings) -> bool {
        let Some(&number) = self.queue.front() else { return false };
        let Some(task) = self.tasks.get_mut(&number).filter(|task| task.deadline > now) else {
            self.queue.pop_front();
            self.end(number, &Error::Late, endings);
            return true;
        };
        if task.words() > frame.room() {
            return false;
        }
        self.queue.pop_front();
        if !task.left {
            self.counts.operations += 1;
            self.queued_effects -= task.queued_effects();
            if let What::Batch { work, .. } = &mut task.what {
                work.ids = self.open.take(&work.operations);
            }
        }
        task.write(frame);
        let carried = Carried { task: number, part: task.part };
        items.push(Item { carried, due: Some(task.sent(now, self.next_serial, self.target)) });
        true
    }

    /// A datagram came in. After it frames may be due.
    pub(super) fn answered(&mut self, bytes: &[u8], endings: &mut Endings) -> Arrival {
        let arrival = match self.introduction.map(|(caller, key)| Datagram::parse(bytes, caller, key)) {
            Some(Some(Datagram::Answer(serial, answers))) => self.take(serial, answers, endings),
            Some(Some(Datagram::Stranger(serial))) if self.frames.is_under_way(serial) => {
                self.forget_introduction(endings);
                Arrival::Stranger
            }
            Some(None) => Arrival::Malformed,
            Some(Some(Datagram::Stranger(_))) | None => Arrival::Stray,
        };
        match arrival {
            Arrival::Malformed => self.counts.malformed += 1,
            Arrival::Stray => self.counts.stray += 1,
            Arrival::Answered | Arrival::Stranger => {}
        }
        arrival
    }

    fn take(&mut self, serial: u64, answers: Vec<Answer>, endings: &mut Endings) -> Arrival {
        let Some(carried) = self.frames.carried(serial) else { return Arrival::Stray };
        let carried: Vec<Carried> = carried.collect();
        if carried.len() != answers.len() {
            return Arrival::Malformed;
        }
        let mut waited: Vec<_> = carried.into_iter().zip(answers).collect();
        waited.retain(|(carried, _)| self.tasks.get(&carried.task).is_some_and(|task| task.part == carried.part));
        let fits = |(carried, answer): &(Carried, Answer)| {
            self.tasks.get(&carried.task).is_some_and(|task| task.is_answered_by(answer))
        };
        if !waited.iter().all(fits) {
            return Arrival::Malformed;
        }
        for (carried, answer) in waited {
            self.conclude(carried, answer, endings);
        }
        Arrival::Answered
    }

    fn conclude(&mut self, carried: Carried, answer: Answer, endings: &mut Endings) {
        let Some(task) = self.tasks.remove(&carried.task) else { return };
        self.frames.over(&task.serials, carried);
        match (task.what, answer) {
            (What::Batch { mut work, completer }, Answer::Batch { outcome, done, bodies }) => {
                if outcome == Outcome::Done && work.advance(&bodies) {
                    let what = What::Batch { work, completer };
                    let next = Task { left: true, part: task.part + 1, ..Task::new(task.deadline, what) };
                    self.tasks.insert(carried.task, next);
                    self.queue.push_front(carried.task);
                    return;
                }
                match outcome {
                    Outcome::Unknown => self.open.lose(work.ids),
                    _ => self.open.close(work.ids),
                }
                let done = work.part.elements().start + done;
                let result = match refusal(self.target, work.region, &work.operations, outcome, done, work.ids) {
                    Some(error) => Err(error),
                    None => Ok(work.completed()),
                };
                endings.batch(completer, result);
            }
            (What::Settle { id, completer }, Answer::Settled(settled)) => {
                self.open.close(Some((id, id)));
                let forgotten = Error::Forgotten { target: self.target, operation: id };
                endings.settle(completer, settled.ok_or(forgotten));
            }
            _ => debug_assert!(false, "an answer is taken only if its shape fits"),
        }
    }

    /// Ends what is past its deadline. When it is to be called next: at the next deadline, or when something is to be sent again.
    pub(super) fn expire(&mut self, now: Time, endings: &mut Endings) -> Time {
        let late = self.tasks.iter().filter(|(_, task)| task.deadline <= now).map(|(number, _)| *number).collect();
        self.end_all(late, &Error::Late, endings);
        self.armed = self.tasks.values().map(|task| task.deadline).fold(self.frames.next(), Time::min);
        self.armed
    }

    fn admit(&self, now: Time, batch: &Batch, deadline: Time) -> Result<()> {
        for operation in batch.operations() {
            match operation {
                Operation::Read { into, .. } => at_most("a read", into.len(), LARGEST_READ)?,
                Operation::Write { from, .. } => at_most("a write", from.len(), LARGEST_WRITE)?,
                _ => {}
            }
        }
        at_most("a batch", batch.operations().len(), LARGEST_BATCH)?;
        self.admit_anything(now, deadline)?;
        self.open.room_for(self.target, self.queued_effects, batch.effects())
    }

    fn admit_anything(&self, now: Time, deadline: Time) -> Result<()> {
        if self.closed {
            return Err(Error::Closed);
        }
        if deadline <= now {
            return Err(Error::Late);
        }
        if self.tasks.len() >= MOST_UNDER_WAY { Err(queue_full()) } else { Ok(()) }
    }

    fn queue(&mut self, task: Task) {
        self.armed = self.armed.min(task.deadline);
        self.tasks.insert(self.next_task, task);
        self.queue.push_back(self.next_task);
        self.next_task += 1;
    }

    fn end_all(&mut self, numbers: Vec<u64>, never_left: &Error, endings: &mut Endings) {
        if numbers.is_empty() {
            return;
        }
        for number in numbers {
            self.end(number, never_left, endings);
        }
        self.queue.retain(|number| self.tasks.contains_key(number));
    }

    /// Ends it without an answer: as unknown, or with this error if it never left.
    fn end(&mut self, number: u64, never_left: &Error, endings: &mut Endings) {
        let Some(task) = self.tasks.remove(&number) else { return };
        self.frames.over(&task.serials, Carried { task: number, part: task.part });
        if !task.left {
            self.queued_effects -= task.queued_effects();
            return task.end(never_left.clone(), endings);
        }
        let ids = task.ids();
        if matches!(task.what, What::Batch { .. }) {
            self.open.lose(ids);
        }
        task.end(unknown(self.target, ids), endings);
    }
}
