//! Answers as they go out, with the bytes that hyper would write.

use std::cell::RefCell;
use std::io::IoSlice;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use http::{HeaderName, StatusCode};
use tokio::time::Instant;

use crate::page::Page;

/// Pieces of one write.
pub(crate) const PIECES: usize = 16;
/// Bytes of heads for which memory is kept.
const HEADS: usize = 16 << 10;

/// Answers on their way out, of one connection.
pub(crate) struct Output {
    /// The heads, one behind the other.
    heads: Vec<u8>,
    /// Where each head ends, and the body behind it.
    answers: Answers,
    body_bytes: usize,
    /// Answers that are out.
    done: usize,
    /// Bytes of the next one that are out.
    taken: usize,
    /// When the first one was decided.
    pub began: Instant,
}

type Answers = Vec<(usize, Content)>;

/// The body of an answer.
pub(crate) enum Content {
    /// The first bytes of a page, this many.
    Page(Page, usize),
    Bytes(Bytes),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Page(page, length) => &page.as_ref()[..*length],
            Content::Bytes(bytes) => bytes,
        }
    }
}

/// What becomes of the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    /// The request is HEAD.
    HeadAlone,
    /// A body of this many bytes.
    Body(usize),
}

thread_local! {
    /// Of an output that has gone, for the next.
    static SPARE: RefCell<(Vec<u8>, Answers)> = RefCell::default();
    static TODAY: RefCell<Option<Today>> = const { RefCell::new(None) };
}

/// The date, as long as it is the same.
struct Today {
    text: String,
    until: Instant,
}

impl Output {
    pub fn new(began: Instant) -> Self {
        let (heads, answers) = SPARE.take();
        Output { heads, answers, body_bytes: 0, done: 0, taken: 0, began }
    }

    /// How many answers it was given.
    pub fn hits(&self) -> usize {
        self.answers.len()
    }

    /// Bytes of their bodies.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Begins a head; [`Writing::ends`] or nothing of it stays.
    pub fn writes(&mut self, status: StatusCode, sends: Sends) -> Writing<'_> {
        let begin = self.heads.len();
        if status == StatusCode::OK {
            self.heads.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            let reason = status.canonical_reason().unwrap_or("<none>");
            for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
                self.heads.extend_from_slice(part.as_bytes());
            }
        }
        let may_have_body =
            !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_plain = may_have_body || matches!(sends, Sends::HeadAlone | Sends::Body(0));
        Writing { output: self, begin, sends, may_have_body, has_length: false, has_date: false, is_plain }
    }

    /// The pieces that go out next.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>; PIECES]) -> usize {
        let mut begin = self.done.checked_sub(1).map_or(0, |before| self.answers[before].0);
        let (mut skip, mut used) = (self.taken, 0);
        for (end, content) in &self.answers[self.done..] {
            for piece in [&self.heads[begin..*end], content.bytes()] {
                let (out, left) = piece.split_at(skip.min(piece.len()));
                skip -= out.len();
                if left.is_empty() {
                    continue;
                }
                if used == PIECES {
                    return used;
                }
                into[used] = IoSlice::new(left);
                used += 1;
            }
            begin = *end;
        }
        used
    }

    /// `bytes` more bytes are out. Says whether all are.
    pub fn advance(&mut self, bytes: usize) -> bool {
        self.taken += bytes;
        while let Some((end, content)) = self.answers.get(self.done) {
            let begin = self.done.checked_sub(1).map_or(0, |before| self.answers[before].0);
            let length = end - begin + content.bytes().len();
            if self.taken < length {
                return false;
            }
            self.taken -= length;
            self.done += 1;
        }
        true
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let (mut heads, mut answers) = (std::mem::take(&mut self.heads), std::mem::take(&mut self.answers));
        heads.clear();
        answers.clear();
        if heads.capacity() <= HEADS {
            // A thread that ends needs none.
            let _ = SPARE.try_with(|spare| spare.replace((heads, answers)));
        }
    }
}

/// A head that is being written, by the rules by which hyper writes one over HTTP/1.1 to a client whose connection goes on.
pub(crate) struct Writing<'a> {
    output: &'a mut Output,
    begin: usize,
    sends: Sends,
    may_have_body: bool,
    has_length: bool,
    has_date: bool,
    is_plain: bool,
}

