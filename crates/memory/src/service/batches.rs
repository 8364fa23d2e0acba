//! What the steps of a post on one home's memory do on the fabric, and what its outcome is.
//!
//! A post may be more than the fabric takes at once: then it goes in several batches. The reads of a batch whose answer is missing are made once more from the first
//! missing effect on. A post that only reads is made once more as a whole.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Done, Fabric, Operation};
use verbena_service::batches::{End, Request};
use verbena_terms::{Incarnation, Time};

use crate::{Given, Outcome, Post, PostId, Step};

/// Bytes of one batch, and of one element of it at the most.
const BATCH_BYTES: u64 = 256 << 10;
/// Bytes up to which a batch goes in the class of small things.
const SMALL: u64 = 4096;
/// Elements of one batch.
const BATCH_PARTS: usize = 32;

/// A post on one home's memory.
pub struct SegmentPost {
    id: PostId,
    home: Incarnation,
    until: Time,
    parts: Vec<Part>,
    /// Those before it were executed.
    next: usize,
    /// Of the parts from `next` on, how many the last batch has.
    posted: usize,
}

/// As much of a step as one element of a batch does.
struct Part {
    step: usize,
    what: Step,
    given: Option<Given>,
}

impl SegmentPost {
    /// Cut into parts that this fabric takes.
    pub(super) fn new(post: Post, until: Time, fabric: &dyn Fabric) -> Self {
        let capabilities = fabric.capabilities();
        let parts = parts(post.steps, capabilities.largest_read.into(), capabilities.largest_write.into());
        SegmentPost { id: post.id, home: post.home, until, parts, next: 0, posted: 0 }
    }

    /// What each step gave: the parts of one put together.
    fn given(&mut self) -> Vec<Given> {
        let mut given: Vec<Given> = vec![];
        let mut last = None;
        for part in &mut self.parts {
            let its = part.given.take().unwrap_or(Given::Word(0));
            match (given.last_mut(), its) {
                (Some(Given::Bytes(all)), Given::Bytes(more)) if last == Some(part.step) => all.extend(more),
                (_, its) => given.push(its),
            }
            last = Some(part.step);
        }
        given
    }
}

impl Request for SegmentPost {
    type Id = PostId;
    type Outcome = Outcome;
    const TIMEOUT: Duration = Duration::from_millis(200);
    const SUBJECT: &'static str = "a segment";

    fn id(&self) -> PostId {
        self.id
    }

    fn target(&self) -> Incarnation {
        self.home
    }

    fn deadline(&self) -> Time {
        self.until
    }

    /// As much as goes at once.
    fn batch(&mut self, fabric: &dyn Fabric) -> Option<(Batch, Class)> {
        let (mut batch, mut bytes, mut count) = (Batch::new(), 0, 0);
        for part in &self.parts[self.next..] {
            bytes += part.bytes();
            if count > 0 && (bytes > BATCH_BYTES || count >= BATCH_PARTS) {
                break;
            }
            batch.push(part.operation(fabric).ok()?);
            count += 1;
        }
        self.posted = count;
        Some((batch, if bytes > SMALL { Class::Bulk } else { Class::Control }))
    }

    fn completed(&mut self, done: Completed) {
        for (part, done) in self.parts[self.next..].iter_mut().zip(done) {
            part.given = Some(match done {
                Done::Word(word) => Given::Word(word),
                Done::Buffer(buffer) if matches!(part.what, Step::Read(..)) => Given::Bytes(buffer.bytes().to_vec()),
                Done::Buffer(_) => Given::Bytes(vec![]),
            });
        }
        self.next += self.posted;
    }

    /// What the reads before it gave is not known, and they are not made again.
    fn executed(&mut self, word: u64) {
        if let Some(at) = (self.next..self.parts.len()).find(|at| self.parts[*at].what.has_effect()) {
            for part in &mut self.parts[self.next..at] {
                part.given.get_or_insert(Given::Word(0));
            }
            let is_bytes = matches!(self.parts[at].what, Step::Write(..));
            self.parts[at].given = Some(if is_bytes { Given::Bytes(vec![]) } else { Given::Word(word) });
            self.next = at + 1;
        }
    }

    fn missed(&mut self) {
        if !self.parts.iter().any(|part| part.what.has_effect()) {
            self.next = 0;
        }
    }

    fn is_complete(&self) -> bool {
        self.next == self.parts.len()
    }

    fn outcome(&mut self, end: End) -> Option<Outcome> {
        Some(match end {
            End::Complete => Outcome::Done(self.given()),
            End::Late => Outcome::Late,
            End::Gone => Outcome::Gone,
        })
    }
}

impl Step {
    fn has_effect(&self) -> bool {
        !matches!(self, Step::ReadWord(_) | Step::Read(..))
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match &self.what {
            Step::Read(_, length) => *length,
            Step::Write(_, bytes) => bytes.len() as u64,
            _ => 8,
        }
    }

    fn operation(&self, fabric: &dyn Fabric) -> verbena_fabric::Result<Operation> {
        Ok(match &self.what {
            Step::ReadWord(at) => Operation::ReadWord { at: *at },
            Step::Read(at, length) => Operation::Read { at: *at, into: fabric.pool().take(*length as usize)? },
            Step::WriteWord(at, value) => Operation::WriteWord { at: *at, value: *value },
            Step::Write(at, bytes) => Operation::Write { at: *at, from: fabric.pool().copy_of(bytes)? },
            Step::Swap(at, expected, desired) => {
                Operation::CompareSwap { at: *at, expected: *expected, desired: *desired }
            }
            Step::Add(at, addend) => Operation::FetchAdd { at: *at, addend: *addend },
        })
    }
}

/// Steps, cut where the fabric takes no more. A read or write of 0 bytes is left out, and gives an empty result.
fn parts(steps: Vec<Step>, largest_read: u64, largest_write: u64) -> Vec<Part> {
    let (read, write) = (largest_read.min(BATCH_BYTES), largest_write.min(BATCH_BYTES) as usize);
    let mut parts = vec![];
    for (step, what) in steps.into_iter().enumerate() {
        let before = parts.len();
        match what {
            Step::Read(at, length) => parts.extend((0..length).step_by(read as usize).map(|from| {
                let what = Step::Read(at + from, read.min(length - from));
                Part { step, what, given: None }
            })),
            Step::Write(at, bytes) => parts.extend(bytes.chunks(write).enumerate().map(|(nth, chunk)| {
                let what = Step::Write(at + (nth * write) as u64, chunk.to_vec());
                Part { step, what, given: None }
            })),
            what => parts.push(Part { step, what, given: None }),
        }
        if parts.len() == before {
            // Nothing is read of a word that every layout has.
            parts.push(Part { step, what: Step::ReadWord(0), given: None });
        }
    }
    parts
}
