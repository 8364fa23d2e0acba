//! What stands before a message that an adapter sends into the receive queue of another node. Little endian; every byte is checked.
//!
//! ```text
//!  0         8         16     20     22       24       32
//!  +---------+---------+------+------+--------+--------+----- - -
//!  | VVSM, 1 | sender  | view | port | length | number | body, length bytes
//!  +---------+---------+------+------+--------+--------+----- - -
//! ```
//!
//! The class is that of the queue. A message is dropped unless `sender` is the owner of its connection: a number of a
//! queue pair that was given out again is then not taken for its former holder's.

use verbena_terms::{Format, Incarnation, ViewNumber};

use crate::error::{Error, Result};
use crate::message::{Class, Message, Port};

/// Messages by SEND.
const MESSAGE: Format = Format::new(*b"VVSM", 1);

/// Bytes before the body.
pub(super) const HEAD_BYTES: usize = 32;
/// Bytes of one buffer of a receive queue.
pub(super) const LETTER_BYTES: usize = 4 << 10;
/// Longest body that goes by SEND, in bytes.
pub(super) const LONGEST_BODY: usize = LETTER_BYTES - HEAD_BYTES;

/// A message's head, as it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) sender: Incarnation,
    pub(super) view: ViewNumber,
    pub(super) port: Port,
    pub(super) number: u64,
}

impl Envelope {
    /// Writes it and the body, of [`LONGEST_BODY`] at most, into as many bytes as both have.
    pub(super) fn write(&self, body: &[u8], into: &mut [u8]) {
        debug_assert!(body.len() <= LONGEST_BODY && into.len() == HEAD_BYTES + body.len());
        let (head, rest) = into.split_at_mut(HEAD_BYTES);
        head[..8].copy_from_slice(&MESSAGE.header());
        head[8..16].copy_from_slice(&self.sender.to_word().to_le_bytes());
        head[16..20].copy_from_slice(&self.view.0.to_le_bytes());
        head[20..22].copy_from_slice(&self.port.0.to_le_bytes());
        head[22..24].copy_from_slice(&(body.len() as u16).to_le_bytes());
        head[24..].copy_from_slice(&self.number.to_le_bytes());
        rest.copy_from_slice(body);
    }

    /// Takes apart what has come by a connection of this sender.
    ///
    /// # Errors
    /// [`Error::Malformed`], with what is wrong.
    pub(super) fn parse(from: Incarnation, bytes: &[u8]) -> Result<(Envelope, &[u8])> {
        let malformed = |reason: String| Error::Malformed { from: from.to_string(), reason };
        let rest = MESSAGE.check(bytes).map_err(|error| Error::format(from, &error))?;
        let Some((head, body)) = rest.split_first_chunk::<{ HEAD_BYTES - 8 }>() else {
            return Err(malformed("a message whose head is cut off".into()));
        };
        let number = |at: usize, bytes: usize| {
            head[at..at + bytes].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let (sender, length) = (Incarnation::from_word(number(0, 8)), number(14, 2));
        if sender != from {
            return Err(malformed(format!("a message in the name of {sender}")));
        }
        if length != body.len() as u64 || body.len() > LONGEST_BODY {
            return Err(malformed(format!("a message of {length} bytes that has {}", body.len())));
        }
        let (view, port) = (ViewNumber(number(8, 4) as u32), Port(number(12, 2) as u16));
        Ok((Envelope { sender, view, port, number: number(16, 8) }, body))
    }

    /// The message that the reader of a port gets.
    pub(super) fn message(&self, class: Class, body: &[u8]) -> Message {
        let Envelope { sender, view, port, number } = *self;
        Message { from: sender, view, number, class, port, body: body.to_vec() }
    }
}

/// The sender of the inputs of [`exercise`].
#[cfg(any(test, feature = "fuzzing"))]
const ANYBODY: Incarnation = Incarnation::new(1, 1);

/// Takes bytes for a message by SEND; panics if what it says is not said again. Whether it says anything.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn exercise(data: &[u8]) -> bool {
    let Ok((envelope, body)) = Envelope::parse(ANYBODY, data) else { return false };
    let mut again = vec![0; HEAD_BYTES + body.len()];
    envelope.write(body, &mut again);
    // What fills up a header is not looked at (F6).
    assert_eq!(again[8..], data[8..]);
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    fn written(body: &[u8]) -> (Envelope, Vec<u8>) {
        let envelope =
            Envelope { sender: ANYBODY, view: ViewNumber(u32::MAX), port: Port(0xfffe), number: 1 << 63 | 5 };
        let mut bytes = vec![0xee; HEAD_BYTES + body.len()];
        envelope.write(body, &mut bytes);
        (envelope, bytes)
    }

    #[test]
    fn what_is_sent_is_understood() {
        for length in [0, 1, LONGEST_BODY] {
            let body = vec![0xa5; length];
            let (envelope, bytes) = written(&body);
            assert!(bytes.len() <= LETTER_BYTES);
            assert_eq!(Envelope::parse(ANYBODY, &bytes), Ok((envelope, &body[..])));
        }
    }

    #[test]
    fn what_is_cut_longer_of_another_version_or_in_another_name_is_an_error() {
        let (_, sound) = written(b"a body");
        for length in 0..sound.len() {
            assert!(Envelope::parse(ANYBODY, &sound[..length]).is_err(), "{length} bytes");
        }
        assert!(Envelope::parse(ANYBODY, &[&sound[..], &[0]].concat()).is_err());
        let (_, mut long) = written(&[0; LONGEST_BODY]);
        long.push(0);
        long[22..24].copy_from_slice(&(LONGEST_BODY as u16 + 1).to_le_bytes());
        assert!(Envelope::parse(ANYBODY, &long).is_err(), "longer than any buffer");
        for other in [Incarnation::new(1, 2), Incarnation::new(2, 1)] {
            let refused = Envelope::parse(other, &sound).unwrap_err().to_string();
            assert!(refused.contains("in the name of 1.1"), "{refused}");
        }
        let mut other = sound;
        other[4] = 9;
        let refused = Envelope::parse(ANYBODY, &other).unwrap_err().to_string();
        assert!(refused.contains("version 9") && refused.contains("version 1"), "{refused}");
    }

    #[test]
    fn every_message_of_the_corpus_is_read_as_it_is_written() {
        let inputs = verbena_terms::testing::corpus("verbs_letter");
        let read = inputs.iter().filter(|input| exercise(input)).count();
        assert!(read >= 3 && inputs.len() - read >= 5, "{read} of {} inputs are messages", inputs.len());
    }
}
