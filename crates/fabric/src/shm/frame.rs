//! What travels on the sockets: packets of one head, and for a message its body.
//!
//! ```text
//!  byte 0          8      9        10       12         16         24      32           48        56       60
//!       +----------+------+--------+--------+----------+----------+-------+------------+---------+--------+-----+
//!       | "VSHF" 1 | kind | detail | port   | view: 32 | number   | who   | secret:128 | amount  | region | 0   |
//!       +----------+------+--------+--------+----------+----------+-------+------------+---------+--------+-----+
//!  64   | body of a message, to the end of the packet
//!
//!  kind           detail        and
//!  1 hello        purpose       who: the sender; amount: who is meant, as a word; secret: the address's
//!  2 welcome                    who: the sender
//!  3 refused      reason        who: the sender
//!  4 open         rights        number, view, region, secret, amount: bytes, as in the key
//!  5 opened                     number; with a descriptor
//!  6 not opened   reason        number; amount: bytes of the region
//!  7 message                    port, view, number; with a body
//! ```
//!
//! Little endian; fields that a kind does not name are 0. A connection begins with hello. One for opening is answered, and each
//! `open` in it; one for messages is not, unless it is refused.

use verbena_terms::{Format, Incarnation, ViewNumber};

use crate::error::{Error, Result};
use crate::message::{Class, Port};
use crate::region::{RegionKey, Rights, Secret};

/// Bytes before a body.
pub(super) const HEAD_BYTES: usize = 64;

/// Bytes that a message can carry: small enough that a socket's default buffer holds a few.
pub(super) const LARGEST_BODY: usize = 64 << 10;

/// The packets' magic and version (F6).
pub(super) const FRAME: Format = Format::new(*b"VSHF", 1);

/// The bytes before a body.
pub(super) type Head = [u8; HEAD_BYTES];

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Hello { from: Incarnation, to: Incarnation, purpose: Purpose, secret: Secret },
    Welcome { from: Incarnation },
    Refused { from: Incarnation, reason: Refusal },
    Open { number: u64, key: RegionKey },
    Opened { number: u64 },
    NotOpened { number: u64, reason: NotOpened, region_bytes: u64 },
    Message { view: ViewNumber, port: Port, number: u64, body: &'a [u8] },
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Opening regions, and knowing when the owner is gone.
    Regions,
    /// Messages of one class, one way.
    Messages(Class),
}

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another incarnation listens here (F4).
    AnotherIncarnation,
    /// The secret is not the address's.
    Secret,
    /// The hello could not be read: another version (F6), or none.
    Unreadable,
}

/// Why a region was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// There is no such region in that view (F4).
    Revoked,
    /// The secret is not the key's.
    Denied,
    /// The key says another length.
    Length,
    /// The owner's system would not.
    System,
}

