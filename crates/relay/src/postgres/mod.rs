//! One connection of PostgreSQL.
//!
//! ```text
//! Startup --GSSENCRequest, and SSLRequest where there is no TLS: answered N--> Startup
//!         --SSLRequest: answered S--> Encrypting --TLS--> Startup
//!         --CancelRequest--> Cancel
//!         --StartupMessage--> Login --ReadyForQuery--> Commands
//! ```
//!
//! **TLS** with the server stands before Cancel and Login: `Asking --S--> Encrypting --TLS-->`. A login by SCRAM may be bound to the TLS of its connection. A client without TLS takes an offer of
//! that for a fault, so it does not see it; one with TLS binds its login to the relay's certificate, which the server accepts only if it has the same.
//!
//! In `Commands` each message that has an answer becomes a [`Reply`] at the end of a queue; a Query, a FunctionCall and
//! a Sync are answered up to ReadyForQuery, the other messages of the extended protocol by one or a few messages.
//!
//! **Pipelines.** The server keeps the answers of extended messages back until a Flush or a Sync. A message that the
//! judge holds waits until all before it are answered (Q10), so the relay sends a Flush of its own then: it has no
//! answer. Outside a transaction block what a pipeline wrote becomes visible at its Sync, so it is the Sync that is
//! held; a COMMIT becomes visible at its Execute.
//!
//! **Errors.** After an error in the extended protocol the server ignores everything up to the next Sync. So does this
//! machine: what it forwards until then has no reply.
//!
//! **COPY.** While a client sends data, the server ignores a Sync that came with the Execute; libpq sends one, and
//! another one after the data.

mod client;
mod messages;
mod reader;
mod server;
mod wire;

use std::collections::VecDeque;

use messages::Messages;
pub use reader::Reader;
pub(crate) use wire::values;

use crate::gate::{Gate, Hold, message};
use crate::{Action, Conversation, Encryption, End, Error, Judge, Limits, Rejection, State, Transaction};

/// A connection of PostgreSQL as a state machine.
pub struct Postgres<J: Judge> {
    judge: J,
    limits: Limits,
    phase: Phase,
    encryption: Encryption,
    /// The client's messages are encrypted.
    has_encrypted_client: bool,
    /// The client's first message, which the server gets when its messages are encrypted.
    first: Vec<u8>,
    client_messages: Messages,
    server_messages: Messages,
    /// Bytes of the client that wait, after `waiting`.
    backlog: Vec<u8>,
    /// A message that waits for answers or for its bracket, as it came.
    waiting: Option<Waiting>,
    /// The rest of a long message of the client is dropped.
    drops_rest: bool,
    /// A long message is answered with this when its last byte is here.
    rejected: Option<(Waiting, Rejection)>,
    /// A Flush of the relay's own follows the message that is being forwarded.
    flushes: bool,
    replies: VecDeque<Reply>,
    /// Messages so far that were judged.
    commands: u64,
    state: State,
    /// The server ignores what comes before the next Sync.
    skips: bool,
    /// The same, and the server knows nothing of it: the relay refused the message.
    discards: bool,
    /// The client may send data for a COPY.
    copies_in: bool,
    /// What the client is told after its startup message: there is no server.
    unreachable: Option<Vec<u8>>,
    gate: Gate<J::Write>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Startup,
    /// The server is to say whether it takes TLS.
    Asking,
    /// TLS is to begin at this end.
    Encrypting(End),
    Cancel,
    Login,
    Commands,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    kind: u8,
    raw: Vec<u8>,
    is_whole: bool,
}

/// An answer that has not ended.
#[derive(Debug)]
struct Reply {
    number: u64,
    /// The type of the client's message.
    kind: u8,
    is_shown: bool,
    is_error: bool,
}

/// The longest message of the server that is looked at whole, rows and copied data apart.
const CONTROL_BYTES: usize = 1 << 20;

/// What clients know as *connection failure*.
const UNREACHABLE: &str = "08006";

impl<J: Judge> Postgres<J> {
    /// A connection that was just accepted.
    pub fn new(judge: J, limits: Limits) -> Self {
        Self {
            judge,
            limits,
            phase: Phase::Startup,
            encryption: Encryption::default(),
            has_encrypted_client: false,
            first: Vec::new(),
            client_messages: Messages::new(true, limits.answer_bytes, CONTROL_BYTES),
            server_messages: Messages::new(false, limits.answer_bytes, CONTROL_BYTES),
            backlog: Vec::new(),
            waiting: None,
            drops_rest: false,
            rejected: None,
            flushes: false,
            replies: VecDeque::new(),
            commands: 0,
            state: State { transaction: Transaction::Closed, autocommit: true, flags: 0 },
            skips: false,
            discards: false,
            copies_in: false,
            unreachable: None,
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

impl<J: Judge> Conversation for Postgres<J> {
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
        let told = wire::fatal(UNREACHABLE, problem);
        match self.phase {
            // The client is to speak first.
            Phase::Startup | Phase::Encrypting(End::Client) => self.unreachable = Some(told),
            Phase::Asking | Phase::Encrypting(End::Server) => {
                self.gate.to_client.extend_from_slice(&told);
                self.close(None);
            }
            Phase::Cancel | Phase::Login | Phase::Commands => self.close(None),
        }
    }

    fn encrypted(&mut self, end: End) {
        match (self.phase, end) {
            (Phase::Encrypting(End::Client), End::Client) => {
                self.has_encrypted_client = true;
                self.phase = Phase::Startup;
            }
            // Part of a packet that came in clear would stand before what is encrypted.
            (Phase::Encrypting(End::Server), End::Server) if !self.server_messages.is_empty() => {
                self.close(Some(Error::Server("bytes in clear behind the request for TLS")));
            }
            (Phase::Encrypting(End::Server), End::Server) => {
                let first = std::mem::take(&mut self.first);
                self.forward_first(&first);
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
fn rejection_message(rejection: Rejection) -> Vec<u8> {
    let code = match rejection {
        Rejection::Retry => "40001",
        Rejection::ReadOnly => "25006",
    };
    wire::error(code, message(rejection))
}
