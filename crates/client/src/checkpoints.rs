//! Checkpoints of several processes, consistent across them, in memory that nodes share.
//!
//! Each process saves its part of checkpoint 1, 2, 3, ...; a checkpoint is *complete* when all processes have saved it.
//! A process that begins, or begins again, *joins*: it gets its part of the newest complete checkpoint, if there is
//! one. If it was there before in this *era*, it has crashed: a new era begins, in which nothing counts that was saved
//! after that checkpoint. The next save of each other process returns that it must join as well. So all go on from one
//! checkpoint.
//!
//! ```text
//!  segment NAME:                "VCKP" 2 | era | oldest | complete | kept | processes | bytes of a part |  of each slot: era of its checkpoint |  of each process: era that it joined
//!  segment NAME/PROCESS/SLOT:   "VCKP" 2 | era | number | bytes | the part |       of checkpoint `number`, whose slot is `number` modulo `kept`
//! ```
//!
//! All words are little-endian, 64 bits; the header of a format is one word. All segments are coherent by `strict`: a
//! read after a put sees it.
//!
//! A save is one put, of the process's own part, so processes that save together do not keep each other waiting. A
//! process that finds all parts of the next checkpoint records it as complete; that is the last one that saves. A
//! process that waits long looks too, because the last one may have died. [`steps`] has the order, and docs/concepts/memory.md
//! what could happen.

use std::time::{Duration, Instant};

use verbena_terms::{Coherence, SegmentId};

pub use self::record::MAX_PROCESSES;
use self::record::{Head, KEPT, PART_HEAD_BYTES, Record, Refusal};
use self::steps::{Complete, Join, Machine, Save, Seen, Step};
use crate::error::{Error, Result};
use crate::memory::{Memory, PutOptions};
use crate::memory_wire::{Failure, NewSegment, Placement};

#[cfg(test)]
mod every_order;
mod record;
mod steps;

/// From one look at a record to the next.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Reads and puts of one call: each process's part several times.
const STEPS: usize = 1 << 20;

/// The size and number of the checkpoints of several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Processes, which have the numbers from 0 on: 1 to [`MAX_PROCESSES`].
    pub processes: u32,
    /// Bytes that the part of one may have.
    pub bytes: u64,
    /// Homes that hold the record, and each part: 1 to 4.
    pub copies: u8,
    /// Checkpoints that have room, 2 to 64: the one that is being saved, and `kept` - 1 complete ones.
    pub kept: u32,
    /// Where the parts are.
    pub placement: Placement,
}

/// A process's place among those that save: what it says when it saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The era that it is in.
    pub era: u64,
    /// The newest complete checkpoint, from which it goes on; 0 before the first.
    pub number: u64,
}

/// How the saving stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// How often all began again, and 1.
    pub era: u64,
    /// The oldest complete checkpoint that is there.
    pub oldest: u64,
    /// The newest; 0 before the first.
    pub complete: u64,
    /// How many have room.
    pub kept: u32,
    /// Bytes that a part may have.
    pub bytes: u64,
    /// Of each process: whether it has joined in this era, and which checkpoint it saved last in it; 0 if none.
    pub processes: Vec<(bool, u64)>,
}

impl Memory {
    /// Makes the segments of checkpoints of this name: the record, and a slot for each process and kept checkpoint.
    ///
    /// # Errors
    /// [`Error::Memory`], with [`Failure::Exists`] if there are any. What had been made by then is released.
    pub fn make_checkpoints(&mut self, name: &str, options: &CheckpointOptions) -> Result<()> {
        let CheckpointOptions { processes, bytes, kept, copies, placement } = options;
        if !(1..=MAX_PROCESSES).contains(processes) || !KEPT.contains(kept) {
            let text = format!(
                "checkpoints of {processes} processes, {kept} kept: 1 to {MAX_PROCESSES} processes, {} to {} kept",
                KEPT.start(),
                KEPT.end()
            );
            return Err(Error::Memory { why: Failure::Bad, text });
        }
        let words = Record::new(*processes, *kept, *bytes).encode();
        let new = NewSegment::of(words.len() as u64).named(name).coherent(Coherence::Strict).copied(*copies);
        let made = self.allocate(new.placed(placement.clone()))?.id;
        let mut parts = vec![];
        let filled = self.make_parts(name, options, &mut parts).and_then(|()| {
            let over = Some(self.stat(made)?.version);
            self.put_with(made, &words, PutOptions { offset: 0, over })
        });
        filled.map(|_| ()).inspect_err(|_| {
            // As far as it goes: what is left can be removed by its name.
            for id in parts.iter().chain([&made]) {
                let _ = self.release(*id);
            }
        })
    }

