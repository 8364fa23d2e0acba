//! Batches on their way to the words of locks, until it is certain what came of each (rule F2).
//!
//! ```text
//!              words are open            answered
//!   waiting ---------------------> posted ---------> done
//!      ^                              |  no answer
//!      |  some of it was barred       v                                   no answer
//!      +-------------------------- settling, one effect after the other <---------------> unsettled: asked again in a moment
//! ```
//!
//! What was executed is taken out of the batch, so what is posted again is only what certainly never will be. When the view ends nobody needs what is
//! on its way: but it is settled all the same, because a fabric's window has room for so many that are not.

use std::task::{Context, Poll};
use std::time::Duration;

use verbena_fabric::settling::{Found, Settling};
use verbena_fabric::{Class, Completed, Error, Operation, Pending, SharedRemote};
use verbena_terms::{Incarnation, Time};

use super::Metrics;
use crate::wire::Slot;
use crate::{Batch, Change, DOOR_WORD_AT, LOCK_BYTES, LOCK_WORD_AT, LockWord, Outcome, PostId, TOKEN_WORD_AT, Token};

/// How long a batch may take.
const POST_DEADLINE: Duration = Duration::from_millis(100);
/// What stands in the door word of a closed door.
const CLOSED: u64 = 1;
/// When what could not be posted is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// All that are on their way.
pub(super) struct Posts {
    under_way: Vec<Post>,
    metrics: Metrics,
}

struct Post {
    id: PostId,
    slot: Slot,
    /// What is not executed yet.
    rest: Batch,
    outcome: Outcome,
    /// Its view has ended: nobody waits for it.
    is_over: bool,
    stage: Stage,
}

enum Stage {
    Waiting(Time),
    Posted(SharedRemote, Pending<Completed>),
    /// Until the home has been asked this holds up all that comes after it.
    Settling(Settling),
}

enum Looked {
    Unchanged,
    /// It has got to another stage.
    Again,
    Done,
}

impl Posts {
    pub(super) fn new(metrics: Metrics) -> Self {
        Posts { under_way: vec![], metrics }
    }

    /// One more.
    pub(super) fn post(&mut self, id: PostId, slot: Slot, batch: Batch, now: Time) {
        let (outcome, stage) = (Outcome::default(), Stage::Waiting(now));
        self.under_way.push(Post { id, slot, rest: batch, outcome, is_over: false, stage });
    }

    /// Nobody waits for any of them any more. Those to whom is no member need not be settled either.
    pub(super) fn view_ends(&mut self, is_member: impl Fn(Incarnation) -> bool) {
        self.under_way.retain(|post| !matches!(post.stage, Stage::Waiting(_)) && is_member(post.slot.home));
        self.under_way.iter_mut().for_each(|post| post.is_over = true);
    }

    /// Posts what can be, looks what has ended, and gives what came of it.
    pub(super) fn look(
        &mut self,
        now: Time,
        words: impl Fn(Incarnation) -> Option<SharedRemote>,
    ) -> Vec<(PostId, Outcome)> {
        let mut done = vec![];
        let metrics = &self.metrics;
        self.under_way.retain_mut(|post| {
            let stays = !post.go_on(now, &words, metrics);
            if !stays && !post.is_over {
                done.push((post.id, post.outcome));
            }
            stays
        });
        done
    }

    /// Ready when an answer has come that was not looked at yet.
    pub(super) fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut has_come = false;
        for post in &mut self.under_way {
            has_come |= match &mut post.stage {
                Stage::Waiting(_) => false,
                Stage::Posted(_, posted) => posted.is_there(context),
                Stage::Settling(settling) => settling.has_heard(context),
            };
        }
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    }

    /// When something is to be posted again, where words are open.
    pub(super) fn next_deadline(&self, is_open: impl Fn(Incarnation) -> bool) -> Option<Time> {
        let again = self.under_way.iter().filter_map(|post| match &post.stage {
            Stage::Waiting(at) => is_open(post.slot.home).then_some(*at),
            Stage::Settling(settling) => settling.next_deadline(),
            Stage::Posted(..) => None,
        });
        again.min()
    }

    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether an answer is awaited that somebody waits for.
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

