//! What of a caller's batches a [`Ledger`](super::ledger::Ledger) keeps: those that wait, and those that are under way as work requests.

use smallvec::SmallVec;
use verbena_terms::Time;

use super::batches::Place;
use crate::completion::Completer;
use crate::ending::RegionId;
use crate::error::Error;
use crate::operation::{Completed, Operation, OperationId, Settled};

/// Work requests of one connection that can be under way: a power of two, at least [`LARGEST_BATCH`].
pub(super) const DEPTH: usize = 512;

/// What was under way when its connection ended: the adapter may still reach the buffers.
pub(super) type Retired = Vec<SmallVec<[Operation; 4]>>;

pub(super) type Ids = Option<(OperationId, OperationId)>;

/// A batch that was checked.
pub(super) struct Entry {
    pub(super) operations: SmallVec<[Operation; 4]>,
    pub(super) place: Place,
    /// What the owner is asked about where the adapter does not say whether it refused the key.
    pub(super) id: RegionId,
    /// What a refusal by the adapter means.
    pub(super) revoked: Error,
    /// Why the element behind the last one was refused before anything was posted.
    pub(super) refusal: Option<Error>,
    /// `None`: the poster has already got the outcome that it is unknown.
    pub(super) completer: Option<Completer<Completed>>,
    pub(super) deadline: Time,
    /// Given out when it is posted for the first time.
    pub(super) ids: Ids,
    /// What its first elements gave, which were executed: the rest waits for its turn.
    pub(super) done: SmallVec<[u64; 4]>,
}

/// The elements of a batch that are under way: those behind the done ones, up to a fence.
pub(super) struct Posted {
    pub(super) entry: Entry,
    /// Number of the first work request on this connection.
    pub(super) first: u64,
    /// How many there are.
    pub(super) count: usize,
}

/// A caller that waits for an outcome.
pub(super) struct Asked {
    pub(super) id: OperationId,
    pub(super) deadline: Time,
    pub(super) completer: Completer<Settled>,
}

/// One work request of a batch that is to be posted.
#[derive(Debug)]
pub(super) struct Request<'a> {
    /// Its number on this connection.
    pub(super) number: u64,
    pub(super) operation: &'a Operation,
    /// Its completion is reported: that of the last one stands for all before it.
    pub(super) is_signaled: bool,
}

/// Whether an adapter says why a connection has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusals {
    /// A completion reports that the other end refused a request (IBA 9.7.5), unless the answer is lost.
    Told,
    /// It shows as the end of the connection, like any other (RFC 5040, 7).
    Untold,
}

/// How a work request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The target's adapter refused it: it was not executed, and nothing behind it was.
    Refused,
    /// It may have been executed, and so may what stands behind it.
    Lost,
}

impl Posted {
    /// The number behind its last request.
    pub(super) fn end(&self) -> u64 {
        self.first + self.count as u64
    }

    /// Its requests before this number are complete, and no longer under way.
    pub(super) fn note_done(&mut self, end: u64, word: &impl Fn(u64, &Operation) -> u64) {
        let complete = self.first..end.clamp(self.first, self.end());
        (self.first, self.count) = (complete.end, (self.end() - complete.end) as usize);
        let entry = &mut self.entry;
        for number in complete {
            let operation = &entry.operations[entry.done.len()];
            let value = match operation {
                Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::ReadWord { .. } => {
                    word(number, operation)
                }
                _ => 0,
            };
            entry.done.push(value);
        }
    }
}
