//! The request for a connection: repeated until it is answered, and given up. What is asked is an end that answers, for an end that was made here.

use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Incarnation, Time, ViewNumber};

use super::adapter::Adapter;
use super::burial::Burial;
use super::clerk::Clerk;
use super::enquiries::Enquiries;
use super::introductions::{Endpoint, Meeting, Purpose, Said};
use super::line::Line;
use super::tally::Tally;
use crate::error::{Error, Result};
use crate::message::Class;
use crate::provider::{Address, Peer};

/// Without an answer for this long, the caller asks again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(50);
/// After so long without an answer it asks with a connection of its own anew.
pub(super) const GIVE_UP: Duration = Duration::from_secs(2);

/// Until there is a better reason.
pub(super) const NO_ANSWER: &str = "it has not answered a request for a connection";

/// A target in one class, and by what it is reached.
#[derive(Clone)]
pub(super) struct Ways {
    pub(super) target: Incarnation,
    pub(super) class: Class,
    pub(super) adapter: Arc<Adapter>,
    pub(super) clerk: Arc<Clerk>,
    pub(super) burial: Burial,
    /// The target's channel for messages.
    pub(super) channel: Arc<dyn Peer>,
    /// Where its answers reach this node.
    pub(super) answers: Address,
    pub(super) enquiries: Arc<Enquiries>,
    pub(super) tally: Arc<Tally>,
}

/// How a target answers a request for a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// It has made its end.
    Connected(Endpoint),
    /// It is to be called.
    Expected(Meeting),
}

/// The newest request, and what was asked with it.
pub(super) struct Connecting {
    purpose: Purpose,
    asking: Option<Asking>,
    request: u64,
}

/// A connection of which the other end has still to be made.
struct Asking {
    /// None while it is being connected.
    line: Option<Line>,
    again: Time,
    until: Time,
}

impl Ways {
    /// Says something to the target about a connection.
    pub(super) fn say(&self, purpose: Purpose, number: u64, said: &Said) -> Result<()> {
        match self.channel.send(self.class, ViewNumber(0), purpose.port(), number, &said.to_bytes()) {
            // It is said again.
            Err(Error::Full { .. }) => Ok(()),
            sent => sent,
        }
    }

    /// Connects an end to the one that the target has made. May take as long as the network looks for it.
    pub(super) fn connect(&self, line: &mut Line, answer: std::result::Result<Answer, String>) -> Result<()> {
        let connected = match answer.map_err(|reason| self.unreachable(reason))? {
            Answer::Connected(end) => line.connect(&end),
            Answer::Expected(meeting) => line.call(&meeting),
        };
        let armed = connected.and_then(|()| if self.clerk.is_told() { line.arm() } else { Ok(()) });
        armed.map_err(|error| match error {
            Error::Unreachable { .. } => error,
            other => self.unreachable(other.to_string()),
        })
    }

    pub(super) fn unreachable(&self, reason: String) -> Error {
        Error::Unreachable { target: self.target, address: format!("its adapter, from {}", self.adapter.name), reason }
    }
}

impl Connecting {
    pub(super) fn new(purpose: Purpose) -> Self {
        Connecting { purpose, asking: None, request: 0 }
    }

    /// Number of the newest request.
    pub(super) fn request(&self) -> u64 {
        self.request
    }

    /// Asks the target for the other end of a connection, as often as is due.
    pub(super) fn ask(&mut self, ways: &Ways, now: Time) -> Result<()> {
        if self.asking.as_ref().is_some_and(|asking| asking.line.is_some() && now >= asking.until) {
            self.give_up(&ways.burial);
        }
        if self.asking.is_none() {
            let line = Line::new(&ways.adapter, ways.clerk.channel(), ways.class)?;
            self.request += 1;
            self.asking = Some(Asking { line: Some(line), again: now, until: now + GIVE_UP });
        }
        let number = self.request;
        let Some(asking) = self.asking.as_mut().filter(|asking| now >= asking.again) else { return Ok(()) };
        asking.again = now + ASK_AGAIN;
        let Some(line) = &asking.line else { return Ok(()) };
        let answers = ways.answers.clone();
        let is_managed = ways.adapter.managed.is_some();
        let said = if is_managed { Said::Call(answers) } else { Said::Connect(line.endpoint(), answers) };
        ways.say(self.purpose, number, &said)
    }

    /// The target has answered: the end that is to be connected. None where a later request has superseded this one, whose end was destroyed then.
    pub(super) fn answered(&mut self, number: u64) -> Option<Line> {
        let asking = self.asking.as_mut().filter(|_| number == self.request);
        asking.and_then(|asking| asking.line.take())
    }

    /// It is connected, or cannot be. Returns whether a request was waiting.
    pub(super) fn ends(&mut self, number: u64) -> bool {
        number == self.request && self.asking.take().is_some()
    }

    /// Of a connection that is being made nothing comes.
    pub(super) fn give_up(&mut self, burial: &Burial) {
        if let Some(line) = self.asking.take().and_then(|asking| asking.line) {
            burial.bury(line, ());
        }
    }

    /// When the target is to be asked again.
    pub(super) fn again(&self) -> Time {
        self.asking.as_ref().map_or(Time::FAR, |asking| asking.again)
    }
}
