//! Posts on their way to homes' memory, until it is certain what came of each (rule F2).
//!
//! ```text
//!              memory is open          answered, and more is to come
//!   waiting <------------------> posted -----------------------------> waiting
//!      ^                           |  \ answered, and that was all --> done
//!      |  some of it was barred    v                                                no answer
//!      +------------------------ settling, one effect after the other <--------------------------> unsettled: asked again in a moment
//! ```
//!
//! A post may be more than the fabric takes at once: then it goes in several batches, one after the other. What was executed is not posted again; of a batch whose
//! answer is missing that is what was settled, and its reads are made once more, from the first effect that is missing on. A post that only reads is made
//! once more as a whole. When the view ends nobody needs what is on its way: but it is settled all the same, because a fabric's window has room for so
//! many that are not.

use std::task::{Context, Poll};
use std::time::Duration;

use verbena_fabric::settling::{Found, Settling};
use verbena_fabric::{Batch, Class, Completed, Done, Error, Fabric, Operation, Pending, SharedRemote};
use verbena_terms::{Incarnation, Time};

use crate::{Given, Outcome, Post, PostId, Step};

/// How long a batch may take.
const POST_DEADLINE: Duration = Duration::from_millis(200);
/// When what could not be posted is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(2);
/// Bytes of one batch, and of one element of it at the most.
const BATCH_BYTES: u64 = 256 << 10;
/// Bytes that may go by the channel of small things.
const SMALL: u64 = 4096;
/// Elements of one batch.
const BATCH_PARTS: usize = 32;

/// All that are on their way.
#[derive(Default)]
pub(super) struct Posts {
    under_way: Vec<UnderWay>,
}

struct UnderWay {
    id: PostId,
    home: Incarnation,
    until: Time,
    parts: Vec<Part>,
    /// Those before it were executed.
    next: usize,
    /// By which the batch goes that is on its way: its identifiers are of that.
    class: Class,
    /// Its view has ended: nobody waits for it.
    is_over: bool,
    stage: Stage,
}

/// As much of a step as one element of a batch does.
struct Part {
    step: usize,
    what: Step,
    given: Option<Given>,
}

enum Stage {
    Waiting(Time),
    /// So many parts.
    Posted(SharedRemote, Pending<Completed>, usize),
    Settling(Settling),
}

enum Looked {
    Unchanged,
    Again,
    Ended(Outcome),
}

impl Posts {
    /// One more.
    pub(super) fn post(&mut self, post: Post, until: Time, fabric: &dyn Fabric, now: Time) {
        let capabilities = fabric.capabilities();
        let parts = parts(post.steps, capabilities.largest_read.into(), capabilities.largest_write.into());
        let (id, home, stage) = (post.id, post.home, Stage::Waiting(now));
        self.under_way.push(UnderWay { id, home, until, parts, next: 0, class: Class::Control, is_over: false, stage });
    }

    /// Nobody waits for any of them any more. Those to whom is no member need not be settled either.
    pub(super) fn view_ends(&mut self, is_member: impl Fn(Incarnation) -> bool) {
        self.under_way.retain(|post| !matches!(post.stage, Stage::Waiting(_)) && is_member(post.home));
        self.under_way.iter_mut().for_each(|post| post.is_over = true);
    }

    /// Posts what can be, and gives what came of what has ended.
    pub(super) fn look(
        &mut self,
        now: Time,
        fabric: &dyn Fabric,
        memory: impl Fn(Incarnation) -> Option<SharedRemote>,
    ) -> Vec<(PostId, Outcome)> {
        let mut ended = vec![];
        self.under_way.retain_mut(|post| match post.go_on(now, fabric, &memory) {
            None => true,
            Some(outcome) => {
                if !post.is_over {
                    ended.push((post.id, outcome));
                }
                false
            }
        });
        ended
    }

    /// Whether there are any.
    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Ready when an answer has come that was not looked at yet.
    pub(super) fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut has_come = false;
        for post in &mut self.under_way {
            has_come |= match &mut post.stage {
                Stage::Waiting(_) => false,
                Stage::Posted(_, posted, _) => posted.is_there(context),
                Stage::Settling(settling) => settling.has_heard(context),
            };
        }
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    }

    /// When something is to be done if nothing arrives. Those whose home is not open wait for that, and not for longer than they may.
    pub(super) fn next_deadline(&self, is_open: impl Fn(Incarnation) -> bool) -> Option<Time> {
        let due = |post: &UnderWay| match &post.stage {
            Stage::Waiting(at) if is_open(post.home) => Some(*at),
            Stage::Waiting(_) => Some(post.until),
            Stage::Settling(settling) => settling.next_deadline(),
            Stage::Posted(..) => None,
        };
        self.under_way.iter().filter_map(due).min()
    }

    /// Whether an answer is on its way that somebody waits for.
    #[cfg(feature = "testing")]
    pub(super) fn are_awaited(&self) -> bool {
        self.under_way.iter().any(|post| !post.is_over && post.stage.is_awaiting())
    }
}

