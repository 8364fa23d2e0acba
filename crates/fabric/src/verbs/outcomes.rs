//! The outcomes of operations that ended as unknown, kept for their settlement (F2).

use std::collections::BTreeMap;

use crate::operation::{Operation, OperationId, Settled};
use crate::window::WINDOW;

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Known(Settled),
    /// Its connection ended; the next one bars it.
    Ambiguous,
}

/// By identifier. What is open is within a window; of what was settled as much is remembered.
#[derive(Default)]
pub(super) struct Outcomes(BTreeMap<u64, Outcome>);

impl Outcomes {
    /// A batch whose first effect has this identifier: the `done` elements were executed, of the next ones `open` are
    /// open, the others never will be.
    pub(super) fn note(&mut self, first: OperationId, operations: &[Operation], done: &[u64], open: usize) {
        let changing = operations.iter().enumerate().filter(|(_, operation)| operation.has_effect());
        for (id, (at, _)) in (first.0..).zip(changing) {
            let outcome = match done.get(at) {
                Some(word) => Outcome::Known(Settled::Executed(*word)),
                None if at < done.len() + open => Outcome::Ambiguous,
                None => Outcome::Known(Settled::Barred),
            };
            self.0.insert(id, outcome);
        }
    }

    /// No caller asks for what is two windows before the next identifier.
    pub(super) fn forget_before(&mut self, next: OperationId) {
        let oldest = next.0.saturating_sub(2 * WINDOW as u64);
        if self.0.first_key_value().is_some_and(|(id, _)| *id < oldest) {
            self.0 = self.0.split_off(&oldest);
        }
    }

    pub(super) fn of(&self, id: OperationId) -> Option<Outcome> {
        self.0.get(&id.0).copied()
    }

    pub(super) fn has(&self, id: OperationId) -> bool {
        self.0.contains_key(&id.0)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
