//! What a sender and a receiver say to each other, and its bytes.
//!
//! ```text
//!  0          4          8                16
//!  +----------+----------+----------------+------------------+--------------+
//!  | head     | data     | check of all   | head, in postcard| data         |
//!  | length   | length   | before the data|                  | (of chunks)  |
//!  +----------+----------+----------------+------------------+--------------+
//! ```
//! Numbers are little-endian. The check is the first 8 bytes of BLAKE3 over the two lengths and the head. Data has no check
//! of its own: each chunk has its hash in the head.

use serde::{Deserialize, Serialize};
use verbena_terms::Format;

use crate::tree::Hash;

/// What opens each stream.
pub const HELLO: Format = Format::new(*b"VTFH", 3);

/// Bytes before a head.
pub const LENGTHS: usize = 16;
/// The longest head: 1,024 hashes and what is around them.
pub const LONGEST_HEAD: usize = 48 << 10;
/// The longest data: the largest chunk.
pub const LONGEST_DATA: usize = 4 << 20;
/// Hashes in one `Have`.
pub const MOST_HASHES: usize = 1024;

/// A file of a session. Grows, and is never used again in it (rule T10).
pub type FileNumber = u32;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and its text.
    Link(Vec<u8>),
}

/// Which version of a source was looked at (rule T7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Bytes.
    pub size: u64,
    /// Modified: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// Changed: seconds and nanoseconds.
    pub changed: (i64, u32),
    /// The inode.
    pub inode: u64,
    /// The device.
    pub device: u64,
}

/// A file, directory or link that is to be there in the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The path below the target, components joined by slashes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
}

/// Why a file was not transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// The source changed each time it was read.
    #[error("changed while it was read: copy it again when no process writes it")]
    Changed,
    /// What was written is not what was read.
    #[error("the data was damaged on the way: copy it again")]
    Damaged,
    /// Another session writes the same target.
    #[error("another session has taken over this target")]
    TakenOver,
    /// The source cannot be read.
    #[error("the source cannot be read: {0}")]
    Source(String),
    /// The target cannot be written.
    #[error("the target cannot be written: {0}")]
    Target(String),
}

/// What the streams of a channel gave in a measured time. All 0: nothing was measured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes per second.
    pub rate: u64,
    /// Microseconds. 0: not known.
    pub round_trip_us: u64,
    /// Packets that were sent, those that were sent again included. 0: the channel does not tell.
    pub packets: u64,
    /// Packets that were sent again.
    pub again: u64,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// First on each stream, from its maker: the token, and which stream of how many.
    Hello {
        /// The header of [`HELLO`].
        header: [u8; 8],
        /// The token of the session.
        token: [u8; 16],
        /// 0 to `streams` - 1.
        stream: u16,
        /// How many there will be.
        streams: u16,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// Sender: a file will come.
    Offer {
        /// Its number.
        file: FileNumber,
        /// What is to be there.
        entry: Entry,
        /// What was looked at.
        identity: Identity,
    },
    /// Sender: data follows the head.
    Chunk {
        /// The session.
        session: u64,
        /// The file.
        file: FileNumber,
        /// The first byte.
        offset: u64,
        /// Grows with each chunk of the file: of two that overtake each other, the later one counts.
        sequence: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
        /// The hash of the data as it was read.
        hash: Hash,
    },
    /// Sender: how much there is, and its root. Says nothing about other streams (rule T10).
    End {
        /// The file.
        file: FileNumber,
        /// The version that was read.
        identity: Identity,
        /// The root of what was read.
        root: Hash,
        /// Chunks of the file that were sent, on all streams: some may still be under way.
        sent: u64,
        /// How many `Again` of the file it knows of: one that was asked since leads to another end.
        again: u32,
    },
    /// Sender: the file will not come.
    Withdrawn {
        /// The file.
        file: FileNumber,
        /// Why.
        failure: Failure,
    },
    /// Sender: no offer follows.
    AllOffered,
    /// Receiver: chunks that stand at the target already, hashed there.
    Have {
        /// The file.
        file: FileNumber,
        /// The first chunk.
        first: u64,
        /// Of it and those behind; `None` is missing.
        hashes: Vec<Option<Hash>>,
    },
    /// Receiver: send what is missing.
    Ready {
        /// The file.
        file: FileNumber,
    },
    /// Receiver: this chunk once more.
    Again {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
    },
    /// Receiver: the file stands, whole (rule T9).
    Stored {
        /// The file.
        file: FileNumber,
    },
    /// Receiver: the file will not stand.
    Refused {
        /// The file.
        file: FileNumber,
        /// Why.
        failure: Failure,
    },
    /// Receiver: so many bytes of data may have been sent on this stream since it was made (rule T11).
    Credit {
        /// The running total.
        total: u64,
    },
    /// Either side gives up, and why.
    Abort {
        /// For people.
        reason: String,
    },
    /// Sender: which streams it would use for chunks, and what it has measured (rule T13).
    Streams {
        /// The first of them. The side that makes connections makes those that are missing.
        first: u16,
        /// How many.
        wanted: u16,
        /// What the streams that were in use gave.
        measured: Measured,
        /// For people.
        why: String,
    },
    /// Sender: copy a chunk from the file whose descriptor came along (rule T3).
    Copy {
        /// The session.
        session: u64,
        /// The file.
        file: FileNumber,
        /// The first byte.
        offset: u64,
        /// Its bytes: they count as data of the stream.
        length: u32,
        /// As of a chunk.
        sequence: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
    },
    /// Receiver: it is copied.
    Copied {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
        /// The hash of what was handed to write; `None` if the source has ended before.
        hash: Option<Hash>,
    },
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length beyond the limits.
    #[error("a message of {head} and {data} bytes is longer than any")]
    Long {
        /// Of the head.
        head: usize,
        /// Of the data.
        data: usize,
    },
    /// The check does not fit.
    #[error("a message was damaged on the way")]
    Check,
    /// The head is no message.
    #[error("a message cannot be read: the other side speaks another version")]
    Form,
}

