//! What PostgreSQL's `pgoutput` says, version 1 (PostgreSQL 15, section 55.9).
//!
//! ```text
//! B  place u64 | time i64 | transaction u32           a transaction begins
//! C  flags u8 | place u64 | end u64 | time i64        it has committed
//! R  table u32 | schema 0 | name 0 | identity u8 | columns u16, each  flags u8 | name 0 | type u32 | modifier i32
//! I  table u32 | N row
//! U  table u32 | [K row or O row] | N row
//! D  table u32 | K row or O row
//! T  tables u32 | options u8 | table u32, each
//! row:  columns u16, each  n (NULL), u (not sent), or t length u32 | text
//! ```

use verbena_relay::postgres::Reader;

use super::around::Kind;

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Begin,
    Commit,
    /// The name of a table, before its first row.
    Relation {
        table: u32,
        schema: &'a [u8],
        name: &'a [u8],
    },
    /// A row was written: the first of its values that are sent.
    Row {
        table: u32,
        kind: Kind,
        values: Vec<Option<&'a [u8]>>,
    },
    Truncate {
        tables: Vec<u32>,
    },
    /// Origins, types and what programs say.
    Other,
}

/// Values of a row that are told.
const VALUES: usize = 8;

pub(super) fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let (&kind, rest) = bytes.split_first()?;
    let mut reader = Reader::new(rest);
    Some(match kind {
        b'B' => Message::Begin,
        b'C' => Message::Commit,
        b'R' => {
            let table = reader.u32()?;
            Message::Relation { table, schema: reader.terminated()?, name: reader.terminated()? }
        }
        b'I' | b'U' | b'D' => {
            let table = reader.u32()?;
            reader.bytes(1)?;
            let kind = match kind {
                b'I' => Kind::Insert,
                b'U' => Kind::Update,
                _ => Kind::Delete,
            };
            Message::Row { table, kind, values: row(&mut reader)? }
        }
        b'T' => {
            let count = reader.u32()?;
            reader.bytes(1)?;
            let mut tables = Vec::new();
            for _ in 0..count {
                tables.push(reader.u32()?);
            }
            Message::Truncate { tables }
        }
        _ => Message::Other,
    })
}

fn row<'a>(reader: &mut Reader<'a>) -> Option<Vec<Option<&'a [u8]>>> {
    let count = usize::from(reader.u16()?);
    let mut values = Vec::new();
    for _ in 0..count.min(VALUES) {
        values.push(match reader.bytes(1)? {
            b"n" | b"u" => None,
            b"t" => {
                let length = reader.u32()?;
                Some(reader.bytes(usize::try_from(length).ok()?)?)
            }
            _ => return None,
        });
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &[u8] = b"U\0\0\x40\x06N\0\x03t\0\0\0\x017nt\0\0\0\x03tea";

    #[test]
    fn a_row_says_its_table_and_its_values() {
        let expected = Message::Row { table: 0x4006, kind: Kind::Update, values: vec![Some(b"7"), None, Some(b"tea")] };
        assert_eq!(message(ROW), Some(expected));
        let relation = b"R\0\0\x40\x06public\0products\0d\0\x01\x01id\0\0\0\0\x17\xFF\xFF\xFF\xFF";
        assert_eq!(message(relation), Some(Message::Relation { table: 0x4006, schema: b"public", name: b"products" }));
        assert_eq!(message(b"T\0\0\0\x02\0\0\0\0\x07\0\0\0\x08"), Some(Message::Truncate { tables: vec![7, 8] }));
    }

    #[test]
    fn what_is_cut_is_no_message() {
        for cut in 0..ROW.len() {
            assert_eq!(message(&ROW[..cut]), None, "{cut}");
        }
        // A count that is not there takes no memory.
        assert_eq!(message(b"T\xFF\xFF\xFF\xFF\0"), None);
    }
}
