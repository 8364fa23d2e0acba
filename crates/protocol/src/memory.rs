//! The messages between a program and its helper about memory that nodes share.
//!
//! A value that is longer than one message goes in parts of [`VALUE_PART_BYTES`]: before a put it is *staged* at the helper, after a get the rest of it lies on a
//! *shelf* there. So a put is one put, and what a get gave is one version, however long it is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use verbena_terms::{Coherence, SegmentId};

/// Bytes of a value that one message carries at most: with the longest name they fit a ring of 64 KiB, whose messages are a quarter.
pub const VALUE_PART_BYTES: usize = 15 << 10;
/// Segments that one answer carries at most: with the longest names they fit as well.
pub const PART_SEGMENTS: usize = 10;

/// Which segment is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The one that has this name.
    Name(String),
    /// This one.
    Id(SegmentId),
}

impl From<&str> for Which {
    fn from(name: &str) -> Which {
        Which::Name(name.into())
    }
}

impl From<&String> for Which {
    fn from(name: &String) -> Which {
        Which::Name(name.clone())
    }
}

impl From<SegmentId> for Which {
    fn from(id: SegmentId) -> Which {
        Which::Id(id)
    }
}

impl From<&SegmentStat> for Which {
    fn from(stat: &SegmentStat) -> Which {
        Which::Id(stat.id)
    }
}

/// Where a segment is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// At the node with the most free memory.
    #[default]
    MostFree,
    /// At the program's own node.
    Local,
    /// At one node after the other.
    Spread,
    /// At the node that is called so.
    Node(String),
}

impl FromStr for Placement {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "most-free" => Placement::MostFree,
            "local" => Placement::Local,
            "spread" => Placement::Spread,
            name => Placement::Node(name.into()),
        })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::MostFree => f.write_str("most-free"),
            Placement::Local => f.write_str("local"),
            Placement::Spread => f.write_str("spread"),
            Placement::Node(name) => f.write_str(name),
        }
    }
}

/// A segment that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSegment {
    /// None for one that is known by its number alone.
    pub name: Option<String>,
    /// Bytes of its value: 1 to 16 MiB.
    pub bytes: u64,
    /// What it promises.
    pub coherence: Coherence,
    /// Nodes that can fill a slot at a time, each of which takes the value's bytes once more; further ones wait. Of no meaning for `null`.
    pub writers: u8,
    /// Homes that hold its value, 1 to 4: it is lost when all of them are. 1 for `null`.
    pub copies: u8,
    /// Where it is to be; further copies are where most is free.
    pub placement: Placement,
}

impl NewSegment {
    /// A segment of `bytes` bytes without a name: `strict`, for three writers at a time, at the node with the most free
    /// memory.
    pub fn of(bytes: u64) -> Self {
        let (coherence, placement) = (Coherence::Strict, Placement::default());
        NewSegment { name: None, bytes, coherence, writers: 3, copies: 1, placement }
    }

    /// With this name.
    pub fn named(self, name: &str) -> Self {
        NewSegment { name: Some(name.into()), ..self }
    }

    /// With this promise.
    pub fn coherent(self, coherence: Coherence) -> Self {
        NewSegment { coherence, ..self }
    }

    /// The same with its value at `copies` homes.
    pub fn copied(self, copies: u8) -> Self {
        NewSegment { copies, ..self }
    }

