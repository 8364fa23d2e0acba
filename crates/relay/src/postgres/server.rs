//! What the server sends.

use super::client::{ROLLBACK, ends_with_ready};
use super::messages::Piece;
use super::*;
use crate::conversation::BARE_PASSWORD;
use crate::{Answer, Format, Row};

impl<J: Judge> Postgres<J> {
    pub(super) fn take_server(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        if self.phase == Phase::Asking
            && let Some((&answer, rest)) = bytes.split_first()
        {
            // What is behind it came in clear, and nobody vouches for it.
            return match (answer, rest) {
                (b'S', []) => {
                    self.phase = Phase::Encrypting(End::Server);
                    self.gate.encrypt(End::Server);
                }
                (b'N', []) => self.unreachable("verbena: the database offers no TLS, which database.to asks for"),
                // An error that nobody vouches for is not shown.
                (b'E', _) => self.unreachable("verbena: the database answered the request for TLS with an error"),
                _ => self.close(Some(Error::Server("no answer to the request for TLS"))),
            };
        }
        let mut messages = std::mem::take(&mut self.server_messages);
        while !self.gate.is_closed() {
            let Some(piece) = messages.next(&mut input) else { break };
            match piece {
                Piece::Message { kind, raw, payload, is_whole } => self.server_message(kind, raw, payload, is_whole),
                Piece::More { raw } => {
                    self.gate.pass(raw);
                    self.gate.release_beyond(self.limits.held_bytes);
                }
                Piece::Malformed => self.close(Some(Error::Server("a message whose length cannot be"))),
            }
        }
        self.server_messages = messages;
    }

    fn server_message(&mut self, kind: u8, raw: &[u8], payload: &[u8], is_whole: bool) {
        if kind == b'S'
            && matches!(self.phase, Phase::Login | Phase::Commands)
            && let Some((name, value)) = wire::setting(payload)
        {
            self.judge.setting(name, value);
        }
        match (self.phase, kind) {
            (Phase::Startup, b'E') | (Phase::Cancel, _) => self.gate.pass(raw),
            (Phase::Startup | Phase::Asking | Phase::Encrypting(_), _) => {
                self.close(Some(Error::Server("a message before the startup")))
            }
            (Phase::Login, b'Z') => {
                self.phase = Phase::Commands;
                self.ready(payload);
                self.gate.pass(raw);
            }
            (Phase::Login, b'R') if self.encryption.bares(self.has_encrypted_client) && payload == [0, 0, 0, 3] => {
                self.gate.to_client.extend_from_slice(&wire::fatal(UNREACHABLE, BARE_PASSWORD));
                self.close(None);
            }
            (Phase::Login, b'R') if self.encryption.server && !self.has_encrypted_client => {
                match wire::without_binding(payload) {
                    Some(offered) => self.gate.pass(&offered),
                    None => self.gate.pass(raw),
                }
            }
            (Phase::Login, _) => self.gate.pass(raw),
            // Notices, parameters and notifications come at any time.
            (Phase::Commands, b'N' | b'S' | b'A') => self.gate.pass_beside(raw),
            (Phase::Commands, _) => match self.answer(kind, raw, payload, is_whole) {
                Ok(()) => {}
                Err(problem) => self.close(Some(Error::Server(problem))),
            },
        }
    }

    /// The state of the transaction, as ReadyForQuery says it.
    fn ready(&mut self, payload: &[u8]) {
        self.state.transaction = match payload {
            b"I" => Transaction::Closed,
            b"T" => Transaction::Open,
            b"E" => Transaction::Failed,
            _ => return self.close(Some(Error::Server("a state of the transaction that is not known"))),
        };
    }

