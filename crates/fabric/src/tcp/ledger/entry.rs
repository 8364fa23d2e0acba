//! What waits in a ledger, and what is under way.

use smallvec::SmallVec;
use verbena_terms::{Time, ViewNumber};

use crate::completion::Completer;
use crate::ending::{Endings, RegionId};
use crate::error::Error;
use crate::message::Port;
use crate::operation::{Completed, Operation, OperationId, Settled};

#[expect(clippy::large_enum_variant, reason = "nearly all are batches, and a box would be an allocation for each")]
pub(super) enum Queued {
    Batch { region: RegionId, operations: SmallVec<[Operation; 4]>, deadline: Time, completer: Completer<Completed> },
    Settle { id: OperationId, deadline: Time, completer: Completer<Settled> },
    Message { view: ViewNumber, port: Port, number: u64, body: Vec<u8> },
}

pub(super) struct UnderWay {
    pub(super) sent: Time,
    pub(super) deadline: Time,
    pub(super) what: What,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are batches, and a box would be an allocation for each")]
pub(super) enum What {
    Batch {
        region: RegionId,
        operations: SmallVec<[Operation; 4]>,
        ids: Option<(OperationId, OperationId)>,
        completer: Completer<Completed>,
    },
    Settle {
        id: OperationId,
        completer: Completer<Settled>,
    },
    /// It ended as unknown; its answer means nothing any more.
    Over,
}

impl Queued {
    pub(super) const fn deadline(&self) -> Time {
        match self {
            Queued::Batch { deadline, .. } | Queued::Settle { deadline, .. } => *deadline,
            Queued::Message { .. } => Time::FAR,
        }
    }

    pub(super) fn end(self, error: Error, endings: &mut Endings) {
        match self {
            Queued::Batch { completer, .. } => endings.batch(completer, Err(error)),
            Queued::Settle { completer, .. } => endings.settle(completer, Err(error)),
            Queued::Message { .. } => {}
        }
    }
}