#[cfg(feature = "testing")]
impl Stage {
    fn is_awaiting(&self) -> bool {
        match self {
            Stage::Waiting(_) => false,
            Stage::Posted(..) => true,
            Stage::Settling(settling) => settling.is_asking(),
        }
    }
}

impl UnderWay {
    fn go_on(
        &mut self,
        now: Time,
        fabric: &dyn Fabric,
        memory: &impl Fn(Incarnation) -> Option<SharedRemote>,
    ) -> Option<Outcome> {
        loop {
            let looked = match &mut self.stage {
                Stage::Waiting(_) if now >= self.until || self.is_over => Looked::Ended(Outcome::Late),
                Stage::Waiting(at) if *at > now => Looked::Unchanged,
                Stage::Waiting(_) => match memory(self.home).map(|remote| self.post(remote, fabric, now)) {
                    Some(true) => Looked::Again,
                    Some(false) | None => Looked::Unchanged,
                },
                Stage::Posted(remote, posted, count) => match posted.poll_now() {
                    None => Looked::Unchanged,
                    Some(answer) => {
                        let (remote, count) = (remote.clone(), *count);
                        self.answered(answer, remote, count, now)
                    }
                },
                Stage::Settling(settling) => match settling.look(now) {
                    None => Looked::Unchanged,
                    Some(found) => self.found(found, now),
                },
            };
            match looked {
                Looked::Unchanged => return None,
                Looked::Ended(outcome) => return Some(outcome),
                Looked::Again => {}
            }
        }
    }

    /// Posts as much as goes at once. False where there is no buffer for it now.
    fn post(&mut self, remote: SharedRemote, fabric: &dyn Fabric, now: Time) -> bool {
        let (mut batch, mut bytes, mut count) = (Batch::new(), 0, 0);
        for part in &self.parts[self.next..] {
            bytes += part.bytes();
            if count > 0 && (bytes > BATCH_BYTES || count >= BATCH_PARTS) {
                break;
            }
            let Ok(operation) = part.operation(fabric) else {
                self.stage = Stage::Waiting(now + AGAIN_AFTER);
                return false;
            };
            batch.push(operation);
            count += 1;
        }
        self.class = if bytes > SMALL { Class::Bulk } else { Class::Control };
        let posted = remote.post(batch, self.class, now + POST_DEADLINE);
        self.stage = Stage::Posted(remote, posted, count);
        true
    }

    fn answered(
        &mut self,
        answer: verbena_fabric::Result<Completed>,
        remote: SharedRemote,
        count: usize,
        now: Time,
    ) -> Looked {
        match answer {
            Ok(done) => {
                for (part, done) in self.parts[self.next..].iter_mut().zip(done) {
                    part.given = Some(match done {
                        Done::Word(word) => Given::Word(word),
                        Done::Buffer(buffer) if matches!(part.what, Step::Read(..)) => {
                            Given::Bytes(buffer.bytes().to_vec())
                        }
                        Done::Buffer(_) => Given::Bytes(vec![]),
                    });
                }
                self.next += count;
                if self.next == self.parts.len() {
                    Looked::Ended(self.outcome())
                } else {
                    self.get_to(Stage::Waiting(now))
                }
            }
            // The home has made its memory anew, or has gone: the view is about to end here too.
            Err(Error::Revoked { .. } | Error::Closed) => Looked::Ended(Outcome::Gone),
            Err(error) => match Settling::after(&error, remote, self.class, now) {
                Some(settling) => self.get_to(Stage::Settling(settling)),
                None => {
                    tracing::debug!(home = %self.home, %error, "a home's memory was not reached");
                    if !self.parts.iter().any(|part| part.what.has_effect()) {
                        self.next = 0;
                    }
                    self.get_to(Stage::Waiting(now + AGAIN_AFTER))
                }
            },
        }
    }

    fn found(&mut self, found: Found, now: Time) -> Looked {
        match found {
            Found::Executed(word) => {
                self.executed(word);
                Looked::Again
            }
            Found::All if self.next == self.parts.len() => Looked::Ended(self.outcome()),
            Found::All => self.get_to(Stage::Waiting(now)),
            Found::Closed => Looked::Ended(Outcome::Gone),
            Found::Forgotten(operation) => {
                if !self.is_over {
                    tracing::error!(home = %self.home, %operation, "nobody knows whether a segment was changed");
                }
                Looked::Ended(Outcome::Gone)
            }
        }
    }

    /// The next effect of the batch was executed, and found this. Reads before it are not known, and not made again.
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

    fn get_to(&mut self, stage: Stage) -> Looked {
        self.stage = stage;
        Looked::Again
    }

    /// What each step gave: the parts of one put together.
    fn outcome(&mut self) -> Outcome {
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
        Outcome::Done(given)
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

/// Steps, cut where the fabric takes no more. A read or write of nothing is none, and gives nothing.
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
