//! What stands in packets: numbers and strings with their length, and the packets that end answers.

use crate::{Column, Origin};

/// Status flags of the server.
pub(crate) const IN_TRANSACTION: u16 = 0x0001;
pub(crate) const AUTOCOMMIT: u16 = 0x0002;
pub(crate) const MORE_RESULTS: u16 = 0x0008;
pub(crate) const CURSOR: u16 = 0x0040;

/// Reads a payload from its front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<u64> {
        let taken = self.bytes(width)?;
        Some(taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.number(1).map(|number| number as u8)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|number| number as u16)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.number(4).map(|number| number as u32)
    }

    /// A number with its width before it.
    pub(crate) fn length(&mut self) -> Option<u64> {
        match self.u8()? {
            short @ 0..=0xFA => Some(u64::from(short)),
            0xFC => self.number(2),
            0xFD => self.number(3),
            0xFE => self.number(8),
            _ => None,
        }
    }

    /// A string with its length before it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.length()?).ok()?;
        self.bytes(length)
    }

    /// A string that ends with a zero byte, which is taken too.
    pub(crate) fn terminated(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let taken = self.bytes(length)?;
        self.bytes(1)?;
        Some(taken)
    }
}

/// The status in an OK packet, whose first byte is 0x00, or 0xFE at the end of rows.
pub(crate) fn ok_status(payload: &[u8]) -> Option<u16> {
    let mut reader = Reader(payload);
    reader.u8()?;
    reader.length()?;
    reader.length()?;
    reader.u16()
}

/// The status in an EOF packet.
pub(crate) fn eof_status(payload: &[u8]) -> Option<u16> {
    let mut reader = Reader(payload);
    reader.bytes(3)?;
    reader.u16()
}

/// An error packet whose code is 0xFFFF says how far a long statement is (MariaDB) and ends nothing.
pub(crate) fn is_progress(payload: &[u8]) -> bool {
    payload.starts_with(&[0xFF, 0xFF, 0xFF])
}

/// A column definition.
pub(crate) fn column(payload: &[u8], is_extended: bool) -> Option<Column> {
    let mut reader = Reader(payload);
    reader.string()?;
    let schema = reader.string()?;
    reader.string()?;
    let table = reader.string()?;
    let label = reader.string()?;
    let name = reader.string()?;
    if is_extended {
        reader.string()?;
    }
    reader.length()?;
    let encoding = reader.u16()?;
    reader.u32()?;
    let type_number = u32::from(reader.u8()?);
    let flags = reader.u16()?;
    let origin = if table.is_empty() || name.is_empty() {
        Origin::None
    } else {
        Origin::Named { schema: schema.to_vec(), table: table.to_vec(), column: name.to_vec() }
    };
    Some(Column { label: label.to_vec(), origin, type_number, encoding, flags })
}

/// A whole packet.
pub(crate) fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(4 + payload.len());
    raw.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
    raw.push(sequence);
    raw.extend_from_slice(payload);
    raw
}

/// An error packet.
pub(crate) fn error(sequence: u8, code: u16, state: &[u8; 5], message: &str) -> Vec<u8> {
    let mut payload = vec![0xFF];
    payload.extend_from_slice(&code.to_le_bytes());
    payload.push(b'#');
    payload.extend_from_slice(state);
    payload.extend_from_slice(message.as_bytes());
    packet(sequence, &payload)
}

/// An error packet in the place of a greeting: it has no state, because the client has not said yet that it knows states.
pub(crate) fn refusal(code: u16, message: &str) -> Vec<u8> {
    packet(0, &[&[0xFF], &code.to_le_bytes()[..], message.as_bytes()].concat())
}

/// The values of a row of an answer to text.
pub(crate) fn text_values(bytes: &[u8], columns: usize) -> Vec<Option<&[u8]>> {
    let mut reader = Reader(bytes);
    let mut values = Vec::with_capacity(columns.min(bytes.len()));
    while values.len() < columns {
        if reader.0.first() == Some(&0xFB) {
            reader.0 = &reader.0[1..];
            values.push(None);
        } else if let Some(value) = reader.string() {
            values.push(Some(value));
        } else {
            break;
        }
    }
    values
}

/// The values of a row of an answer to a prepared statement. A number is its little-endian bytes.
pub(crate) fn binary_values<'a>(bytes: &'a [u8], columns: &[Column]) -> Vec<Option<&'a [u8]>> {
    let mut values = Vec::with_capacity(columns.len());
    // Bit 0 of the column's place plus 2.
    let nulls = (columns.len() + 9) / 8;
    let mut reader = Reader(bytes);
    let Some(nulls) = reader.bytes(1).and_then(|_| reader.bytes(nulls)) else { return values };
    for (place, column) in columns.iter().enumerate() {
        if nulls[(place + 2) / 8] >> ((place + 2) % 8) & 1 == 1 {
            values.push(None);
            continue;
        }
        let value = match column.type_number {
            0x06 => Some(&[][..]),
            0x01 => reader.bytes(1),
            0x02 | 0x0D => reader.bytes(2),
            0x03 | 0x04 | 0x09 => reader.bytes(4),
            0x05 | 0x08 => reader.bytes(8),
            // Times and everything else: a length, then as many bytes.
            _ => reader.string(),
        };
        match value {
            Some(value) => values.push(Some(value)),
            None => break,
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column_of(type_number: u32) -> Column {
        Column { label: vec![], origin: Origin::None, type_number, encoding: 0, flags: 0 }
    }

    #[test]
    fn values_of_text_rows_stop_where_the_row_is_cut() {
        let row = b"\x03abc\xFB\x00\xFC\x02\x00xy";
        assert_eq!(text_values(row, 4), [Some(&b"abc"[..]), None, Some(b""), Some(b"xy")]);
        assert_eq!(text_values(&row[..8], 4), [Some(&b"abc"[..]), None, Some(b"")]);
    }

    #[test]
    fn values_of_binary_rows_follow_their_types() {
        let columns = [0x03, 0xFD, 0x08, 0x0C].map(column_of);
        // The third is NULL: bit 4.
        let row = b"\x00\x10\x07\x00\x00\x00\x02hi\x04\xE8\x07\x01\x02";
        let expected = [Some(&b"\x07\0\0\0"[..]), Some(b"hi"), None, Some(b"\xE8\x07\x01\x02")];
        assert_eq!(binary_values(row, &columns), expected);
        assert_eq!(binary_values(&row[..8], &columns), expected[..1]);
        assert_eq!(binary_values(b"", &columns), [] as [Option<&[u8]>; 0]);
    }
}
