//! Where a trace is read from, and what is said when it cannot be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use thiserror::Error;

use super::law::LawError;

/// A line longer than this is refused: nothing that logs requests writes one.
pub(crate) const LONGEST_LINE_BYTES: usize = 64 * 1024;

/// Why a trace could not be read or written.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A line of text that is not what it should be. Lines and columns count from 1, columns in bytes.
    #[error("{input}, line {line}, column {column}: {what}")]
    Line {
        /// The file, or `standard input`.
        input: String,
        /// Which line.
        line: u64,
        /// Where in it.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// A binary record that is not what it should be.
    #[error("{input}, byte {offset}: {what}")]
    Byte {
        /// The file, or `standard input`.
        input: String,
        /// Bytes before it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Reading or writing failed.
    #[error("{path}: {error}")]
    Io {
        /// Which file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// The law cannot be.
    #[error(transparent)]
    Law(#[from] LawError),
}

impl TraceError {
    pub(crate) fn io(path: impl Into<String>, error: io::Error) -> Self {
        TraceError::Io { path: path.into(), error }
    }
}

/// Opens a trace for reading, unpacked if it is packed by gzip. `-` is the standard input.
pub fn open(path: &Path) -> Result<(String, Box<dyn BufRead>), TraceError> {
    let (name, file): (String, Box<dyn Read>) = if path == Path::new("-") {
        ("standard input".to_owned(), Box::new(io::stdin()))
    } else {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| TraceError::io(&name, error))?;
        (name, Box::new(file))
    };
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let start = reader.fill_buf().map_err(|error| TraceError::io(&name, error))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        Ok((name, Box::new(BufReader::new(MultiGzDecoder::new(reader)))))
    } else {
        Ok((name, Box::new(reader)))
    }
}

/// Lines of a text, each with its number, none longer than [`LONGEST_LINE_BYTES`].
pub(crate) struct Lines<R> {
    input: String,
    reader: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: String, reader: R) -> Self {
        Lines { input, reader, number: 0, line: Vec::new() }
    }

    /// The next line without its end (LF or CR LF), or `None` at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, TraceError> {
        self.line.clear();
        let limit = LONGEST_LINE_BYTES as u64 + 2;
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line);
        if read.map_err(|error| TraceError::io(&self.input, error))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        }
        if self.line.len() > LONGEST_LINE_BYTES {
            return Err(self.error(LONGEST_LINE_BYTES, format!("the line is longer than {LONGEST_LINE_BYTES} bytes")));
        }
        Ok(Some(&self.line))
    }

    /// An error at byte `at` (from 0) of the line that was given last.
    pub(crate) fn error(&self, at: usize, what: impl Into<String>) -> TraceError {
        TraceError::Line { input: self.input.clone(), line: self.number.max(1), column: at + 1, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn packed_and_plain_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("t"), folder.path().join("t.gz"));
        std::fs::write(&plain, "one\ntwo\n").unwrap();
        let mut encoder = flate2::write::GzEncoder::new(File::create(&packed).unwrap(), flate2::Compression::fast());
        encoder.write_all(b"one\ntwo\n").unwrap();
        encoder.finish().unwrap();
        for path in [plain, packed] {
            let mut text = String::new();
            open(&path).unwrap().1.read_to_string(&mut text).unwrap();
            assert_eq!(text, "one\ntwo\n", "{path:?}");
        }
        let absent = open(&folder.path().join("absent")).err().unwrap().to_string();
        assert!(absent.contains("absent"), "{absent}");
    }

    #[test]
    fn an_endless_line_is_refused_early() {
        let mut lines = Lines::new("x".to_owned(), BufReader::new(io::repeat(b'a')));
        let refusal = lines.next().unwrap_err().to_string();
        assert!(refusal.starts_with("x, line 1, column 65537: the line is longer"), "{refusal}");
    }

    #[test]
    fn line_ends_are_taken_off() {
        let mut lines = Lines::new("x".to_owned(), &b"a\r\n\nb"[..]);
        assert_eq!(lines.next().unwrap(), Some(&b"a"[..]));
        assert_eq!(lines.next().unwrap(), Some(&b""[..]));
        assert_eq!(lines.next().unwrap(), Some(&b"b"[..]));
        assert_eq!(lines.next().unwrap(), None);
    }
}
