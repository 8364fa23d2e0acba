//! Checkpoints of several processes, consistent across them, in memory that nodes share.
//!
//! Each process saves its part of checkpoint 1, 2, 3, ...; one is *complete* when all have. A process that begins, or begins again, *joins*: it gets its part of the newest complete
//! one, or nothing if there is none. If it was there before in this *era*, it has crashed: a new era begins, in which nothing counts that was saved after
//! that checkpoint, and the others are told by their next save to join as well. So all go on from one checkpoint.
//!
//! ```text
//!  segment NAME (coherence version):    | "VCKP" 1 | era | oldest | complete | kept | processes | bytes of a part |  then of each process: era that it joined | last saved
//!  segment NAME/PROCESS/SLOT (read):    | "VCKP" 1 | number | bytes | the part |       of checkpoint `number`, whose slot is `number` modulo `kept`
//! ```
//!
//! All words are little-endian, 64 bits; the header of a format is one.
//!
//! | what could happen | why it does not |
//! |---|---|
//! | a checkpoint is made of parts of two runs | a part counts when the record was swapped in the era in which it was joined; a new era counts none |
//! | a process that was believed dead writes over its successor's part | it looks at the part's version before it looks at the era, and puts over that version |
//! | a complete checkpoint that is there is written over | one that is saved is the next after `complete`, whose slot is that of `complete` + 1 - `kept`: `oldest` is more |

use std::time::{Duration, Instant};

use verbena_terms::{Coherence, Format, SegmentId};

use crate::error::{Error, Result};
use crate::memory::{Memory, PutOptions};
use crate::memory_wire::{Failure, NewSegment, Placement};

const FORMAT: Format = Format::new(*b"VCKP", 1);
const WORD: usize = 8;
/// Words before those of processes, and before the bytes of a part.
const RECORD_HEAD: usize = 7;
const PART_HEAD: usize = 3;
/// Processes of one checkpoint, at the most.
pub const MAX_PROCESSES: u32 = 1 << 16;
/// Checkpoints that may be kept.
const KEPT: std::ops::RangeInclusive<u32> = 2..=64;
/// From one look at a record to the next.
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How often a record that others change is tried to be changed.
const ATTEMPTS: usize = 100_000;

/// What is to be saved by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Processes, which have the numbers from 0 on: 1 to [`MAX_PROCESSES`].
    pub processes: u32,
    /// Bytes that the part of one may have.
    pub bytes: u64,
    /// Homes that hold the record, and each part: 1 to 4.
    pub copies: u8,
    /// Checkpoints that have room, 2 to 64: the one that is being saved, and so many complete ones.
    pub kept: u32,
    /// Where the parts are.
    pub placement: Placement,
}

/// A process's place among those that save: what it says when it saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The era that it is in.
    pub era: u64,
    /// The newest complete checkpoint, from which it goes on; 0 if there is none.
    pub number: u64,
}

/// How the saving stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// How often all began again, and 1.
    pub era: u64,
    /// The oldest complete checkpoint that is there.
    pub oldest: u64,
    /// The newest; 0 if there is none.
    pub complete: u64,
    /// How many have room.
    pub kept: u32,
    /// Bytes that a part may have.
    pub bytes: u64,
    /// Of each process: the era that it joined last, and which checkpoint it saved last in that.
    pub processes: Vec<(u64, u64)>,
}

