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
use verbena_fabric::{Message as Received, RegionKey};
use verbena_service::driver;
use verbena_terms::{Format, HasFormat, Incarnation, ViewNumber};

use crate::board::BOARD_BYTES;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// By which key is your board read?
    Ask,
    /// By this one.
    Key(RegionKey),
}

impl HasFormat for Message {
    const FORMAT: Format = Format::new(*b"VMON", 1);
}

/// A message, and the sender at the other end of its connection: it does not name one itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The sender.
    pub from: Incarnation,
    /// What it says.
    pub message: Message,
}

impl driver::Frame for Frame {
    type Error = String;

    fn decode(received: &Received) -> Result<Frame, String> {
        let message = Message::decode(&received.body)?;
        if let Message::Key(key) = &message
            && (key.owner != received.from || key.bytes < BOARD_BYTES)
        {
            return Err("a key of something else than a board".into());
        }
        Ok(Frame { from: received.from, message })
    }

    fn sender(&self) -> Incarnation {
        self.from
    }

    fn view(&self) -> Option<ViewNumber> {
        None
    }
}

#[cfg(test)]
mod tests {
    use verbena_fabric::{Class, Port, Rights, Secret};
    use verbena_service::driver::Frame as _;

    use super::*;

    const OWNER: Incarnation = Incarnation::new(3, 300);

    fn key() -> RegionKey {
        let (view, rights) = (ViewNumber(2), Rights::Read);
        RegionKey { owner: OWNER, region: 1, view, bytes: 128, rights, secret: Secret([7; 16]) }
    }

    #[test]
    fn what_is_cut_short_longer_or_unknown_is_refused() {
        assert_eq!(Message::Ask.encode(), b"VMON\x01\0\0\0\0");
        let key = Message::Key(key());
        let bytes = key.encode();
        assert_eq!(bytes[8..], [&[1, 3, 0xac, 2, 1, 2, 0x80, 1, 0][..], &[7; 16]].concat());
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Message::decode(&bytes), Ok(key));
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).unwrap_err().contains("1 bytes after"));
        assert!(Message::decode(b"VMON\x01\0\0\0\x09").is_err());
    }

    #[test]
    fn a_key_of_no_board_of_the_sender_is_refused() {
        let received = |from, key| {
            let body = Message::Key(key).encode();
            Received { from, view: ViewNumber(5), number: 1, class: Class::Control, port: Port(3), body }
        };
        let frame = Frame::decode(&received(OWNER, key())).unwrap();
        assert_eq!((frame.from, frame.view()), (OWNER, None), "that of the connection");
        assert!(Frame::decode(&received(Incarnation::new(4, 1), key())).is_err(), "another node's");
        assert!(Frame::decode(&received(OWNER, RegionKey { bytes: BOARD_BYTES - 1, ..key() })).is_err(), "too small");
    }
}