    fn make_parts(&mut self, name: &str, options: &CheckpointOptions, made: &mut Vec<SegmentId>) -> Result<()> {
        for process in 0..options.processes {
            for slot in 0..options.kept {
                let bytes = options.bytes.saturating_add(PART_HEAD_BYTES as u64);
                let new = NewSegment::of(bytes).coherent(Coherence::Strict).copied(options.copies);
                let new = NewSegment { writers: 1, ..new };
                made.push(
                    self.allocate(new.named(&part_name(name, process, slot)).placed(options.placement.clone()))?.id,
                );
            }
        }
        Ok(())
    }

    /// How the saving of this name stands.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Malformed`] if the segment is no record.
    pub fn checkpoints(&mut self, name: &str) -> Result<CheckpointRecord> {
        let (record, _) = self.record(name)?;
        let slot = record.slot(record.complete + 1);
        let mut processes = vec![];
        for (process, joined) in (0..).zip(&record.joined) {
            let has_joined = *joined == record.era;
            let next = if has_joined { self.head(name, process, slot)?.0 } else { Head::default() };
            processes.push((has_joined, record.last_saved(process, next)));
        }
        let kept = record.kept();
        let Record { era, oldest, complete, bytes, .. } = record;
        Ok(CheckpointRecord { era, oldest, complete, kept, bytes, processes })
    }

    /// A process begins, or must join again. Returns its place, and its part of the newest complete checkpoint, if
    /// there is one.
    ///
    /// # Errors
    /// As [`checkpoints`](Self::checkpoints); [`Failure::Bad`] for a process that there is not.
    pub fn join_checkpoints(&mut self, name: &str, process: u32) -> Result<(Joined, Option<Vec<u8>>)> {
        let record = self.drive(name, &[], &mut Join::new(process))?;
        let joined = Joined { era: record.era, number: record.complete };
        // It stays until this process itself has saved the next one.
        let part = (joined.number > 0).then(|| self.part(name, &record, process, joined.number)).transpose()?;
        Ok((joined, part))
    }

    /// Saves a process's part of checkpoint `number`, and says which is the newest complete one now.
    ///
    /// # Errors
    /// [`Error::RolledBack`] if a new era has begun: the process is to join again, and what it did since the checkpoint that it then gets did not happen. [`Failure::Bad`] for
    /// a checkpoint that is not the next after the newest complete one, for one that it has saved already, and for a part that is too long. After any other it may be saved: it is to
    /// join again.
    pub fn save_checkpoint(&mut self, name: &str, process: u32, era: u64, number: u64, part: &[u8]) -> Result<u64> {
        self.drive(name, part, &mut Save::new(process, era, number, part.len() as u64))
    }

