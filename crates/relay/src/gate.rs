//! What both protocols do with a held command and its answer.

use std::collections::VecDeque;

use crate::{Action, End, Error, Outcome, Rejection};

/// Where a held command stands.
///
/// ```text
/// None --judged--> Asked --begun--> Forwarded --answered--> Ending --ended--> None
///                    `--rejected--> RollingBack --answered--> None
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    None,
    /// The bracket is being begun.
    Asked,
    /// The command is at the server.
    Forwarded,
    /// The bracket was not begun, and the server rolls back.
    RollingBack,
    /// The bracket is being ended.
    Ending,
}

/// What leaves a conversation, and what of it stays back.
#[derive(Debug)]
pub(crate) struct Gate<W> {
    pub(crate) hold: Hold,
    pub(crate) to_client: Vec<u8>,
    pub(crate) to_server: Vec<u8>,
    /// The answer of the held command, or the error that follows a rollback.
    withheld: Vec<u8>,
    actions: VecDeque<Action<W>>,
    client_is_gone: bool,
    is_closed: bool,
}

impl<W> Gate<W> {
    pub(crate) fn new() -> Self {
        Self {
            hold: Hold::None,
            to_client: Vec::new(),
            to_server: Vec::new(),
            withheld: Vec::new(),
            actions: VecDeque::new(),
            client_is_gone: false,
            is_closed: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(crate) fn reads_client(&self) -> bool {
        !self.is_closed && !self.client_is_gone
    }

    /// A command is held: its bracket is to be begun.
    pub(crate) fn ask(&mut self, write: W) {
        self.hold = Hold::Asked;
        self.actions.push_back(Action::Begin(write));
    }

    /// TLS begins at this end.
    pub(crate) fn encrypt(&mut self, end: End) {
        self.actions.push_back(Action::Encrypt { end, begun: Vec::new() });
    }

    /// The next action. What of the client's bytes lies behind its request for TLS belongs to that.
    pub(crate) fn next_action(&mut self, backlog: &mut Vec<u8>) -> Option<Action<W>> {
        match self.actions.pop_front()? {
            Action::Encrypt { end: End::Client, .. } => {
                Some(Action::Encrypt { end: End::Client, begun: std::mem::take(backlog) })
            }
            action => Some(action),
        }
    }

    /// Says whether the conversation goes on with the held command.
    pub(crate) fn begun(&mut self, is_begun: bool) -> bool {
        if self.hold != Hold::Asked {
            return false;
        }
        if !self.is_closed {
            return true;
        }
        self.hold = Hold::None;
        if is_begun {
            self.hold = Hold::Ending;
            self.actions.push_back(Action::End(Outcome::Unsent));
        }
        false
    }

    /// Passes what the server sent, or keeps it back with the rest of a held answer.
    pub(crate) fn pass(&mut self, raw: &[u8]) {
        match self.hold {
            Hold::RollingBack => {}
            Hold::Forwarded | Hold::Ending => self.withheld.extend_from_slice(raw),
            Hold::None | Hold::Asked => self.to_client.extend_from_slice(raw),
        }
    }

    /// Passes what the server sent although a held answer has not ended: the client is to do something.
    pub(crate) fn pass_now(&mut self, raw: &[u8]) {
        self.pass(raw);
        if self.hold == Hold::Forwarded {
            self.to_client.append(&mut self.withheld);
        }
    }

    /// Passes what may be heard before the answer, and does not hurry it.
    pub(crate) fn pass_beside(&mut self, raw: &[u8]) {
        if self.withheld.is_empty() { self.pass_now(raw) } else { self.pass(raw) }
    }

    /// Lets rows before the last packet of a long held answer go: the application does not know its end.
    pub(crate) fn release_beyond(&mut self, limit: usize) {
        if self.hold == Hold::Forwarded && self.withheld.len() > limit {
            self.to_client.append(&mut self.withheld);
        }
    }

    /// The held command has been answered.
    pub(crate) fn answered(&mut self) {
        if self.hold == Hold::Forwarded {
            self.hold = Hold::Ending;
            self.actions.push_back(Action::End(Outcome::Answered));
        }
    }

    /// The server is to roll back; the client hears `error` when it has.
    pub(crate) fn roll_back(&mut self, command: &[u8], error: Vec<u8>) {
        self.hold = Hold::RollingBack;
        self.withheld = error;
        self.to_server.extend_from_slice(command);
    }

    pub(crate) fn rolled_back(&mut self) {
        self.hold = Hold::None;
        self.to_client.append(&mut self.withheld);
    }

    /// Says whether the conversation goes on.
    pub(crate) fn ended(&mut self, is_confirmed: bool) -> bool {
        if self.hold != Hold::Ending {
            return false;
        }
        self.hold = Hold::None;
        if self.is_closed {
            return false;
        }
        if !is_confirmed {
            self.close(Some(Error::Unconfirmed));
            return false;
        }
        self.to_client.append(&mut self.withheld);
        if self.client_is_gone {
            self.close(None);
        }
        !self.is_closed
    }

    pub(crate) fn client_closed(&mut self) {
        self.client_is_gone = true;
        // A held command that is at the server: its answer ends the bracket.
        if !matches!(self.hold, Hold::Forwarded | Hold::Ending) {
            self.close(None);
        }
    }

    pub(crate) fn close(&mut self, error: Option<Error>) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        match self.hold {
            Hold::Forwarded => {
                self.hold = Hold::Ending;
                self.actions.push_back(Action::End(Outcome::Unknown));
            }
            // Nothing was committed, and with this connection nothing will be.
            Hold::RollingBack => self.rolled_back(),
            Hold::None | Hold::Asked | Hold::Ending => {}
        }
        self.withheld = Vec::new();
        self.actions.push_back(Action::Close(error));
    }
}

/// What an application hears of a bracket that was not begun.
pub(crate) fn message(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Retry => "verbena: the update was not begun at every home and is rolled back; try again",
        Rejection::ReadOnly => "verbena: the relay has no lease and lets no writes through",
    }
}