impl Frame<'_> {
    /// The bytes before the body.
    pub(super) fn head(&self) -> Head {
        let mut head = Fields::default();
        match self {
            Frame::Hello { from, to, purpose, secret } => {
                head.kind = 1;
                head.detail = match purpose {
                    Purpose::Messages(class) => *class as u8,
                    Purpose::Regions => 2,
                };
                (head.who, head.amount, head.secret) = (from.to_word(), to.to_word(), secret.0);
            }
            Frame::Welcome { from } => (head.kind, head.who) = (2, from.to_word()),
            Frame::Refused { from, reason } => {
                (head.kind, head.who) = (3, from.to_word());
                head.detail = match reason {
                    Refusal::AnotherIncarnation => 1,
                    Refusal::Secret => 2,
                    Refusal::Unreadable => 3,
                };
            }
            Frame::Open { number, key } => {
                (head.kind, head.number, head.who) = (4, *number, key.owner.to_word());
                (head.view, head.region, head.secret, head.amount) = (key.view.0, key.region, key.secret.0, key.bytes);
                head.detail = match key.rights {
                    Rights::Read => 0,
                    Rights::Change => 1,
                };
            }
            Frame::Opened { number } => (head.kind, head.number) = (5, *number),
            Frame::NotOpened { number, reason, region_bytes } => {
                (head.kind, head.number, head.amount) = (6, *number, *region_bytes);
                head.detail = match reason {
                    NotOpened::Revoked => 1,
                    NotOpened::Denied => 2,
                    NotOpened::Length => 3,
                    NotOpened::System => 4,
                };
            }
            Frame::Message { view, port, number, .. } => {
                (head.kind, head.view, head.port, head.number) = (7, view.0, port.0, *number);
            }
        }
        head.encode()
    }

    /// Reads a packet that `from` sent; says what is wrong with one that cannot be read.
    pub(super) fn parse<'a>(packet: &'a [u8], from: &dyn std::fmt::Display) -> Result<Frame<'a>> {
        let rest = FRAME.check(packet).map_err(|reason| Error::format(from, &reason))?;
        let malformed = |reason: String| Error::Malformed { from: from.to_string(), reason };
        let (head, body) = rest
            .split_first_chunk::<{ HEAD_BYTES - 8 }>()
            .ok_or_else(|| malformed(format!("a packet of {} bytes where a head has {HEAD_BYTES}", packet.len())))?;
        let head = Fields::decode(head);
        if head.kind != 7 && !body.is_empty() {
            return Err(malformed(format!("{} bytes behind the head of a packet of kind {}", body.len(), head.kind)));
        }
        let detail = || malformed(format!("byte 9 is {} in a packet of kind {}", head.detail, head.kind));
        let who = Incarnation::from_word(head.who);
        Ok(match head.kind {
            1 => Frame::Hello {
                from: who,
                to: Incarnation::from_word(head.amount),
                purpose: match head.detail {
                    0 => Purpose::Messages(Class::Control),
                    1 => Purpose::Messages(Class::Bulk),
                    2 => Purpose::Regions,
                    _ => return Err(detail()),
                },
                secret: Secret(head.secret),
            },
            2 => Frame::Welcome { from: who },
            3 => Frame::Refused {
                from: who,
                reason: match head.detail {
                    1 => Refusal::AnotherIncarnation,
                    2 => Refusal::Secret,
                    3 => Refusal::Unreadable,
                    _ => return Err(detail()),
                },
            },
            4 => Frame::Open {
                number: head.number,
                key: RegionKey {
                    owner: who,
                    region: head.region,
                    view: ViewNumber(head.view),
                    bytes: head.amount,
                    rights: match head.detail {
                        0 => Rights::Read,
                        1 => Rights::Change,
                        _ => return Err(detail()),
                    },
                    secret: Secret(head.secret),
                },
            },
            5 => Frame::Opened { number: head.number },
            6 => Frame::NotOpened {
                number: head.number,
                reason: match head.detail {
                    1 => NotOpened::Revoked,
                    2 => NotOpened::Denied,
                    3 => NotOpened::Length,
                    4 => NotOpened::System,
                    _ => return Err(detail()),
                },
                region_bytes: head.amount,
            },
            7 => Frame::Message { view: ViewNumber(head.view), port: Port(head.port), number: head.number, body },
            kind => return Err(malformed(format!("byte 8 is {kind}, which is no kind of packet"))),
        })
    }
}

/// Takes any bytes as a packet, and checks that what parses is written as a packet that reads the same; whether it parses.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn exercise(packet: &[u8]) -> bool {
    let Ok(frame) = Frame::parse(packet, &"anybody") else { return false };
    let body = match &frame {
        Frame::Message { body, .. } => body,
        _ => &[][..],
    };
    let written = [&frame.head()[..], body].concat();
    assert_eq!(Frame::parse(&written, &"anybody"), Ok(frame.clone()));
    assert_eq!(written.len(), packet.len());
    true
}

/// The fields of a head, in the order in which they stand there.
#[derive(Default)]
struct Fields {
    kind: u8,
    detail: u8,
    port: u16,
    view: u32,
    number: u64,
    who: u64,
    secret: [u8; 16],
    amount: u64,
    region: u32,
}

