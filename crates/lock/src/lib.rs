//! Locks that many nodes share, taken in one round trip.
//!
//! A lock is a word at its home, `[tail : 32 | count : 32]`: the last writer in the queue, and the readers that came
//! after it. A writer puts itself at the tail with a compare-and-swap, a reader adds itself to the count with a
//! fetch-and-add. The previous value of the word says whether the lock is theirs at once. If it is not, the newcomer
//! sends one message to the writer ahead, and one message brings the grant. A waiter sends nothing more. The home's
//! processor is needed only where readers come before a writer, because only the home sees all of them release
//! (dissertation, chapter 4, N-CoSED).
//!
//! [`LockParticipant`] is a node's part in one lock, [`Home`] the part of the node that owns the words. Both are plain state machines: they take what
//! happened and say what to do, and have no input, output or clock. [`LockRole`] and [`HomeRole`] are the same for any [`Scheme`]: the chapter's two others are here to
//! be compared with. docs/concepts/locks.md has their states, the rules (L1 to L4) and
//! why any mixture of readers and writers works out; `tests/it/every_order` tries all of them.

mod access;
mod action;
mod askers;
mod deadlock;
mod directory;
mod evicted;
mod home;
pub mod listing;
mod local_queue;
mod locks;
mod members;
mod message;
mod name;
mod participant;
mod place;
mod recovery_holder;
mod removal;
mod rules;
mod scheme;
pub mod service;
mod srsl;
mod stream;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod wire;
mod word;

pub use access::{Batch, Change, Outcome};
pub use action::{Action, ProtocolViolation, Refusal};
pub use askers::Asker;
pub use deadlock::{Cycle, MOST_WAITERS, Probe, Waiter};
pub use directory::HomeWords;
#[doc(hidden)]
pub use evicted::Evicted;
pub use home::Home;
pub use local_queue::{Answer, RequestId};
pub use locks::{Locks, LocksAction, LocksOptions, PostId};
pub use message::{Message, To};
pub use name::{MAX_NAME_BYTES, Name, NameError};
pub use participant::{LockParticipant, Request};
pub use recovery_holder::{RecoveryHolder, Survivor, in_order};
pub use removal::Removal;
pub use rules::Rules;
pub use scheme::{HomeRole, LockRole, Scheme};
pub use srsl::{Client, Server};
pub use word::{GATE_WORD_AT, LOCK_BYTES, LOCK_WORD_AT, LockWord, Mode, TOKEN_WORD_AT, Token};
