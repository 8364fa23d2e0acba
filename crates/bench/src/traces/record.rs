//! One line of a trace, and how it is written.

use std::borrow::Cow;
use std::io::{self, Write};

/// A request for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, in microseconds since the trace began. Never less than that of the request before it.
    pub at_us: u64,
    /// For which object.
    pub key: String,
    /// How large the object is (in a log: how many bytes were sent).
    pub size_bytes: u64,
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// When, in microseconds since the trace began. Never less than that of the update before it.
    pub at_us: u64,
    /// Which object.
    pub key: String,
}

impl Request {
    /// The first line of a trace of requests.
    pub const HEADER: &str = "time_s,key,size_bytes";

    /// Writes the request as one line.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{},{},{}", Seconds(self.at_us), field(&self.key), self.size_bytes)
    }
}

impl Update {
    /// The first line of a trace of updates.
    pub const HEADER: &str = "time_s,key";

    /// Writes the update as one line.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{},{}", Seconds(self.at_us), field(&self.key))
    }
}

/// Microseconds, shown as seconds: no more decimals than needed, so whole seconds of a log stay whole.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, micros) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if micros == 0 { write!(f, "{whole}") } else { write!(f, "{whole}.{micros:06}") }
    }
}

/// A field as RFC 4180 has it: quoted only where it must be.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_plain_csv() {
        let mut out = Vec::new();
        Request { at_us: 3_000_000, key: "17".into(), size_bytes: 9 }.write(&mut out).unwrap();
        Request { at_us: 3_000_050, key: "/a,b\"c".into(), size_bytes: 0 }.write(&mut out).unwrap();
        Update { at_us: 50, key: "x".into() }.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "3,17,9\n3.000050,\"/a,b\"\"c\",0\n0.000050,x\n");
    }
}
