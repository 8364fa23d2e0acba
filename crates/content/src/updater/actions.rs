//! What an updater wants done, and what it is told of that.

use verbena_terms::ViewNumber;

use super::UpdateId;
use crate::names::Scope;
use crate::wire::Message;

/// What is known of an update that was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The application has answered, and the answer was read to its end.
    Answered,
    /// It has answered, and what it answered says that it wrote nothing.
    Refused,
    /// It was a purge, which is over once every home has acknowledged it.
    Purged,
    /// Not one byte of it was sent.
    NotSent,
    /// It was sent, at least in part, and no whole answer came: it may still reach the database.
    Unknown,
}

/// What an updater wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpdaterAction {
    /// Send a message to its addressee. May be lost.
    Send(Message),
    /// Put the update into the record of open updates, before anything that follows (rule P6).
    Opened {
        /// Its number in this incarnation.
        number: u64,
        /// What it touches.
        scope: Scope,
    },
    /// The update of this number is over: take it out of the record.
    Ended(u64),
    /// Forward the update to the application now, then say [`Updater::finished`](super::Updater::finished).
    Forward(UpdateId),
    /// The update could not begin in time: answer 503. Nothing was sent.
    Abort(UpdateId),
    /// Give the application's answer to the client.
    Answer(UpdateId),
    /// Close the client's connection without an answer (rule P7). The update is still being confirmed.
    Close(UpdateId),
    /// This node may acknowledge the view, as far as updates go (rule P5).
    Prepared(ViewNumber),
}
