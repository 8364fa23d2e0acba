//! Bytes of a control connection, cut into command lines.
//!
//! A line ends with LF; one CR before it belongs to the end. Telnet commands (RFC 854) that clients send around `ABOR` are
//! dropped: `IAC IP`, `IAC DM`, and negotiations of three bytes, at the start of a line only, because the byte 0xFF is also
//! a byte of names. Inside a line `IAC IAC` is one 0xFF.

/// A longer line is answered with 500.
pub const LONG_LINE: usize = 4 << 10;
/// A longer line closes the connection.
pub const ENDLESS_LINE: usize = 64 << 10;

const IAC: u8 = 0xFF;

/// What a piece of input became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Text(Vec<u8>),
    /// A line longer than [`LONG_LINE`]; its bytes are dropped.
    TooLong,
    /// A line longer than [`ENDLESS_LINE`]. Nothing follows.
    Endless,
}

/// Cuts input into lines. Holds at most [`LONG_LINE`] bytes beyond what it was given.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    /// Bytes of the line so far, kept or dropped.
    length: usize,
    /// Bytes of a Telnet command that began at the start of the line.
    telnet: Vec<u8>,
    after_iac: bool,
    has_ended: bool,
}

impl Lines {
    /// Takes `bytes` and appends the lines that they complete.
    pub fn take(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        for &byte in bytes {
            if self.has_ended {
                return;
            }
            if let Some(line) = self.byte(byte) {
                self.has_ended = line == Line::Endless;
                lines.push(line);
            }
        }
    }

    /// Whether a line has begun that has no end yet.
    pub fn is_inside(&self) -> bool {
        self.length > 0 || !self.telnet.is_empty()
    }

    fn byte(&mut self, byte: u8) -> Option<Line> {
        if self.length == 0 && self.is_telnet(byte) {
            return None;
        }
        if byte == b'\n' {
            return Some(self.end());
        }
        self.length += 1;
        if self.length > ENDLESS_LINE {
            return Some(Line::Endless);
        }
        let is_second_iac = std::mem::take(&mut self.after_iac) && byte == IAC;
        if !is_second_iac {
            self.after_iac = byte == IAC;
            if self.length <= LONG_LINE {
                self.line.push(byte);
            }
        }
        None
    }

    fn end(&mut self) -> Line {
        let mut line = std::mem::take(&mut self.line);
        self.after_iac = false;
        if std::mem::take(&mut self.length) > LONG_LINE {
            return Line::TooLong;
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Line::Text(line)
    }

    /// Whether the byte belongs to a Telnet command before the first byte of a line.
    fn is_telnet(&mut self, byte: u8) -> bool {
        match (self.telnet.as_slice(), byte) {
            ([], IAC) => {
                self.telnet.push(IAC);
                true
            }
            ([], _) => false,
            // WILL, WON'T, DO, DON'T have an option behind them.
            ([_], 251..=254) => {
                self.telnet.push(byte);
                true
            }
            ([_], 240..=250) => {
                self.telnet.clear();
                true
            }
            // A line that begins with 0xFF as a byte of its own.
            ([_], _) => {
                self.telnet.clear();
                self.line.push(IAC);
                self.length = 1;
                byte == IAC
            }
            _ => {
                self.telnet.clear();
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Line> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        pieces.iter().for_each(|piece| lines.take(piece, &mut found));
        found
    }

    #[test]
    fn telnet_commands_go_and_the_byte_stays() {
        let text = |bytes: &[u8]| Line::Text(bytes.to_vec());
        assert_eq!(cut(&[b"\xff\xf4\xff\xf2ABOR\r\n"]), [text(b"ABOR")]);
        assert_eq!(cut(&[b"\xff", b"\xfd\x06NOOP\n"]), [text(b"NOOP")]);
        assert_eq!(cut(&[b"RETR a\xffb\xff\xffc\r\n"]), [text(b"RETR a\xffb\xffc")]);
        assert_eq!(cut(&[b"RETR \xff\xff\xff\xff\r\n"]), [text(b"RETR \xff\xff")]);
    }

    #[test]
    fn a_long_line_is_one_answer_and_an_endless_one_the_last() {
        let mut long = vec![b'a'; LONG_LINE + 1];
        long.extend_from_slice(b"\r\nNOOP\r\n");
        assert_eq!(cut(&[&long]), [Line::TooLong, Line::Text(b"NOOP".to_vec())]);
        assert_eq!(cut(&[&vec![b'a'; ENDLESS_LINE + 1], b"\nNOOP\n"]), [Line::Endless]);
        let mut fits = vec![b'a'; LONG_LINE];
        fits.push(b'\n');
        assert_eq!(cut(&[&fits]), [Line::Text(vec![b'a'; LONG_LINE])]);
    }
}
