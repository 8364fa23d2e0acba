//! The messages by which members ask each other for their status and their proxies' counts, and answer.
//!
//! ```text
//!  0        4         6       8
//!  +--------+---------+-------+---------------------------------------------+
//!  | "VHOW" | version |   0   | postcard of Message                         |
//!  +--------+---------+-------+---------------------------------------------+
//!
//!  Message   0: Ask      1: Told, the fields of api::Told in their order; integers are LEB128 varints
//!            2: Answers, the fields of api::Answers in their order. A node that does not know it drops it
//! ```
//!
//! On port 2, in any view, each message at most once for each look. Nothing depends on these messages: they may be
//! lost, doubled and late, and are for people.

use serde::{Deserialize, Serialize};
use verbena_protocol::api::{Answers, Told};
use verbena_terms::{Format, HasFormat};

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// How are you?
    Ask,
    /// So.
    Told(Told),
    /// And this many requests have been answered, where there is a proxy. Goes before `Told`.
    Answers(Answers),
}

impl HasFormat for Message {
    const FORMAT: Format = Format::new(*b"VHOW", 1);
}

#[cfg(test)]
mod tests {
    use verbena_protocol::wire::State;
    use verbena_terms::ViewNumber;

    use super::*;

    fn told() -> Message {
        Message::Told(Told {
            state: State::Member,
            view: ViewNumber(300),
            acknowledged: ViewNumber(2),
            in_effect: ViewNumber(1),
            lease_ms: 2000,
            lease_left_ms: 9,
            uptime_ms: 1,
        })
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        assert_eq!(Message::Ask.encode(), b"VHOW\x01\0\0\0\0");
        let answers = Answers { hit: 300, miss: 1, pass: 2, update: 3, error: 4 };
        assert_eq!(Message::Answers(answers).encode(), b"VHOW\x01\0\0\0\x02\xac\x02\x01\x02\x03\x04");
        assert_eq!(told().encode(), [b"VHOW\x01\0\0\0".as_slice(), &[1, 1, 0xac, 2, 2, 1, 0xd0, 0x0f, 9, 1]].concat());
    }

    #[test]
    fn what_is_cut_short_longer_or_unknown_is_refused() {
        let bytes = told().encode();
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Message::decode(&bytes), Ok(told()));
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).unwrap_err().contains("1 bytes after"));
        assert!(Message::decode(b"VHOW\x01\0\0\0\x09").is_err());
    }
}
