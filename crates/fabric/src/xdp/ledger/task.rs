//! What was posted and has not ended.

use smallvec::SmallVec;
use verbena_terms::{Incarnation, Time};

use super::part::Work;
use super::{FIRST_RESEND, LONGEST_RESEND};
use crate::completion::Completer;
use crate::ending::{Endings, unknown};
use crate::error::Error;
use crate::operation::{Completed, OperationId, Settled};
use crate::xdp::wire::{Answer, FrameWriter, ITEM_WORDS};

pub(super) struct Task {
    pub(super) deadline: Time,
    /// Whether any of it was ever put into a frame.
    pub(super) left: bool,
    /// Which part is to be sent or under way.
    pub(super) part: u32,
    /// The frames that carry copies of this part, oldest first. None: it is queued.
    pub(super) serials: SmallVec<[u64; 2]>,
    pub(super) what: What,
}

#[expect(clippy::large_enum_variant, reason = "nearly all are batches, and a box would be an allocation for each")]
pub(super) enum What {
    Batch { work: Work, completer: Completer<Completed> },
    Settle { id: OperationId, completer: Completer<Settled> },
}

impl Task {
    pub(super) fn new(deadline: Time, what: What) -> Self {
        Task { deadline, left: false, part: 0, serials: SmallVec::new(), what }
    }

    pub(super) const fn ids(&self) -> Option<(OperationId, OperationId)> {
        match &self.what {
            What::Batch { work, .. } => work.ids,
            What::Settle { id, .. } => Some((*id, *id)),
        }
    }

    /// Elements with an effect that have no identifier yet.
    pub(super) fn queued_effects(&self) -> u64 {
        match &self.what {
            What::Batch { work, .. } if !self.left => {
                work.operations.iter().filter(|operation| operation.has_effect()).count() as u64
            }
            _ => 0,
        }
    }

    /// Words of the item that is to be sent.
    pub(super) fn words(&self) -> usize {
        match &self.what {
            What::Batch { work, .. } => work.part.words(&work.operations),
            What::Settle { .. } => ITEM_WORDS,
        }
    }

    /// Adds that item; there must be room for it.
    pub(super) fn write(&self, frame: &mut FrameWriter) {
        match &self.what {
            What::Batch { work, .. } => work.write(frame),
            What::Settle { id, .. } => frame.settle(*id),
        }
    }

    /// Whether this can be an answer to it.
    pub(super) fn is_answered_by(&self, answer: &Answer) -> bool {
        match &self.what {
            What::Batch { work, .. } => work.is_answered_by(answer),
            What::Settle { .. } => matches!(answer, Answer::Settled(_)),
        }
    }

    /// It is put into a frame at this moment. When that is to be done again.
    pub(super) fn sent(&mut self, now: Time, serial: u64, target: Incarnation) -> Time {
        if !self.left {
            self.left = true;
            let unknown = unknown(target, self.ids());
            match &mut self.what {
                What::Batch { completer, .. } => completer.if_dropped(unknown),
                What::Settle { completer, .. } => completer.if_dropped(unknown),
            }
        }
        let doublings = self.serials.len().min(16);
        self.serials.push(serial);
        now + (FIRST_RESEND * (1 << doublings)).min(LONGEST_RESEND)
    }

    pub(super) fn end(self, error: Error, endings: &mut Endings) {
        match self.what {
            What::Batch { completer, .. } => endings.batch(completer, Err(error)),
            What::Settle { completer, .. } => endings.settle(completer, Err(error)),
        }
    }
}
