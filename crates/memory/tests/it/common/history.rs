//! What was asked and answered; what must hold of it for each coherence is in checks.rs.
//!
//! Every put has a number of its own, which fills the words that it puts. So a value says whose it is, whether it is whole, and whether it was put to this
//! segment at all. Where values are put in parts, a version says which puts are in it. Times are the world's.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use verbena_memory::{Coherence, SegmentId};
use verbena_terms::Time;

mod checks;

/// The oldest that a copy of `temporal` may be.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How many versions behind one of `delta` may be.
pub const BEHIND: u32 = 2;

/// One segment of each coherence; and those again that promise more of values that are put in parts.
pub const MODELS: [Coherence; 11] = [
    Coherence::Null,
    Coherence::Read,
    Coherence::Write,
    Coherence::Strict,
    Coherence::Version,
    Coherence::Delta(BEHIND),
    Coherence::Temporal(PATIENCE.as_micros() as u64),
    Coherence::Strict,
    Coherence::Version,
    Coherence::Delta(BEHIND),
    Coherence::Temporal(PATIENCE.as_micros() as u64),
];

/// How values of a segment are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As a whole.
    Whole,
    /// In parts, each of which has one writer.
    Owned,
    /// In parts, and now and then as a whole, by everybody.
    Mixed,
}

/// How those of one of [`MODELS`] are.
pub fn manner(model: usize) -> Manner {
    match model {
        2 => Manner::Owned,
        0..7 => Manner::Whole,
        _ => Manner::Mixed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is not known, or will not be.
    Open,
    /// It was done, as this version, and answered then.
    Done(u64, Time),
    /// It was not, and never will be.
    Not,
}

#[derive(Clone, Copy, Debug)]
pub struct PutOf {
    pub number: u64,
    /// Which part, of a put of one alone.
    pub cell: Option<usize>,
    pub named: Option<u64>,
    pub begun: Time,
    pub fate: Fate,
}

impl PutOf {
    /// Whether this part is among what it puts.
    fn covers(&self, cell: usize) -> bool {
        self.cell.is_none_or(|of| of == cell)
    }
}

#[derive(Clone, Debug)]
pub struct GetOf {
    /// The first part of the value that was asked for.
    pub from: usize,
    /// The number in each part, from that one on.
    pub words: Vec<u64>,
    pub version: u64,
    /// The number of the put whose time stamp came with it, if those are looked at.
    pub stamp: Option<u64>,
    pub begun: Time,
    pub ended: Time,
}

#[derive(Clone, Debug)]
pub struct History {
    pub coherence: Coherence,
    pub puts: Vec<PutOf>,
    pub gets: Vec<GetOf>,
}

#[derive(Default)]
pub struct Histories {
    pub of: BTreeMap<SegmentId, History>,
    /// Which segment a number was put to.
    numbers: HashMap<u64, SegmentId>,
}

impl Histories {
    pub fn put(&mut self, id: SegmentId, coherence: Coherence, put: PutOf) {
        self.numbers.insert(put.number, id);
        self.history(id, coherence).puts.push(put);
    }

    pub fn fate(&mut self, id: SegmentId, number: u64, fate: Fate) {
        let puts = self.of.get_mut(&id).map(|history| history.puts.iter_mut());
        if let Some(put) = puts.into_iter().flatten().find(|put| put.number == number) {
            put.fate = fate;
        }
    }

    pub fn got(&mut self, id: SegmentId, coherence: Coherence, get: GetOf) {
        self.history(id, coherence).gets.push(get);
    }

    fn history(&mut self, id: SegmentId, coherence: Coherence) -> &mut History {
        self.of.entry(id).or_insert(History { coherence, puts: vec![], gets: vec![] })
    }

    /// What does not hold.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = vec![];
        for (id, history) in &self.of {
            let strange = |number: &u64| *number != 0 && self.numbers.get(number) != Some(id);
            for get in &history.gets {
                if let Some(number) = get.words.iter().find(|number| strange(number)) {
                    let whose = self.numbers.get(number);
                    broken.push(format!("{id} {}: has {number}, that was put to {whose:?}", history.coherence));
                }
            }
            if let Err(what) = history.check() {
                let manner = if history.is_parted() { " in parts" } else { "" };
                broken.push(format!("{id} {}{manner}: {what}", history.coherence));
            }
        }
        broken
    }
}

impl History {
    /// Whether parts were put alone.
    fn is_parted(&self) -> bool {
        self.puts.iter().any(|put| put.cell.is_some())
    }
}
