//! What stands in the messages of PostgreSQL's extended protocol, and values as names are made of them.
//!
//! ```text
//! Parse     statement 0, text 0, count i16, (type u32) ...
//! Bind      portal 0, statement 0, count i16, (format i16) ..., count i16, (length i32, bytes) ..., count i16, (format i16) ...
//! Execute   portal 0, rows i32
//! Describe  'S' or 'P', name 0          Close likewise
//! ```
//! All numbers are big-endian. One format stands for all values, none for text.

use verbena_relay::postgres::Reader;
use verbena_statements::{ColumnType, Literal};

/// Types of values (`pg_type`): int8, int2, int4, text, varchar, uuid.
const INTEGERS: [u32; 3] = [20, 21, 23];
const TEXTS: [u32; 2] = [25, 1043];
const UUID: u32 = 2950;
/// A longer value is not kept: it has no name.
const LONGEST: usize = 255;

/// A statement to be prepared.
pub(super) struct Parse<'a> {
    pub text: &'a [u8],
    pub types: Vec<u32>,
}

/// A statement with its values.
pub(super) struct Bind<'a> {
    pub statement: &'a [u8],
    pub formats: Vec<u16>,
    pub values: Vec<Option<&'a [u8]>>,
    pub results: Vec<u16>,
}

/// A value, as far as names may be made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(Vec<u8>),
    Text(Vec<u8>),
    /// NULL, or a value of which no name is made.
    Unknown,
}

pub(super) fn parse(bytes: &[u8]) -> Option<Parse<'_>> {
    let mut reader = Reader::new(bytes);
    reader.terminated()?;
    Some(Parse { text: reader.terminated()?, types: reader.all(Reader::u32)? })
}

pub(super) fn bind(bytes: &[u8]) -> Option<Bind<'_>> {
    let mut reader = Reader::new(bytes);
    reader.terminated()?;
    Some(Bind {
        statement: reader.terminated()?,
        formats: reader.all(Reader::u16)?,
        values: reader.all(Reader::value)?,
        results: reader.all(Reader::u16)?,
    })
}

/// The first name of a message.
pub(super) fn name(bytes: &[u8]) -> Option<&[u8]> {
    Reader::new(bytes).terminated()
}

/// The format of a value among several.
pub(super) fn format(formats: &[u16], at: usize) -> Option<u16> {
    match formats {
        [] => Some(0),
        [all] => Some(*all),
        each => each.get(at).copied(),
    }
}

/// How often a text has each parameter, quotes and comments included: at least as often as the server finds it.
pub(super) fn uses(text: &[u8], parameters: usize) -> Vec<usize> {
    let mut uses = vec![0; parameters];
    for part in text.split(|byte| *byte == b'$').skip(1) {
        let digits = part.iter().take_while(|byte| byte.is_ascii_digit());
        let number =
            digits.fold(0_usize, |number, digit| number.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
        if let Some(count) = number.checked_sub(1).and_then(|at| uses.get_mut(at)) {
            *count += 1;
        }
    }
    uses
}

/// A parameter. Where its type is not said it is that of the one place where it stands, if there is one.
pub(super) fn parameter(bytes: Option<&[u8]>, kind: Option<u32>, uses: usize, format: Option<u16>) -> Value {
    let Some(bytes) = bytes.filter(|bytes| bytes.len() <= LONGEST) else { return Value::Unknown };
    match (kind.filter(|kind| *kind != 0), format) {
        (Some(kind), Some(format)) if INTEGERS.contains(&kind) => integer(bytes, format),
        (Some(kind), Some(_)) if TEXTS.contains(&kind) => Value::Text(bytes.to_vec()),
        (Some(UUID), Some(format)) => uuid(bytes, format),
        (None, Some(0)) if uses == 1 => Value::Text(bytes.to_vec()),
        _ => Value::Unknown,
    }
}

/// A value of a key column in an answer.
pub(super) fn result(bytes: &[u8], kind: ColumnType, format: u16) -> Value {
    match kind {
        ColumnType::Integer => integer(bytes, format),
        ColumnType::Bytes => Value::Text(bytes.to_vec()),
        ColumnType::Uuid => uuid(bytes, format),
        ColumnType::AsciiCase | ColumnType::Other => Value::Unknown,
    }
}

fn integer(bytes: &[u8], format: u16) -> Value {
    let number = match (format, bytes) {
        (0, digits) => return Value::Number(digits.to_vec()),
        (1, [a, b]) => i64::from(i16::from_be_bytes([*a, *b])),
        (1, [a, b, c, d]) => i64::from(i32::from_be_bytes([*a, *b, *c, *d])),
        (1, bytes) => match bytes.try_into() {
            Ok(bytes) => i64::from_be_bytes(bytes),
            Err(_) => return Value::Unknown,
        },
        _ => return Value::Unknown,
    };
    Value::Number(number.to_string().into_bytes())
}

fn uuid(bytes: &[u8], format: u16) -> Value {
    match (format, bytes.len()) {
        (0, _) => Value::Text(bytes.to_vec()),
        (1, 16) => Value::Text(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()),
        _ => Value::Unknown,
    }
}

impl Value {
    pub fn literal(&self) -> Option<Literal<'_>> {
        match self {
            Value::Number(digits) => Some(Literal::Number(digits)),
            Value::Text(text) => Some(Literal::Text(text)),
            Value::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_and_whatever_is_cut_is_nothing() {
        let bytes = b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x02\0\x07\xFF\xFF\xFF\xFF\0\0";
        let read = bind(bytes).unwrap();
        assert_eq!((read.statement, read.formats), (&b"s"[..], vec![1]));
        assert_eq!((read.values, read.results), (vec![Some(&b"\0\x07"[..]), None], vec![]));
        assert!((0..bytes.len()).all(|cut| bind(&bytes[..cut]).is_none()));
        let bytes = b"s\0select $1\0\0\x01\0\0\0\x17";
        let read = parse(bytes).unwrap();
        assert_eq!((read.text, read.types), (&b"select $1"[..], vec![23]));
        assert!((0..bytes.len()).all(|cut| parse(&bytes[..cut]).is_none()));
    }

    #[test]
    fn a_value_has_a_name_only_where_its_type_is_sure() {
        let number = |digits: &str| Value::Number(digits.into());
        assert_eq!(parameter(Some(b"\xFF\xFF"), Some(21), 2, Some(1)), number("-1"));
        assert_eq!(parameter(Some(b"\0\0\0\0\0\0\x01\0"), Some(20), 1, Some(1)), number("256"));
        assert_eq!(parameter(Some(b"7"), Some(23), 1, Some(0)), number("7"));
        assert_eq!(parameter(Some(b"7"), None, 1, Some(0)), Value::Text(b"7".into()));
        let uuid = parameter(Some(&[0xAB; 16]), Some(UUID), 1, Some(1));
        assert_eq!(uuid, Value::Text(b"ab".repeat(16)));
        // Of a type that another place decides, binary without a type, a float, blanks that are cut, too long.
        for (bytes, kind, uses, format) in [
            (&b"7"[..], None, 2, 0),
            (b"\0\0\0\x07", None, 1, 1),
            (b"7", Some(701), 1, 0),
            (b"7", Some(1042), 1, 0),
            (&[b'a'; 256], Some(25), 1, 0),
        ] {
            assert_eq!(parameter(Some(bytes), kind, uses, Some(format)), Value::Unknown);
        }
        assert_eq!(uses(b"select $1, '$1', $12, $$x$2$$", 2), [2, 1]);
    }
}
