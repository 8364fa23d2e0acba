//! The messages between members and their keeper.
//!
//! ```text
//!  0        4         6       8
//!  +--------+---------+-------+---------------------------------------------+
//!  | "VCLU" | version |   0   | postcard of Message                         |
//!  +--------+---------+-------+---------------------------------------------+
//!
//!  Message   from : incarnation | to : incarnation | view | request | body
//!            incarnation = rank, start; every integer a LEB128 varint, text and lists with a varint of their length
//!  body      one varint says which, in the order of `Body`; its fields follow in the order of the code
//! ```
//!
//! Nothing may follow the message, and it is at most [`MAX_MESSAGE_BYTES`] long. Each message carries its sender, the newest
//! view that the sender has learnt and a request number (rule F5). This protocol is the one that makes views, so
//! here a message of another view is not dropped: each body says what its view means. All messages may be lost, doubled,
//! delayed and reordered; what matters is repeated with every renewal and every grant.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use verbena_terms::{Format, Incarnation, Rank, ViewNumber};

use crate::{ClusterError, LeaseTerms, MAX_DEPARTED, MAX_MEMBERS, Member, View};

/// Marks a message.
pub const MESSAGE_FORMAT: Format = Format::new(*b"VCLU", 16);
/// The longest message: a view with every name, address and departed it may have.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

const WHAT: &str = "cluster message";

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sending incarnation.
    pub from: Incarnation,
    /// The incarnation that it is for. A member does not know the keeper's start number and leaves it 0.
    pub to: Incarnation,
    /// The newest view that the sender has learnt.
    pub view: ViewNumber,
    /// From a member: numbered from 1 in each incarnation. From the keeper: the request that is answered, 0 if none.
    pub request: u64,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// Member to keeper: let me in. Repeated until a view names the sender; keeps its place like a renewal.
    Join {
        /// The node that asks, with its address and roles.
        member: Member,
        /// What a renewal says.
        renewal: Renewal,
    },
    /// Member to keeper: still here.
    Renew(Renewal),
    /// Member to keeper: has ended acting in every view before this one, and is ready in this one (rules C3, P5).
    Acknowledge(ViewNumber),
    /// Member to keeper: make a view without me.
    Leave {
        /// The sender has nothing open at any home, and begins nothing more: the homes have nothing to settle (rule
        /// P6).
        at_rest: bool,
    },
    /// Keeper to member: the lease counts from the sending of the request that this answers (rule C2).
    Grant(Standing),
    /// Keeper to member: the newest view, durable at the keeper.
    Propose(View),
    /// Keeper to member: the standing of the newest view has changed.
    Stand(Standing),
    /// Keeper to member: no, and why.
    Refuse(Refusal),
    /// Member to keeper: give this incarnation no more lease. For people.
    Expel(Incarnation),
    /// Keeper to member, once: why the newest view is without those whom it dropped. For people; nothing rests on it.
    Explain(Vec<(Incarnation, Parting)>),
}

/// Why a view is without an incarnation that was in the view before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// It left with nothing open (rule P6).
    LeftAtRest,
    /// It left, and something of it was open.
    LeftOpen,
    /// It was not heard in time, or did not follow: no lease of it can run any more (rule C2).
    RanOut,
    /// A program asked for it by [`Body::Expel`].
    Expelled,
    /// A later incarnation of the node has joined (rule C1).
    Superseded,
}

/// What a member says each time it renews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The terms that it counts its lease by.
    pub terms: LeaseTerms,
    /// The last of its requests that it had a grant for; 0 if none. Tells the keeper that its answers arrive.
    pub heard: u64,
    /// The view that it has acknowledged; 0 if none.
    pub acknowledged: ViewNumber,
    /// Those departed of the newest view that its services have settled (rule P6).
    pub settled: Vec<Incarnation>,
}

/// How far the newest view is. Each of these facts is final: once said of a view, it stays true of that view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Which view.
    pub view: ViewNumber,
    /// Everyone has acknowledged it or has run out of lease (rule C3).
    pub in_effect: bool,
    /// Members that have acknowledged it.
    pub acknowledged: Vec<Incarnation>,
    /// Members that have run out of lease and will never have one again.
    pub out: Vec<Incarnation>,
    /// Departed that every home of the view has settled; the next view drops them.
    pub settled: Vec<Incarnation>,
}

