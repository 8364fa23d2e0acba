//! A batch as it goes into a frame, and its results as they come out of one.

use smallvec::SmallVec;

use super::wire::{Element, LARGEST_BATCH_BYTES, LARGEST_TRANSFER};
use crate::ending::{Outcome, at_most};
use crate::error::Result;
use crate::operation::{Batch, Completed, Done, LARGEST_BATCH, Operation};

/// Refuses what is larger than a batch may be. Bytes that it writes.
pub(super) fn check_sizes(batch: &Batch) -> Result<usize> {
    let (mut read, mut written) = (0, 0);
    for operation in batch.operations() {
        let (what, total, length) = match operation {
            Operation::Read { into, .. } => ("a read", &mut read, into.len()),
            Operation::Write { from, .. } => ("a write", &mut written, from.len()),
            _ => continue,
        };
        at_most(what, length, LARGEST_TRANSFER)?;
        *total += length;
    }
    at_most("a batch", batch.operations().len(), LARGEST_BATCH)?;
    at_most("the bytes of a batch", read.max(written), LARGEST_BATCH_BYTES)?;
    Ok(written)
}

pub(super) fn to_element(operation: &Operation) -> Element<'_> {
    match operation {
        Operation::ReadWord { at } => Element::ReadWord { at: *at },
        Operation::WriteWord { at, value } => Element::WriteWord { at: *at, value: *value },
        Operation::CompareSwap { at, expected, desired } => {
            Element::CompareSwap { at: *at, expected: *expected, desired: *desired }
        }
        Operation::FetchAdd { at, addend } => Element::FetchAdd { at: *at, addend: *addend },
        Operation::Read { at, into } => Element::Read { at: *at, length: into.len() as u32 },
        Operation::Write { at, from } => Element::Write { at: *at, from: from.bytes() },
    }
}

/// Bytes that the answer has for an element that was executed.
fn result_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Read { into, .. } => into.len(),
        Operation::Write { .. } => 0,
        _ => 8,
    }
}

pub(super) fn check_shape(
    operations: &[Operation],
    outcome: Outcome,
    done: u16,
    payload: &[u8],
) -> std::result::Result<(), String> {
    let done = usize::from(done);
    let all = operations.len();
    if done > all || (done == all) != (outcome == Outcome::Done) {
        return Err(format!("{done} of {all} elements executed and {outcome:?}"));
    }
    let expected: usize = operations[..done].iter().map(result_bytes).sum();
    if payload.len() != expected {
        return Err(format!("results of {} bytes where {expected} were due", payload.len()));
    }
    Ok(())
}

pub(super) fn complete(operations: SmallVec<[Operation; 4]>, mut payload: &[u8]) -> Completed {
    let results = operations.into_iter().map(|operation| {
        let (mine, rest) = payload.split_at(result_bytes(&operation));
        payload = rest;
        match operation {
            Operation::Read { mut into, .. } => {
                into.bytes_mut().copy_from_slice(mine);
                Done::Buffer(into)
            }
            Operation::Write { from, .. } => Done::Buffer(from),
            _ => Done::Word(u64::from_le_bytes(mine.try_into().expect("invariant: a word's result is 8 bytes"))),
        }
    });
    results.collect()
}
