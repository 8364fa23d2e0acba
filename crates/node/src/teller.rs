//! One answer, on its way from whoever has it to the program that asked.

use verbena_client::wire::Answer;
use verbena_ipc::{Request, Responder};

/// Passes one answer on to whoever waits for it, whichever of both comes first. An answer that is there at once is given without a detour by other threads' way.
pub(crate) enum Teller {
    /// Nobody asked, or was answered.
    Nobody,
    /// Whoever asked is about to look.
    Looks,
    /// It came first.
    Answered(Answer),
    /// Whoever asked came first.
    Waits(Responder),
}

impl Teller {
    /// This is the answer. Where a lock was lost and nothing was asked nobody hears it.
    pub(crate) fn tell(&mut self, what: Answer) {
        *self = match std::mem::replace(self, Teller::Nobody) {
            Teller::Looks => Teller::Answered(what),
            Teller::Waits(responder) => {
                answer(responder, &what);
                Teller::Nobody
            }
            other => other,
        }
    }

    /// Whoever asked gets the answer that is there, or waits for it.
    pub(crate) fn look(&mut self, request: Request<'_>) {
        *self = match std::mem::replace(self, Teller::Nobody) {
            Teller::Answered(what) => {
                give(request, &what);
                Teller::Nobody
            }
            _ => Teller::Waits(request.defer()),
        }
    }
}

/// Gives an answer later.
pub(crate) fn answer(responder: Responder, answer: &Answer) {
    if let Err(error) = responder.answer(answer.encode()) {
        tracing::warn!(%error, "an answer could not be given");
    }
}

/// Refuses.
pub(crate) fn refuse(request: Request<'_>, why: String) {
    give(request, &Answer::Refused(why));
}

/// Gives an answer.
pub(crate) fn give(request: Request<'_>, answer: &Answer) {
    if let Err(error) = request.answer(&answer.encode()) {
        tracing::warn!(%error, "an answer could not be given");
    }
}
