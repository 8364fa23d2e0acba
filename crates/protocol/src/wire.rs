//! The messages between a program and its helper, apart from those over HTTP: their envelope, and the kinds without a
//! file of their own.
//!
//! ```text
//!  0        4         6       8
//!  +--------+---------+-------+---------------------------------------------+
//!  | "VQUE" | version |   0   | postcard of Request                         |
//!  | "VANS" | version |   0   | postcard of Answer                          |
//!  +--------+---------+-------+---------------------------------------------+
//!
//!  Request, Answer   one varint says which, in the order of the code; its fields follow in the order of the code.
//!                    Integers are LEB128 varints, text and lists have a varint of their length before them.
//! ```
//!
//! Nothing follows the message. New requests and answers are added at the end; a helper that does not know a request
//! answers [`Answer::Refused`]. What may be longer than one answer ([`PART_BYTES`], [`PART_MEMBERS`], [`PART_NAMES`]) is asked for in parts.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use verbena_terms::{Format, Incarnation, ViewNumber};

use crate::error::{Error, Result};

pub use crate::lock::{LockAnswer, LockAt, LockMode, LockRequest, LockUser};
pub use crate::member::{Change, Concerned, Departed, Detail, KeepsOut, LoadOf, Member, Seen, Why};
use crate::memory::{MemoryAnswer, MemoryRequest};
use crate::page::{PageAnswer, PageRequest};

/// Marks a request.
pub const REQUEST: Format = Format::new(*b"VQUE", 2);
/// Marks an answer.
pub const ANSWER: Format = Format::new(*b"VANS", 5);

/// The word of the helper's board that says until when its node has a lease: nanoseconds of CLOCK_BOOTTIME (rule L6). What is
/// held is held until then, and longer if the word has grown by then.
pub const BOARD_LEASE: usize = 0;
/// The word of the helper's board that counts how often all that its clients held was lost. What was granted at another count is lost.
pub const BOARD_LAPSES: usize = 1;
/// The word of the helper's board that counts how often something else could be where a segment's value was in its node's memory. What was found at another count is
/// not looked at any more.
pub const BOARD_FORGETS: usize = 2;

/// Bytes of text that one answer carries at most.
pub const PART_BYTES: usize = 8 << 10;
/// Members that one answer carries at most: with the longest names and addresses they fit where [`PART_BYTES`] do.
pub const PART_MEMBERS: usize = 12;

/// Names of incarnations that one answer carries at most, with what is to be said of each.
pub const PART_NAMES: usize = 27;

/// Names whose homes are counted for [`Detail::keys`]: the same ones each time.
pub const SAMPLED_KEYS: u32 = 1 << 16;

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How the helper is.
    Status,
    /// The members of the view, from the `from`th on.
    Members {
        /// Counted from 0.
        from: u32,
    },
    /// All metrics as OpenMetrics text, from byte `from` on. They are read anew at 0, and parts of that reading are given
    /// after that.
    Metrics {
        /// Counted from 0.
        from: u32,
    },
    /// The first view after this one that the helper remembers, with the incarnations that it concerns from the
    /// `from`th on.
    View {
        /// 0: the oldest that is remembered.
        after: ViewNumber,
        /// Counted from 0.
        from: u32,
    },
    /// The keeper is to give this incarnation no more lease. The helper asks the keeper once. A program that must be
    /// sure repeats the request until there is a view without the incarnation.
    Expel(Incarnation),
    /// What is open at this node, and how far its leaving is.
    Work,
    /// What is known of the members beside the view, from the `from`th on. The helper asks them for their status; a
    /// request a moment later gets their answers.
    Details {
        /// Counted from 0.
        from: u32,
    },
    /// The incarnations that left and are not settled, from the `from`th on.
    Departed {
        /// Counted from 0.
        from: u32,
    },
    /// Leave the cluster in good order, and end. Answered when the node has left; a moment later its process ends.
    Drain,
    /// Something about locks.
    Lock(LockRequest),
    /// Something about memory.
    Memory {
        /// How long the helper may take.
        patience_ms: u64,
        /// What.
        asked: MemoryRequest,
    },
    /// The loads of the members, from the `from`th on. The helper reads their boards for some seconds from now on; a
    /// request a moment later gets what it found.
    Loads {
        /// Counted from 0.
        from: u32,
    },
    /// Something about a program's copies of pages, or about a write.
    Page(PageRequest),
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Members`].
    Members {
        /// The view that they are members of.
        view: ViewNumber,
        /// At most [`PART_MEMBERS`], in order of rank.
        members: Vec<Member>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Request::Metrics`].
    Metrics {
        /// At most [`PART_BYTES`].
        text: String,
        /// Whether more follows.
        more: bool,
    },
    /// No, and why.
    Refused(String),
    /// To [`Request::View`]; nothing if there is no later one.
    View(Option<Box<Seen>>),
    /// It will be done: to [`Request::Expel`].
    Taken,
    /// To [`Request::Work`].
    Work(Work),
    /// To [`Request::Details`].
    Details {
        /// The view that they are members of.
        view: ViewNumber,
        /// At most [`PART_MEMBERS`], in order of rank.
        details: Vec<Detail>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Request::Departed`].
    Departed {
        /// The view that lists them.
        view: ViewNumber,
        /// At most [`PART_NAMES`], in order.
        departed: Vec<Departed>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Request::Drain`].
    Drained(Departure),
    /// To [`Request::Lock`].
    Lock(LockAnswer),
    /// To [`Request::Memory`].
    Memory(MemoryAnswer),
    /// To [`Request::Loads`].
    Loads {
        /// The view that they are members of.
        view: ViewNumber,
        /// At most [`PART_MEMBERS`], in order of rank; of those alone whose load is known.
        loads: Vec<LoadOf>,
        /// Whether more follow.
        more: bool,
    },
    /// To [`Request::Page`].
    Page(PageAnswer),
}

