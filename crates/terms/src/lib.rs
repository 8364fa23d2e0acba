//! The words that every floor of the house shares.
//!
//! Nodes agree on little: who somebody is ([`Incarnation`]), which membership is meant ([`ViewNumber`]), what time it
//! is on this machine ([`Time`]), how a block of bytes says what it is ([`Format`]), how a response names what it depends on
//! ([`dependency_field`]), how a person sets their behaviour
//! ([`Section`]), what a segment of shared memory promises ([`Coherence`]), and how loaded a node is ([`Load`]). These stand below the ground floor so that `fabric`, `cluster` and `ipc` can speak of the same things
//! without knowing of each other (docs/internals/ARCHITECTURE.md, "The cellar").

mod coherence;
mod complaints;
mod cores;
mod dependency;
mod format;
mod load;
mod member;
mod quantity;
mod section;
mod segment;
mod segment_word;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;

pub use coherence::{Coherence, CoherenceError};
pub use complaints::Complaints;
pub use cores::{keep_off, stay_on, usable_cores, usable_instead_of};
pub use dependency::{
    DEPENDENCY_FIELD, MAX_DEPENDENCIES, MAX_DEPENDENCY_FIELD_BYTES, MAX_DEPENDENCY_NAME_BYTES, dependency_field,
};
pub use format::{Format, FormatError, HEADER_BYTES, HasFormat};
pub use load::{Load, LoadCounts};
pub use member::{Incarnation, Rank, ViewNumber};
pub use quantity::{Lapse, Size};
pub use section::{Contradiction, Key, Section};
pub use segment::{SegmentId, SegmentIdError};
pub use segment_word::{FILLING, SLOT_HEAD_BYTES, SegmentEnd, SegmentWord};
pub use time::{BootClock, Clock, Time};
