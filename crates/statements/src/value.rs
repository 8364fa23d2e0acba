//! Values that may stand in a name: equal for the database must mean equal for us (rule Q17).

use crate::Rules;

/// How the database compares the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A signed or unsigned integer.
    Integer,
    /// Text or bytes that are equal only if their bytes are: no padding, no folding of case.
    Bytes,
    /// Text that is equal if its bytes are, with A to Z like a to z (SQLite's `NOCASE`).
    AsciiCase,
    /// PostgreSQL's `uuid`: 32 hexadecimal digits, with or without hyphens.
    Uuid,
    /// All else: float, decimal, date, enum, JSON, text of another collation.
    Other,
}

/// A value as the statement gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal<'a> {
    /// A number without quotes, or an integer parameter, in decimal digits.
    Number(&'a [u8]),
    /// A text or bytes, after its quotes and escapes were read.
    Text(&'a [u8]),
}

/// A number without quotes has a name up to this many digits: beyond, SQLite compares floating-point numbers.
const MAX_DIGITS: usize = 18;
/// A text of digits has a name up to this many: MySQL compares a text with an integer as doubles, exact below 2^53.
const MAX_TEXT_DIGITS: usize = 15;

/// A longer text has no name. Names are kept for each row that is inserted, and a row is not looked up by its body.
const MAX_TEXT: usize = 255;

/// The one form of a value of a column, or nothing if it has no name.
pub fn canonical(rules: Rules, column: ColumnType, literal: Literal<'_>) -> Option<Vec<u8>> {
    match (column, literal) {
        (_, Literal::Number(bytes) | Literal::Text(bytes)) if !rules.exact => Some(bytes.to_vec()),
        (ColumnType::Integer, Literal::Number(digits)) => integer(digits, MAX_DIGITS),
        (ColumnType::Integer, Literal::Text(digits)) => integer(digits, MAX_TEXT_DIGITS),
        (ColumnType::Bytes | ColumnType::AsciiCase, Literal::Text(text)) if text.len() > MAX_TEXT => None,
        (ColumnType::Bytes, Literal::Text(text)) => Some(text.to_vec()),
        (ColumnType::Uuid, Literal::Text(text)) => uuid(text),
        // SQLite's NOCASE ends at a zero byte.
        (ColumnType::AsciiCase, Literal::Text(text)) => (!text.contains(&0)).then(|| text.to_ascii_lowercase()),
        // In MySQL, `s = 7` finds '7', '07' and '7a'.
        (ColumnType::Bytes | ColumnType::AsciiCase | ColumnType::Uuid, Literal::Number(_)) => None,
        (ColumnType::Other, _) => None,
    }
}

/// The digits in lower case, of the two forms that are in use.
fn uuid(text: &[u8]) -> Option<Vec<u8>> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let is_hyphen = |at: usize| text.len() == 36 && HYPHENS.contains(&at);
    let digits = text.iter().enumerate().map(|(at, byte)| match byte {
        b'-' if is_hyphen(at) => Some(None),
        digit if digit.is_ascii_hexdigit() && !is_hyphen(at) => Some(Some(digit.to_ascii_lowercase())),
        _ => None,
    });
    let digits: Vec<u8> = digits.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    (digits.len() == 32).then_some(digits)
}

/// Decimal digits without leading zeros, with a minus sign if the value is below zero.
fn integer(text: &[u8], most: usize) -> Option<Vec<u8>> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > most || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    Some(match &digits[zeros..] {
        [] => vec![b'0'],
        digits if negative => [b"-", digits].concat(),
        digits => digits.to_vec(),
    })
}