/// How a helper is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The node's name.
    pub name: String,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// Its process.
    pub pid: u32,
    /// How long it has been running, milliseconds.
    pub uptime_ms: u64,
    /// The state of this incarnation.
    pub state: State,
    /// The interconnect.
    pub fabric: Interconnect,
    /// The rank that grants leases.
    pub keeper: u32,
    /// The keeper's present incarnation, if it has been heard of.
    pub keeper_incarnation: Option<Incarnation>,
    /// How long the lease lasts, milliseconds.
    pub lease_ms: u64,
    /// What is left of it, milliseconds; 0 without a lease.
    pub lease_left_ms: u64,
    /// The newest view that was learnt; 0 if none.
    pub view: ViewNumber,
    /// The newest view that was acknowledged; 0 if none.
    pub acknowledged: ViewNumber,
    /// The newest view that is known to be in effect; 0 if none.
    pub in_effect: ViewNumber,
    /// Members of the view.
    pub members: u32,
    /// Incarnations that left and are not settled.
    pub departed: u32,
    /// What the keeper last refused, if it did.
    pub refused: Option<String>,
    /// For whom it waits, and why, if it has had no lease for three seconds.
    pub waits: Option<String>,
    /// Programs that are connected.
    pub clients: u32,
}

/// The state of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is in no view yet.
    Joining,
    /// It is a member with a lease.
    Member,
    /// It is a member whose lease ran out: it serves nothing until the keeper renews it or it joins again.
    Lapsed,
    /// It is leaving, or has left.
    Leaving,
}

/// The interconnect of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interconnect {
    /// Which provider.
    pub provider: String,
    /// Why that one.
    pub why: String,
    /// Where peers reach this node, without the address's secret.
    pub address: String,
}

/// What a node has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Of the page protocol.
    pub pages: Pages,
    /// Set when a program asked the node to leave.
    pub leaving: Option<Leaving>,
}

/// How a node's part of the page protocol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// Pages with a dependency set, at this home.
    pub registered: u64,
    /// Dependencies in all sets together.
    pub dependencies: u64,
    /// Updates open at this home, of all nodes.
    pub open_updates_here: u64,
    /// Members whose open updates this home does not know yet.
    pub awaiting: u64,
    /// Updates of this node that are open, at all homes; those of unknown outcome too.
    pub own_updates: u64,
}

/// How far a node is in leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// It begins nothing, and waits for what is open to end.
    Closing,
    /// The keeper was asked for a view without it; nothing is open.
    AtRest,
    /// The keeper was asked for a view without it; something is open.
    WithOpen,
}

/// How a node left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Nothing of it was open: no other node waits for anything of it.
    pub at_rest: bool,
    /// How it came out of the view.
    pub exit: Exit,
}

/// How a node came out of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It was in none.
    WasInNone,
    /// This view, without it, is in effect.
    InEffect(ViewNumber),
    /// The keeper did not make a view without it in time: the others wait for the end of its lease.
    LeaseRunsOut,
}

impl Request {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        REQUEST.encode(self)
    }

    /// The request in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(REQUEST, bytes)
    }
}

impl Answer {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        ANSWER.encode(self)
    }

    /// The answer in `bytes`. Total.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        decode(ANSWER, bytes)
    }
}

