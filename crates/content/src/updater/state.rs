//! How far an update is.

use verbena_terms::{Time, ViewNumber};

use super::UpdaterLimits;

/// States of an open update; the drawing above [`Updater`](super::Updater) has the ways between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Beginning { deadline: Time },
    Forwarded(Check),
    Unknown { until: Time },
    Confirming { deadline: Time, client_waits: bool },
}

/// Under what an update was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Check {
    pub(super) view: ViewNumber,
    pub(super) tenure: u64,
}

impl State {
    /// Since when it waits for homes, if it does.
    pub(super) fn waits_since(self, limits: UpdaterLimits) -> Option<Time> {
        match self {
            // Its client has stopped waiting: the deadline is over.
            State::Confirming { client_waits: false, .. } => Some(Time::ZERO),
            State::Beginning { deadline } | State::Confirming { deadline, .. } => {
                Some(deadline - limits.begin_deadline)
            }
            State::Forwarded(_) | State::Unknown { .. } => None,
        }
    }

    pub(super) fn deadline(self) -> Option<Time> {
        match self {
            State::Beginning { deadline } | State::Confirming { deadline, .. } => {
                Some(deadline).filter(|&at| at != Time::FAR)
            }
            State::Unknown { until } => Some(until),
            State::Forwarded(_) => None,
        }
    }
}
