//! Character sets of a session, as far as they matter to how a statement is read.

use verbena_statements::Charset;

/// By the number of a collation (`information_schema.COLLATIONS`). Of those that a client may log in with, these have a second byte that may be a backslash: Big5, GBK,
/// Shift JIS, CP932, GB18030.
pub fn charset_by_number(number: Option<u16>) -> Charset {
    match number {
        Some(1 | 84 | 28 | 87 | 13 | 88 | 95 | 96 | 248..=250) => Charset::Other,
        Some(33 | 45 | 46 | 83 | 192..=215 | 223..=247 | 255) => Charset::Utf8,
        _ => Charset::AsciiCompatible,
    }
}

/// By the name that a session gives it.
pub fn charset_by_name(name: &[u8]) -> Charset {
    let name = name.to_ascii_lowercase();
    let has = |word: &str| name.windows(word.len()).any(|part| part == word.as_bytes());
    match () {
        () if ["gbk", "big5", "sjis", "cp932", "gb18030", "@", "default"].into_iter().any(has) => Charset::Other,
        () if has("utf8") => Charset::Utf8,
        () => Charset::AsciiCompatible,
    }
}
