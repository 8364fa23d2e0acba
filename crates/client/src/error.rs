//! The errors of calls to the helper.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use verbena_terms::FormatError;

use crate::locks::LockList;
use crate::memory_wire::Failure;
use crate::place::Place;
use crate::socket::MODE_VARIABLE;

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Error {
    /// No helper listens at the socket.
    #[error(
        "no helper runs: nothing listens at {}{}; start one with `verbena node`",
        tried.display(), others(.running)
    )]
    NoHelper {
        /// The socket that was tried.
        tried: PathBuf,
        /// Names of helpers whose sockets are in the same directory.
        running: Vec<String>,
    },
    /// The variable that names a mode names none.
    #[error("{MODE_VARIABLE} is {name:?}, which is no ipc mode: there are mq, rmq, rcq and adaptive")]
    Mode {
        /// What it says.
        name: String,
    },
    /// The way to the helper failed.
    #[error(transparent)]
    Ipc(#[from] verbena_ipc::Error),
    /// The answer is in another format or version.
    #[error("the helper does not fit this program: {0}")]
    Format(#[from] FormatError),
    /// The answer makes no sense.
    #[error("the helper's answer cannot be read: {0}")]
    Malformed(String),
    /// The helper does not know the question, or refuses it.
    #[error("the helper refuses: {0}")]
    Refused(String),
    /// That is no place where a helper could be.
    #[error(
        "invalid helper address {text:?}: {why}; write an absolute path, or http://IP:PORT with a loopback address"
    )]
    Place {
        /// What was given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No helper listens for HTTP there. Nothing was begun.
    #[error("no helper answers at {at}: {source}; start `verbena node` or `verbena proxy`, or name another address")]
    Nobody {
        /// The place that was tried.
        at: Place,
        /// What the system said.
        source: std::io::Error,
    },
    /// The helper cannot do it now. Nothing was begun; write nothing, and answer 503.
    #[error("the helper cannot do it now: {0}")]
    Unavailable(String),
    /// The helper took too long. What was to begin may have begun; write nothing all the same.
    #[error("no answer from the helper at {at} within {patience:?}")]
    Late {
        /// The helper.
        at: Place,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The helper broke off before its answer was whole. What was to begin may have begun; write nothing all the same.
    #[error("the helper at {at} broke off: {reason}")]
    Broken {
        /// The helper.
        at: Place,
        /// How.
        reason: String,
    },
    /// The update has ended already: it was open for longer than `pages.longest_transaction`, or its helper was started again.
    #[error("the update is not open any more ({0}): do not tell the client that its write is done")]
    NotOpen(String),
    /// Some cache may not know of the write (rule P7).
    #[error("not every cache may know of the write: do not tell the client that it is done")]
    Unconfirmed,
    /// A lock that was tried is not free.
    #[error("the lock is not free")]
    NotFree,
    /// A lock that a program holds or waits for is not removed.
    #[error("the lock is in use, and not removed: {users}")]
    InUse {
        /// Its holders and waiters, as far as nodes report them: of this lock alone.
        users: LockList,
    },
    /// A lock was not free in time.
    #[error("the lock was not free within {waited:?}")]
    NotInTime {
        /// How long was waited.
        waited: Duration,
    },
    /// What was held is not held any more: the node had no lease for a while, or its helper has ended (rule L6).
    #[error("the lock was lost: its node had no lease for a while, or its helper has ended")]
    Lost,
    /// Those that hold the lock wait for locks that this connection holds, and it was the last that began to wait: it is to release what it holds, and may begin anew.
    #[error("deadlock: {circle}")]
    Deadlock {
        /// The cycle of clients, each of which waits for the next.
        circle: String,
    },
    /// A request about memory was not done, or its outcome is unknown.
    #[error("{text}")]
    Memory {
        /// Of what kind the reason is.
        why: Failure,
        /// The reason.
        text: String,
    },
    /// All processes begin again from a checkpoint: this one is to join again.
    #[error("a process began again: all go back to the newest complete checkpoint, so join it again")]
    RolledBack,
    /// The wait was stopped, because [`Memory::while_it_waits`](crate::Memory::while_it_waits) said so. What was asked
    /// for may be done all the same.
    #[error("the wait was stopped; what was asked for may be done all the same")]
    Stopped,
    /// A hold, or a wish, of another connection or of none. Nothing was changed.
    #[error("that is nothing of this connection: it is another one's, or it is over")]
    NotOurs,
    /// The connection was made before a fork, by the parent. Nothing was changed.
    #[error("this connection was made by process {maker}: after a fork the child connects for itself")]
    Forked {
        /// The process that may use it.
        maker: u32,
    },
    /// What was asked for changed with each part of the answer.
    #[error("the cluster's view changed again and again while it was being read: ask again")]
    Unsteady,
}

impl From<verbena_protocol::Error> for Error {
    fn from(error: verbena_protocol::Error) -> Error {
        match error {
            verbena_protocol::Error::Format(error) => Error::Format(error),
            verbena_protocol::Error::Malformed(reason) => Error::Malformed(reason),
        }
    }
}

impl Error {
    /// Whether the connection has ended, and with it all that was held by it.
    pub fn is_over(&self) -> bool {
        matches!(self, Error::Ipc(verbena_ipc::Error::Over(_)))
    }

    /// Whether the helper did not answer in time. What it was asked may have been done (rule F2).
    pub fn is_late(&self) -> bool {
        use verbena_ipc::Error::{Deadline, Full, NoGreeting};
        matches!(self, Error::Late { .. } | Error::Ipc(Deadline { .. } | Full | NoGreeting { .. }))
    }

    /// The helper at `place` broke off by `error` and what is behind that.
    #[cfg(feature = "updates")]
    pub fn broken(place: &Place, error: &(dyn std::error::Error + 'static)) -> Self {
        let (mut reason, mut cause) = (error.to_string(), error.source());
        while let Some(error) = cause {
            reason.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Error::Broken { at: place.clone(), reason }
    }
}

fn others(running: &[String]) -> String {
    if running.is_empty() { String::new() } else { format!(" (beside it: {})", running.join(", ")) }
}
