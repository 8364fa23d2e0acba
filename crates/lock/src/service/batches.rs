//! What a batch on the words of one lock does on the fabric, and what its outcome is.

use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::{Class, Completed, Fabric, Operation};
use verbena_service::batches::{End, Request};
use verbena_terms::Incarnation;

use super::Metrics;
use crate::wire::Slot;
use crate::{Batch, Change, GATE_WORD_AT, LOCK_BYTES, LOCK_WORD_AT, LockWord, Outcome, PostId, TOKEN_WORD_AT, Token};

/// The gate word of a closed gate.
const CLOSED: u64 = 1;

/// A batch on the words of one lock.
pub struct WordBatch {
    id: PostId,
    slot: Slot,
    /// What is not executed yet.
    rest: Batch,
    outcome: Outcome,
    metrics: Arc<Metrics>,
}

impl WordBatch {
    pub(super) fn new(id: PostId, slot: Slot, batch: Batch, metrics: Arc<Metrics>) -> Self {
        WordBatch { id, slot, rest: batch, outcome: Outcome::default(), metrics }
    }

    fn has_effects(&self) -> bool {
        self.rest.gate.is_some() || self.rest.token.is_some() || self.rest.change.is_some()
    }

    fn atomics(&self) -> u64 {
        u64::from(matches!(self.rest.change, Some(Change::Swap { .. } | Change::AddReader)))
    }

    fn operations(&self) -> verbena_fabric::Batch {
        let at = u64::from(self.slot.number) * LOCK_BYTES;
        let lock = at + LOCK_WORD_AT;
        let mut batch = verbena_fabric::Batch::new();
        if let Some(is_closed) = self.rest.gate {
            batch.push(Operation::WriteWord { at: at + GATE_WORD_AT, value: if is_closed { CLOSED } else { 0 } });
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
            batch.push(Operation::ReadWord { at: at + GATE_WORD_AT });
        }
        batch
    }
}

impl Request for WordBatch {
    type Id = PostId;
    type Outcome = Outcome;
    const TIMEOUT: Duration = Duration::from_millis(100);
    const SUBJECT: &'static str = "a lock's word";

    fn id(&self) -> PostId {
        self.id
    }

    fn target(&self) -> Incarnation {
        self.slot.home
    }

    fn batch(&mut self, _: &dyn Fabric) -> Option<(verbena_fabric::Batch, Class)> {
        self.metrics.batches.increment();
        self.metrics.atomics.add(self.atomics());
        Some((self.operations(), Class::Control))
    }

    fn completed(&mut self, done: Completed) {
        let mut words = done.iter().map(|done| done.word().unwrap_or(0));
        while self.has_effects() {
            self.executed(words.next().unwrap_or(0));
        }
        if std::mem::take(&mut self.rest.read) {
            self.outcome.token = Token::from_bits(words.next().unwrap_or(0));
            self.outcome.is_closed = words.next() == Some(CLOSED);
        }
    }

    fn executed(&mut self, word: u64) {
        if self.rest.gate.take().is_none() && self.rest.token.take().is_none() {
            self.rest.change = None;
            self.outcome.before = LockWord::from_bits(word);
        }
    }

    fn is_complete(&self) -> bool {
        !self.has_effects() && !self.rest.read
    }

    fn outcome(&mut self, end: End) -> Option<Outcome> {
        (end == End::Complete).then_some(self.outcome)
    }
}
