//! The messages by which members ask for the keys of boards.
//!
//! ```text
//!  0        4         6       8
//!  +--------+---------+-------+---------------------------------------------+
//!  | "VMON" | version |   0   | postcard of Message                         |
//!  +--------+---------+-------+---------------------------------------------+
//!
//!  Message   0: Ask      1: Key, the fields of fabric's RegionKey in their order; integers are LEB128 varints
//! ```
//!
//! In any view. A reader asks a member once a second until it has the key of its board; no single message matters.

use serde::{Deserialize, Serialize};
use verbena_fabric::RegionKey;
use verbena_terms::Format;

/// Marks a message.
const FORMAT: Format = Format::new(*b"VMON", 1);

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// By which key is your board read?
    Ask,
    /// By this one.
    Key(RegionKey),
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        FORMAT.encode(self)
    }

    /// The message in `bytes`. Total; says what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, String> {
        FORMAT.decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use verbena_fabric::{Rights, Secret};
    use verbena_terms::{Incarnation, ViewNumber};

    use super::*;

    #[test]
    fn what_is_cut_short_longer_or_unknown_is_refused() {
        assert_eq!(Message::Ask.encode(), b"VMON\x01\0\0\0\0");
        let (owner, secret) = (Incarnation::new(3, 300), Secret([7; 16]));
        let key =
            Message::Key(RegionKey { owner, region: 1, view: ViewNumber(2), bytes: 128, rights: Rights::Read, secret });
        let bytes = key.encode();
        assert_eq!(bytes[8..], [&[1, 3, 0xac, 2, 1, 2, 0x80, 1, 0][..], &[7; 16]].concat());
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Message::decode(&bytes), Ok(key));
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).unwrap_err().contains("1 bytes after"));
        assert!(Message::decode(b"VMON\x01\0\0\0\x09").is_err());
    }
}