impl Writing<'_> {
    /// A field.
    pub fn field(&mut self, name: &HeaderName, value: &[u8]) {
        match *name {
            CONTENT_LENGTH if self.sends == Sends::Body(0) || self.has_length => return,
            CONTENT_LENGTH => self.has_length = true,
            DATE => self.has_date = true,
            CONNECTION | TRANSFER_ENCODING | TRAILER => self.is_plain = false,
            _ => {}
        }
        self.line(name.as_str(), value);
    }

    fn line(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.output.heads.extend_from_slice(part);
        }
    }

    /// Where the next field begins.
    pub fn at(&self) -> usize {
        self.output.heads.len()
    }

    /// Takes back the fields from here on.
    pub fn back_to(&mut self, at: usize) {
        self.output.heads.truncate(at);
    }

    /// Hyper would write another head.
    pub fn is_not_plain(&mut self) {
        self.is_plain = false;
    }

    /// The head ends, and `content` is the body, of which the announced length goes out. Or nothing goes out, and hyper is to
    /// answer.
    pub fn ends(mut self, now: Instant, content: Content) -> bool {
        let length = match self.sends {
            Sends::HeadAlone => 0,
            Sends::Body(length) => length,
        };
        if !self.is_plain || content.bytes().len() != length {
            self.output.heads.truncate(self.begin);
            return false;
        }
        if !self.has_length && self.may_have_body && self.sends != Sends::HeadAlone {
            let mut digits = [0; 20];
            let at = decimal(length, &mut digits);
            self.line(CONTENT_LENGTH.as_str(), &digits[at..]);
        }
        if !self.has_date {
            TODAY.with_borrow_mut(|today| self.line(DATE.as_str(), date(today, now).as_bytes()));
        }
        self.output.heads.extend_from_slice(b"\r\n");
        self.output.body_bytes += length;
        self.output.answers.push((self.output.heads.len(), content));
        true
    }
}

/// Writes a number at the end, and says where it begins.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> usize {
    for at in (0..digits.len()).rev() {
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
    0
}

fn date(today: &mut Option<Today>, now: Instant) -> &str {
    if today.as_ref().is_none_or(|today| now >= today.until) {
        let clock = SystemTime::now();
        let into = clock.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        let until = now + Duration::from_secs(1) - Duration::from_nanos(into.into());
        *today = Some(Today { text: httpdate::fmt_http_date(clock), until });
    }
    today.as_ref().map_or("", |today| &today.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(output: &Output) -> String {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let used = output.slices(&mut slices);
        slices[..used].iter().map(|slice| String::from_utf8_lossy(slice).into_owned()).collect()
    }

    #[test]
    fn answers_go_out_whole_wherever_they_are_cut() {
        let written = || {
            let mut output = Output::new(Instant::now());
            for (body, status) in [("one", 200), ("", 404), ("three", 410), ("", 204)] {
                let mut writing = output.writes(StatusCode::from_u16(status).unwrap(), Sends::Body(body.len()));
                writing.field(&DATE, b"today");
                assert!(writing.ends(Instant::now(), Content::Bytes(Bytes::from_static(body.as_bytes()))));
            }
            output
        };
        let whole = "HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 3\r\n\r\none\
            HTTP/1.1 404 Not Found\r\ndate: today\r\ncontent-length: 0\r\n\r\n\
            HTTP/1.1 410 Gone\r\ndate: today\r\ncontent-length: 5\r\n\r\nthree\
            HTTP/1.1 204 No Content\r\ndate: today\r\n\r\n";
        assert_eq!(text(&written()), whole);
        for step in 1..whole.len() {
            let (mut output, mut out) = (written(), String::new());
            loop {
                let next: String = text(&output).chars().take(step).collect();
                assert_ne!(next, "");
                out.push_str(&next);
                if output.advance(next.len()) {
                    break;
                }
            }
            assert_eq!(out, whole, "by {step}");
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 8192, usize::MAX] {
            let mut digits = [0; 20];
            let at = decimal(number, &mut digits);
            assert_eq!(std::str::from_utf8(&digits[at..]).unwrap(), number.to_string());
        }
    }
}
