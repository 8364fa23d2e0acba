//! What the client sends.

use super::messages::Piece;
use super::*;
use crate::{Answer, Command, Kind, Login, Verdict};

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// The relay's own rollback, in the queue of replies. No client sends this type.
pub(super) const ROLLBACK: u8 = b'r';

fn kind_of(kind: u8) -> Option<Kind> {
    Some(match kind {
        b'Q' => Kind::Statements,
        b'P' => Kind::Prepare,
        b'B' => Kind::Bind,
        b'E' => Kind::Execute,
        b'C' => Kind::CloseStatement,
        b'S' => Kind::Sync,
        b'F' => Kind::Call,
        b'D' => Kind::Describe,
        _ => return None,
    })
}

impl<J: Judge> Postgres<J> {
    /// Takes up what waits as far as it may go.
    pub(super) fn advance(&mut self) {
        if self.gate.is_closed() {
            return;
        }
        if self.phase == Phase::Commands
            && self.gate.hold == Hold::None
            && self.replies.is_empty()
            && let Some(waiting) = self.waiting.take()
        {
            let Waiting { number, kind, raw, is_whole } = waiting;
            if self.skips && kind != b'S' {
                // What came before it has failed, and the server will not look at it.
                self.gate.to_server.extend_from_slice(&raw);
                self.judge.answered(number, &Answer { is_error: true, state: None });
            } else {
                self.command(number, kind, &raw, is_whole);
            }
        }
        if !self.backlog.is_empty() {
            let backlog = std::mem::take(&mut self.backlog);
            let used = self.take_client(&backlog);
            if !self.gate.is_closed() {
                self.backlog = backlog;
                self.backlog.drain(..used);
                self.backlog.shrink_to(4 << 10);
            }
        }
    }

    /// Takes messages while they may go on; says how many bytes it used.
    pub(super) fn take_client(&mut self, bytes: &[u8]) -> usize {
        let mut input = bytes;
        let mut messages = std::mem::take(&mut self.client_messages);
        while self.takes_client(messages.is_inside(), messages.next_kind(input)) {
            messages.is_startup = self.phase == Phase::Startup;
            messages.limit = if self.phase == Phase::Commands { self.limits.command_bytes } else { CONTROL_BYTES };
            let Some(piece) = messages.next(&mut input) else { break };
            match piece {
                Piece::More { raw } if !self.drops_rest => self.gate.to_server.extend_from_slice(raw),
                Piece::More { .. } => {}
                Piece::Malformed => self.close(Some(Error::Client("a message whose length cannot be"))),
                Piece::Message { kind, raw, payload, is_whole } => {
                    self.drops_rest = false;
                    self.client_message(kind, raw, payload, is_whole);
                }
            }
            if !messages.is_inside() {
                self.complete();
            }
        }
        self.client_messages = messages;
        bytes.len() - input.len()
    }

    /// The last byte of a message is here.
    fn complete(&mut self) {
        if let Some((waiting, rejection)) = self.rejected.take() {
            self.answer_rejected(&waiting, rejection);
        }
        if std::mem::take(&mut self.flushes) {
            self.flush();
        }
    }

    /// The next message of the client, which has this type, may be taken.
    fn takes_client(&self, is_inside: bool, kind: Option<u8>) -> bool {
        if is_inside {
            return self.waiting.is_none() && !self.gate.is_closed();
        }
        let is_held = !matches!(self.gate.hold, Hold::None);
        let is_roomy =
            self.replies.len() < self.limits.pipelined && self.gate.to_server.len() < self.limits.buffer_bytes;
        match self.phase {
            _ if self.gate.is_closed() => false,
            Phase::Startup => true,
            Phase::Asking | Phase::Encrypting(_) | Phase::Cancel => false,
            // Only answers to the server's questions: everything else waits until it is ready.
            Phase::Login => kind.is_none_or(|kind| matches!(kind, b'p' | b'X')),
            Phase::Commands if self.copies_in => self.gate.hold != Hold::Asked,
            Phase::Commands => self.waiting.is_none() && !is_held && is_roomy,
        }
    }

    fn client_message(&mut self, kind: u8, raw: &[u8], payload: &[u8], is_whole: bool) {
        match self.phase {
            Phase::Startup => self.startup(raw, payload, is_whole),
            Phase::Login if matches!(kind, b'p' | b'X') => self.gate.to_server.extend_from_slice(raw),
            Phase::Login | Phase::Asking | Phase::Encrypting(_) | Phase::Cancel => {
                self.close(Some(Error::Client("a message within the login")))
            }
            Phase::Commands if self.copies_in => self.copy(kind, raw),
            Phase::Commands if self.discards && kind != b'S' && kind != b'X' => self.drops_rest = true,
            Phase::Commands => match kind {
                // Data for a COPY that has failed, and messages without an answer.
                b'd' | b'c' | b'f' | b'H' | b'X' => self.gate.to_server.extend_from_slice(raw),
                _ if self.skips && kind != b'S' => self.gate.to_server.extend_from_slice(raw),
                _ => {
                    let number = self.commands;
                    self.commands += 1;
                    self.command(number, kind, raw, is_whole);
                }
            },
        }
    }

