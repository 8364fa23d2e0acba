//! What is written down of checkpoints, and what may become of it.

use verbena_terms::Format;

use crate::error::{Error, Result};

const FORMAT: Format = Format::new(*b"VCKP", 2);
const WORD: usize = 8;
/// Words of a record before those of slots and processes.
const RECORD_HEAD: usize = 7;
/// Words before the bytes of a part.
const PART_HEAD: usize = 4;
/// Bytes before those of a part.
pub(super) const PART_HEAD_BYTES: usize = PART_HEAD * WORD;
/// Processes of one checkpoint, at the most.
pub const MAX_PROCESSES: u32 = 1 << 16;
/// Checkpoints that may be kept.
pub(super) const KEPT: std::ops::RangeInclusive<u32> = 2..=64;

/// What all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) era: u64,
    pub(super) oldest: u64,
    pub(super) complete: u64,
    /// Bytes that a part may have.
    pub(super) bytes: u64,
    /// Of each slot: in which era the checkpoint was saved that was complete in it last.
    pub(super) eras: Vec<u64>,
    /// Of each process: the era that it joined last; 0 if none.
    pub(super) joined: Vec<u64>,
}

/// What a slot has: nothing where both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Head {
    pub(super) era: u64,
    pub(super) number: u64,
}

/// Why nothing was saved, or joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Refusal {
    RolledBack,
    Bad(String),
}

impl Record {
    pub(super) fn new(processes: u32, kept: u32, bytes: u64) -> Record {
        let (eras, joined) = (vec![0; kept as usize], vec![0; processes as usize]);
        Record { era: 1, oldest: 1, complete: 0, bytes, eras, joined }
    }

    pub(super) fn processes(&self) -> u32 {
        self.joined.len() as u32
    }

    pub(super) fn kept(&self) -> u32 {
        self.eras.len() as u32
    }

    /// The slot of a checkpoint.
    pub(super) fn slot(&self, number: u64) -> u32 {
        (number % self.eras.len() as u64) as u32
    }

    /// What the slots of a complete checkpoint have; nothing for one that is not there.
    pub(super) fn head(&self, number: u64) -> Option<Head> {
        let is_there = (self.oldest..=self.complete).contains(&number);
        is_there.then(|| Head { era: self.eras[self.slot(number) as usize], number })
    }

    /// Where a process is among them.
    pub(super) fn place(&self, process: u32) -> std::result::Result<usize, Refusal> {
        let (place, count) = (process as usize, self.joined.len());
        let text = || format!("there is no process {process}: there are {count}, numbered from 0");
        if place < count { Ok(place) } else { Err(Refusal::Bad(text())) }
    }

    /// Whether a process has joined this era.
    pub(super) fn has_joined(&self, process: u32) -> std::result::Result<bool, Refusal> {
        Ok(self.joined[self.place(process)?] == self.era)
    }

    /// A process begins, or begins again: then it was there before, and what was saved since the newest complete checkpoint is of a run that has ended.
    pub(super) fn join(&mut self, process: u32) -> std::result::Result<(), Refusal> {
        let place = self.place(process)?;
        if self.joined[place] == self.era {
            self.begin_era(self.complete);
        }
        self.joined[place] = self.era;
        Ok(())
    }

    /// Begins an era that no process has joined. Nothing that was saved after this checkpoint counts.
    pub(super) fn begin_era(&mut self, number: u64) {
        (self.era, self.complete) = (self.era + 1, number);
    }

    /// All have saved the next checkpoint in this era.
    pub(super) fn completed(&mut self) {
        self.complete += 1;
        let slot = self.slot(self.complete) as usize;
        self.eras[slot] = self.era;
        // The next one has the slot of the one before it.
        self.oldest = self.oldest.max((self.complete + 2).saturating_sub(self.kept().into()));
    }

    /// Which checkpoint a process saved last in this era, from what the slot of the next one has: 0 if none.
    pub(super) fn last_saved(&self, process: u32, next: Head) -> u64 {
        match self.has_joined(process) {
            Ok(true) if next.era == self.era && next.number > self.complete => next.number,
            Ok(true) => self.head(self.complete).filter(|head| head.era == self.era).map_or(0, |head| head.number),
            _ => 0,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let head = [u64::from_le_bytes(FORMAT.header()), self.era, self.oldest, self.complete];
        let head = head.into_iter().chain([self.kept().into(), self.processes().into(), self.bytes]);
        head.chain(self.eras.iter().chain(&self.joined).copied()).flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::Malformed(format!("{} bytes are no record of checkpoints", bytes.len()));
        let head = words_of(bytes, RECORD_HEAD)?;
        let [_, era, oldest, complete, kept, processes, part] = head[..] else { return Err(malformed()) };
        let kept = u32::try_from(kept).ok().filter(|kept| KEPT.contains(kept)).ok_or_else(malformed)? as usize;
        if processes > MAX_PROCESSES.into() || bytes.len() != (RECORD_HEAD + kept + processes as usize) * WORD {
            return Err(malformed());
        }
        let rest = words_of(bytes, bytes.len() / WORD)?.split_off(RECORD_HEAD);
        let (eras, joined) = rest.split_at(kept);
        Ok(Record { era, oldest, complete, bytes: part, eras: eras.into(), joined: joined.into() })
    }
}

impl Head {
    /// With the bytes of a part.
    pub(super) fn encode(self, part: &[u8]) -> Vec<u8> {
        let head = [u64::from_le_bytes(FORMAT.header()), self.era, self.number, part.len() as u64];
        head.iter().flat_map(|word| word.to_le_bytes()).chain(part.iter().copied()).collect()
    }

    /// With how many bytes the part has.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, usize)> {
        // As it was allocated.
        if bytes.get(..PART_HEAD_BYTES).is_some_and(|head| head.iter().all(|byte| *byte == 0)) {
            return Ok((Head::default(), 0));
        }
        let words = words_of(bytes, PART_HEAD)?;
        Ok((Head { era: words[1], number: words[2] }, words[3] as usize))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mut record = Record::new(3, 4, 100);
        record.join(1).unwrap();
        record.completed();
        assert_eq!(Record::decode(&record.encode()).unwrap(), record);
        let bytes = record.encode();
        for length in 0..bytes.len() {
            assert!(Record::decode(&bytes[..length]).is_err(), "{length}");
        }
        let head = Head { era: 2, number: 7 };
        assert_eq!(Head::decode(&head.encode(b"part")).unwrap(), (head, 4));
        assert_eq!(Head::decode(&[0; PART_HEAD_BYTES]).unwrap(), (Head::default(), 0));
        assert!(Head::decode(&[0; PART_HEAD_BYTES - 1]).is_err());
        let mut older = bytes;
        older[4] -= 1;
        assert!(matches!(Record::decode(&older), Err(Error::Format(_))), "{older:?}");
    }
}
