//! How a connection begins: preamble, hello, welcome (drawn in `wire`).

use verbena_terms::{Format, FormatError, HEADER_BYTES, Incarnation};

use super::reader::{Malformed, Reader};
use crate::message::Class;
use crate::operation::OperationId;

const PREAMBLE: Format = Format::new(*b"VTCP", 1);
const HELLO: Format = Format::new(*b"VTHI", 1);
const WELCOME: Format = Format::new(*b"VTOK", 1);

pub(in crate::tcp) const PREAMBLE_BYTES: usize = 16;
pub(in crate::tcp) const HELLO_BYTES: usize = 40;
pub(in crate::tcp) const WELCOME_BYTES: usize = 24;

/// What the caller says in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Preamble {
    pub(in crate::tcp) class: Class,
    pub(in crate::tcp) secured: bool,
}

impl Preamble {
    pub(in crate::tcp) fn bytes(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&PREAMBLE.header());
        bytes[8] = self.class as u8;
        bytes[9] = u8::from(self.secured);
        bytes
    }

    pub(in crate::tcp) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.format(&PREAMBLE)?;
        let class = class(&mut reader)?;
        let secured = match reader.u8()? {
            0 => false,
            1 => true,
            other => return Err(reader.refuse_last(1, format!("secured is 0 or 1, not {other}"))),
        };
        reader.zeros(6)?;
        reader.end()?;
        Ok(Preamble { class, secured })
    }
}

/// The answer to a preamble. Also what another version gets: it can read the version in it.
pub(in crate::tcp) fn answer_preamble(verdict: Verdict) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&PREAMBLE.header());
    bytes[8] = verdict as u8;
    bytes
}

/// Reads the answer to a preamble; a refusal names both versions if that is what it is about (F6).
pub(in crate::tcp) fn check_preamble_answer(bytes: &[u8; PREAMBLE_BYTES]) -> Result<Verdict, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.format(&PREAMBLE)?;
    let verdict = Verdict::read(&mut reader)?;
    reader.zeros(7)?;
    Ok(verdict)
}

/// Whether bytes that are not a preamble are one of another version: its sender gets ours in the answer.
pub(in crate::tcp) fn is_other_version(bytes: &[u8]) -> bool {
    matches!(PREAMBLE.check(bytes), Err(FormatError::Version { .. }))
}

/// The caller, and the incarnation that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Hello {
    pub(in crate::tcp) from: Incarnation,
    pub(in crate::tcp) to: Incarnation,
    pub(in crate::tcp) next: OperationId,
    pub(in crate::tcp) class: Class,
}

impl Hello {
    pub(in crate::tcp) fn bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&HELLO.header());
        bytes[8..16].copy_from_slice(&self.from.to_word().to_le_bytes());
        bytes[16..24].copy_from_slice(&self.to.to_word().to_le_bytes());
        bytes[24..32].copy_from_slice(&self.next.0.to_le_bytes());
        bytes[32] = self.class as u8;
        bytes
    }

    pub(in crate::tcp) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.format(&HELLO)?;
        let from = Incarnation::from_word(reader.u64()?);
        let to = Incarnation::from_word(reader.u64()?);
        let next = OperationId(reader.u64()?);
        if next.0 == 0 {
            return Err(reader.refuse_last(8, "identifiers begin at 1".into()));
        }
        let class = class(&mut reader)?;
        reader.zeros(7)?;
        reader.end()?;
        Ok(Hello { from, to, next, class })
    }
}

/// What the target says to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tcp) struct Welcome {
    pub(in crate::tcp) incarnation: Incarnation,
    pub(in crate::tcp) verdict: Verdict,
}

impl Welcome {
    pub(in crate::tcp) fn bytes(&self) -> [u8; WELCOME_BYTES] {
        let mut bytes = [0; WELCOME_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&WELCOME.header());
        bytes[8..16].copy_from_slice(&self.incarnation.to_word().to_le_bytes());
        bytes[16] = self.verdict as u8;
        bytes
    }

    pub(in crate::tcp) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.format(&WELCOME)?;
        let incarnation = Incarnation::from_word(reader.u64()?);
        let verdict = Verdict::read(&mut reader)?;
        reader.zeros(7)?;
        reader.end()?;
        Ok(Welcome { incarnation, verdict })
    }
}

/// Whether a connection may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::tcp) enum Verdict {
    /// It may.
    Welcome = 0,
    /// The target demands TLS.
    Secure = 1,
    /// The target has no certificate and speaks in the clear.
    Plain = 2,
    /// Another incarnation listens here.
    Another = 3,
    /// A later incarnation of the caller has been here.
    Superseded = 4,
    /// No room for another caller.
    Full = 5,
    /// The caller's certificate is not one of the rank that it says it is.
    WrongRank = 6,
    /// The preamble was of another version.
    Version = 7,
}

impl Verdict {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            0 => Verdict::Welcome,
            1 => Verdict::Secure,
            2 => Verdict::Plain,
            3 => Verdict::Another,
            4 => Verdict::Superseded,
            5 => Verdict::Full,
            6 => Verdict::WrongRank,
            7 => Verdict::Version,
            other => return Err(reader.refuse_last(1, format!("no verdict is {other}"))),
        })
    }
}

fn class(reader: &mut Reader<'_>) -> Result<Class, Malformed> {
    match reader.u8()? {
        0 => Ok(Class::Control),
        1 => Ok(Class::Bulk),
        other => Err(reader.refuse_last(1, format!("no class is {other}"))),
    }
}
