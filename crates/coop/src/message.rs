//! What nodes say to each other. A message belongs to the view in which it was sent, and is taken in that view alone.

use serde::{Deserialize, Serialize};

use crate::place::Place;
use crate::placement::Chosen;
use crate::table::Entry;
use crate::tenant::Tenant;
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
    /// To a holder: nothing names these any more.
    DropAll(Vec<(u32, Version)>),
    /// To a holder: how often objects were read from elsewhere, sampled.
    Hits(Vec<(u32, Version, u8)>),
    /// To all: how the sender's memory stands. A hint.
    Board(Board),
    /// To a node with room: take these in, because their holder needs its own (rule K8).
    Offer {
        /// In place of what.
        takes: Takes,
        /// Which.
        offered: Vec<Offered>,
    },
    /// To a home: a copy is here too, which it may name when the one that it names is gone (rule K11). A hint.
    Copied {
        /// Of the key.
        hash: u64,
        /// Of the copy.
        version: Version,
        /// Where it is.
        place: Place,
    },
    /// To a holder: its copy is the one that the home names from now on (rule K11).
    Named {
        /// Of the key.
        hash: u64,
        /// Of the copy.
        version: Version,
        /// Where it is.
        place: Place,
    },
    /// To a home: raise the floor (rule K10).
    Flush {
        /// Of the request.
        id: u64,
        /// Of which tenant.
        tenant: Tenant,
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
        /// Of which tenant.
        tenant: Tenant,
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

/// How a node's memory stands, and which scheme it goes by. Soft state: nothing rests on it but where objects go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// Units that are free, beside the buffer.
    pub free: u32,
    /// Units of redundant copies.
    pub redundant: u32,
    /// For how many milliseconds the object that would go next has been there.
    pub age_ms: u32,
    /// The scheme: the one that was chosen last goes for all.
    pub chosen: Chosen,
    /// For people.
    pub shown: Shown,
}

/// What a node tells of itself that no other acts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Units that it lends.
    pub units: u32,
    /// Units of them that objects take.
    pub used: u32,
    /// Objects in them.
    pub objects: u32,
    /// Reads of its clients that found an object here.
    pub local_hits: u64,
    /// Those that found one at another node.
    pub remote_hits: u64,
    /// Those that found none.
    pub misses: u64,
}

/// In place of what a node takes an object in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Takes {
    /// Free memory.
    Free,
    /// Free memory, or redundant copies.
    Redundant,
    /// What its replacement lets go.
    Next,
    /// Of an object that is leaving for the node that offers this one: until it is gone the buffer serves (rule K8).
    Exchange,
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
