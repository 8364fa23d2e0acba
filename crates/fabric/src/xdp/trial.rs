//! Whether the provider works here, found out without touching an interface: the program is loaded, and answers a frame.

use std::net::{Ipv4Addr, SocketAddr};

use verbena_terms::ViewNumber;

use super::node::Node;
use super::program::{Program, Verdict};
use super::provider::CAPABILITIES;
use super::share::Share;
use super::wire::{Answer, Datagram, FrameWriter, TagKey};
use crate::capability::Capabilities;
use crate::ending::{Outcome, RegionId};
use crate::error::{Error, Result};
use crate::operation::{Operation, OperationId};
use crate::supply::{Life, Supply};

/// The address of a node that is on no network (RFC 5737).
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PORT: u16 = 1;

/// Tries it.
///
/// # Errors
/// What is missing, and how to get it.
pub(crate) fn try_out() -> Result<Capabilities> {
    let node = Node::new(Share::alone(Program::load()?))?;
    node.answer_at(SocketAddr::from((NOWHERE, PORT)))?;
    let life = Life::new(64, ViewNumber(1))?;
    let (region, words) = node.make(&life)?;
    let key = TagKey([1, 2]);
    let caller = node.admit(key, OperationId(1))?;
    let mut frame = FrameWriter::default();
    let of = RegionId { region, view: life.view, secret: life.change };
    frame.batch(&of, Some(OperationId(1)), &[Operation::FetchAdd { at: 0, addend: 1 }]);
    let mut payload = Vec::new();
    frame.finish(caller, 1, key, &mut payload);
    let mut packet = packet(&payload);
    let verdict = node.run(&mut packet)?;
    let answer = Datagram::parse(&packet[packet.len() - payload.len()..], caller, key);
    let is_done = |answer: &Answer| matches!(answer, Answer::Batch { outcome: Outcome::Done, .. });
    let is_done = matches!(&answer, Some(Datagram::Answer(1, answers)) if answers.iter().all(is_done));
    if verdict == Verdict::Answered && is_done && words.load(0) == 1 {
        return Ok(CAPABILITIES);
    }
    Err(Error::Unusable {
        provider: "xdp",
        reason: format!("its program was asked to add to a word, which is {} now, and said {answer:?}", words.load(0)),
        remedy: "This is a defect: please report it".into(),
    })
}

/// A packet with this payload, for a node that does not exist.
pub(super) fn packet(payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let mut packet = vec![0; 12];
    packet.extend([0x08, 0x00, 0x45, 0]);
    packet.extend((20 + length).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(NOWHERE.octets());
    packet.extend(NOWHERE.octets());
    for half in [PORT, PORT, length, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend(payload);
    packet
}
