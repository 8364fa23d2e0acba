//! The messages between nodes before their adapters are connected. The asking side numbers them; an answer has the
//! number of its request.
//!
//! ```text
//!  connect                                      connected, or a text that says why not
//!  0         8          12    16    18   19  20  36               0         8          12 ...
//!  +---------+----------+-----+-----+----+---+---+-------- - -    +---------+----------+---- - -
//!  | VVCR, 1 | queue    | PSN | LID | MTU|   |GID| address        | VVCA, 1 | as in the request, up to GID
//!  |         | pair     |     |     |    | serves|                +---------+---- - -
//!  +---------+----------+-----+-----+----+---+---+-------- - -    | VVCN, 1 | text
//!
//!  place                                        placed; bytes 0 and key 0 if the key opens nothing
//!  0         8        12     16       32         0         8      12     16        24      32
//!  +---------+--------+------+--------+--- - -   +---------+------+------+---------+-------+
//!  | VVPR, 1 | region | view | secret | address  | VVPA, 1 | key  |  0   | address | bytes |
//!  +---------+--------+------+--------+--- - -   +---------+------+------+---------+-------+
//! ```
//!
//! Where the kernel's manager makes connections, a message gives the caller the address to call and a ticket, and the
//! rest is the manager's.
//!
//! ```text
//!  call                                         expected, or a text that says why not
//!  0         8                                  0         8      10      11   16    32       48
//!  +---------+--------- - -                     +---------+------+--------+---+-----+--------+
//!  | VVMR, 1 | address                          | VVMA, 1 | port | serves | 0 | IP  | ticket |
//!  +---------+--------- - -                     +---------+------+--------+---+-----+--------+
//! ```
//!
//! By a connection for messages none goes before the target has said where it counts those that it has taken, and how many may be sent that it has not. The request for
//! that has the number of the one for the connection, and so has its answer; key 0 and address 0 if there is no such connection.
//!
//! ```text
//!  count                                        counted
//!  0         8                                  0         8      12       16        24
//!  +---------+--------- - -                     +---------+------+--------+---------+
//!  | VVTR, 1 | address                          | VVTA, 1 | key  | window | address |
//!  +---------+--------- - -                     +---------+------+--------+---------+
//! ```
//!
//! What a connection is for is said by the port of the message: [`Purpose::port`]. Whatever has more than one byte has its least significant first; addresses of IPv4 are mapped into IPv6. The class of a connection is that of the
//! message. Answers go to `address`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use verbena_terms::{Format, Incarnation, ViewNumber};

use super::batches::Place;
use super::manager::{TICKET_BYTES, Ticket};
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::message::Port;
use crate::provider::Address;
use crate::region::Secret;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// One-sided operations. What else is asked, is asked here too.
    Operations,
    /// Messages.
    Messages,
}

impl Purpose {
    /// Where it is spoken of.
    pub(super) const fn port(self) -> Port {
        match self {
            Purpose::Operations => Port(u16::MAX),
            Purpose::Messages => Port(u16::MAX - 1),
        }
    }

    /// Of what is said at a port.
    pub(super) fn of(port: Port) -> Self {
        if port == Purpose::Messages.port() { Purpose::Messages } else { Purpose::Operations }
    }
}

const CONNECT: Format = Format::new(*b"VVCR", 1);
const CONNECTED: Format = Format::new(*b"VVCA", 1);
const REFUSED: Format = Format::new(*b"VVCN", 1);
const CALL: Format = Format::new(*b"VVMR", 1);
const EXPECTED: Format = Format::new(*b"VVMA", 1);
const PLACE: Format = Format::new(*b"VVPR", 1);
const PLACED: Format = Format::new(*b"VVPA", 1);
const COUNT: Format = Format::new(*b"VVTR", 1);
const COUNTED: Format = Format::new(*b"VVTA", 1);

/// Longest reason of a refusal that is heeded, in bytes.
const LONGEST_REASON: usize = 1024;

/// One end of a connection, as the other one has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Its number, 24 bits.
    pub(super) queue_pair: u32,
    /// Of the first packet that it sends, 24 bits.
    pub(super) psn: u32,
    /// Of its port, on InfiniBand.
    pub(super) lid: u16,
    /// As ibv_mtu has it: 1 for 256 bytes to 5 for 4096.
    pub(super) mtu: u8,
    /// Reads and atomics that it serves at a time.
    pub(super) serves: u8,
    pub(super) gid: Ipv6Addr,
}

