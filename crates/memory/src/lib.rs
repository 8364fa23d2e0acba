//! Memory that many nodes share: segments with a name, read and written one-sidedly (DDSS, dissertation chapter 3).
//!
//! A segment is a few slots in its home's memory and one word, `[version | slot]`. A writer fills a slot that only it
//! owns, and publishes it with one compare-and-swap of the word. A reader reads the word, the slot that it names, and
//! the slot's version again. So a reader never sees half a value, a writer that dies leaves the old value, and neither
//! needs the home's processor (rule M1). What a segment promises beyond that is its [`Coherence`].
//!
//! The rest is about the two moments when memory changes its owner. Released memory is used again when every member has
//! said that it has nothing in flight to it (rule M2). And each view has memory of its own: when no node acts in the
//! older view any longer, a home copies its segments into new memory, which the keys of departed nodes do not reach.
//! The result of an operation counts only if the view still held after it came, so the copy has everything that a
//! program has been given.
//!
//! A segment may have copies at several homes. A put reaches all of them before any reader can see it. Before a view
//! serves the segment, all of them hold the highest version again (rule M3).
//!
//! [`Memory`] is a node's part in all of this, as a plain state machine: it takes what happened, and says what to do. docs/concepts/memory.md has the
//! layout, what each coherence promises and costs, and what survives what; `tests/it/storm` checks it with faults, from seeds.

mod access;
mod actions;
#[cfg(test)]
mod dialogue;
mod get;
mod heap;
mod home;
pub mod layout;
mod node;
mod options;
mod recent;
mod registrar;
mod request;
mod rules;
mod segment;
pub mod service;
pub mod wire;

pub use access::{Given, Outcome, Post, PostId, Step};
pub use actions::{Renewal, Stands, Stay};
pub use get::Value;
pub use heap::{EXTENT_ALIGNMENT, Heap};
pub use home::{Note, Reclaims};
pub use layout::End;
pub use node::{Action, Memory, Standing};
pub use options::MemoryOptions;
pub use request::{Answer, RequestId, Target, Wish};
pub use rules::Rules;
pub use segment::{
    MAX_COPIES, MAX_NAME_BYTES, MAX_SEGMENT_BYTES, MAX_WRITERS, Place, Placement, Refusal, Segment, SegmentName, Wanted,
};
pub use verbena_terms::{Coherence, CoherenceError, SegmentId};
