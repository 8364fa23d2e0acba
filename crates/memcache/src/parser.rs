use crate::limits::Limits;
use crate::request::{Operation, Rejection, Request};
use crate::text::{self, Line};

/// The first byte of a request of the binary protocol. No text command begins with it.
const BINARY_REQUEST: u8 = 0x80;
/// A header of the binary protocol.
const BINARY_HEADER_BYTES: usize = 24;

/// Finds requests in a client's bytes, wherever they are cut.
///
/// The caller keeps the bytes that were not consumed and gives them again, longer, at the front. A request borrows from them.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    is_started: bool,
    /// Bytes of a refused value that are still to come.
    swallowed: usize,
    /// No end of the line is in that many bytes of the request.
    scanned: usize,
    /// The request is whole with that many bytes.
    wanted: usize,
}

/// What the parser did with the bytes at hand.
#[derive(Debug, PartialEq)]
pub struct Step<'a> {
    /// How many bytes it is done with, including those of `parsed`.
    pub consumed: usize,
    /// `None` if more bytes are needed.
    pub parsed: Option<Parsed<'a>>,
}

/// What stood in the bytes.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Parsed<'a> {
    /// A request.
    Request(Request<'a>),
    /// No request: the line to answer. The stream goes on behind it.
    Rejected(Rejection),
    /// The binary protocol: answer [`refuse_binary`] and close.
    Binary {
        /// The command, to be repeated in the answer.
        opcode: u8,
        /// The client's mark, to be repeated in the answer.
        opaque: [u8; 4],
    },
    /// Nothing that follows can be understood: answer the line, if there is one, and close.
    Close(Option<&'static str>),
}

impl Parser {
    /// For a new connection.
    pub fn new(limits: Limits) -> Parser {
        Parser { limits, is_started: false, swallowed: 0, scanned: 0, wanted: 0 }
    }

    /// The next request of `input`, which begins with the bytes that were not consumed before.
    pub fn parse<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let skipped = self.swallowed.min(input.len());
        self.swallowed -= skipped;
        let (used, parsed) = match self.request(&input[skipped..]) {
            Some((used, parsed)) => (used, Some(parsed)),
            None => (0, None),
        };
        let after = input.len() - skipped - used;
        let swallowed = self.swallowed.min(after);
        self.swallowed -= swallowed;
        Step { consumed: skipped + used + swallowed, parsed }
    }

    fn request<'a>(&mut self, input: &'a [u8]) -> Option<(usize, Parsed<'a>)> {
        if input.is_empty() || input.len() < self.wanted {
            return None;
        }
        if !self.is_started && input[0] == BINARY_REQUEST {
            let header = input.get(..BINARY_HEADER_BYTES)?;
            let opaque = [header[12], header[13], header[14], header[15]];
            return Some((input.len(), Parsed::Binary { opcode: header[1], opaque }));
        }
        self.is_started = true;
        let Some(end) = input[self.scanned..].iter().position(|&byte| byte == b'\n') else {
            self.scanned = input.len();
            return (input.len() > self.longest(input)).then(|| (input.len(), too_long()));
        };
        let end = self.scanned + end;
        if end > self.longest(input) {
            return Some((input.len(), too_long()));
        }
        // A line that is "\r" alone keeps it, as in memcached: no command is as short.
        let line = &input[..end];
        let line = if end > 1 { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        let (used, parsed) = match text::line(line, &self.limits) {
            Line::Request(request) => (end + 1, Parsed::Request(request)),
            Line::Rejected(rejection, swallowed) => {
                self.swallowed = swallowed;
                (end + 1, Parsed::Rejected(rejection))
            }
            Line::Refused(request, swallowed) => {
                self.swallowed = swallowed;
                (end + 1, Parsed::Request(request))
            }
            Line::Close => (input.len(), Parsed::Close(None)),
            Line::Store(request, length) => {
                let whole = end + 1 + length + 2;
                if input.len() < whole {
                    (self.scanned, self.wanted) = (end, whole);
                    return None;
                }
                (whole, with_value(request, &input[end + 1..whole]))
            }
        };
        (self.scanned, self.wanted) = (0, 0);
        Some((used, parsed))
    }

    /// The longest line that may begin like this.
    fn longest(&self, input: &[u8]) -> usize {
        let start = input.iter().take(self.limits.line_bytes).position(|&byte| byte != b' ').unwrap_or(0);
        let names_keys =
            [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| input[start..].starts_with(name));
        if names_keys { self.limits.keys_bytes } else { self.limits.line_bytes }
    }
}

fn too_long<'a>() -> Parsed<'a> {
    Parsed::Close(Some("CLIENT_ERROR line too long"))
}

/// The storage command with its value, which `block` holds with the end of its line.
fn with_value<'a>(mut request: Request<'a>, block: &'a [u8]) -> Parsed<'a> {
    let Some(bytes) = block.strip_suffix(b"\r\n") else {
        let noreply = matches!(request, Request::Classic { noreply: true, .. });
        return Parsed::Rejected(Rejection { line: "CLIENT_ERROR bad data chunk", noreply });
    };
    let operation = match &mut request {
        Request::Classic { operation, .. } => operation,
        Request::Meta(meta) => &mut meta.operation,
        _ => return Parsed::Request(request),
    };
    if let Operation::Store(store) = operation {
        store.value = bytes;
    }
    Parsed::Request(request)
}

/// The answer to a request of the binary protocol: an error that its clients show. Close the connection after it.
pub fn refuse_binary(opcode: u8, opaque: [u8; 4], out: &mut Vec<u8>) {
    const TEXT: &[u8] = b"Not supported: use the text protocol";
    const UNKNOWN_COMMAND: [u8; 2] = [0x00, 0x81];
    // Layout: magic, opcode, key length 2, extras length, data type, status 2, body length 4, opaque 4, cas 8.
    out.extend_from_slice(&[0x81, opcode, 0, 0, 0, 0]);
    out.extend_from_slice(&UNKNOWN_COMMAND);
    out.extend_from_slice(&(TEXT.len() as u32).to_be_bytes());
    out.extend_from_slice(&opaque);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(TEXT);
}