    /// Placed so.
    pub fn placed(self, placement: Placement) -> Self {
        NewSegment { placement, ..self }
    }
}

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryRequest {
    /// A segment is wanted.
    Allocate(NewSegment),
    /// A segment is not needed any more.
    Release(Which),
    /// A value, or a part of it.
    Get {
        /// Of which.
        which: Which,
        /// The first byte.
        offset: u64,
        /// How many; all that follow if none is said.
        length: Option<u64>,
        /// What the program calls the rest, if it is too long for one answer.
        shelf: u64,
    },
    /// The next part of what was got.
    More {
        /// What the program called it.
        shelf: u64,
        /// The first byte of what was got.
        from: u64,
    },
    /// A part of a value that is about to be put. The first begins anew.
    Stage {
        /// Which of its bytes comes first.
        from: u64,
        /// Some of it.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Bytes in a value's place.
    Put {
        /// Of which.
        which: Which,
        /// The first byte.
        offset: u64,
        /// Whether what was staged comes first.
        is_staged: bool,
        /// What, or the rest of it.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// The version that it replaces.
        over: Option<u64>,
    },
    /// What is known of a segment.
    Stat(Which),
    /// All segments.
    List {
        /// What their names begin with; those without a name are among them if this is empty.
        prefix: String,
        /// Counted from 0. They are read anew at 0.
        from: u32,
    },
    /// The node is to offer `bytes` bytes from now on. Only the user that runs the node, or root, may ask for this.
    Reclaim {
        /// Of what it is configured to offer.
        bytes: u64,
        /// How long what has to go is there yet.
        notice_ms: u64,
    },
    /// Where the value is, if that is in memory of this node which a program of its user may read.
    Window {
        /// Of which.
        which: Which,
        /// The view of whose memory the program has a descriptor already; 0 for none.
        has: u32,
    },
}

/// What the helper answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryAnswer {
    /// It was allocated.
    Allocated(SegmentInfo),
    /// What is known of it.
    Stat(SegmentStat),
    /// It is released.
    Released,
    /// The value.
    Value {
        /// Of the value.
        version: u64,
        /// When it was put.
        stamp_ns: u64,
        /// Bytes that there are, with those of the next parts.
        bytes: u64,
        /// The first of them.
        #[serde(with = "serde_bytes")]
        first: Vec<u8>,
    },
    /// To [`MemoryRequest::More`].
    Part(#[serde(with = "serde_bytes")] Vec<u8>),
    /// To [`MemoryRequest::Stage`].
    Staged,
    /// It was put, and is this version.
    Put(u64),
    /// To [`MemoryRequest::List`].
    List {
        /// At most [`PART_SEGMENTS`].
        segments: Vec<SegmentInfo>,
        /// Names of homes that did not say what they have.
        silent: Vec<String>,
        /// Whether more follow.
        more: bool,
    },
    /// It was not done, or its outcome is unknown.
    Failed(Failure, String),
    /// To [`MemoryRequest::Reclaim`].
    Reclaims(Reclaims),
    /// To [`MemoryRequest::Window`]. The memory's descriptor goes with it, unless the program has it.
    Window(Pane),
}

/// Where a segment's value is in memory of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pane {
    /// Of which view the memory is.
    pub view: u32,
    /// Which segment.
    pub id: SegmentId,
    /// What it promises.
    pub coherence: Coherence,
    /// Bytes of its value.
    pub bytes: u64,
    /// Where its word is in the memory.
    pub word: u64,
    /// Where its first slot is.
    pub slots: u64,
    /// How far the next one is from that.
    pub stride: u64,
    /// How many slots it has.
    pub count: u8,
}

/// What a node offers, and what has to go for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reclaims {
    /// Bytes that it is configured to offer.
    pub share: u64,
    /// Bytes that it offers from now on.
    pub offered: u64,
    /// Bytes that segments have.
    pub taken: u64,
    /// Segments that have to go.
    pub segments: u32,
    /// Bytes that those have.
    pub bytes: u64,
    /// Milliseconds until the first of them goes.
    pub first_in_ms: Option<u64>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentInfo {
    /// Which.
    pub id: SegmentId,
    /// What it is called.
    pub name: Option<String>,
    /// Bytes of its value.
    pub bytes: u64,
    /// What it promises.
    pub coherence: Coherence,
    /// Nodes that can fill a slot at a time.
    pub writers: u8,
    /// Bytes that it takes at each home.
    pub takes: u64,
    /// Which user's it is.
    pub owner: u32,
    /// What its home is called, of which it is read.
    pub home: String,
    /// How many homes are to hold it.
    pub copies: u8,
    /// What the others are called that do. Fewer than are wanted where homes were lost, until others have room.
    pub backups: Vec<String>,
    /// Milliseconds until its home takes its memory back, if that has given notice.
    pub goes_in_ms: Option<u64>,
}

/// A segment, and its value's age.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentStat {
    /// Which.
    pub id: SegmentId,
    /// What was asked for, and where it is.
    pub segment: SegmentInfo,
    /// Of its value.
    pub version: u64,
    /// When that was put, in nanoseconds since 1970, by its writer's clock; 0 if nothing was, or its coherence is `null`.
    pub stamp_ns: u64,
    /// Whether it belongs to the user who asks.
    pub is_yours: bool,
}

/// Why something was not done. Nothing was changed, but for [`Failure::Unknown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// What was asked for cannot be.
    Bad,
    /// There is no such segment.
    NotFound,
    /// A segment of this name exists already.
    Exists,
    /// It was released.
    Released,
    /// Its home is gone, and the value with it.
    Lost,
    /// It is another user's.
    NotYours,
    /// Bytes that it does not have.
    OutOfRange,
    /// The value is of another version than the one that was to be replaced.
    Conflict {
        /// That there is.
        current: u64,
    },
    /// Something is full.
    NoRoom,
    /// It could not be done in time, and was not done.
    Late,
    /// The outcome is unknown: it may have been done, or may still be.
    Unknown,
    /// The node does not take it now.
    Unavailable,
    /// Its home took its memory back, and the value went with it. Its name is free.
    Reclaimed,
    /// Its value is not in memory that this program can read: a get reads it.
    Elsewhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_reads_as_it_is_written() {
        for text in ["most-free", "local", "spread", "alpha"] {
            assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        }
    }
}
