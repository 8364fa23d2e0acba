//! What programs ask of their node, and how far it is.

use std::collections::BTreeSet;

use verbena_memcache::Operation;
use verbena_memcache::semantics::Answer;
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::message::Takes;
use crate::object::{Object, ReadBack};
use crate::place::Place;
use crate::table::{Entry, Geometry, Look};
use crate::tenant::Tenant;
use crate::version::Version;

/// What a program asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// An operation on a key.
    Execute {
        /// Whose key it is.
        tenant: Tenant,
        /// The key.
        key: Vec<u8>,
        /// What to do; the value of a storage command stands beside it.
        operation: Operation<'static>,
        /// The value of a storage command.
        value: Vec<u8>,
    },
    /// Everything of this tenant goes (rule K10).
    Flush(Tenant),
}

/// What a program is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer, with the value of a hit.
    Answer(Answer, Vec<u8>),
    /// The flush is done.
    Flushed,
    /// It was not done. `SERVER_ERROR` and this.
    Failed(Failure),
    /// It was done or will be or not: never sent again (rule K6). `SERVER_ERROR outcome unknown`.
    Unknown,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The key's home is not known, not reached, or does not answer in this view.
    HomeAway,
    /// No room could be made. The old value is gone.
    NoRoom,
    /// The value is too large. The old value is gone.
    TooLarge,
    /// Others changed the key again and again.
    Contended,
}

/// A command that is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub tenant: Tenant,
    pub key: Vec<u8>,
    pub hash: u64,
    pub operation: Operation<'static>,
    pub value: Vec<u8>,
    pub view: ViewNumber,
    pub deadline: Time,
    pub attempts: u32,
    /// How often it read again what was valid and could not be read.
    pub rereads: u32,
    pub stage: Stage,
}

#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Looking(Box<Looking>),
    Deciding(Deciding),
    /// Begins again then: the valid object was not whole yet.
    Again {
        at: Time,
    },
    /// Of a flush: homes that have not answered.
    Flushing {
        homes: BTreeSet<Incarnation>,
    },
}

/// A read: of the table, and of the objects that it names, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Looking {
    pub tenant: Tenant,
    pub geometry: Geometry,
    pub look: Option<Look>,
    /// The object at a place that was remembered, read beside the table.
    pub remembered: Option<(Place, Option<ReadBack>)>,
    /// Entries to be tried, and the one whose object is being read.
    pub entries: Vec<Entry>,
    pub reading: Option<Entry>,
    /// Versions whose objects could not be read.
    pub unreadable: Vec<Version>,
    pub rounds: u32,
}

/// A request at the home.
#[derive(Clone, Debug)]
pub(crate) struct Deciding {
    /// Of the request: an answer to another one is late.
    pub serial: u64,
    /// Where the new object fills.
    pub unit: Option<u32>,
    /// The node that is to take it from there.
    pub goes_to: Option<(Rank, Takes)>,
    /// What is answered if it is done.
    pub answer: Answer,
    pub bytes: Vec<u8>,
    /// The cas value is the version.
    pub cas_is_version: bool,
    /// What is told in place of an answer once the old value is gone.
    pub failure: Option<Failure>,
    /// Deletes are answered by what was there.
    pub tells_presence: bool,
}

impl Deciding {
    /// A request that is answered by this if it is done.
    pub fn new(answer: Answer, bytes: Vec<u8>) -> Deciding {
        Deciding {
            serial: 0,
            unit: None,
            goes_to: None,
            answer,
            bytes,
            cas_is_version: false,
            failure: None,
            tells_presence: false,
        }
    }
}

impl Work {
    pub fn operation(&self) -> Operation<'_> {
        match self.operation {
            Operation::Store(store) => Operation::Store(verbena_memcache::Store { value: &self.value, ..store }),
            other => other,
        }
    }

    /// Whether it only reads.
    pub fn is_read(&self) -> bool {
        matches!(&self.operation, Operation::Read(read) if read.vivify.is_none())
    }
}

/// What a reader found.
pub(crate) enum Found {
    /// The valid object, where it lies, and its version.
    Object(Object, Entry),
    /// None that could be read.
    Nothing(Vec<Version>),
}