impl Fields {
    fn encode(&self) -> Head {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&FRAME.header());
        (head[8], head[9]) = (self.kind, self.detail);
        head[10..12].copy_from_slice(&self.port.to_le_bytes());
        head[12..16].copy_from_slice(&self.view.to_le_bytes());
        head[16..24].copy_from_slice(&self.number.to_le_bytes());
        head[24..32].copy_from_slice(&self.who.to_le_bytes());
        head[32..48].copy_from_slice(&self.secret);
        head[48..56].copy_from_slice(&self.amount.to_le_bytes());
        head[56..60].copy_from_slice(&self.region.to_le_bytes());
        head
    }

    /// From the bytes behind the format.
    fn decode(head: &[u8; HEAD_BYTES - 8]) -> Self {
        fn part<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
            *head[at - 8..].first_chunk().expect("invariant: every field ends before the head does")
        }
        let [kind, detail] = part(head, 8);
        Fields {
            kind,
            detail,
            port: u16::from_le_bytes(part(head, 10)),
            view: u32::from_le_bytes(part(head, 12)),
            number: u64::from_le_bytes(part(head, 16)),
            who: u64::from_le_bytes(part(head, 24)),
            secret: part(head, 32),
            amount: u64::from_le_bytes(part(head, 48)),
            region: u32::from_le_bytes(part(head, 56)),
        }
    }
}

#[cfg(test)]
mod tests {
    use verbena_terms::testing::corpus;

    use super::*;

    fn frames() -> Vec<Frame<'static>> {
        let (from, to, secret) = (Incarnation::new(1, 2), Incarnation::new(3, 4), Secret([9; 16]));
        let key = RegionKey { owner: to, region: 7, view: ViewNumber(8), bytes: 1 << 40, rights: Rights::Read, secret };
        let mut frames = vec![
            Frame::Welcome { from },
            Frame::Open { number: 5, key: key.clone() },
            Frame::Open { number: 6, key: RegionKey { rights: Rights::Change, ..key } },
            Frame::Opened { number: 7 },
            Frame::Message { view: ViewNumber(u32::MAX), port: Port(u16::MAX), number: u64::MAX, body: b"body" },
            Frame::Message { view: ViewNumber(0), port: Port(0), number: 0, body: b"" },
        ];
        for purpose in [Purpose::Regions, Purpose::Messages(Class::Control), Purpose::Messages(Class::Bulk)] {
            frames.push(Frame::Hello { from, to, purpose, secret });
        }
        for reason in [Refusal::AnotherIncarnation, Refusal::Secret, Refusal::Unreadable] {
            frames.push(Frame::Refused { from, reason });
        }
        for reason in [NotOpened::Revoked, NotOpened::Denied, NotOpened::Length, NotOpened::System] {
            frames.push(Frame::NotOpened { number: 1, reason, region_bytes: 99 });
        }
        frames
    }

    fn packet(frame: &Frame<'_>) -> Vec<u8> {
        let mut packet = frame.head().to_vec();
        if let Frame::Message { body, .. } = frame {
            packet.extend_from_slice(body);
        }
        packet
    }

    #[test]
    fn frames_survive_their_bytes() {
        for frame in frames() {
            assert_eq!(Frame::parse(&packet(&frame), &"a test"), Ok(frame));
        }
    }

    #[test]
    fn the_corpus_is_replayed() {
        let inputs = corpus("shm_frame");
        let parsed = inputs.iter().filter(|input| exercise(input)).count();
        assert!(inputs.len() >= 20 && parsed >= 10, "{parsed} of {} packets parse", inputs.len());
    }

    #[test]
    fn what_is_no_frame_is_refused_with_its_place() {
        let refused = |packet: &[u8]| Frame::parse(packet, &"a test").unwrap_err().to_string();
        for frame in frames() {
            let packet = packet(&frame);
            for length in 0..HEAD_BYTES {
                assert!(refused(&packet[..length]).contains("bytes"), "{length} bytes of {frame:?}");
            }
            for kind in [0, 8, 255] {
                let mut packet = frame.head();
                packet[8] = kind;
                assert!(refused(&packet).contains("byte 8") || refused(&packet).contains("behind the head"));
            }
            if !matches!(frame, Frame::Message { .. }) {
                assert!(refused(&[&packet[..], &[0]].concat()).contains("behind the head"));
            }
        }
        let mut newer = Frame::Opened { number: 1 }.head();
        newer[4] = 2;
        assert!(refused(&newer).contains("has version 2, this program speaks version 1"));
    }
}