fn decode<T: DeserializeOwned>(format: Format, bytes: &[u8]) -> Result<T> {
    let rest = format.check(bytes)?;
    let (what, rest) = postcard::take_from_bytes(rest).map_err(|error| Error::Malformed(error.to_string()))?;
    if rest.is_empty() { Ok(what) } else { Err(Error::Malformed(format!("{} bytes after its end", rest.len()))) }
}

#[cfg(test)]
mod tests {
    use verbena_terms::{Load, LoadCounts};

    use super::*;
    use crate::api::Told;

    #[test]
    fn the_bytes_are_as_drawn() {
        assert_eq!(Request::Members { from: 300 }.encode(), [b"VQUE\x02\0\0\0".as_slice(), &[1, 0xac, 2]].concat());
        assert_eq!(Answer::Refused("no".into()).encode(), [b"VANS\x05\0\0\0".as_slice(), &[3, 2, b'n', b'o']].concat());
    }

    #[test]
    fn what_is_cut_short_longer_or_unknown_is_refused() {
        let bytes = Request::Members { from: 300 }.encode();
        for length in 0..bytes.len() {
            assert!(Request::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Request::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(Request::decode(&[&REQUEST.header()[..], &[99]].concat()).is_err());
        assert_eq!(Request::decode(&bytes).unwrap(), Request::Members { from: 300 });
    }

    #[test]
    fn the_longest_part_fits_a_small_ring() {
        let member = |rank| Member {
            name: "n".repeat(255),
            incarnation: Incarnation::new(rank, u32::MAX),
            address: "a".repeat(255),
            roles: "home,reader,updater".into(),
            acknowledged: true,
            out: true,
        };
        let members = (0..PART_MEMBERS as u32).map(|rank| member(u32::MAX - rank)).collect();
        let part = Answer::Members { view: ViewNumber(u32::MAX), members, more: true };
        // The smallest usual ring is 64 KiB, and a message a quarter of it.
        assert!(part.encode().len() <= PART_BYTES, "{} bytes", part.encode().len());
        assert!(Answer::Metrics { text: "x".repeat(PART_BYTES), more: true }.encode().len() < 16 << 10);
        let told = Told {
            state: State::Leaving,
            view: ViewNumber(u32::MAX),
            acknowledged: ViewNumber(u32::MAX),
            in_effect: ViewNumber(u32::MAX),
            lease_ms: u64::MAX,
            lease_left_ms: u64::MAX,
            uptime_ms: u64::MAX,
        };
        let incarnation = Incarnation::new(u32::MAX, u32::MAX);
        let detail = Detail { incarnation, keys: Some(u32::MAX), told: Some((told, u64::MAX)) };
        let part = Answer::Details { view: ViewNumber(u32::MAX), details: vec![detail; PART_MEMBERS], more: true };
        assert!(part.encode().len() <= PART_BYTES, "{} bytes", part.encode().len());
        let most = u64::MAX;
        let counts = LoadCounts { answers: most, hits: most, updates: most, locks: most, memory: most, requests: most };
        let load = Load {
            cores: u32::MAX,
            busy_milli: u32::MAX,
            runnable_milli: u32::MAX,
            connections: u32::MAX,
            programs: u32::MAX,
            every_ms: u32::MAX,
            memory_bytes: most,
            available_bytes: most,
            counts,
        };
        let loads = vec![LoadOf { incarnation, load, age_ms: most }; PART_MEMBERS];
        let part = Answer::Loads { view: ViewNumber(u32::MAX), loads, more: true };
        assert!(part.encode().len() <= PART_BYTES, "{} bytes", part.encode().len());
        assert_eq!(Answer::decode(&part.encode()).unwrap(), part);
        let keeps_out = Some(KeepsOut { everything: true, updates: most, unread: true, left_ms: most });
        let departed = Departed { name: Some("n".repeat(255)), incarnation, since: ViewNumber(u32::MAX), keeps_out };
        let departed = vec![departed; PART_NAMES];
        let part = Answer::Departed { view: ViewNumber(u32::MAX), departed, more: true };
        assert!(part.encode().len() <= PART_BYTES, "{} bytes", part.encode().len());
        let concerned = |rank| Concerned {
            name: "n".repeat(255),
            incarnation: Incarnation::new(rank, u32::MAX),
            change: Change::Went(Why::Untold),
        };
        let part = Answer::View(Some(Box::new(Seen {
            view: ViewNumber(u32::MAX),
            learnt_ms_ago: u64::MAX,
            in_effect_after_ms: Some(u64::MAX),
            concerned: (0..PART_NAMES as u32).map(|rank| concerned(u32::MAX - rank)).collect(),
            more: true,
        })));
        assert!(part.encode().len() <= PART_BYTES, "{} bytes", part.encode().len());
    }
}
