//! Finds out whether a silent target is gone. A target that runs nothing may still answer operations, so this asks its
//! agent, by the channel for messages.

use std::time::Duration;

use verbena_terms::Time;

use crate::completion::Pending;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::operation::{Batch, Completed};
use crate::region::SharedRemote;

/// A target that is silent for so long is looked for.
const SILENCE: Duration = Duration::from_millis(250);
/// How long that may take.
const LOOKING: Duration = Duration::from_secs(1);
/// From one look whether it was found to the next.
const GLANCE: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Lookout {
    /// Since when nothing has come, though something was waited for.
    silent_since: Time,
    /// How the target's agent is reached, once a region of it was opened.
    agent: Option<SharedRemote>,
    looking: Option<Pending<Completed>>,
}

impl Lookout {
    /// A region of the target was opened through its agent.
    pub(crate) fn met(&mut self, agent: SharedRemote) {
        self.agent = Some(agent);
    }

    /// Something has come from the target, or is waited for from now on.
    pub(crate) fn heard(&mut self, now: Time) {
        self.silent_since = now;
    }

    /// Whether the target was found that is being looked for. When to look again, if that is not known yet.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: it is gone.
    pub(crate) fn glance(&mut self, now: Time) -> Result<Option<Time>> {
        let Some(mut looking) = self.looking.take() else { return Ok(None) };
        match looking.poll_now() {
            None => {
                self.looking = Some(looking);
                return Ok(Some(now + GLANCE));
            }
            Some(Err(error @ Error::Unreachable { .. })) => return Err(error),
            // Its agent answers, or is stopped: operations may be answered yet.
            Some(_) => self.silent_since = now,
        }
        Ok(None)
    }

    /// Looks for the target if something is waited for and it has been silent. When to look again.
    pub(crate) fn look(&mut self, now: Time, waits: bool) -> Time {
        let Some(agent) = self.agent.as_ref().filter(|_| waits) else { return Time::FAR };
        let until = self.silent_since + SILENCE;
        if now < until {
            return until;
        }
        self.looking = Some(agent.post(Batch::read_words(&[0]), Class::Control, now + LOOKING));
        now + GLANCE
    }

    /// Lets go of the agent.
    pub(crate) fn leave(&mut self) -> Option<SharedRemote> {
        self.agent.take()
    }
}
