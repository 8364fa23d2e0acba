//! Bytes of one direction cut into messages.
//!
//! ```text
//! type     one byte; absent in the client's first messages
//! length   u32, big-endian, of itself and the payload
//! payload
//! ```

/// The longest message that a server or client of PostgreSQL takes.
const LONGEST: u32 = 0x3FFF_FFFF;

/// Cuts one direction's bytes.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    /// Messages have no type yet.
    pub(crate) is_startup: bool,
    /// A longer message is given in pieces: of the types that carry data, and of others.
    pub(crate) data_limit: usize,
    pub(crate) limit: usize,
    /// What came of a message that is not complete.
    partial: Vec<u8>,
    /// `partial` was given out, and goes with the next call.
    is_spent: bool,
    /// Bytes that are to come of a message that is given in pieces.
    left: usize,
}

/// A piece of what came, as it goes on the wire.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A message, or the beginning of one longer than the limit. The type is 0 where there is none.
    Message { kind: u8, raw: &'a [u8], payload: &'a [u8], is_whole: bool },
    /// More of it.
    More { raw: &'a [u8] },
    /// The length cannot be.
    Malformed,
}

impl Messages {
    pub(crate) fn new(is_startup: bool, data_limit: usize, limit: usize) -> Self {
        Self { is_startup, data_limit, limit, ..Self::default() }
    }

    /// The beginning of a long message was given out, and the rest is to come.
    pub(crate) fn is_inside(&self) -> bool {
        self.left > 0
    }

    /// Nothing has come of a message that is not complete.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0 && (self.is_spent || self.partial.is_empty())
    }

    /// The type of the next message, if its first byte is here.
    pub(crate) fn next_kind(&self, input: &[u8]) -> Option<u8> {
        let began = if self.is_spent { None } else { self.partial.first() };
        began.or(input.first()).copied()
    }

    /// The next piece, taken from the front of `input`. `None` uses up `input`.
    pub(crate) fn next<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Option<Piece<'a>> {
        if self.is_spent {
            self.is_spent = false;
            self.partial.clear();
            self.partial.shrink_to(4 << 10);
        }
        if self.left > 0 {
            let raw = take(input, self.left);
            self.left -= raw.len();
            return (!raw.is_empty()).then_some(Piece::More { raw });
        }
        let head = if self.is_startup { 4 } else { 5 };
        if self.partial.is_empty() && input.len() >= head {
            let Some(length) = length(&input[..head]) else { return Some(Piece::Malformed) };
            if length <= self.limit_of(input[0]) && input.len() - head >= length {
                let raw = take(input, head + length);
                return Some(self.message(raw, head, true));
            }
        }
        let missing = head.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(take(input, missing));
        if self.partial.len() < head {
            return None;
        }
        let Some(length) = length(&self.partial[..head]) else { return Some(Piece::Malformed) };
        // The limit may have become lower since this message began.
        let shown = length.min(self.limit_of(self.partial[0]).max(self.partial.len() - head));
        let missing = head + shown - self.partial.len();
        self.partial.extend_from_slice(take(input, missing));
        if self.partial.len() < head + shown {
            return None;
        }
        self.is_spent = true;
        self.left = length - shown;
        Some(self.message(&self.partial, head, self.left == 0))
    }

    fn message<'a>(&self, raw: &'a [u8], head: usize, is_whole: bool) -> Piece<'a> {
        let kind = if self.is_startup { 0 } else { raw[0] };
        Piece::Message { kind, raw, payload: &raw[head..], is_whole }
    }

    fn limit_of(&self, first: u8) -> usize {
        if matches!(first, b'D' | b'd') && !self.is_startup { self.data_limit } else { self.limit }
    }
}

/// The length of the payload.
fn length(head: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*head.last_chunk()?);
    (4..=LONGEST).contains(&length).then(|| length as usize - 4)
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_however_the_bytes_arrive() {
        let mut bytes = b"Q\0\0\0\x0Cselect 1D\0\0\0\x0A123456S\0\0\0\x04".to_vec();
        bytes[4] = 12;
        for step in 1..=bytes.len() {
            let mut messages = Messages::new(false, 4, 100);
            let (mut heads, mut all) = (Vec::new(), Vec::new());
            for chunk in bytes.chunks(step) {
                let mut input = chunk;
                while let Some(piece) = messages.next(&mut input) {
                    match piece {
                        Piece::Message { kind, raw, payload, is_whole } => {
                            heads.push((kind, payload.to_vec(), is_whole));
                            all.extend_from_slice(raw);
                        }
                        Piece::More { raw } => all.extend_from_slice(raw),
                        Piece::Malformed => panic!("malformed"),
                    }
                }
                assert!(input.is_empty());
            }
            let expected = [(b'Q', b"select 1".to_vec(), true), (b'D', b"1234".to_vec(), false), (b'S', vec![], true)];
            assert_eq!(heads, expected, "in steps of {step}");
            assert_eq!(all, bytes);
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_malformed() {
        for head in [b"Q\0\0\0\x03", b"Q\xFF\xFF\xFF\xFF"] {
            let mut messages = Messages::new(false, 4, 100);
            assert!(matches!(messages.next(&mut &head[..]), Some(Piece::Malformed)));
        }
    }
}
