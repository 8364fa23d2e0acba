//! What the client sends.

use super::packets::Piece;
use super::*;
use super::{login, wire};
use crate::conversation::BARE_PASSWORD;
use crate::{Command, Kind, Verdict};

/// What the relay does with a command that the judge lets through.
enum Way {
    /// It has an answer of this form.
    Answered(Form),
    /// It has no answer.
    Silent,
    /// The relay does not know where its answer ends, or it has no end (replication).
    Refused,
}

const QUIT: u8 = 0x01;
pub(super) const LONG_DATA: u8 = 0x18;

fn way(command: u8) -> (Kind, Way) {
    use Way::{Answered, Refused, Silent};
    let text = Form::Results { is_binary: false };
    let binary = Form::Results { is_binary: true };
    match command {
        QUIT => (Kind::Other(command), Silent),
        0x02 => (Kind::Database, Answered(Form::Status)),
        0x03 => (Kind::Statements, Answered(text)),
        0x04 => (Kind::ListFields, Answered(Form::Fields)),
        0x09 => (Kind::Other(command), Answered(Form::Text)),
        0x0A => (Kind::Other(command), Answered(text)),
        // Old commands that a server answers with a status or an error, and REGISTER_SLAVE.
        0x00 | 0x05..=0x08 | 0x0C..=0x10 | 0x15 | 0x1B | 0x1D => (Kind::Other(command), Answered(Form::Status)),
        0x11 => (Kind::ChangeUser, Answered(Form::Login)),
        0x16 => (Kind::Prepare, Answered(Form::Prepared)),
        0x17 => (Kind::Execute, Answered(binary)),
        LONG_DATA => (Kind::LongData, Silent),
        0x19 => (Kind::CloseStatement, Silent),
        0x1A => (Kind::ResetStatement, Answered(Form::Status)),
        0x1C => (Kind::Fetch, Answered(Form::Rows)),
        0x1F => (Kind::ResetConnection, Answered(Form::Status)),
        0xFA => (Kind::ExecuteBulk, Answered(binary)),
        _ => (Kind::Other(command), Refused),
    }
}

impl<J: Judge> Mysql<J> {
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
            let Waiting { number, raw, is_whole } = waiting;
            self.command(number, &raw, is_whole);
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

    /// Takes packets while they may go on; says how many bytes it used.
    pub(super) fn take_client(&mut self, bytes: &[u8]) -> usize {
        let mut input = bytes;
        let mut packets = std::mem::take(&mut self.client_packets);
        while self.takes_client(packets.is_inside()) {
            packets.limit = match self.phase {
                Phase::Commands if self.sends_file() => self.limits.answer_bytes,
                Phase::Commands => self.limits.command_bytes,
                _ => CONTROL_BYTES,
            };
            let Some(piece) = packets.next(&mut input) else { break };
            match piece {
                Piece::More { raw } if self.client_rest == Rest::Pass => self.gate.to_server.extend_from_slice(raw),
                Piece::More { .. } => {}
                Piece::Packet { raw, is_whole } => {
                    self.client_rest = Rest::Pass;
                    self.client_packet(raw, is_whole);
                }
            }
            if !packets.is_inside()
                && let Some((number, rejection)) = self.rejected.take()
            {
                self.answer_rejected(number, packets.sequence, rejection);
            }
        }
        self.client_packets = packets;
        bytes.len() - input.len()
    }

    /// The next packet of the client may be taken.
    fn takes_client(&self, is_inside: bool) -> bool {
        if is_inside {
            return self.waiting.is_none() && !self.gate.is_closed();
        }
        match self.phase {
            _ if self.gate.is_closed() => false,
            Phase::Greeting | Phase::Encrypting(_) | Phase::Refused => false,
            Phase::Response => true,
            Phase::Login => self.answers_login,
            Phase::Commands => self.sends_file() || self.answers_login || self.takes_command(),
        }
    }

    fn takes_command(&self) -> bool {
        let is_in_login = self.replies.back().is_some_and(|reply| reply.form == Form::Login);
        self.waiting.is_none()
            && self.gate.hold == Hold::None
            && self.replies.len() < self.limits.pipelined
            && self.gate.to_server.len() < self.limits.buffer_bytes
            && !is_in_login
    }

    fn sends_file(&self) -> bool {
        self.replies.front().is_some_and(Reply::sends_file)
    }

    fn client_packet(&mut self, raw: &[u8], is_whole: bool) {
        match self.phase {
            Phase::Response => self.response(raw, is_whole),
            phase if self.answers_login => {
                self.answers_login = false;
                let at = self.gate.to_server.len();
                self.gate.to_server.extend_from_slice(raw);
                if phase == Phase::Login {
                    let ahead = self.ahead();
                    let sequence = &mut self.gate.to_server[at + HEAD - 1];
                    *sequence = sequence.wrapping_sub(ahead);
                }
            }
            _ if self.sends_file() => {
                self.gate.to_server.extend_from_slice(raw);
                if raw.len() == HEAD
                    && let Some(reply) = self.replies.front_mut()
                {
                    reply.file_sent();
                }
            }
            _ => {
                let number = self.commands;
                self.commands += 1;
                self.command(number, raw, is_whole);
            }
        }
    }

