//! The identifiers that a caller gives its operations at one target in one class: the caller's side of a [`Window`](crate::window::Window).
//!
//! They are taken when an operation is about to leave, so that those which never left leave no gap, and they are *open* until the
//! operation is answered or, when it ended as unknown, settled (F2). The target remembers [`WINDOW`] of them: none is
//! given out that would push an open one from its memory.

use std::collections::BTreeMap;

use verbena_terms::Incarnation;

use crate::error::{Error, Result};
use crate::operation::{Operation, OperationId};
use crate::window::WINDOW;

pub(crate) struct Identifiers {
    next: u64,
    /// Given out and not concluded. At most [`WINDOW`], by the rule of [`Identifiers::room_for`].
    open: BTreeMap<u64, Open>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    UnderWay,
    Unknown,
}

impl Default for Identifiers {
    fn default() -> Self {
        Identifiers { next: 1, open: BTreeMap::new() }
    }
}

impl Identifiers {
    /// The first identifier that was not given out.
    pub(crate) const fn next(&self) -> OperationId {
        OperationId(self.next)
    }

    pub(crate) const fn was_given_out(&self, id: OperationId) -> bool {
        id.0 > 0 && id.0 < self.next
    }

    /// Whether `effects` more identifiers, beside those that queued operations will take, leave every open one in the
    /// target's memory (F2).
    pub(crate) fn room_for(&self, target: Incarnation, queued: u64, effects: u64) -> Result<()> {
        let Some((&oldest, state)) = self.open.first_key_value() else {
            return if queued + effects > WINDOW as u64 { Err(window_full()) } else { Ok(()) };
        };
        if effects == 0 || self.next + queued + effects <= oldest + WINDOW as u64 {
            return Ok(());
        }
        Err(match state {
            Open::UnderWay => window_full(),
            Open::Unknown => Error::SettleFirst { target, oldest: OperationId(oldest) },
        })
    }

    /// First and last of those for the elements with an effect, if there are any.
    pub(crate) fn take(&mut self, operations: &[Operation]) -> Option<(OperationId, OperationId)> {
        let effects = operations.iter().filter(|operation| operation.has_effect()).count() as u64;
        let first = self.next;
        self.next += effects;
        self.open.extend((first..self.next).map(|id| (id, Open::UnderWay)));
        (effects > 0).then(|| (OperationId(first), OperationId(self.next - 1)))
    }

    /// What became of these is known.
    pub(crate) fn close(&mut self, ids: Option<(OperationId, OperationId)>) {
        let Some((first, last)) = ids else { return };
        for id in first.0..=last.0 {
            self.open.remove(&id);
        }
    }

    /// These are to be settled, but for such as were settled meanwhile.
    pub(crate) fn lose(&mut self, ids: Option<(OperationId, OperationId)>) {
        let Some((first, last)) = ids else { return };
        self.open.range_mut(first.0..=last.0).for_each(|(_, state)| *state = Open::Unknown);
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// From the oldest open one to the last that was given out.
    #[cfg(test)]
    pub(crate) fn span(&self) -> u64 {
        self.open.first_key_value().map_or(0, |(oldest, _)| self.next - oldest)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}

const fn window_full() -> Error {
    Error::Full { what: "the window of operations with an effect under way", most: WINDOW }
}
