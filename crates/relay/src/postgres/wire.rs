//! What stands in messages.

use super::Reader;
use crate::{Column, Origin};

/// The columns of a RowDescription.
pub(crate) fn columns(payload: &[u8]) -> Option<Vec<Column>> {
    Reader::new(payload).all(column)
}

/// ```text
/// label 0, table u32, column i16, type u32, size i16, modifier i32, format i16
/// ```
fn column(reader: &mut Reader<'_>) -> Option<Column> {
    let label = reader.terminated()?.to_vec();
    let table = reader.u32()?;
    let column = reader.u16()? as i16;
    let type_number = reader.u32()?;
    reader.bytes(2 + 4)?;
    let encoding = reader.u16()?;
    let origin = if table == 0 { Origin::None } else { Origin::Numbered { table, column } };
    Some(Column { label, origin, type_number, encoding, flags: 0 })
}

/// The values of a DataRow. NULL has the length -1.
pub(crate) fn values(bytes: &[u8], columns: usize) -> Vec<Option<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let count = reader.u16().map_or(0, usize::from).min(columns);
    let mut values = Vec::with_capacity(count);
    values.extend((0..count).map_while(|_| reader.value()));
    values
}

/// The value of a parameter of a startup message.
pub(crate) fn parameter<'a>(startup: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    parameters(startup).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The parameters of a startup message, behind its version.
pub(crate) fn parameters(startup: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader::new(startup.get(4..).unwrap_or_default());
    std::iter::from_fn(move || {
        let key = reader.terminated().filter(|key| !key.is_empty())?;
        Some((key, reader.terminated()?))
    })
}

/// The name and the value of a ParameterStatus.
pub(crate) fn setting(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(payload);
    Some((reader.terminated()?, reader.terminated()?))
}

/// The types of a ParameterDescription.
pub(crate) fn types(payload: &[u8]) -> Option<Vec<u32>> {
    Reader::new(payload).all(Reader::u32)
}

/// Whether an ErrorResponse is the last that its server says. Each field is a byte and a string.
pub(crate) fn is_fatal(payload: &[u8]) -> bool {
    let mut fields = payload.split(|byte| *byte == 0);
    fields.any(|field| matches!(field, b"VFATAL" | b"VPANIC"))
}

/// An AuthenticationSASL without the mechanisms that bind a login to the TLS of its connection (RFC 5802: their names
/// end with `-PLUS`). `None`: it has none, or is another message.
pub(crate) fn without_binding(payload: &[u8]) -> Option<Vec<u8>> {
    const SASL: u32 = 10;
    let mut reader = Reader::new(payload);
    if reader.u32()? != SASL {
        return None;
    }
    let mut kept = SASL.to_be_bytes().to_vec();
    let mut is_less = false;
    while let Some(name) = reader.terminated().filter(|name| !name.is_empty()) {
        if name.ends_with(b"-PLUS") {
            is_less = true;
        } else {
            kept.extend_from_slice(name);
            kept.push(0);
        }
    }
    kept.push(0);
    is_less.then(|| message(b'R', &kept))
}

/// A whole message.
pub(crate) fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(5 + payload.len());
    raw.push(kind);
    raw.extend_from_slice(&(payload.len() as u32 + 4).to_be_bytes());
    raw.extend_from_slice(payload);
    raw
}

/// An ErrorResponse.
pub(crate) fn error(code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes())
}

/// An ErrorResponse that is the last message.
pub(crate) fn fatal(code: &str, text: &str) -> Vec<u8> {
    message(b'E', format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stop_where_the_row_is_cut() {
        let row = b"\0\x03\0\0\0\x02hi\xFF\xFF\xFF\xFF\0\0\0\0";
        assert_eq!(values(row, 3), [Some(&b"hi"[..]), None, Some(b"")]);
        assert_eq!(values(&row[..12], 3), [Some(&b"hi"[..]), None]);
        assert_eq!(values(&row[..7], 3), [] as [Option<&[u8]>; 0]);
    }

    #[test]
    fn parameters_of_a_startup_message() {
        let startup = b"\0\x03\0\0user\0me\0database\0shop\0\0";
        assert_eq!(parameter(startup, b"database"), Some(&b"shop"[..]));
        assert_eq!(parameter(startup, b"options"), None);
    }
}
