//! Memory regions, one-sided operations and messages over one interface, whatever the interconnect.
//!
//! A node *registers* a [`Region`] of memory and hands its [`RegionKey`] to nodes that it trusts. A holder of the key
//! *opens* the region at the owner and *posts* [`Batch`]es of reads, writes and atomics on it, through the [`Remote`]
//! it got; the owner's processes do not have to run for them to be executed, as far as the provider can do without
//! ([`Capabilities::target_cpu_free`]). Beside that nodes exchange [`Message`]s.
//!
//! The providers differ in who executes an operation: the caller on mapped memory (`shm`), the owner's kernel in its receive path
//! (`xdp`), an agent thread of the owner (`tcp`), a simulator in virtual time (`sim`). What holds for all of them is the
//! contract of docs/internals/FABRIC.md, rules F1 to F6 of docs/internals/RULES.md, and every provider passes the one suite in `conformance`.
//! Nothing above this crate asks which provider it has; it asks [`Capabilities`].
//!
//! Three ideas carry the rest:
//!
//! * **A word is never torn; anything larger is.** Eight aligned bytes are the unit. Layouts above carry versions.
//! * **Unknown is not an end.** An operation whose answer is missing may still be executed, until [`Remote::settle`] has
//!   found its outcome or barred it for ever (F2). The [`window`] at the target is what makes that, and "exactly once",
//!   true.
//! * **Revoked means other memory.** A region made anew is memory that older keys never reach (F4).

mod capability;
#[cfg(feature = "tcp")]
mod card;
#[cfg(feature = "tcp")]
mod choose;
mod completion;
#[cfg(feature = "tcp")]
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "tcp")]
mod ending;
mod error;
#[cfg(feature = "tcp")]
mod identifiers;
#[cfg(any(feature = "verbs", feature = "xdp"))]
mod lookout;
mod memory;
mod message;
mod operation;
mod packets;
mod pool;
mod provider;
mod region;
#[cfg(any(feature = "verbs", feature = "xdp"))]
mod rota;
pub mod shm;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "tcp")]
mod supply;
#[cfg(feature = "tcp")]
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;
pub mod window;
#[cfg(feature = "xdp")]
pub mod xdp;

pub use capability::{AtomicScope, Atomics, BatchTrips, Capabilities, Classes, Executor, Ordering};
#[cfg(feature = "tcp")]
pub use choose::{
    Finder, Interconnect, Meeting, Opened, Provider, authority_files, choose, member_files, node_files, try_out,
};
pub use completion::{Completer, Pending};
#[cfg(feature = "tcp")]
pub use config::{Choice, FabricConfig, XdpMode};
pub use error::{Error, Result};
pub use memory::Words;
pub use message::{Class, Inbox, InboxSender, Message, Port, Views};
pub use operation::{Batch, Completed, Done, LARGEST_BATCH, Operation, OperationId, Settled};
pub use pool::{Buffer, Pool};
pub use provider::{Address, Connections, Fabric, Frames, Layer, Messages, Peer};
pub use region::{Readable, Region, RegionKey, Remote, Rights, Secret, SharedRemote};