/// Where a caller is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meeting {
    pub(super) at: SocketAddr,
    pub(super) ticket: Ticket,
    /// Reads and atomics that are served there at a time.
    pub(super) serves: u8,
}

/// Where a target counts what it takes of a caller's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counting {
    /// The key that its adapter asks for.
    pub(super) remote_key: u32,
    /// Messages that may be sent that were not taken.
    pub(super) window: u32,
    /// Of the word.
    pub(super) address: u64,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Connect(Endpoint, Address),
    Connected(Endpoint),
    NotConnected(String),
    /// Asks where to call.
    Call(Address),
    Expected(Meeting),
    Place(RegionId, Address),
    /// None: the key opens nothing.
    Placed(Option<Place>),
    /// Asks where messages are counted.
    Count(Address),
    /// None: there is no such connection.
    Counted(Option<Counting>),
}

impl Said {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Said::Connect(end, address) => [&CONNECT.header()[..], &end.to_bytes(), address.0.as_bytes()].concat(),
            Said::Connected(end) => [&CONNECTED.header()[..], &end.to_bytes()].concat(),
            Said::NotConnected(reason) => [&REFUSED.header()[..], reason.as_bytes()].concat(),
            Said::Call(address) => [&CALL.header()[..], address.0.as_bytes()].concat(),
            Said::Expected(meeting) => [&EXPECTED.header()[..], &meeting.to_bytes()].concat(),
            Said::Place(RegionId { region, view, secret }, address) => {
                let head = [PLACE.header(), word(*region, view.0)];
                [head.as_flattened(), &secret.0, address.0.as_bytes()].concat()
            }
            Said::Placed(place) => {
                let none = Place { remote_key: 0, address: 0, bytes: 0 };
                let Place { remote_key, address, bytes } = place.unwrap_or(none);
                [PLACED.header(), word(remote_key, 0), address.to_le_bytes(), bytes.to_le_bytes()]
                    .as_flattened()
                    .to_vec()
            }
            Said::Count(address) => [&COUNT.header()[..], address.0.as_bytes()].concat(),
            Said::Counted(counting) => {
                let none = Counting { remote_key: 0, window: 0, address: 0 };
                let Counting { remote_key, window, address } = counting.unwrap_or(none);
                [COUNTED.header(), word(remote_key, window), address.to_le_bytes()].as_flattened().to_vec()
            }
        }
    }

    /// Takes a message apart.
    ///
    /// # Errors
    /// [`Error::Malformed`], with what is wrong.
    pub(super) fn parse(from: Incarnation, body: &[u8]) -> Result<Said> {
        let malformed = |what: &str| Error::Malformed { from: from.to_string(), reason: what.to_owned() };
        let cut = || malformed("an introduction that is cut off");
        let is = |format: &Format| body.starts_with(&format.magic);
        let rest = |format: &Format| format.check(body).map_err(|error| Error::format(from, &error));
        let address = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty());
            text.map(|text| Address(text.to_owned()))
                .ok_or_else(|| malformed("an introduction whose address is no text"))
        };
        if is(&CONNECT) {
            let (end, rest) = rest(&CONNECT)?.split_first_chunk().ok_or_else(cut)?;
            return Ok(Said::Connect(
                Endpoint::of(end).ok_or_else(|| malformed("an impossible endpoint"))?,
                address(rest)?,
            ));
        }
        if is(&CONNECTED) {
            let end = rest(&CONNECTED)?.try_into().map_err(|_| malformed("an endpoint of another length"))?;
            return Ok(Said::Connected(Endpoint::of(&end).ok_or_else(|| malformed("an impossible endpoint"))?));
        }
        if is(&REFUSED) {
            let reason = rest(&REFUSED)?;
            let mut reason = String::from_utf8_lossy(&reason[..reason.len().min(LONGEST_REASON)]).into_owned();
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            return Ok(Said::NotConnected(reason));
        }
        if is(&CALL) {
            return Ok(Said::Call(address(rest(&CALL)?)?));
        }
        if is(&EXPECTED) {
            let meeting = rest(&EXPECTED)?.try_into().map_err(|_| malformed("a meeting of another length"))?;
            return Ok(Said::Expected(Meeting::of(&meeting).ok_or_else(|| malformed("an impossible meeting"))?));
        }
        if is(&PLACE) {
            let (ids, rest) = rest(&PLACE)?.split_first_chunk::<8>().ok_or_else(cut)?;
            let (secret, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            let (region, view) = halves(ids);
            let id = RegionId { region, view: ViewNumber(view), secret: Secret(*secret) };
            return Ok(Said::Place(id, address(rest)?));
        }
        if is(&COUNT) {
            return Ok(Said::Count(address(rest(&COUNT)?)?));
        }
        if is(&COUNTED) {
            let (words, behind) = rest(&COUNTED)?.as_chunks::<8>();
            let ([key, address], []) = (words, behind) else { return Err(malformed("a count of another length")) };
            let ((remote_key, window), address) = (halves(key), u64::from_le_bytes(*address));
            return match (window, address) {
                (0, 0) if remote_key == 0 => Ok(Said::Counted(None)),
                (1.., 1..) if address % 8 == 0 => Ok(Said::Counted(Some(Counting { remote_key, window, address }))),
                _ => Err(malformed("an impossible count")),
            };
        }
        let (words, behind) = rest(&PLACED)?.as_chunks::<8>();
        let [key, address, bytes] = words else { return Err(malformed("a place of another length")) };
        let (remote_key, zero) = halves(key);
        if !behind.is_empty() || zero != 0 {
            return Err(malformed("a place of another length"));
        }
        let place = Place { remote_key, address: u64::from_le_bytes(*address), bytes: u64::from_le_bytes(*bytes) };
        Ok(Said::Placed((place.address != 0).then_some(place)))
    }
}