    fn answer(&mut self, kind: u8, raw: &[u8], payload: &[u8], is_whole: bool) -> Result<(), &'static str> {
        if kind == b'E' {
            self.error(raw, payload);
            return Ok(());
        }
        let Some(reply) = self.replies.front() else { return Err("an answer without a message") };
        let (number, is_shown, asked) = (reply.number, reply.is_shown, reply.kind);
        let is_run = matches!(asked, b'Q' | b'E' | ROLLBACK);
        match kind {
            b'Z' if ends_with_ready(asked) => {
                self.ready(payload);
                self.copies_in = false;
                self.ended(raw);
                return Ok(());
            }
            b'1' if asked == b'P' => return self.ends(raw),
            b'2' if asked == b'B' => return self.ends(raw),
            b'3' if asked == b'C' => return self.ends(raw),
            b'T' if asked == b'D' || is_run => {
                if !is_whole {
                    return Err("a description of rows that is too long");
                }
                if is_shown {
                    let columns = wire::columns(payload).ok_or("a description of rows that is cut short")?;
                    self.judge.columns(number, Some(&columns));
                }
                if asked == b'D' {
                    return self.ends(raw);
                }
            }
            b'n' if asked == b'D' => return self.ends(raw),
            b't' if asked == b'D' => {
                if is_shown && let Some(types) = wire::types(payload).filter(|_| is_whole) {
                    self.judge.parameters(number, &types);
                }
            }
            b'D' if is_run => {
                if is_shown {
                    self.judge.row(number, &Row { bytes: payload, format: Format::Postgres, is_whole });
                }
            }
            b'C' | b'I' | b's' if asked == b'E' => return self.ends(raw),
            b'C' | b'I' if is_run => {}
            b'G' | b'W' if is_run => {
                self.copy_begins();
                self.gate.pass_now(raw);
                return Ok(());
            }
            b'H' | b'd' | b'c' if is_run => {}
            b'V' if asked == b'F' => {}
            _ => return Err("a message that answers something else"),
        }
        self.gate.pass(raw);
        self.gate.release_beyond(self.limits.held_bytes);
        Ok(())
    }

    /// The client is to send data. A Sync that it has sent already is ignored by the server.
    fn copy_begins(&mut self) {
        self.copies_in = true;
        let mut is_first = true;
        self.replies.retain(|reply| std::mem::take(&mut is_first) || reply.kind != b'S');
        if let Some(waiting) = self.waiting.take_if(|waiting| waiting.kind == b'S') {
            self.gate.to_server.extend_from_slice(&waiting.raw);
        }
    }

    fn ends(&mut self, raw: &[u8]) -> Result<(), &'static str> {
        self.ended(raw);
        Ok(())
    }

    /// The answer at the front of the queue has ended with `raw`.
    fn ended(&mut self, raw: &[u8]) {
        let Some(reply) = self.replies.pop_front() else { return };
        if reply.kind == ROLLBACK {
            // The answer that was made up says that no transaction is open.
            self.gate.rolled_back();
            self.judge.answered(reply.number, &Answer { is_error: true, state: Some(self.state) });
            if reply.is_error || self.state.transaction != Transaction::Closed {
                self.close(Some(Error::Rollback));
            }
            return;
        }
        let state = ends_with_ready(reply.kind).then_some(self.state);
        self.judge.answered(reply.number, &Answer { is_error: reply.is_error, state });
        self.gate.pass(raw);
        self.gate.answered();
    }

    /// An error ends one answer up to ReadyForQuery, or all of a pipeline up to its Sync.
    fn error(&mut self, raw: &[u8], payload: &[u8]) {
        self.copies_in = false;
        if wire::is_fatal(payload) {
            // The server closes, and says nothing of what was under way.
            return self.gate.pass(raw);
        }
        let Some(reply) = self.replies.front_mut() else {
            return self.close(Some(Error::Server("an error without a message")));
        };
        reply.is_error = true;
        if ends_with_ready(reply.kind) {
            return self.gate.pass(raw);
        }
        self.ended(raw);
        let is_failed = |reply: &Reply| reply.kind != b'S';
        while let Some(reply) = self.replies.pop_front_if(|reply| is_failed(reply)) {
            self.judge.answered(reply.number, &Answer { is_error: true, state: None });
        }
        self.skips = self.replies.is_empty();
    }
}
