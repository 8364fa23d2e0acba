//! What programs ask of their node's memory, and what they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Incarnation, ViewNumber};

use crate::get::Value;
use crate::home::Reclaims;
use crate::{Placement, Refusal, Segment, SegmentId, SegmentName, Wanted};

/// Which request. The node numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Which segment is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one that has this name.
    Name(SegmentName),
    /// This one.
    Id(SegmentId),
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A segment.
    Allocate {
        /// Which, and whose.
        wanted: Wanted,
        /// Where.
        placement: Placement,
    },
    /// A segment's memory and name are not needed any more. One that is lost gives up its name.
    Release {
        /// Which.
        target: Target,
        /// Which user says so.
        user: u32,
    },
    /// A value, or a part of it.
    Get {
        /// Of which.
        target: Target,
        /// The first byte.
        offset: u64,
        /// How many; all that follow if none is said.
        length: Option<u64>,
        /// Which user wants it.
        user: u32,
    },
    /// Bytes in a value's place, or in that of a part of it.
    Put {
        /// Of which.
        target: Target,
        /// The first byte.
        offset: u64,
        /// What.
        bytes: Arc<[u8]>,
        /// The version that it replaces; must be named for [`Coherence::Version`](crate::Coherence::Version), and may be otherwise.
        named: Option<u64>,
        /// When, in nanoseconds since 1970.
        stamp_ns: u64,
        /// Which user puts it.
        user: u32,
    },
    /// What is known of a segment.
    Stat {
        /// Which.
        target: Target,
    },
    /// Where its value is in this node's own memory, for a program that reads it there.
    Window {
        /// Of which.
        target: Target,
        /// Which user wants it.
        user: u32,
    },
    /// All segments of the members of the view.
    List {
        /// What their names begin with. Those without a name are among them if this is empty.
        prefix: String,
    },
    /// This node offers `bytes` bytes from now on. What does not fit goes when the notice is over.
    Reclaim {
        /// How many, up to [`MemoryOptions::bytes`](crate::MemoryOptions).
        bytes: u64,
        /// How long what has to go is there yet.
        notice: Duration,
    },
}

/// What became of a request: said once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is there.
    Allocated(Segment),
    /// It is released.
    Released,
    /// The value.
    Value(Value),
    /// It was put, and is this version.
    Put(u64),
    /// What is known of it.
    Stat {
        /// Where it is, and what was asked for.
        segment: Segment,
        /// Of its value.
        version: u64,
        /// When that was put, in nanoseconds since 1970; 0 if nothing was.
        stamp_ns: u64,
        /// After how long its home takes its memory back, if that has given notice.
        goes_in: Option<Duration>,
    },
    /// Its value is in this node's memory of this view. Until it [forgets](crate::Memory::forgets) anything.
    Window(Segment, ViewNumber),
    /// Those that there are.
    Listed {
        /// In order of their homes and numbers.
        segments: Vec<Segment>,
        /// Of those whose homes have given notice: after how long they go.
        going: BTreeMap<SegmentId, Duration>,
        /// Homes that did not say what they have.
        silent: Vec<Incarnation>,
    },
    /// So it is from now on.
    Reclaims(Reclaims),
    /// It was not done.
    Refused(Refusal),
}

impl Wish {
    /// What is wrong with it, whatever there is.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self {
            Wish::Allocate { wanted, .. } => wanted.check(),
            _ => Ok(()),
        }
    }

    /// Bytes of a value that it carries or asks for; nothing if that is the segment's to say.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Wish::Put { bytes, .. } => Some(bytes.len() as u64),
            Wish::Get { length, .. } => *length,
            _ => Some(0),
        }
    }

    /// Which segment it is about, and which user asks.
    pub(crate) fn target(&self) -> Option<(&Target, Option<u32>)> {
        match self {
            Wish::Release { target, user }
            | Wish::Get { target, user, .. }
            | Wish::Put { target, user, .. }
            | Wish::Window { target, user } => Some((target, Some(*user))),
            Wish::Stat { target } => Some((target, None)),
            Wish::Allocate { .. } | Wish::List { .. } | Wish::Reclaim { .. } => None,
        }
    }

    /// What is wrong with it for this segment.
    pub(crate) fn check_for(&self, segment: &Segment) -> Result<(), Refusal> {
        let (id, owner, bytes) = (segment.id, segment.wanted.owner, segment.wanted.bytes);
        if self.target().is_some_and(|(_, user)| user.is_some_and(|user| user != owner)) {
            return Err(Refusal::NotYours { id, owner });
        }
        let (offset, length) = match self {
            Wish::Get { offset, length, .. } => (*offset, length.unwrap_or(bytes.saturating_sub(*offset))),
            Wish::Put { offset, bytes: put, named, .. } => {
                if segment.wanted.coherence == crate::Coherence::Version && named.is_none() {
                    return Err(Refusal::NoVersion);
                }
                (*offset, put.len() as u64)
            }
            _ => return Ok(()),
        };
        match offset.checked_add(length) {
            Some(end) if end <= bytes && length > 0 => Ok(()),
            _ => Err(Refusal::OutOfRange { offset, length, bytes }),
        }
    }
}