fn check(lengths: &[u8], head: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(lengths).update(head);
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    first
}

impl Frame {
    /// The bytes before the data.
    pub fn encode(&self, data_length: usize) -> Vec<u8> {
        let head = postcard::to_stdvec(self).unwrap_or_default();
        // Both are within the limits of the decoder, which are below 2^32.
        let mut bytes = (head.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&(data_length as u32).to_le_bytes());
        let check = check(&bytes, &head);
        bytes.extend_from_slice(&check);
        bytes.extend_from_slice(&head);
        bytes
    }

    /// How many bytes of head and of data follow the first [`LENGTHS`].
    pub fn lengths(bytes: &[u8; LENGTHS]) -> Result<(usize, usize), FrameError> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
        let (head, data) = (number(0), number(4));
        if head > LONGEST_HEAD || data > LONGEST_DATA {
            return Err(FrameError::Long { head, data });
        }
        Ok((head, data))
    }

    /// The message in a head. Total.
    pub fn decode(lengths: &[u8; LENGTHS], head: &[u8]) -> Result<Frame, FrameError> {
        if check(&lengths[..8], head) != lengths[8..] {
            return Err(FrameError::Check);
        }
        match postcard::take_from_bytes::<Frame>(head) {
            Ok((frame, [])) => Ok(frame),
            _ => Err(FrameError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(bytes: &[u8]) -> ([u8; LENGTHS], &[u8]) {
        (bytes[..LENGTHS].try_into().unwrap(), &bytes[LENGTHS..])
    }

    #[test]
    fn frames_come_back_and_no_flipped_bit_passes() {
        let frame = Frame::Have { file: 7, first: 9, hashes: vec![Some([3; 32]); MOST_HASHES] };
        let bytes = frame.encode(5);
        let (lengths, head) = split(&bytes);
        assert_eq!(Frame::lengths(&lengths), Ok((head.len(), 5)));
        assert_eq!(Frame::decode(&lengths, head), Ok(frame));
        let bytes =
            Frame::Chunk { session: 1, file: 2, offset: 3, sequence: 4, is_whole_file: false, hash: [4; 32] }.encode(9);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (lengths, head) = split(&flipped);
            assert!(Frame::decode(&lengths, head).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_frame_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), LENGTHS..200)) {
            let (lengths, head) = split(&bytes);
            let _ = (Frame::lengths(&lengths), Frame::decode(&lengths, head));
            // With a right check too.
            let right = check(&bytes[..8], &bytes[LENGTHS..]);
            bytes[8..16].copy_from_slice(&right);
            let (lengths, head) = split(&bytes);
            let _ = Frame::decode(&lengths, head);
        }
    }
}
