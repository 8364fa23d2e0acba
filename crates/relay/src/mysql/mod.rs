//! One connection of MySQL or MariaDB.
//!
//! ```text
//! Greeting --greeting--> Response --login--> Login --OK--> Commands
//!                                              |              | COM_CHANGE_USER: a reply of form Login
//!                                            error: the server closes
//! ```
//!
//! In `Commands` each command of the client that has an answer becomes a [`Reply`](reply::Reply) at the end of a queue;
//! the packets of the server belong to the reply at its front. A command that the judge holds waits until the queue is
//! empty, then until its bracket is begun; then it is forwarded, and what follows it waits until the bracket is ended.
//!
//! A held command goes through `Hold`:
//!
//! ```text
//! None --judged--> Asked --begun--> Forwarded --answered--> Ending --ended--> None
//!                    `--rejected--> RollingBack --answered--> None
//! ```

mod client;
mod login;
mod packets;
mod reply;
mod server;
mod wire;

use std::collections::VecDeque;

use login::{Agreed, Offer};
use packets::{HEAD, Packets};
use reply::{Ending, Form, Reply};
pub(crate) use wire::{binary_values, text_values};

use crate::{Action, Answer, Conversation, Error, Judge, Limits, Outcome, Rejection, State, Transaction};

/// A connection of MySQL or MariaDB as a state machine.
pub struct Mysql<J: Judge> {
    judge: J,
    limits: Limits,
    phase: Phase,
    offer: Offer,
    agreed: Agreed,
    client_packets: Packets,
    server_packets: Packets,
    /// Bytes of the client that wait, after `waiting`.
    backlog: Vec<u8>,
    /// A command that waits for answers or for its bracket, as it came.
    waiting: Option<Waiting>,
    /// What becomes of the rest of a long packet of the client.
    client_rest: Rest,
    /// The server asked something about the login. The client may send one packet then, and no other, so that no
    /// command passes as part of a login.
    answers_login: bool,
    /// A long command is answered with this when its last byte is here.
    rejected: Option<(u64, Rejection)>,
    replies: VecDeque<Reply>,
    /// Commands so far.
    commands: u64,
    state: State,
    hold: Hold,
    /// The answer of the held command.
    withheld: Vec<u8>,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    actions: VecDeque<Action<J::Write>>,
    client_is_gone: bool,
}

/// The longest packet of a login, column definition or status that the relay takes.
const CONTROL_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The server is to speak.
    Greeting,
    /// The client is to answer the greeting.
    Response,
    /// The server looks at what the client sent.
    Login,
    Commands,
    /// The server ended the login with an error and closes.
    Refused,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Pass,
    Drop,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    raw: Vec<u8>,
    is_whole: bool,
}

impl<J: Judge> Mysql<J> {
    /// A connection that was just accepted, with the server's greeting still to come.
    pub fn new(judge: J, limits: Limits) -> Self {
        let mut client_packets = Packets::new(limits.command_bytes);
        client_packets.brief = Some((client::LONG_DATA, limits.answer_bytes));
        Self {
            judge,
            limits,
            phase: Phase::Greeting,
            offer: Offer::default(),
            agreed: Agreed::default(),
            client_packets,
            server_packets: Packets::new(limits.answer_bytes),
            backlog: Vec::new(),
            waiting: None,
            client_rest: Rest::Pass,
            answers_login: false,
            rejected: None,
            replies: VecDeque::new(),
            commands: 0,
            state: State { transaction: Transaction::Unknown, autocommit: true, flags: 0 },
            hold: Hold::None,
            withheld: Vec::new(),
            to_client: Vec::new(),
            to_server: Vec::new(),
            actions: VecDeque::new(),
            client_is_gone: false,
        }
    }

    /// The judge of this connection.
    pub fn judge(&self) -> &J {
        &self.judge
    }

