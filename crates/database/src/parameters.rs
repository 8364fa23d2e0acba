//! Values that are bound to a prepared statement of MySQL (COM_STMT_EXECUTE), as far as names may be made of them.
//!
//! ```text
//!  | statement : 4 | flags : 1 | 1 : 4 | bit n: value n is NULL | 1 if types follow | type : 1, unsigned : 1 ... | value ... |
//! ```
//! All numbers are little-endian. Values that were sent before (COM_STMT_SEND_LONG_DATA) are not among them.

use std::collections::BTreeSet;

use verbena_statements::Literal;

/// Bytes before the bits of NULL.
const HEAD: usize = 9;

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// NULL.
    Null,
    /// An integer, in decimal digits.
    Integer(Vec<u8>),
    /// A text or bytes.
    Text(Vec<u8>),
    /// A value of which no name is made: a float, a date, or one that was sent in pieces.
    Unknown,
}

/// The types of a statement's parameters, which the client sends once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Types(Vec<[u8; 2]>);

/// The values of an execution with `count` parameters; nothing if the bytes are not as the protocol has them.
pub(crate) fn decode(bytes: &[u8], count: usize, types: &mut Types, long: &BTreeSet<u16>) -> Option<Vec<Parameter>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let nulls = bytes.get(HEAD..HEAD + count.div_ceil(8))?;
    let mut rest = bytes.get(HEAD + nulls.len()..)?;
    let follow = take(&mut rest, 1)?[0];
    if follow == 1 {
        let sent = take(&mut rest, 2 * count)?;
        types.0 = sent.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
    }
    if types.0.len() != count {
        return None;
    }
    let mut values = Vec::with_capacity(count);
    for (at, [kind, flags]) in types.0.iter().copied().enumerate() {
        let is_long = u16::try_from(at).is_ok_and(|at| long.contains(&at));
        values.push(match (is_long, nulls[at / 8] >> (at % 8) & 1) {
            (true, _) => Parameter::Unknown,
            (false, 1) => Parameter::Null,
            (false, _) => value(kind, flags & 0x80 != 0, &mut rest)?,
        });
    }
    rest.is_empty().then_some(values)
}

impl Parameter {
    /// As a literal of the statement; nothing for a NULL, and where no name is made.
    pub fn literal(&self) -> Option<Literal<'_>> {
        match self {
            Parameter::Integer(digits) => Some(Literal::Number(digits)),
            Parameter::Text(text) => Some(Literal::Text(text)),
            Parameter::Null | Parameter::Unknown => None,
        }
    }
}

/// The digits of a little-endian integer of at most 16 bytes.
pub(crate) fn integer(bytes: &[u8], is_unsigned: bool) -> Vec<u8> {
    let is_negative = bytes.last().is_some_and(|top| top & 0x80 != 0) && !is_unsigned;
    let mut wide = [if is_negative { 0xFF } else { 0 }; 16];
    let bytes = &bytes[..bytes.len().min(wide.len())];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide).to_string().into_bytes()
}

fn value(kind: u8, is_unsigned: bool, rest: &mut &[u8]) -> Option<Parameter> {
    let integer = |bytes: &[u8]| Parameter::Integer(integer(bytes, is_unsigned));
    Some(match kind {
        // TINY; SHORT, YEAR; LONG, INT24; LONGLONG.
        0x01 => integer(take(rest, 1)?),
        0x02 | 0x0D => integer(take(rest, 2)?),
        0x03 | 0x09 => integer(take(rest, 4)?),
        0x08 => integer(take(rest, 8)?),
        // FLOAT, DOUBLE.
        0x04 => take(rest, 4).map(|_| Parameter::Unknown)?,
        0x05 => take(rest, 8).map(|_| Parameter::Unknown)?,
        0x06 => Parameter::Null,
        // DATE, DATETIME, TIMESTAMP, TIME: a length of one byte before each.
        0x07 | 0x0A | 0x0B | 0x0C => {
            let length = usize::from(take(rest, 1)?[0]);
            take(rest, length).map(|_| Parameter::Unknown)?
        }
        // VARCHAR, VAR_STRING, STRING, the BLOBs.
        0x0F | 0xF9..=0xFE => {
            let length = length(rest)?;
            Parameter::Text(take(rest, length)?.to_vec())
        }
        // DECIMAL, BIT, ENUM, SET, GEOMETRY, JSON: laid out as texts.
        0x00 | 0x10 | 0xF5..=0xF8 | 0xFF => {
            let length = length(rest)?;
            take(rest, length).map(|_| Parameter::Unknown)?
        }
        _ => return None,
    })
}

/// A length-encoded integer.
fn length(rest: &mut &[u8]) -> Option<usize> {
    let wide = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let number = match take(rest, 1)?[0] {
        small @ 0..=0xFA => u64::from(small),
        0xFC => wide(take(rest, 2)?),
        0xFD => wide(take(rest, 3)?),
        0xFE => wide(take(rest, 8)?),
        _ => return None,
    };
    usize::try_from(number).ok()
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(nulls: u8, types: &[u8], values: &[u8]) -> Vec<u8> {
        [&[1, 0, 0, 0, 0, 1, 0, 0, 0, nulls, 1], types, values].concat()
    }

    #[test]
    fn integers_texts_and_nulls_are_read() {
        let mut types = Types::default();
        let bytes =
            execution(0b100, &[0x08, 0, 0xFD, 0, 0x03, 0, 0x01, 0x80], b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02ab\xFF");
        let none = BTreeSet::new();
        let expected = [
            Parameter::Integer(b"-1".to_vec()),
            Parameter::Text(b"ab".to_vec()),
            Parameter::Null,
            Parameter::Integer(b"255".to_vec()),
        ];
        assert_eq!(decode(&bytes, 4, &mut types, &none).unwrap(), expected);
        // The second time without types, and with one value that was sent in pieces.
        let again = [&[1, 0, 0, 0, 0, 1, 0, 0, 0, 0b1, 0], &b"\x02ab\x07"[..]].concat();
        assert_eq!(decode(&again, 4, &mut types, &none), None, "the third is an integer of four bytes");
        let expected = [Parameter::Null, expected[1].clone(), Parameter::Unknown, Parameter::Integer(b"7".to_vec())];
        assert_eq!(decode(&again, 4, &mut types, &BTreeSet::from([2])).unwrap(), expected);
    }

    #[test]
    fn whatever_bytes_come_nothing_panics_and_nothing_is_read_beyond() {
        let none = BTreeSet::new();
        let whole = execution(0, &[0xFD, 0, 0x05, 0, 0x0C, 0], b"\xFC\x01\x00a\0\0\0\0\0\0\0\0\x04abcd");
        assert!(decode(&whole, 3, &mut Types::default(), &none).is_some());
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut], 3, &mut Types::default(), &none), None, "cut at {cut}");
        }
        assert_eq!(decode(&[&whole[..], &[0]].concat(), 3, &mut Types::default(), &none), None);
        let huge = execution(0, &[0xFD, 0], b"\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
        assert_eq!(decode(&huge, 1, &mut Types::default(), &none), None);
    }
}
