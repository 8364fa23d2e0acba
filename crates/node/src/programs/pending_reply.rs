//! A pending reply: carries one answer from the thread that has it to the program that asked.

use std::os::fd::{AsFd, OwnedFd};

use verbena_ipc::{Request, Responder};
use verbena_protocol::wire::Answer;

/// A pending reply. The answer and the request's handler meet here in either order; an answer that is there at once
/// goes out without a detour through other threads.
pub(crate) enum PendingReply {
    /// There is no request, or it was answered.
    Over,
    /// The request's handler is about to look.
    Looks,
    /// The answer came first, perhaps with a descriptor.
    Answered(Answer, Option<OwnedFd>),
    /// The request's handler came first.
    Waits(Responder),
}

impl PendingReply {
    /// Gives the answer. If a lock was lost while no request is pending, no program hears of it here.
    pub(crate) fn tell(&mut self, what: Answer) {
        self.tell_with(what, None);
    }

    /// The same, and hands this over with it.
    pub(crate) fn tell_with(&mut self, what: Answer, descriptor: Option<OwnedFd>) {
        *self = match std::mem::replace(self, PendingReply::Over) {
            PendingReply::Looks => PendingReply::Answered(what, descriptor),
            PendingReply::Waits(responder) => {
                warn(responder.answer_with(what.encode(), descriptor));
                PendingReply::Over
            }
            other => other,
        }
    }

    /// Called by the request's handler: answers with what is there, or leaves the request to wait.
    pub(crate) fn look(&mut self, request: Request<'_>) {
        *self = match std::mem::replace(self, PendingReply::Over) {
            PendingReply::Answered(what, descriptor) => {
                warn(request.answer_with(&what.encode(), descriptor.as_ref().map(AsFd::as_fd)));
                PendingReply::Over
            }
            _ => PendingReply::Waits(request.defer()),
        }
    }
}

/// Gives an answer later.
pub(crate) fn answer(responder: Responder, answer: &Answer) {
    warn(responder.answer(answer.encode()));
}

/// Refuses.
pub(crate) fn refuse(request: Request<'_>, why: String) {
    give(request, &Answer::Refused(why));
}

/// Gives an answer.
pub(crate) fn give(request: Request<'_>, answer: &Answer) {
    warn(request.answer(&answer.encode()));
}

/// Says that an answer could not be given.
fn warn(given: Result<(), verbena_ipc::Error>) {
    if let Err(error) = given {
        tracing::warn!(%error, "an answer could not be given");
    }
}