    fn response(&mut self, raw: &[u8], is_whole: bool) {
        let mut raw = raw.to_vec();
        let may_encrypt = self.encryption.clients && !self.has_encrypted_client;
        match login::response(&mut raw, self.offer, self.has_encrypted_client).filter(|_| is_whole) {
            Some(login::Response::Login(agreed)) => {
                if self.encryption.bares(self.has_encrypted_client) && login::names_bare_password(&raw) {
                    return self.refuse_bare_password();
                }
                self.agreed = agreed;
                self.judge.login(&login::session(&raw));
                raw[HEAD - 1] = raw[HEAD - 1].wrapping_sub(self.ahead());
                if self.encryption.server {
                    self.gate.to_server.extend_from_slice(&login::request(&mut raw));
                    self.login = raw;
                    self.phase = Phase::Encrypting(End::Server);
                    return self.gate.encrypt(End::Server);
                }
                self.phase = Phase::Login;
                self.gate.to_server.extend_from_slice(&raw);
            }
            Some(login::Response::Encrypt) if may_encrypt => {
                self.phase = Phase::Encrypting(End::Client);
                self.gate.encrypt(End::Client);
            }
            Some(login::Response::Encrypt) => self.close(Some(Error::Client("encryption that was not offered"))),
            None => self.close(Some(Error::Client("no response to a greeting"))),
        }
    }

    pub(super) fn refuse_bare_password(&mut self) {
        let sequence = self.client_packets.sequence.wrapping_add(1);
        self.gate.to_client.extend_from_slice(&wire::error(sequence, UNREACHABLE, b"HY000", BARE_PASSWORD));
        self.close(None);
    }

    /// By how much the numbers of the client's packets in a login are ahead of those for the server: each end that is encrypted counts one request more.
    pub(super) fn ahead(&self) -> u8 {
        u8::from(self.has_encrypted_client).wrapping_sub(u8::from(self.encryption.server))
    }

    fn command(&mut self, number: u64, raw: &[u8], is_whole: bool) {
        let Some((&first, bytes)) = raw[HEAD..].split_first() else {
            return self.close(Some(Error::Client("a command without a byte")));
        };
        if raw[3] != 0 {
            return self.close(Some(Error::Client("a command in the middle of another")));
        }
        let (kind, way) = way(first);
        let is_settled = self.replies.is_empty();
        let waiting = || Waiting { number, raw: raw.to_vec(), is_whole };
        let form = match way {
            Way::Refused | Way::Answered(Form::Login) if !is_settled => {
                self.waiting = Some(waiting());
                return;
            }
            Way::Refused if !is_whole => return self.close(Some(Error::Client("a long command of no known kind"))),
            Way::Refused => {
                let message = "verbena does not relay this command; connect to the database itself for it";
                self.gate.to_client.extend_from_slice(&wire::error(1, 1047, b"08S01", message));
                return;
            }
            Way::Silent => None,
            Way::Answered(form) => Some(form),
        };
        if kind == Kind::ChangeUser {
            self.judge.login(&login::changed(bytes));
        }
        let command = Command { number, kind, bytes, is_whole };
        let state = is_settled.then_some(&self.state);
        match self.judge.judge(&command, state) {
            Verdict::Hold(_) if !is_settled => self.waiting = Some(waiting()),
            Verdict::Hold(write) if form.is_some() => {
                self.waiting = Some(waiting());
                self.gate.ask(write);
            }
            verdict => {
                self.gate.to_server.extend_from_slice(raw);
                let is_shown = !matches!(verdict, Verdict::Pass);
                self.replies.extend(form.map(|form| Reply::new(number, form, is_shown)));
            }
        }
    }

    /// The bracket is begun.
    pub(super) fn forward_held(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        self.gate.hold = Hold::Forwarded;
        self.gate.to_server.extend_from_slice(&waiting.raw);
        if let (_, Way::Answered(form)) = way(waiting.raw[HEAD]) {
            self.replies.push_back(Reply::new(waiting.number, form, true));
        }
    }

    /// The bracket is not begun: nothing of the transaction may stay.
    pub(super) fn reject(&mut self, rejection: Rejection) {
        let Some(waiting) = self.waiting.take() else { return };
        self.gate.hold = Hold::RollingBack;
        if waiting.is_whole {
            self.answer_rejected(waiting.number, waiting.raw[3], rejection);
        } else {
            self.client_rest = Rest::Drop;
            self.rejected = Some((waiting.number, rejection));
        }
    }

    fn answer_rejected(&mut self, number: u64, sequence: u8, rejection: Rejection) {
        let packet = rejection_packet(rejection, sequence.wrapping_add(1));
        if self.state.transaction == Transaction::Closed && self.state.autocommit {
            self.gate.hold = Hold::None;
            self.gate.to_client.extend_from_slice(&packet);
            return self.judge.answered(number, &Answer { is_error: true, state: Some(self.state) });
        }
        self.gate.roll_back(&wire::packet(0, b"\x03ROLLBACK"), packet);
        self.replies.push_back(Reply::new(number, Form::Status, false));
    }
}
