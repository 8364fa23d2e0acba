//! What the server sends.

use super::packets::Piece;
use super::reply::{self, Event};
use super::*;
use super::{login, wire};
use crate::{Format, Row};

impl<J: Judge> Mysql<J> {
    pub(super) fn take_server(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        let mut packets = std::mem::take(&mut self.server_packets);
        while !self.gate.is_closed() {
            packets.limit = match self.replies.front() {
                Some(reply) if reply.is_in_rows() => self.limits.answer_bytes,
                _ => CONTROL_BYTES,
            };
            let Some(piece) = packets.next(&mut input) else { break };
            match piece {
                Piece::Packet { raw, is_whole } => self.server_packet(raw, is_whole),
                Piece::More { raw } => {
                    self.gate.pass(raw);
                    self.gate.release_beyond(self.limits.held_bytes);
                }
            }
        }
        self.server_packets = packets;
    }

    fn server_packet(&mut self, raw: &[u8], is_whole: bool) {
        let payload = &raw[HEAD..];
        match self.phase {
            Phase::Greeting => self.greeting(raw, is_whole),
            Phase::Login if payload.first() != Some(&0xFF) => self.login(raw, is_whole),
            Phase::Response | Phase::Encrypting(_) | Phase::Login => self.refusal(raw),
            Phase::Refused => self.gate.pass(raw),
            Phase::Commands if self.replies.is_empty() => self.unasked(raw),
            Phase::Commands => self.reply(raw, is_whole),
        }
    }

    fn greeting(&mut self, raw: &[u8], is_whole: bool) {
        if raw.get(HEAD) == Some(&0xFF) {
            return self.refusal(raw);
        }
        let mut raw = raw.to_vec();
        match login::greeting(&mut raw, self.encryption.clients).filter(|_| is_whole) {
            Some(offer) if self.encryption.server && !offer.has_encryption() => {
                self.unreachable("verbena: the database offers no TLS, which database.to asks for");
            }
            Some(offer) => {
                self.offer = offer;
                self.phase = Phase::Response;
                self.gate.pass(&raw);
            }
            None => self.close(Some(Error::Server("no greeting of version 10"))),
        }
    }

    /// The server ends the login with an error, and closes.
    fn refusal(&mut self, raw: &[u8]) {
        if raw.get(HEAD) != Some(&0xFF) {
            return self.close(Some(Error::Server("a packet before the client's response")));
        }
        let is_login = self.phase == Phase::Login;
        self.phase = Phase::Refused;
        self.pass_of_login(raw, is_login);
    }

    /// Passes a packet, under the number that it has for the client if it is of a login.
    fn pass_of_login(&mut self, raw: &[u8], is_login: bool) {
        match self.ahead() {
            ahead if ahead > 0 && is_login => {
                let mut raw = raw.to_vec();
                raw[HEAD - 1] = raw[HEAD - 1].wrapping_add(ahead);
                self.gate.pass(&raw);
            }
            _ => self.gate.pass(raw),
        }
    }

    fn login(&mut self, raw: &[u8], is_whole: bool) {
        let payload = &raw[HEAD..];
        if self.encryption.bares(self.has_encrypted_client) && login::asks_for_password(payload) {
            return self.refuse_bare_password();
        }
        match payload.first() {
            Some(0x00) => {
                let Some(status) = wire::ok_status(payload).filter(|_| is_whole) else {
                    return self.close(Some(Error::Server("a status that is cut short")));
                };
                self.state = reply::state(status);
                self.answers_login = false;
                self.phase = Phase::Commands;
            }
            // caching_sha2_password found the proof in its cache: a status follows, and the client says nothing.
            _ => self.answers_login = payload != [1, 3],
        }
        self.pass_of_login(raw, true);
    }

    /// A server that shuts down, or that waited too long, says so without being asked.
    fn unasked(&mut self, raw: &[u8]) {
        if raw.get(HEAD) != Some(&0xFF) {
            return self.close(Some(Error::Server("an answer without a command")));
        }
        self.gate.pass(raw);
    }

    fn reply(&mut self, raw: &[u8], is_whole: bool) {
        let payload = &raw[HEAD..];
        let Some(reply) = self.replies.front_mut() else { return };
        let event = match reply.packet(payload, is_whole, raw[..3] == [0xFF; 3], self.agreed) {
            Ok(event) => event,
            Err(problem) => return self.close(Some(Error::Server(problem))),
        };
        let (number, is_shown) = (reply.number, reply.is_shown);
        let format = if reply.is_binary() { Format::MysqlBinary } else { Format::MysqlText };
        match event {
            Event::Part => {}
            Event::Columns(columns) if is_shown => self.judge.columns(number, columns.as_deref()),
            Event::Row if is_shown => self.judge.row(number, &Row { bytes: payload, format, is_whole }),
            Event::Columns(_) | Event::Row => {}
            Event::File | Event::Question => {
                self.answers_login = event == Event::Question;
                return self.gate.pass_now(raw);
            }
            Event::Progress => return self.gate.pass_beside(raw),
            Event::Ended(ending) => return self.answered(raw, ending),
        }
        self.gate.pass(raw);
        self.gate.release_beyond(self.limits.held_bytes);
    }

    fn answered(&mut self, raw: &[u8], ending: Ending) {
        let Some(reply) = self.replies.pop_front() else { return };
        self.answers_login = false;
        match ending.status {
            Some(status) => self.state = reply::state(status),
            // A deadlock, say, has rolled back the transaction, and the error does not tell.
            None if ending.is_error && reply.form.may_end_transaction() => {
                self.state.transaction = Transaction::Unknown;
            }
            None => {}
        }
        if self.gate.hold == Hold::RollingBack {
            self.gate.rolled_back();
            self.judge.answered(reply.number, &Answer { is_error: true, state: Some(self.state) });
            if ending.is_error {
                self.close(Some(Error::Rollback));
            }
            return;
        }
        if let Some(reply::Prepared { statement, parameters, columns }) = &ending.prepared {
            self.judge.prepared(reply.number, *statement, *parameters, columns);
        }
        self.judge.answered(reply.number, &Answer { is_error: ending.is_error, state: Some(self.state) });
        self.gate.pass(raw);
        self.gate.answered();
    }
}
