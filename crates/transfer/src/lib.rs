//! Bulk transfer that is never wrong.
//!
//! [`Sender`] and [`Receiver`] are the two sides of a session without input and output. docs/TRANSFER.md has the rules by
//! number, draws the bytes, and says what each rule prevents.

mod frame;
mod receiver;
mod rules;
mod sender;
mod tree;

pub use frame::{
    Entry, EntryKind, Failure, FileNumber, Frame, FrameError, HELLO, Identity, LENGTHS, LONGEST_DATA, LONGEST_HEAD,
};
pub use receiver::{Basis, Receiver, ReceiverAction};
pub use rules::{CHUNK_BYTES, Rules, SessionSettings};
pub use sender::{Look, Sender, SenderAction};
pub use tree::{Hash, chunk_count, chunk_hash, chunk_length, root};