impl Endpoint {
    const BYTES: usize = 28;

    fn to_bytes(self) -> [u8; Endpoint::BYTES] {
        let mut bytes = [0; Endpoint::BYTES];
        bytes[..8].copy_from_slice(&word(self.queue_pair, self.psn));
        bytes[8..10].copy_from_slice(&self.lid.to_le_bytes());
        bytes[10..12].copy_from_slice(&[self.mtu, self.serves]);
        bytes[12..].copy_from_slice(&self.gid.octets());
        bytes
    }

    /// None where no adapter could be meant.
    fn of(bytes: &[u8; Endpoint::BYTES]) -> Option<Self> {
        let (numbers, rest) = bytes.split_first_chunk::<8>()?;
        let (lid, rest) = rest.split_first_chunk()?;
        let ([mtu, serves], gid) = rest.split_first_chunk()?;
        let (queue_pair, psn) = halves(numbers);
        let gid: [u8; 16] = gid.try_into().ok()?;
        let is_possible = queue_pair < 1 << 24 && psn < 1 << 24 && (1..=5).contains(mtu) && *serves > 0;
        let end =
            Endpoint { queue_pair, psn, lid: u16::from_le_bytes(*lid), mtu: *mtu, serves: *serves, gid: gid.into() };
        is_possible.then_some(end)
    }
}

impl Meeting {
    const BYTES: usize = 40;

    fn to_bytes(self) -> [u8; Meeting::BYTES] {
        let mut bytes = [0; Meeting::BYTES];
        bytes[..2].copy_from_slice(&self.at.port().to_le_bytes());
        bytes[2] = self.serves;
        let address = match self.at.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        bytes[8..24].copy_from_slice(&address.octets());
        bytes[24..].copy_from_slice(&self.ticket);
        bytes
    }

    /// `None` if no node can listen at what the bytes say.
    fn of(bytes: &[u8; Meeting::BYTES]) -> Option<Self> {
        let (port, rest) = bytes.split_first_chunk()?;
        let ([serves, zeros @ ..], rest) = rest.split_first_chunk::<6>()?;
        let (address, ticket) = rest.split_first_chunk::<16>()?;
        let (port, address) = (u16::from_le_bytes(*port), Ipv6Addr::from(*address).to_canonical());
        let ticket: [u8; TICKET_BYTES] = ticket.try_into().ok()?;
        let is_possible = port > 0 && *serves > 0 && *zeros == [0; 5] && !address.is_unspecified();
        is_possible.then(|| Meeting { at: SocketAddr::new(address, port), ticket, serves: *serves })
    }
}

fn word(low: u32, high: u32) -> [u8; 8] {
    (u64::from(low) | u64::from(high) << 32).to_le_bytes()
}

fn halves(word: &[u8; 8]) -> (u32, u32) {
    let word = u64::from_le_bytes(*word);
    (word as u32, (word >> 32) as u32)
}