impl Post {
    /// Says whether it has ended.
    fn go_on(&mut self, now: Time, words: &impl Fn(Incarnation) -> Option<SharedRemote>, metrics: &Metrics) -> bool {
        loop {
            let looked = match &mut self.stage {
                Stage::Waiting(at) if *at > now => Looked::Unchanged,
                Stage::Waiting(_) => match words(self.slot.home) {
                    Some(remote) => {
                        metrics.batches.increment();
                        metrics.atomics.add(self.atomics());
                        let posted = remote.post(self.operations(), Class::Control, now + POST_DEADLINE);
                        self.get_to(Stage::Posted(remote, posted))
                    }
                    None => Looked::Unchanged,
                },
                Stage::Posted(remote, posted) => match posted.poll_now() {
                    None => Looked::Unchanged,
                    Some(answer) => {
                        let remote = remote.clone();
                        self.answered(answer, remote, now)
                    }
                },
                Stage::Settling(settling) => match settling.look(now) {
                    None => Looked::Unchanged,
                    Some(found) => self.found(found, now),
                },
            };
            match looked {
                Looked::Unchanged => return false,
                Looked::Done => return true,
                Looked::Again if self.is_over && matches!(self.stage, Stage::Waiting(_)) => return true,
                Looked::Again => {}
            }
        }
    }

    fn answered(&mut self, answer: verbena_fabric::Result<Completed>, remote: SharedRemote, now: Time) -> Looked {
        match answer {
            Ok(done) => {
                let mut words = done.iter().map(|done| done.word().unwrap_or(0));
                while self.rest.door.is_some() || self.rest.token.is_some() || self.rest.change.is_some() {
                    self.executed(words.next().unwrap_or(0));
                }
                if self.rest.read {
                    self.outcome.token = Token::from_bits(words.next().unwrap_or(0));
                    self.outcome.is_closed = words.next() == Some(CLOSED);
                }
                Looked::Done
            }
            // The home has made these words anew, or has gone: the view is about to end here too.
            Err(Error::Revoked { .. } | Error::Closed) => self.give_up(),
            Err(error) => match Settling::after(&error, remote, Class::Control, now) {
                Some(settling) => self.get_to(Stage::Settling(settling)),
                None => {
                    tracing::debug!(home = %self.slot.home, %error, "a lock's words were not reached");
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
            Found::All => self.get_to(Stage::Waiting(now)),
            Found::Closed => self.give_up(),
            Found::Forgotten(operation) => {
                if !self.is_over {
                    tracing::error!(home = %self.slot.home, %operation, "nobody knows whether a lock's word was changed");
                }
                self.give_up()
            }
        }
    }

    fn get_to(&mut self, stage: Stage) -> Looked {
        self.stage = stage;
        Looked::Again
    }

    /// Whoever waits for it waits until the view ends.
    fn give_up(&mut self) -> Looked {
        self.is_over = true;
        Looked::Done
    }

    /// The next part of the batch was executed, and gave this.
    fn executed(&mut self, word: u64) {
        if self.rest.door.take().is_none() && self.rest.token.take().is_none() {
            self.rest.change = None;
            self.outcome.before = LockWord::from_bits(word);
        }
    }

    fn atomics(&self) -> u64 {
        u64::from(matches!(self.rest.change, Some(Change::Swap { .. } | Change::AddReader)))
    }

    fn operations(&self) -> verbena_fabric::Batch {
        let at = u64::from(self.slot.number) * LOCK_BYTES;
        let lock = at + LOCK_WORD_AT;
        let mut batch = verbena_fabric::Batch::new();
        if let Some(is_closed) = self.rest.door {
            batch.push(Operation::WriteWord { at: at + DOOR_WORD_AT, value: if is_closed { CLOSED } else { 0 } });
        }
        if let Some(token) = self.rest.token {
            batch.push(Operation::WriteWord { at: at + TOKEN_WORD_AT, value: token.to_bits() });
        }
        if let Some(change) = self.rest.change {
            batch.push(match change {
                Change::Swap { expected, new } => {
                    Operation::CompareSwap { at: lock, expected: expected.to_bits(), desired: new.to_bits() }
                }
                Change::AddReader => Operation::FetchAdd { at: lock, addend: LockWord::READER },
                Change::Look => Operation::ReadWord { at: lock },
            });
        }
        if self.rest.read {
            batch.push(Operation::ReadWord { at: at + TOKEN_WORD_AT });
            batch.push(Operation::ReadWord { at: at + DOOR_WORD_AT });
        }
        batch
    }
}
