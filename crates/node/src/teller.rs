//! One answer, on its way from whoever has it to the program that asked.

use std::os::fd::{AsFd, OwnedFd};

use verbena_ipc::{Request, Responder};
use verbena_protocol::wire::Answer;

/// Passes one answer on to whoever waits for it, whichever of both comes first. An answer that is there at once is given without a detour by other threads' way.
pub(crate) enum Teller {
    /// Nobody asked, or was answered.
    Nobody,
    /// Whoever asked is about to look.
    Looks,
    /// It came first, and maybe a descriptor with it.
    Answered(Answer, Option<OwnedFd>),
    /// Whoever asked came first.
    Waits(Responder),
}

impl Teller {
    /// This is the answer. Where a lock was lost and nothing was asked nobody hears it.
    pub(crate) fn tell(&mut self, what: Answer) {
        self.tell_with(what, None);
    }

    /// The same, and hands this over with it.
    pub(crate) fn tell_with(&mut self, what: Answer, descriptor: Option<OwnedFd>) {
        *self = match std::mem::replace(self, Teller::Nobody) {
            Teller::Looks => Teller::Answered(what, descriptor),
            Teller::Waits(responder) => {
                warn(responder.answer_with(what.encode(), descriptor));
                Teller::Nobody
            }
            other => other,
        }
    }

    /// Whoever asked gets the answer that is there, or waits for it.
    pub(crate) fn look(&mut self, request: Request<'_>) {
        *self = match std::mem::replace(self, Teller::Nobody) {
            Teller::Answered(what, descriptor) => {
                warn(request.answer_with(&what.encode(), descriptor.as_ref().map(AsFd::as_fd)));
                Teller::Nobody
            }
            _ => Teller::Waits(request.defer()),
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
