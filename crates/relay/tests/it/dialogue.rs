//! A conversation line by line: what comes in, and what must come out.

use verbena_relay::{Action, Conversation, Limits, Outcome, mysql::Mysql, postgres::Postgres};

use crate::words::{Log, Words};

/// A packet of MySQL.
pub fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut raw = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    raw.push(sequence);
    raw.extend_from_slice(payload);
    raw
}

pub fn query(text: &str) -> Vec<u8> {
    packet(0, &[b"\x03", text.as_bytes()].concat())
}

pub fn ok(sequence: u8, status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    packet(sequence, &[0, 0, 0, low, high, 0, 0])
}

pub fn eof(sequence: u8, status: u16) -> Vec<u8> {
    let [low, high] = status.to_le_bytes();
    packet(sequence, &[0xFE, 0, 0, low, high])
}

pub fn error(sequence: u8, code: u16) -> Vec<u8> {
    let [low, high] = code.to_le_bytes();
    packet(sequence, &[&[0xFF, low, high][..], b"#HY000no"].concat())
}

pub fn column(sequence: u8, table: &str, name: &str, type_number: u8) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in ["def", "shop", table, table, name, name] {
        payload.push(text.len() as u8);
        payload.extend_from_slice(text.as_bytes());
    }
    payload.extend_from_slice(&[0x0C, 45, 0, 0, 1, 0, 0, type_number, 3, 0, 0, 0, 0]);
    packet(sequence, &payload)
}

/// A MySQL greeting that offers `bits`, and MariaDB's own `extended`.
pub fn greeting(bits: u32, extended: u32) -> Vec<u8> {
    let mut payload = b"\x0A10.11\0\x01\0\0\0scramble\0".to_vec();
    payload.extend_from_slice(&(bits as u16).to_le_bytes());
    payload.extend_from_slice(&[45, 2, 0]);
    payload.extend_from_slice(&((bits >> 16) as u16).to_le_bytes());
    payload.extend_from_slice(&[21, 0, 0, 0, 0, 0, 0]);
    payload.extend_from_slice(&extended.to_le_bytes());
    payload.extend_from_slice(b"scramble1234\0mysql_native_password\0");
    packet(0, &payload)
}

pub fn response(bits: u32, extended: u32) -> Vec<u8> {
    let mut payload = bits.to_le_bytes().to_vec();
    payload.extend_from_slice(&[0, 0, 0, 1, 45]);
    payload.extend_from_slice(&[0; 19]);
    payload.extend_from_slice(&extended.to_le_bytes());
    payload.extend_from_slice(b"me\0\0");
    packet(1, &payload)
}

/// PROTOCOL_41, TRANSACTIONS, MULTI_STATEMENTS, MULTI_RESULTS, PS_MULTI_RESULTS, PLUGIN_AUTH.
pub const USUAL: u32 = 0x0200 | 0x2000 | 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x8_0000;
pub const DEPRECATE_EOF: u32 = 1 << 24;

pub struct Dialogue<C = Mysql<Words>> {
    pub machine: C,
    pub log: Log,
}

impl Dialogue {
    pub fn new(limits: Limits) -> Self {
        let log = Log::default();
        Self { machine: Mysql::new(Words::new(log.clone(), true), limits), log }
    }

    /// After a login with these bits.
    pub fn with(limits: Limits, bits: u32, extended: u32) -> Self {
        let mut dialogue = Self::new(limits);
        dialogue.server(&greeting(bits, extended));
        dialogue.hears();
        dialogue.client(&response(bits, extended));
        dialogue.gets();
        dialogue.server(&ok(2, 2));
        dialogue.hears();
        dialogue
    }

    pub fn usual() -> Self {
        Self::with(Limits::default(), USUAL, 0)
    }
}

/// A message of PostgreSQL.
pub fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32 + 4).to_be_bytes(), payload].concat()
}

/// Parse, Bind and Execute of an unnamed statement.
pub fn extended(statement: &str) -> Vec<u8> {
    let parse = message(b'P', format!("\0{statement}\0\0\0").as_bytes());
    [parse, message(b'B', &[0; 8]), message(b'E', &[0; 5])].concat()
}

impl Dialogue<Postgres<Words>> {
    pub fn started(limits: Limits) -> Self {
        let log = Log::default();
        let mut dialogue = Self { machine: Postgres::new(Words::of_postgres(log.clone(), true), limits), log };
        dialogue.passes(b"\0\0\0\x13\0\x03\0\0user\0me\0\0\0\0");
        dialogue
    }

    pub fn postgres(limits: Limits) -> Self {
        let mut dialogue = Self::started(limits);
        dialogue.answers(&[message(b'R', &[0, 0, 0, 0]), message(b'Z', b"I")].concat());
        dialogue
    }
}

impl<C: Conversation<Write = String>> Dialogue<C> {
    pub fn client(&mut self, bytes: &[u8]) {
        self.machine.client(bytes);
    }

    pub fn server(&mut self, bytes: &[u8]) {
        self.machine.server(bytes);
    }

    /// What the client hears.
    pub fn hears(&mut self) -> Vec<u8> {
        std::mem::take(self.machine.to_client())
    }

    /// What the server gets.
    pub fn gets(&mut self) -> Vec<u8> {
        std::mem::take(self.machine.to_server())
    }

    pub fn action(&mut self) -> Option<Action<String>> {
        self.machine.next_action()
    }

    /// The client sends `bytes`, which are passed at once.
    pub fn passes(&mut self, bytes: &[u8]) {
        self.client(bytes);
        assert_eq!(self.gets(), bytes);
        assert_eq!(self.action(), None);
    }

    /// The server sends `bytes`, which are passed at once.
    pub fn answers(&mut self, bytes: &[u8]) {
        self.server(bytes);
        assert_eq!(self.hears(), bytes);
        assert_eq!(self.action(), None);
    }

    /// The server sends `bytes`, which are passed at once; a held command is next.
    pub fn answers_then_begins(&mut self, bytes: &[u8], write: &str) {
        self.server(bytes);
        assert_eq!(self.hears(), bytes);
        assert_eq!(self.action(), Some(Action::Begin(write.into())));
    }

    /// The client sends `bytes`, which wait for a bracket.
    pub fn holds(&mut self, bytes: &[u8], write: &str) {
        self.client(bytes);
        assert_eq!(self.action(), Some(Action::Begin(write.into())));
        assert_eq!(self.gets(), b"", "forwarded before the bracket was begun");
    }

    pub fn ends(&mut self, outcome: Outcome) {
        assert_eq!(self.action(), Some(Action::End(outcome)));
    }
}