    /// Waits until all have saved a checkpoint, as long as `at_most`: whether it is complete by then.
    ///
    /// # Errors
    /// [`Error::RolledBack`] if a new era has begun.
    pub fn wait_for_checkpoint(&mut self, name: &str, era: u64, number: u64, at_most: Duration) -> Result<bool> {
        let until = Instant::now() + at_most;
        let (mut pause, mut complete) = (SHORTEST_PAUSE, Complete::new(era, number));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (record, _) = self.record(name)?;
            if record.era != era {
                return Err(Error::RolledBack);
            }
            if record.complete >= number {
                return Ok(true);
            }
            // The last one that saved says that it is complete; unless it has died.
            if (pause == LONGEST_PAUSE || left.is_zero()) && self.drive(name, &[], &mut complete)? {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(pause.min(left));
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// A process's part of a complete checkpoint, for callers that only look. The newest ones are there, as many as
    /// have room without the one that is being saved.
    ///
    /// # Errors
    /// [`Failure::NotFound`] for one that is not there any more, or not complete.
    pub fn checkpoint_part(&mut self, name: &str, process: u32, number: u64) -> Result<Vec<u8>> {
        let (record, _) = self.record(name)?;
        record.place(process)?;
        self.part(name, &record, process, number)
    }

    /// The same of the newest complete one, and which that is.
    ///
    /// # Errors
    /// [`Failure::NotFound`] if none is complete, [`Error::Unsteady`] if others complete one after the other meanwhile.
    pub fn newest_checkpoint_part(&mut self, name: &str, process: u32) -> Result<(u64, Vec<u8>)> {
        for _ in 0..STEPS {
            let (record, _) = self.record(name)?;
            record.place(process)?;
            match self.part(name, &record, process, record.complete) {
                Err(Error::Memory { why: Failure::NotFound, .. })
                    if self.record(name)?.0.complete != record.complete => {}
                part => return part.map(|part| (record.complete, part)),
            }
        }
        Err(Error::Unsteady)
    }

    /// Makes all processes begin again from an older complete checkpoint: each learns of it at its next save.
    ///
    /// # Errors
    /// [`Failure::NotFound`] for one that is not there any more.
    pub fn roll_back(&mut self, name: &str, number: u64) -> Result<()> {
        for _ in 0..STEPS {
            let (mut record, over) = self.record(name)?;
            record.head(number).ok_or_else(|| missing(name, &record, number))?;
            record.begin_era(number);
            if self.put_over(name, &record.encode(), over)? {
                return Ok(());
            }
        }
        Err(Error::Unsteady)
    }

    /// Releases the segments of checkpoints of this name, the record last: if that ends early it can be done again.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn remove_checkpoints(&mut self, name: &str) -> Result<()> {
        let (record, _) = self.record(name)?;
        for process in 0..record.processes() {
            for slot in 0..record.kept() {
                match self.release(&part_name(name, process, slot)) {
                    Ok(()) | Err(Error::Memory { why: Failure::NotFound, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.release(name)
    }

    /// What a machine wants is done, until it is.
    fn drive<T>(&mut self, name: &str, part: &[u8], machine: &mut impl Machine<T>) -> Result<T> {
        let mut step = Step::Look;
        for _ in 0..STEPS {
            let seen = match step {
                Step::Look => {
                    let (record, version) = self.record(name)?;
                    Seen::Record(record, version)
                }
                Step::Head { process, slot } => {
                    let (head, version) = self.head(name, process, slot)?;
                    Seen::Head(head, version)
                }
                Step::Put { process, slot, head, over } => {
                    Seen::Put(self.put_over(&part_name(name, process, slot), &head.encode(part), over)?)
                }
                Step::Swap { record, over } => Seen::Put(self.put_over(name, &record.encode(), over)?),
                Step::Done(done) => return Ok(done?),
            };
            step = machine.next(seen);
        }
        Err(Error::Unsteady)
    }

    /// With its version.
    fn record(&mut self, name: &str) -> Result<(Record, u64)> {
        let value = self.get(name)?;
        Ok((Record::decode(&value.bytes)?, value.version))
    }

    /// What a slot has, with its version.
    fn head(&mut self, name: &str, process: u32, slot: u32) -> Result<(Head, u64)> {
        let value = self.get_part(part_name(name, process, slot).as_str(), 0, Some(PART_HEAD_BYTES as u64))?;
        Ok((Head::decode(&value.bytes)?.0, value.version))
    }

    fn part(&mut self, name: &str, record: &Record, process: u32, number: u64) -> Result<Vec<u8>> {
        let missing = || missing(name, record, number);
        let wanted = record.head(number).ok_or_else(missing)?;
        let mut bytes = self.get(&part_name(name, process, record.slot(number)))?.bytes;
        let (head, length) = Head::decode(&bytes)?;
        // It may have been saved over meanwhile.
        if head != wanted {
            return Err(missing());
        }
        if bytes.len() - PART_HEAD_BYTES < length {
            return Err(Error::Malformed(format!("a part of {length} bytes in {}", bytes.len())));
        }
        bytes.truncate(PART_HEAD_BYTES + length);
        bytes.drain(..PART_HEAD_BYTES);
        Ok(bytes)
    }

    /// Whether it was put: not if there is another version.
    fn put_over(&mut self, which: &str, bytes: &[u8], over: u64) -> Result<bool> {
        match self.put_with(which, bytes, PutOptions { offset: 0, over: Some(over) }) {
            Ok(_) => Ok(true),
            Err(Error::Memory { why: Failure::Conflict { .. }, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::RolledBack => Error::RolledBack,
            Refusal::Bad(text) => Error::Memory { why: Failure::Bad, text },
        }
    }
}

fn missing(name: &str, record: &Record, number: u64) -> Error {
    let text = match record.complete {
        0 => format!("there is no complete checkpoint {number} of {name}: none is complete yet"),
        newest => format!("there is no complete checkpoint {number} of {name}: {newest} is the newest"),
    };
    Error::Memory { why: Failure::NotFound, text }
}

fn part_name(name: &str, process: u32, slot: u32) -> String {
    format!("{name}/{process}/{slot}")
}
