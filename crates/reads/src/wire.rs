//! By which key a relay's log is read, asked and answered.
//!
//! ```text
//!  0        4         6       8
//!  +--------+---------+-------+---------------------------------------------+
//!  | "VRLK" | version |   0   | postcard of Message                         |
//!  +--------+---------+-------+---------------------------------------------+
//!
//!  Message   0: Ask      1: Key, the fields of fabric's RegionKey in their order; integers are LEB128 varints
//! ```
//!
//! A node asks each relay of its view until it has the key; nothing rests on any one message.

use serde::{Deserialize, Serialize};
use verbena_fabric::{Message as Received, RegionKey};
use verbena_service::driver;
use verbena_terms::{Format, HasFormat, Incarnation, ViewNumber};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// By which key is your log read?
    Ask,
    /// By this one.
    Key(RegionKey),
}

impl HasFormat for Message {
    const FORMAT: Format = Format::new(*b"VRLK", 1);
}

/// A message, and the sender at the other end of its connection: it does not name one itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The sender.
    pub from: Incarnation,
    /// What it says.
    pub message: Message,
}

impl driver::Frame for Frame {
    type Error = String;

    fn decode(received: &Received) -> Result<Frame, String> {
        let message = Message::decode(&received.body)?;
        match &message {
            Message::Key(key) if key.owner != received.from => Err(format!("a key of {}", key.owner)),
            Message::Ask | Message::Key(_) => Ok(Frame { from: received.from, message }),
        }
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
    use verbena_fabric::{Rights, Secret};
    use verbena_terms::{Incarnation, ViewNumber};

    use super::*;

    #[test]
    fn what_is_cut_short_longer_or_unknown_is_refused() {
        assert_eq!(Message::Ask.encode(), b"VRLK\x01\0\0\0\0");
        let (owner, secret) = (Incarnation::new(3, 300), Secret([7; 16]));
        let (view, rights) = (ViewNumber(2), Rights::Change);
        let key = Message::Key(RegionKey { owner, region: 1, view, bytes: 128, rights, secret });
        let bytes = key.encode();
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Message::decode(&bytes), Ok(key));
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).unwrap_err().contains("1 bytes after"));
        assert!(Message::decode(b"VRLK\x01\0\0\0\x09").is_err());
    }
}