    fn startup(&mut self, raw: &[u8], payload: &[u8], is_whole: bool) {
        let code = payload.first_chunk().map(|code| u32::from_be_bytes(*code));
        if !matches!(code, Some(SSL | GSS))
            && let Some(told) = self.unreachable.take()
        {
            self.gate.to_client.extend_from_slice(&told);
            return self.close(None);
        }
        match code.filter(|_| is_whole) {
            Some(SSL) if self.encryption.clients && !self.has_encrypted_client => {
                self.gate.to_client.push(b'S');
                self.phase = Phase::Encrypting(End::Client);
                self.gate.encrypt(End::Client);
            }
            Some(SSL | GSS) => self.gate.to_client.push(b'N'),
            Some(CANCEL) => self.first(raw),
            Some(version) if version >> 16 == 3 => {
                let user = wire::parameter(payload, b"user").unwrap_or_default();
                let database = wire::parameter(payload, b"database").unwrap_or(user);
                let (user, database) = (user.to_vec(), Some(database.to_vec()));
                let settings = wire::parameters(payload).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                self.judge.login(&Login { user, database, settings, ..Login::default() });
                self.first(raw);
            }
            _ => self.close(Some(Error::Client("no startup message of version 3"))),
        }
    }

    /// The message with which a client begins.
    fn first(&mut self, raw: &[u8]) {
        if !self.encryption.server {
            return self.forward_first(raw);
        }
        self.first = raw.to_vec();
        self.phase = Phase::Asking;
        self.gate.to_server.extend_from_slice(&8_u32.to_be_bytes());
        self.gate.to_server.extend_from_slice(&SSL.to_be_bytes());
    }

    pub(super) fn forward_first(&mut self, raw: &[u8]) {
        let is_cancel = raw.get(4..8) == Some(&CANCEL.to_be_bytes());
        self.phase = if is_cancel { Phase::Cancel } else { Phase::Login };
        self.gate.to_server.extend_from_slice(raw);
    }

    /// The server reads data: it ignores Flush and Sync, and everything else ends the COPY with an error.
    fn copy(&mut self, kind: u8, raw: &[u8]) {
        self.gate.to_server.extend_from_slice(raw);
        if !matches!(kind, b'd' | b'H' | b'S') {
            self.copies_in = false;
            if self.gate.hold == Hold::Forwarded {
                self.flush();
            }
        }
    }

    /// Has the server send what it keeps back. It ignores this within a COPY and after an error.
    pub(super) fn flush(&mut self) {
        self.gate.to_server.extend_from_slice(&wire::message(b'H', b""));
    }

    fn command(&mut self, number: u64, kind: u8, raw: &[u8], is_whole: bool) {
        let Some(shown) = kind_of(kind) else {
            return self.close(Some(Error::Client("a message of no known type")));
        };
        if kind == b'S' && self.discards {
            self.discards = false;
        } else if !(kind == b'S' && self.skips) {
            let is_settled = self.replies.is_empty();
            let command = Command { number, kind: shown, bytes: &raw[5..], is_whole };
            let waiting = || Waiting { number, kind, raw: raw.to_vec(), is_whole };
            match self.judge.judge(&command, is_settled.then_some(&self.state)) {
                Verdict::Hold(_) if !is_settled => {
                    self.waiting = Some(waiting());
                    return self.flush();
                }
                Verdict::Hold(write) => {
                    self.waiting = Some(waiting());
                    return self.gate.ask(write);
                }
                verdict => {
                    let is_shown = !matches!(verdict, Verdict::Pass);
                    self.gate.to_server.extend_from_slice(raw);
                    return self.replies.push_back(Reply { number, kind, is_shown, is_error: false });
                }
            }
        }
        // A Sync after an error commits nothing.
        self.gate.to_server.extend_from_slice(raw);
        self.skips = false;
        self.replies.push_back(Reply { number, kind, is_shown: false, is_error: false });
    }

    /// The bracket is begun.
    pub(super) fn forward_held(&mut self) {
        let Some(Waiting { number, kind, raw, is_whole }) = self.waiting.take() else { return };
        self.gate.hold = Hold::Forwarded;
        self.gate.to_server.extend_from_slice(&raw);
        self.replies.push_back(Reply { number, kind, is_shown: true, is_error: false });
        // The client sends nothing more before it hears the answer.
        self.flushes = !ends_with_ready(kind);
        if is_whole {
            self.complete();
        }
    }

    /// The bracket is not begun: nothing of the transaction may stay.
    pub(super) fn reject(&mut self, rejection: Rejection) {
        let Some(waiting) = self.waiting.take() else { return };
        self.gate.hold = Hold::RollingBack;
        if waiting.is_whole {
            self.answer_rejected(&waiting, rejection);
        } else {
            self.drops_rest = true;
            self.rejected = Some((waiting, rejection));
        }
    }

    /// Rolls back in any case: a pipeline may have written outside a transaction block.
    fn answer_rejected(&mut self, waiting: &Waiting, rejection: Rejection) {
        let mut answer = rejection_message(rejection);
        if ends_with_ready(waiting.kind) {
            answer.extend(wire::message(b'Z', b"I"));
        } else {
            self.discards = true;
        }
        self.gate.roll_back(&wire::message(b'Q', b"ROLLBACK\0"), answer);
        self.replies.push_back(Reply { number: waiting.number, kind: ROLLBACK, is_shown: false, is_error: false });
    }
}

/// The answer of a message of this type ends with ReadyForQuery.
pub(super) fn ends_with_ready(kind: u8) -> bool {
    matches!(kind, b'Q' | b'F' | b'S' | ROLLBACK)
}