    fn close(&mut self, error: Option<Error>) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.backlog = Vec::new();
        self.waiting = None;
        if self.hold == Hold::Forwarded {
            self.hold = Hold::Ending;
            self.actions.push_back(Action::End(Outcome::Unknown));
        }
        if self.hold == Hold::RollingBack {
            // Nothing was committed, and with this connection nothing will be.
            self.release();
        }
        self.withheld = Vec::new();
        self.actions.push_back(Action::Close(error));
    }

    /// Passes what the server sent, or keeps it back with the rest of a held answer.
    fn pass_to_client(&mut self, raw: &[u8]) {
        match self.hold {
            Hold::RollingBack => {}
            Hold::Forwarded | Hold::Ending => {
                self.withheld.extend_from_slice(raw);
            }
            Hold::None | Hold::Asked => self.to_client.extend_from_slice(raw),
        }
    }

    /// Gives out a held answer that has not ended.
    fn release(&mut self) {
        self.to_client.append(&mut self.withheld);
    }
}

impl<J: Judge> Conversation for Mysql<J> {
    type Write = J::Write;

    fn client(&mut self, bytes: &[u8]) {
        if self.phase == Phase::Closed {
            return;
        }
        if self.backlog.is_empty() {
            let used = self.take_client(bytes);
            if self.phase != Phase::Closed {
                self.backlog.extend_from_slice(&bytes[used..]);
            }
        } else {
            self.backlog.extend_from_slice(bytes);
            self.advance();
        }
    }

    fn server(&mut self, bytes: &[u8]) {
        self.take_server(bytes);
        self.advance();
    }

    fn client_closed(&mut self) {
        self.client_is_gone = true;
        // A held command that is at the server: its answer ends the bracket.
        if !matches!(self.hold, Hold::Forwarded) {
            self.close(None);
        }
    }

    fn server_closed(&mut self) {
        self.close(None);
    }

    fn begun(&mut self, result: Result<(), Rejection>) {
        if self.hold != Hold::Asked {
            return;
        }
        if self.phase == Phase::Closed {
            self.hold = Hold::None;
            if result.is_ok() {
                self.hold = Hold::Ending;
                self.actions.push_back(Action::End(Outcome::Unsent));
            }
            return;
        }
        match result {
            Ok(()) => self.forward_held(),
            Err(rejection) => self.reject(rejection),
        }
        self.advance();
    }

    fn ended(&mut self, is_confirmed: bool) {
        if self.hold != Hold::Ending {
            return;
        }
        self.hold = Hold::None;
        if self.phase == Phase::Closed {
            return;
        }
        if !is_confirmed {
            return self.close(Some(Error::Unconfirmed));
        }
        self.release();
        if self.client_is_gone {
            return self.close(None);
        }
        self.advance();
    }

    fn next_action(&mut self) -> Option<Action<J::Write>> {
        self.actions.pop_front()
    }

    fn to_client(&mut self) -> &mut Vec<u8> {
        &mut self.to_client
    }

    fn to_server(&mut self) -> &mut Vec<u8> {
        &mut self.to_server
    }

    fn reads_client(&self) -> bool {
        self.phase != Phase::Closed && !self.client_is_gone && self.backlog.is_empty()
    }

    fn is_idle(&self) -> bool {
        let is_unanswered = !self.replies.is_empty() || self.waiting.is_some() || self.hold != Hold::None;
        self.phase != Phase::Commands || !is_unanswered && self.state.transaction == Transaction::Closed
    }
}

/// The error that clients know as *nothing was committed, try again*, or as *read only*.
fn rejection_packet(rejection: Rejection, sequence: u8) -> Vec<u8> {
    match rejection {
        Rejection::Retry => {
            let message = "Lock wait timeout exceeded; try restarting transaction (verbena: update not begun)";
            wire::error(sequence, 1205, b"HY000", message)
        }
        Rejection::ReadOnly => {
            let message = "The server is running with the --read-only option (verbena: relay without a lease)";
            wire::error(sequence, 1290, b"HY000", message)
        }
    }
}