/// Why the keeper refuses. What a person can mend says how.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Not in the keeper's configuration.
    #[error("rank {0} is not in the keeper's cluster.members: give all nodes the same file")]
    UnknownRank(Rank),
    /// The rank belongs to another name.
    #[error("rank {rank} is {expected:?} in the keeper's cluster.members, not {found:?}: give all nodes the same file")]
    Name {
        /// Which rank.
        rank: Rank,
        /// The name of the node that has it.
        expected: String,
        /// The name of the node that asked.
        found: String,
    },
    /// Leases of other terms would protect no node.
    #[error("the keeper's lease is {:?} less {:?}: set the same cluster.lease and cluster.drift on all nodes", .0.lease(), .0.drift())]
    Terms(LeaseTerms),
    /// This start number, or a higher one, was used before (rule C1): the asker takes a higher one.
    #[error("start {known} or a higher one was used before")]
    StartUsed {
        /// The highest that the keeper knows.
        known: u32,
    },
    /// A later incarnation of the same node has joined.
    #[error("{0} of the same node has joined: is a second process running with this node's name?")]
    Superseded(Incarnation),
    /// This incarnation is over; the node may join again as another (rule C1).
    #[error("this incarnation ran out of lease or left")]
    Expelled,
    /// No renewal before this view is acknowledged (rule C2).
    #[error("{0} was not acknowledged within one lease")]
    Unacknowledged(ViewNumber),
    /// A member knows a later view than the keeper: the keeper's durable record is gone or old.
    #[error("the keeper's newest view is {0}: its state directory was lost or restored from an old copy")]
    KeeperBehind(ViewNumber),
    /// Too many departed are not settled.
    #[error("{MAX_DEPARTED} departed incarnations are not settled: no member is taken until some are")]
    Full,
    /// 2^32 views were made.
    #[error("every view number has been used")]
    ViewsUsedUp,
    /// As many nodes as a view can have are in, or want to be.
    #[error("{MAX_MEMBERS} nodes are in or are joining: no more can be taken")]
    Crowded,
    /// The incarnation to expel is not in the newest view.
    #[error("{0} is not in the newest view: it has gone already, or has not come yet")]
    NoMember(Incarnation),
    /// The incarnation to expel is the keeper's own node (rule C4).
    #[error("{0} is the keeper's own node, which grants the leases: stop its process instead")]
    KeepersOwn(Incarnation),
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        MESSAGE_FORMAT.encode(self)
    }

    /// The message in `bytes`. Total: any bytes give a message or an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, ClusterError> {
        let malformed = |problem: String| ClusterError::Malformed { what: WHAT, problem };
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(malformed(format!("{} bytes; at most {MAX_MESSAGE_BYTES}", bytes.len())));
        }
        let rest = MESSAGE_FORMAT.check(bytes).map_err(|source| ClusterError::Format { what: WHAT, source })?;
        let (message, rest) =
            postcard::take_from_bytes::<Message>(rest).map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes after its end", rest.len())));
        }
        message.check().map_err(malformed)?;
        Ok(message)
    }

    fn check(&self) -> Result<(), String> {
        let (members, departed) = match &self.body {
            Body::Join { member, renewal } => {
                member.check()?;
                if member.incarnation != self.from {
                    return Err(format!("{} asks to join as {}", self.from, member.incarnation));
                }
                (0, renewal.settled.len())
            }
            Body::Renew(renewal) => (0, renewal.settled.len()),
            Body::Explain(dropped) => (dropped.len(), 0),
            Body::Grant(standing) | Body::Stand(standing) => {
                (standing.acknowledged.len().max(standing.out.len()), standing.settled.len())
            }
            _ => (0, 0),
        };
        if members > MAX_MEMBERS || departed > MAX_DEPARTED + MAX_MEMBERS {
            return Err(format!("lists of {members} members and {departed} departed are too long"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{member, view};

    fn message(body: Body) -> Message {
        Message { from: Incarnation::new(2, 5), to: Incarnation::new(1, 0), view: ViewNumber(300), request: 9, body }
    }

    #[test]
    fn the_bytes_are_as_drawn() {
        let bytes = message(Body::Acknowledge(ViewNumber(300))).encode();
        assert_eq!(bytes, [b"VCLU\x10\0\0\0".as_slice(), &[2, 5, 1, 0, 0xac, 2, 9, 2, 0xac, 2]].concat());
    }

    #[test]
    fn every_body_survives() {
        let renewal = Renewal {
            terms: LeaseTerms::DEFAULT,
            heard: 3,
            acknowledged: ViewNumber(2),
            settled: vec![Incarnation::new(3, 1)],
        };
        let standing = Standing { view: ViewNumber(2), in_effect: true, ..Standing::default() };
        for body in [
            Body::Join { member: member(2, 5), renewal: renewal.clone() },
            Body::Renew(renewal),
            Body::Leave { at_rest: true },
            Body::Grant(standing.clone()),
            Body::Propose(view(2, &[(1, 1), (2, 5)])),
            Body::Stand(standing),
            Body::Refuse(Refusal::Terms(LeaseTerms::DEFAULT)),
            Body::Expel(Incarnation::new(3, 1)),
            Body::Explain(vec![(Incarnation::new(3, 1), Parting::Expelled)]),
        ] {
            let message = message(body);
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn other_versions_and_tails_are_refused() {
        let mut bytes = message(Body::Leave { at_rest: false }).encode();
        bytes.push(0);
        assert_eq!(Message::decode(&bytes).unwrap_err().to_string(), "cluster message: 1 bytes after its end");
        bytes[4] = 1;
        assert_eq!(
            Message::decode(&bytes).unwrap_err().to_string(),
            "cluster message: block \"VCLU\" has version 1, this program speaks version 16"
        );
        let pretender = message(Body::Join {
            member: member(2, 6),
            renewal: Renewal { terms: LeaseTerms::DEFAULT, heard: 0, acknowledged: ViewNumber(0), settled: vec![] },
        });
        assert_eq!(
            Message::decode(&pretender.encode()).unwrap_err().to_string(),
            "cluster message: 2.5 asks to join as 2.6"
        );
    }

    #[test]
    fn the_largest_view_fits() {
        let longest = |rank| Member {
            incarnation: Incarnation::new(Rank::LAST.0 - MAX_MEMBERS as u32 + rank, u32::MAX),
            name: "n".repeat(crate::MAX_TEXT_BYTES),
            address: "a".repeat(crate::MAX_TEXT_BYTES),
            roles: crate::Roles::ALL,
        };
        let number = ViewNumber(u32::MAX);
        let gone = |start| crate::Departed {
            incarnation: Incarnation::new(Rank::LAST.0, start),
            since: number,
            at_rest: true,
            is_relay: true,
        };
        let departed = (0..(MAX_DEPARTED + MAX_MEMBERS) as u32).map(|nth| gone(u32::MAX - 2000 + nth)).collect();
        let view = View::new(number, (0..MAX_MEMBERS as u32).map(longest).collect(), departed).unwrap();
        let bytes = message(Body::Propose(view)).encode();
        assert!(Message::decode(&bytes).is_ok(), "{} bytes", bytes.len());
    }
}
