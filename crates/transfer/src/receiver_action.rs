//! What a receiver asks of its caller.

use crate::frame::{Entry, Failure, FileNumber, Frame, Identity};
use crate::tree::Hash;

/// Work for the caller of a [`crate::Receiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverAction {
    /// Find or make what the file is written into: [`crate::Receiver::prepared`].
    Prepare {
        /// The file.
        file: FileNumber,
        /// What is to be there.
        entry: Entry,
        /// The version of the source.
        identity: Identity,
    },
    /// Hash a chunk that stands: [`crate::Receiver::verified`].
    Verify {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
        /// Its bytes.
        length: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
    },
    /// Make a part that is a copy of the target: [`crate::Receiver::cloned`].
    Clone(FileNumber),
    /// Hash and write a chunk: [`crate::Receiver::written`].
    Write {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
        /// The first byte.
        offset: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Copy a chunk from the source that was handed over, and hash what is copied: [`crate::Receiver::copied`].
    Copy {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
        /// The first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
    },
    /// Keep a record of what stands. A hint: nothing waits for it.
    Record {
        /// The file.
        file: FileNumber,
        /// The version of the source.
        identity: Identity,
        /// What stands, by chunk.
        hashes: Vec<Option<Hash>>,
    },
    /// Put the part in its place: [`crate::Receiver::published`].
    Publish {
        /// The file.
        file: FileNumber,
        /// The version of the source: its size and time are given to the target.
        identity: Identity,
    },
    /// The file is not needed any more. Its part stays for another session.
    Close(FileNumber),
    /// Send a frame.
    Send {
        /// On which stream.
        stream: u16,
        /// What.
        frame: Frame,
    },
    /// A file has its end.
    Settled {
        /// What was to be there.
        entry: Entry,
        /// What came of it.
        result: Result<(), Failure>,
    },
    /// The sender offers nothing more, and everything has its end.
    Finished,
    /// The sender breaks the protocol: close.
    Violation(&'static str),
}

/// What a file is written into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Nothing is to be written: a directory or a link stands.
    Done,
    /// A part of our own, and what its record claims by chunk.
    Part(Vec<(u64, Hash)>),
    /// The target as it stands, of this size.
    Target(u64),
}
