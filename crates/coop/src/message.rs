//! What nodes say to each other. A message belongs to the view in which it was sent, and is taken in that view alone.

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::table::Entry;
use crate::version::Version;

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// To a home: decide this.
    Ask(Ask),
    /// From a home: what it decided.
    Verdict {
        /// Of the request.
        id: u64,
        /// Its number among those that its asker sent.
        serial: u64,
        /// What it decided.
        verdict: Verdict,
    },
    /// To a home: read from here from now on, if the version is still this (rule K8).
    Relocate {
        /// Of the key.
        hash: u64,
        /// Of the copy.
        version: Version,
        /// Where the copy is.
        place: Place,
    },
    /// To a home: the copy that it names is gone (rule K11).
    Gone {
        /// Of the key.
        hash: u64,
        /// Of the copy.
        version: Version,
        /// Where it was.
        place: Place,
    },
    /// To a holder: nothing names this object any more.
    Drop {
        /// Where it is.
        unit: u32,
        /// Its version.
        version: Version,
    },
    /// To a holder: how often objects were read from elsewhere, sampled.
    Hits(Vec<(u32, Version, u8)>),
    /// To all: so many units are free here. A hint.
    Free(u32),
    /// To a node with free memory: take these in, because their holder needs room (rule K8).
    Offer(Vec<Offered>),
    /// To a home: raise the floor (rule K10).
    Flush {
        /// Of the request.
        id: u64,
    },
    /// From a home: the floor is raised.
    Flushed {
        /// Of the request.
        id: u64,
    },
    /// To the node that would inherit a key: what its home decided about it (rule K9).
    Mirror {
        /// Of the message, to be acknowledged; 0 if it need not be.
        number: u64,
        /// Of the key.
        hash: u64,
        /// Of the value, or of the removal.
        version: Version,
        /// Where a copy of the value is; none for a removal.
        place: Option<Place>,
    },
    /// To a mirror: nothing below this counts any more (rule K10).
    MirrorFloor {
        /// Of the message.
        number: u64,
        /// The floor.
        floor: Version,
    },
    /// From a mirror: it has what the message with this number says.
    Mirrored {
        /// Of the message.
        number: u64,
    },
    /// To the new home of keys: their entries as the giver acknowledged (rule K7).
    HandOver(Vec<(u64, Entry)>),
}

/// An object that its holder would rather have elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// Of its key.
    pub hash: u64,
    /// Which version it is.
    pub version: Version,
    /// Where it is.
    pub place: Place,
}

/// What a home is to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The asker's number of it.
    pub id: u64,
    /// Larger at each request that the asker sends: one is decided once.
    pub serial: u64,
    /// Of the key.
    pub hash: u64,
    /// On which condition.
    pub expect: Expect,
    /// What is to be done.
    pub wanted: Wanted,
}

/// The condition of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// None.
    Any,
    /// This version is valid.
    Is(Version),
    /// No version is valid, or one of these, whose objects could not be read: they are forgotten.
    AbsentOr(Vec<Version>),
}

/// What is to be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// A new version, which will lie here.
    Install(Place),
    /// No version.
    Remove,
}

/// What a home decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is done.
    Done {
        /// The new version, if one was installed.
        version: Version,
        /// Whether a version was valid before.
        was_there: bool,
    },
    /// The condition does not hold; nothing was done.
    Changed,
    /// The home does not decide in this view, or no more; nothing was done.
    Refused,
}
