//! What a program links to talk to the helper of its machine.
//!
//! A program knows nothing of the cluster: it finds the helper's socket ([`Socket`], [`Place`]) and asks. It does so in one of two
//! ways. For state, metrics, locks, shared memory and its own copies of pages it connects over memory of the machine ([`Helper`], [`Locks`], [`Memory`], [`Pages`]; requests and answers in [`wire`]). For writes it tells
//! the helper over HTTP what they touch ([`Updates`]; requests and answers in [`api`]), or lets a layer of `tower` do it for every
//! request ([`AnnounceLayer`]). The helper reads the same two files. Every call has a deadline.
//!
//! Features: `updates` for the second way, `tower` for the layer, which is the default.

mod board;
#[cfg(feature = "tower")]
mod bracketed;
mod checkpoints;
#[cfg(feature = "updates")]
mod connect;
mod error;
mod helper;
#[cfg(feature = "tower")]
mod layer;
mod locks;
mod memory;
mod pages;
mod place;
mod scope;
mod socket;
#[cfg(feature = "updates")]
mod updates;
mod window;

#[cfg(feature = "tower")]
pub use bracketed::Bracketed;
pub use checkpoints::{CheckpointOptions, CheckpointRecord, Joined, MAX_PROCESSES};
#[cfg(feature = "updates")]
pub use connect::{Connection, connect};
pub use error::{Error, Result};
pub use helper::{Draining, Helper, Report, Roll};
#[cfg(feature = "tower")]
pub use layer::{Announce, AnnounceLayer, AnnouncedBody, AnnouncedResponse, MadeOf, Write};
pub use locks::{Hold, LockList, Locks, MAX_NAME_BYTES, Watch, Wish};
pub use memory::{Memory, PutOptions, SegmentList, Value};
pub use memory_wire::{Failure, NewSegment, Placement, Reclaims, SegmentInfo, SegmentStat, Which};
pub use pages::{Depends, Pages, Stamp};
pub use place::Place;
pub use scope::Scope;
pub use socket::{DEFAULT_NAME, MODE_VARIABLE, Socket};
#[cfg(feature = "updates")]
pub use updates::{PATIENCE, Update, Updates};
pub use verbena_ipc::usual_directory;
pub use verbena_protocol::api::{self, Outcome};
pub use verbena_protocol::{memory as memory_wire, page as page_wire, wire};
pub use verbena_terms::{Coherence, Incarnation, SegmentId};
pub use window::Window;