/// Takes bytes for a message; panics if what it says is not said again. Whether it says anything.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn exercise(data: &[u8]) -> bool {
    let from = Incarnation::new(1, 1);
    let Ok(said) = Said::parse(from, data) else { return false };
    // A reason is cut and made a text, so it is what is said the second time that is said again.
    assert_eq!(Said::parse(from, &said.to_bytes()).as_ref(), Ok(&said));
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn every_message_of_the_corpus_is_read_as_it_is_written() {
        let inputs = verbena_terms::testing::corpus("verbs_message");
        let read = inputs.iter().filter(|input| exercise(input)).count();
        assert!(read >= 6 && inputs.len() - read >= 6, "{read} of {} inputs are messages", inputs.len());
    }

    fn meeting() -> Meeting {
        Meeting { at: "10.0.0.2:4791".parse().unwrap(), ticket: [0xa5; TICKET_BYTES], serves: 16 }
    }

    fn all() -> Vec<Said> {
        let end = Endpoint {
            queue_pair: 0xff_fffe,
            psn: 17,
            lid: 9,
            mtu: 5,
            serves: 16,
            gid: "::ffff:10.0.0.1".parse().unwrap(),
        };
        let region = RegionId { region: 3, view: ViewNumber(u32::MAX), secret: Secret([7; 16]) };
        let here = Address("tcp://here:1".into());
        let place = Place { remote_key: u32::MAX, address: 1 << 45, bytes: 4096 };
        vec![
            Said::Connect(end, here.clone()),
            Said::Connected(end),
            Said::NotConnected("it is full".into()),
            Said::Call(here.clone()),
            Said::Expected(meeting()),
            Said::Place(region, here),
            Said::Placed(Some(place)),
            Said::Placed(None),
            Said::Count(Address("tcp://here:2".into())),
            Said::Counted(Some(Counting { remote_key: u32::MAX, window: 16, address: 1 << 45 | 8 })),
            Said::Counted(None),
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        for said in all() {
            assert_eq!(Said::parse(Incarnation::new(3, 1), &said.to_bytes()), Ok(said));
        }
    }

    #[test]
    fn what_is_cut_longer_or_of_another_version_is_an_error() {
        let from = Incarnation::new(3, 1);
        for said in all() {
            let sound = said.to_bytes();
            let is_text_at_end = matches!(
                said,
                Said::NotConnected(_) | Said::Call(_) | Said::Connect(..) | Said::Place(..) | Said::Count(_)
            );
            for length in 0..sound.len() {
                let parsed = Said::parse(from, &sound[..length]);
                // A text that is cut is a shorter text.
                assert!(parsed.is_err() || is_text_at_end, "{said:?}, {length} bytes");
            }
            assert!(is_text_at_end || Said::parse(from, &[&sound[..], &[0]].concat()).is_err(), "{said:?}");
            let mut other = sound;
            other[4] = 9;
            let error = Said::parse(from, &other).unwrap_err().to_string();
            assert!(error.contains("version 9") && error.contains("version 1"), "{error}");
        }
    }

    #[test]
    fn an_endpoint_that_no_adapter_has_is_an_error() {
        let Said::Connected(end) = &all()[1] else { panic!("an endpoint") };
        let wrong = [
            Endpoint { queue_pair: 1 << 24, ..*end },
            Endpoint { psn: 1 << 24, ..*end },
            Endpoint { mtu: 0, ..*end },
            Endpoint { mtu: 6, ..*end },
            Endpoint { serves: 0, ..*end },
        ];
        for end in wrong {
            let refused = Said::parse(Incarnation::new(3, 1), &Said::Connected(end).to_bytes()).unwrap_err();
            assert!(refused.to_string().contains("impossible"), "{refused}");
        }
    }

    #[test]
    fn a_count_that_no_target_keeps_is_an_error() {
        let sound = Counting { remote_key: 1, window: 1, address: 8 };
        let wrong = [
            Counting { window: 0, ..sound },
            Counting { address: 0, ..sound },
            Counting { address: 9, ..sound },
            Counting { window: 0, address: 0, ..sound },
        ];
        for counting in wrong {
            let refused = Said::parse(Incarnation::new(3, 1), &Said::Counted(Some(counting)).to_bytes()).unwrap_err();
            assert!(refused.to_string().contains("impossible"), "{refused}");
        }
    }

    #[test]
    fn a_meeting_where_nobody_can_be_is_an_error() {
        let wrong = [
            Meeting { serves: 0, ..meeting() },
            Meeting { at: "10.0.0.2:0".parse().unwrap(), ..meeting() },
            Meeting { at: "[::]:9".parse().unwrap(), ..meeting() },
        ];
        for meeting in wrong {
            let refused = Said::parse(Incarnation::new(3, 1), &Said::Expected(meeting).to_bytes()).unwrap_err();
            assert!(refused.to_string().contains("impossible"), "{refused}");
        }
    }
}
