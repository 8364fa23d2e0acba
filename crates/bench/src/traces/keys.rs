//! Traces that are CSV already: our own, and real key traces with the columns `time_s`, `key` and `size_bytes`.
//!
//! The header line says where the columns are; other columns are passed over. Fields may be quoted as in RFC 4180, but do
//! not span lines. Times are seconds with up to six decimals; they count from the first line's.

use std::io::BufRead;

use super::input::{Lines, TraceError};
use super::record::Request;

const COLUMNS: [&str; 3] = ["time_s", "key", "size_bytes"];

/// Requests of a CSV trace.
pub struct KeyReader<R> {
    lines: Lines<R>,
    columns: [usize; 3],
    first_us: Option<u64>,
    last_us: u64,
}

impl<R: BufRead> KeyReader<R> {
    /// Reads the header of the trace `reader`; `input` is what errors call it.
    pub fn new(input: String, reader: R) -> Result<Self, TraceError> {
        let mut lines = Lines::new(input, reader);
        let header = match lines.next()? {
            None => return Err(lines.error(0, "the file is empty: a trace begins with a header line")),
            Some(line) => fields(line),
        };
        let names = header.map_err(|(at, what)| lines.error(at, what))?;
        let mut columns = [0; 3];
        for (column, wanted) in columns.iter_mut().zip(COLUMNS) {
            *column = names.iter().position(|(_, name)| name == wanted).ok_or_else(|| {
                lines.error(0, format!("the header has no column `{wanted}` (it needs {})", COLUMNS.join(", ")))
            })?;
        }
        Ok(KeyReader { lines, columns, first_us: None, last_us: 0 })
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let parsed = match self.lines.next()? {
            None => return Ok(None),
            Some(line) => parse(line, self.columns),
        };
        let (at, time_us, key, size_bytes) = parsed.map_err(|(at, what)| self.lines.error(at, what))?;
        let first_us = *self.first_us.get_or_insert(time_us);
        let Some(at_us) = time_us.checked_sub(first_us).filter(|&at_us| at_us >= self.last_us) else {
            return Err(self.lines.error(at, "the time goes back: a trace is in the order of its times"));
        };
        self.last_us = at_us;
        Ok(Some(Request { at_us, key, size_bytes }))
    }
}

impl<R: BufRead> Iterator for KeyReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// What is wrong, behind the byte of the line where it is.
type Refusal = (usize, String);

fn parse(line: &[u8], columns: [usize; 3]) -> Result<(usize, u64, String, u64), Refusal> {
    let fields = fields(line)?;
    let field = |column: usize| match fields.get(columns[column]) {
        Some((at, text)) => Ok((*at, text.as_str())),
        None => Err((line.len(), format!("the line ends before its column `{}`", COLUMNS[column]))),
    };
    let (time_at, time) = field(0)?;
    let (key_at, key) = field(1)?;
    let (size_at, size) = field(2)?;
    let time_us = micros(time).ok_or_else(|| (time_at, format!("`{time}` is not a time in seconds")))?;
    if key.is_empty() {
        return Err((key_at, "the key is empty".to_owned()));
    }
    let size_bytes = size.parse().map_err(|_| (size_at, format!("`{size}` is not a number of bytes")))?;
    Ok((time_at, time_us, key.to_owned(), size_bytes))
}

/// Seconds with up to six decimals, as microseconds.
fn micros(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 6 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(decimals)
}

/// The fields of a line, each with the byte where it begins.
fn fields(line: &[u8]) -> Result<Vec<(usize, String)>, Refusal> {
    let text = str::from_utf8(line).map_err(|error| (error.valid_up_to(), "the line is not UTF-8".to_owned()))?;
    let mut fields = Vec::with_capacity(4);
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let (field, length) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted).ok_or_else(|| (at, "the quoted field has no end".to_owned()))?,
            None => {
                let length = rest.find(',').unwrap_or(rest.len());
                (rest[..length].to_owned(), length)
            }
        };
        fields.push((at, field));
        at += length;
        match text.as_bytes().get(at) {
            None => return Ok(fields),
            Some(b',') => at += 1,
            Some(_) => return Err((at, "a comma belongs behind the closing quote".to_owned())),
        }
    }
}

/// The text of a quoted field, of which the opening quote was taken off, and the length of the whole.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let mut field = String::new();
    let mut at = 0;
    loop {
        let quote = at + text[at..].find('"')?;
        field.push_str(&text[at..quote]);
        if !text[quote + 1..].starts_with('"') {
            return Some((field, quote + 2));
        }
        field.push('"');
        at = quote + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(trace: &str) -> Result<Vec<Request>, TraceError> {
        KeyReader::new("trace".to_owned(), trace.as_bytes())?.collect()
    }

    #[test]
    fn columns_are_found_by_name() {
        let requests = read("op,size_bytes,key,time_s\nget,5,a,10\nget,6,\"b,\"\"c\"\"\",10.25\n").unwrap();
        assert_eq!(
            requests,
            [
                Request { at_us: 0, key: "a".to_owned(), size_bytes: 5 },
                Request { at_us: 250_000, key: "b,\"c\"".to_owned(), size_bytes: 6 },
            ]
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let written = [
            Request { at_us: 0, key: "1".to_owned(), size_bytes: 1 },
            Request { at_us: 1, key: "a \"quoted\", key".to_owned(), size_bytes: u64::MAX },
        ];
        let mut trace = format!("{}\n", Request::HEADER).into_bytes();
        written.iter().for_each(|request| request.write(&mut trace).unwrap());
        assert_eq!(read(str::from_utf8(&trace).unwrap()).unwrap(), written);
    }

    #[test]
    fn refusals_name_line_and_column() {
        for (trace, place, told) in [
            ("", "line 1, column 1", "empty"),
            ("time_s,key\n", "line 1, column 1", "no column `size_bytes`"),
            ("time_s,key,size_bytes\n1,a,2\n1,b\n", "line 3, column 4", "ends before"),
            ("time_s,key,size_bytes\n1,,2\n", "line 2, column 3", "the key is empty"),
            ("time_s,key,size_bytes\n1,a,-2\n", "line 2, column 5", "`-2` is not a number of bytes"),
            ("time_s,key,size_bytes\nx,a,2\n", "line 2, column 1", "`x` is not a time"),
            ("time_s,key,size_bytes\n1.1234567,a,2\n", "line 2, column 1", "not a time"),
            ("time_s,key,size_bytes\n1,\"a,2\n", "line 2, column 3", "no end"),
            ("time_s,key,size_bytes\n1,\"a\"b,2\n", "line 2, column 6", "a comma"),
            ("time_s,key,size_bytes\n2,a,2\n1,a,2\n", "line 3, column 1", "goes back"),
            ("time_s,key,size_bytes\n2,a,2\n4,a,2\n3,a,2\n", "line 4, column 1", "goes back"),
        ] {
            let refusal = read(trace).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("trace, {place}: ")), "{trace:?}: {refusal}");
            assert!(refusal.contains(told), "{trace:?}: {refusal}");
        }
    }
}
