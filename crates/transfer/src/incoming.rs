//! What a receiver knows of one file.

use std::collections::BTreeMap;

use crate::frame::{Entry, Identity};
use crate::tree::Hash;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Preparing,
    Verifying,
    Receiving,
    Cloning,
    Publishing,
}

#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) stream: u16,
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) is_whole_file: bool,
    pub(crate) content: Content,
}

/// What a chunk has.
#[derive(Debug)]
pub(crate) enum Content {
    /// The bytes, and their hash as they were read.
    Bytes(Hash, Vec<u8>),
    /// So many bytes, in the source that was handed over.
    InSource(u64),
}

impl Content {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Content::Bytes(_, data) => data.len() as u64,
            Content::InSource(length) => *length,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) entry: Entry,
    pub(crate) identity: Identity,
    pub(crate) state: State,
    /// The target's own size, where what stands is the target.
    pub(crate) target: Option<u64>,
    /// Whether the sender knows what stands.
    pub(crate) is_told: bool,
    pub(crate) to_verify: Vec<u64>,
    pub(crate) verifying: usize,
    pub(crate) hashes: Vec<Option<Hash>>,
    /// The sequence of what stands, by chunk: 0 for what stood before.
    pub(crate) sequences: Vec<u64>,
    /// The hash that each chunk that is being written should have, where it is known, its stream and its bytes.
    pub(crate) writing: BTreeMap<u64, (Option<Hash>, u16, u64)>,
    pub(crate) kept: Vec<Kept>,
    pub(crate) since_record: usize,
    /// Chunks that have come.
    pub(crate) received: u64,
    /// Chunks that were asked for once more.
    pub(crate) again: u32,
    pub(crate) end: Option<End>,
}

/// What the sender says of a file at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) identity: Identity,
    pub(crate) root: Hash,
    pub(crate) sent: u64,
    pub(crate) again: u32,
}
