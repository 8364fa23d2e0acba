//! One connection of MySQL or MariaDB.
//!
//! ```text
//! Greeting --greeting--> Response --login--> Login --OK--> Commands
//!                         |    ^       |       ^ |            | COM_CHANGE_USER: a reply of form Login
//!                     SSLRequest      TLS      | error: the server closes
//!                         v    | TLS   v       |
//!                      Encrypting     Encrypting
//! ```
//!
//! **TLS.** A client asks for it by the beginning of its login, and sends the whole login encrypted. The relay does the same with the server when it has the client's login, so that
//! both use the same capabilities. The packets of a login are numbered, so those of a login with one request more at one end have other numbers at the other.
//!
//! In `Commands` each command of the client that has an answer becomes a [`Reply`](reply::Reply) at the end of a queue;
//! the packets of the server belong to the reply at its front. A command that the judge holds waits until the queue is
//! empty, then until its bracket is begun; then it is forwarded, and what follows it waits until the bracket is ended.

mod client;
mod login;
mod packets;
mod reply;
mod server;
mod wire;

use std::collections::VecDeque;

use crate::gate::{Gate, Hold, message};
use login::{Agreed, Offer};
use packets::{HEAD, Packets};
use reply::{Ending, Form, Reply};
pub(crate) use wire::{binary_values, text_values};

use crate::{Action, Answer, Conversation, Encryption, End, Error, Judge, Limits, Rejection, State, Transaction};

/// A connection of MySQL or MariaDB as a state machine.
pub struct Mysql<J: Judge> {
    judge: J,
    limits: Limits,
    phase: Phase,
    encryption: Encryption,
    /// The client's packets are encrypted.
    has_encrypted_client: bool,
    /// The client's login, which the server gets when its packets are encrypted.
    login: Vec<u8>,
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
    gate: Gate<J::Write>,
}

/// The longest packet of a login, column definition or status that the relay takes.
const CONTROL_BYTES: usize = 64 << 10;

/// ER_CONNECT_TO_FOREIGN_DATA_SOURCE. Not 2003, which clients say themselves where they reach no server: MariaDB's take a code of their own range from a server for a malformed
/// packet.
const UNREACHABLE: u16 = 1429;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The server is to speak.
    Greeting,
    /// The client is to answer the greeting.
    Response,
    /// TLS is to begin at this end.
    Encrypting(End),
    /// The server looks at what the client sent.
    Login,
    Commands,
    /// The server ended the login with an error and closes.
    Refused,
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
            encryption: Encryption::default(),
            has_encrypted_client: false,
            login: Vec::new(),
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
            gate: Gate::new(),
        }
    }

    /// The same with TLS at these ends.
    pub fn encrypting(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// The judge of this connection.
    pub fn judge(&self) -> &J {
        &self.judge
    }

    fn close(&mut self, error: Option<Error>) {
        self.gate.close(error);
        self.backlog = Vec::new();
        self.waiting = None;
    }
}

impl<J: Judge> Conversation for Mysql<J> {
    type Write = J::Write;

    fn client(&mut self, bytes: &[u8]) {
        if self.gate.is_closed() {
            return;
        }
        if self.backlog.is_empty() {
            let used = self.take_client(bytes);
            if !self.gate.is_closed() {
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
        self.gate.client_closed();
    }

    fn server_closed(&mut self) {
        self.close(None);
    }

    fn unreachable(&mut self, problem: &str) {
        match self.phase {
            Phase::Greeting => self.gate.to_client.extend_from_slice(&wire::refusal(UNREACHABLE, problem)),
            Phase::Encrypting(End::Server) => {
                let sequence = self.client_packets.sequence.wrapping_add(1);
                self.gate.to_client.extend_from_slice(&wire::error(sequence, UNREACHABLE, b"HY000", problem));
            }
            _ => {}
        }
        self.close(None);
    }

    fn encrypted(&mut self, end: End) {
        match (self.phase, end) {
            (Phase::Encrypting(End::Client), End::Client) => {
                self.has_encrypted_client = true;
                self.phase = Phase::Response;
            }
            // Part of a packet that came in clear would stand before what is encrypted.
            (Phase::Encrypting(End::Server), End::Server) if !self.server_packets.is_empty() => {
                self.close(Some(Error::Server("bytes in clear behind the request for TLS")));
            }
            (Phase::Encrypting(End::Server), End::Server) => {
                self.phase = Phase::Login;
                self.gate.to_server.append(&mut self.login);
            }
            _ => {}
        }
    }

    fn begun(&mut self, result: Result<(), Rejection>) {
        if self.gate.begun(result.is_ok()) {
            match result {
                Ok(()) => self.forward_held(),
                Err(rejection) => self.reject(rejection),
            }
            self.advance();
        }
    }

    fn ended(&mut self, is_confirmed: bool) {
        if self.gate.ended(is_confirmed) {
            self.advance();
        }
    }

    fn next_action(&mut self) -> Option<Action<J::Write>> {
        self.gate.next_action(&mut self.backlog)
    }

    fn to_client(&mut self) -> &mut Vec<u8> {
        &mut self.gate.to_client
    }

    fn to_server(&mut self) -> &mut Vec<u8> {
        &mut self.gate.to_server
    }

    fn reads_client(&self) -> bool {
        self.gate.reads_client() && self.backlog.is_empty()
    }

    fn is_idle(&self) -> bool {
        let is_unanswered = !self.replies.is_empty() || self.waiting.is_some() || self.gate.hold != Hold::None;
        self.phase != Phase::Commands || !is_unanswered && self.state.transaction == Transaction::Closed
    }
}

/// The error that clients know as *nothing was committed, try again*, or as *read only*.
fn rejection_packet(rejection: Rejection, sequence: u8) -> Vec<u8> {
    let code = match rejection {
        Rejection::Retry => 1205,
        Rejection::ReadOnly => 1290,
    };
    wire::error(sequence, code, b"HY000", message(rejection))
}