impl CheckpointRecord {
    /// Of each process: whether it has joined in this era, and which checkpoint it saved last in that.
    pub fn progress(&self) -> impl Iterator<Item = (bool, u64)> {
        self.processes.iter().map(|(joined, saved)| (*joined == self.era, *saved))
    }
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
        let processes = vec![(0, 0); *processes as usize];
        let record = CheckpointRecord { era: 1, oldest: 1, complete: 0, kept: *kept, bytes: *bytes, processes };
        let words = record.encode();
        let new = NewSegment::of(words.len() as u64).named(name).coherent(Coherence::Version).copied(*copies);
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
                let bytes = options.bytes.saturating_add((PART_HEAD * WORD) as u64);
                let new =
                    NewSegment { writers: 1, ..NewSegment::of(bytes).coherent(Coherence::Read).copied(options.copies) };
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
        self.record(name).map(|(record, _)| record)
    }

    /// A process begins, or was told to join again. Gives its place, and its part of the newest complete checkpoint, if there is one.
    ///
    /// # Errors
    /// As [`checkpoints`](Self::checkpoints); [`Failure::Bad`] for a process that there is not.
    pub fn join_checkpoints(&mut self, name: &str, process: u32) -> Result<(Joined, Option<Vec<u8>>)> {
        let record = self.change(name, |record| {
            let era = record.era;
            if record.process(process)?.0 == era {
                // It was there before, and what it has saved since is of a run that has ended.
                record.begin_era(record.complete);
            }
            let era = record.era;
            *record.process(process)? = (era, 0);
            Ok(())
        })?;
        let joined = Joined { era: record.era, number: record.complete };
        // It stays until this process itself has saved the next one.
        let part = (joined.number > 0).then(|| self.checkpoint_part(name, process, joined.number)).transpose()?;
        Ok((joined, part))
    }

    /// Saves a process's part of checkpoint `number`, and says which is the newest complete one now.
    ///
    /// # Errors
    /// [`Error::RolledBack`] if a new era has begun: the process is to join again, and what it did since the checkpoint that it then gets did not happen. [`Failure::Bad`] for
    /// a checkpoint that is not the next after the newest complete one, and for a part that is too long. After any other it may be saved: it is to join again.
    pub fn save_checkpoint(&mut self, name: &str, process: u32, era: u64, number: u64, part: &[u8]) -> Result<u64> {
        let length = part.len() as u64;
        let (record, _) = self.record(name)?;
        record.check(process, era, number, length)?;
        let slot = part_name(name, process, (number % u64::from(record.kept)) as u32);
        let over = self.stat(&slot)?.version;
        // After the part's version: whoever has the part by then is of an era that is seen.
        self.record(name)?.0.check(process, era, number, length)?;
        let head = [u64::from_le_bytes(FORMAT.header()), number, length];
        let bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).chain(part.iter().copied()).collect();
        match self.put_with(&slot, &bytes, PutOptions { offset: 0, over: Some(over) }) {
            Ok(_) => {}
            // Its successor has put there.
            Err(Error::Memory { why: Failure::Conflict { .. }, .. }) => return Err(Error::RolledBack),
            Err(error) => return Err(error),
        }
        let record = self.change(name, |record| {
            record.check(process, era, number, length)?;
            record.process(process)?.1 = number;
            if record.processes.iter().all(|(joined, last)| (*joined, *last) == (era, number)) {
                record.complete = number;
                // The next one has the slot of the one before it.
                record.oldest = record.oldest.max((number + 2).saturating_sub(record.kept.into()));
            }
            Ok(())
        })?;
        Ok(record.complete)
    }

    /// Waits until all have saved a checkpoint, as long as `at_most`: whether it is complete by then.
    ///
    /// # Errors
    /// [`Error::RolledBack`] if a new era has begun.
    pub fn wait_for_checkpoint(&mut self, name: &str, era: u64, number: u64, at_most: Duration) -> Result<bool> {
        let until = Instant::now() + at_most;
        let mut pause = SHORTEST_PAUSE;
        loop {
            let record = self.checkpoints(name)?;
            if record.era != era {
                return Err(Error::RolledBack);
            }
            let left = until.saturating_duration_since(Instant::now());
            if record.complete >= number || left.is_zero() {
                return Ok(record.complete >= number);
            }
            std::thread::sleep(pause.min(left));
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// A process's part of a complete checkpoint, for who only looks. The newest ones are there, as many as have room without the one that is being saved.
    ///
    /// # Errors
    /// [`Failure::NotFound`] for one that is not there any more, or not complete.
    pub fn checkpoint_part(&mut self, name: &str, process: u32, number: u64) -> Result<Vec<u8>> {
        let (record, _) = self.record(name)?;
        record.place(process)?;
        let missing = || {
            let text = format!("there is no complete checkpoint {number} of {name}: {} is the newest", record.complete);
            Error::Memory { why: Failure::NotFound, text }
        };
        if !record.is_there(number) {
            return Err(missing());
        }
        let value = self.get(&part_name(name, process, (number % u64::from(record.kept)) as u32))?;
        let words = words_of(&value.bytes, PART_HEAD)?;
        let (its, length) = (words[1], words[2] as usize);
        let part = value.bytes.get(PART_HEAD * WORD..).and_then(|rest| rest.get(..length));
        // It may have been saved over meanwhile.
        part.filter(|_| its == number).map(<[u8]>::to_vec).ok_or_else(missing)
    }

    /// Makes all processes begin again from an older complete checkpoint: each is told by its next save.
    ///
    /// # Errors
    /// [`Failure::NotFound`] for one that is not there any more.
    pub fn roll_back(&mut self, name: &str, number: u64) -> Result<()> {
        self.change(name, |record| {
            if !record.is_there(number) {
                let text =
                    format!("there is no complete checkpoint {number} of {name}: {} is the newest", record.complete);
                return Err(Error::Memory { why: Failure::NotFound, text });
            }
            record.begin_era(number);
            Ok(())
        })
        .map(|_| ())
    }

    /// Releases the segments of checkpoints of this name, the record last: if that ends early it can be done again.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn remove_checkpoints(&mut self, name: &str) -> Result<()> {
        let (record, _) = self.record(name)?;
        for process in 0..record.processes.len() as u32 {
            for slot in 0..record.kept {
                match self.release(&part_name(name, process, slot)) {
                    Ok(()) | Err(Error::Memory { why: Failure::NotFound, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.release(name)
    }

    /// With its version.
    fn record(&mut self, name: &str) -> Result<(CheckpointRecord, u64)> {
        let value = self.get(name)?;
        Ok((CheckpointRecord::decode(&value.bytes)?, value.version))
    }

    /// Changes the record, again if somebody else does. Gives what it is now.
    fn change(&mut self, name: &str, change: impl Fn(&mut CheckpointRecord) -> Result<()>) -> Result<CheckpointRecord> {
        for _ in 0..ATTEMPTS {
            let (mut record, version) = self.record(name)?;
            change(&mut record)?;
            match self.put_with(name, &record.encode(), PutOptions { offset: 0, over: Some(version) }) {
                Ok(_) => return Ok(record),
                Err(Error::Memory { why: Failure::Conflict { .. }, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unsteady)
    }
}

fn part_name(name: &str, process: u32, slot: u32) -> String {
    format!("{name}/{process}/{slot}")
}

fn words_of(bytes: &[u8], count: usize) -> Result<Vec<u64>> {
    let words: Vec<u64> = bytes
        .chunks_exact(WORD)
        .take(count)
        .map(|word| u64::from_le_bytes(word.try_into().expect("invariant: a chunk has as many bytes as a word")))
        .collect();
    if words.len() < count {
        return Err(Error::Malformed(format!("{} bytes are no checkpoint", bytes.len())));
    }
    FORMAT.check(&bytes[..WORD])?;
    Ok(words)
}

impl CheckpointRecord {
    fn encode(&self) -> Vec<u8> {
        let head = [u64::from_le_bytes(FORMAT.header()), self.era, self.oldest, self.complete, self.kept.into()];
        let head = head.into_iter().chain([self.processes.len() as u64, self.bytes]);
        let rest = self.processes.iter().flat_map(|(joined, last)| [*joined, *last]);
        head.chain(rest).flat_map(u64::to_le_bytes).collect()
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::Malformed(format!("{} bytes are no record of checkpoints", bytes.len()));
        let head = words_of(bytes, RECORD_HEAD)?;
        let [_, era, oldest, complete, kept, processes, part] = head[..] else { return Err(malformed()) };
        let kept = u32::try_from(kept).ok().filter(|kept| KEPT.contains(kept)).ok_or_else(malformed)?;
        if processes > MAX_PROCESSES.into() || bytes.len() != (RECORD_HEAD + 2 * processes as usize) * WORD {
            return Err(malformed());
        }
        let rest = words_of(bytes, RECORD_HEAD + 2 * processes as usize)?;
        let processes = rest[RECORD_HEAD..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Ok(CheckpointRecord { era, oldest, complete, kept, bytes: part, processes })
    }

    /// Where a process is among them.
    fn place(&self, process: u32) -> Result<usize> {
        let (place, count) = (process as usize, self.processes.len());
        let text = || format!("there is no process {process}: {count}, from 0 on");
        if place < count { Ok(place) } else { Err(Error::Memory { why: Failure::Bad, text: text() }) }
    }

    fn process(&mut self, process: u32) -> Result<&mut (u64, u64)> {
        let place = self.place(process)?;
        Ok(&mut self.processes[place])
    }

    /// Nobody has joined it, and nothing counts that was saved after this checkpoint.
    fn begin_era(&mut self, number: u64) {
        (self.era, self.complete) = (self.era + 1, number);
        self.processes.iter_mut().for_each(|process| process.1 = 0);
    }

    /// Whether a complete checkpoint has its slots still.
    fn is_there(&self, number: u64) -> bool {
        (self.oldest..=self.complete).contains(&number)
    }

    /// Whether a process may save this.
    fn check(&self, process: u32, era: u64, number: u64, length: u64) -> Result<()> {
        let bad = |text| Err(Error::Memory { why: Failure::Bad, text });
        let (joined, _) = self.processes[self.place(process)?];
        if era != self.era || joined != era {
            return Err(Error::RolledBack);
        }
        if number <= self.complete {
            return bad(format!("checkpoint {number} is complete: {} is the newest", self.complete));
        }
        if number > self.complete + 1 {
            return bad(format!("checkpoint {number} comes after {}, which is not complete", self.complete + 1));
        }
        if length > self.bytes {
            return bad(format!("a part of {length} bytes: at most {}", self.bytes));
        }
        Ok(())
    }
}
