//! A mount over a mounted file system.
//!
//! Plain, it passes every operation to the directory below, in the caller's name, and keeps nothing. With a bank, reads of
//! files come from memory of other machines, under a promise ([`Promise`]): by default an open sees all that was closed before it.
//! Writes go through: what a write, an fsync or a close answers is what the file system below answered.
//!
//! The pieces: nodes hold files by descriptor, so names may change under them; handles are open files; files are the operations, lookups those that ask
//! for names and attributes, which the bank may know;
//! locks are taken below for each owner; the cache decides with the machines of the crate `bank`; one module knows `fuser`.

mod below;
mod cache;
mod caller;
mod error;
mod explain;
mod files;
mod fuse;
mod handles;
mod locks;
mod lookups;
mod mount;
mod names;
mod nodes;
mod promise;
mod purge;
mod secret;
mod state;
mod status;
mod warm;

pub use below::{Below, Identity};
pub use error::{MountError, UmountError};
pub use mount::{MountOptions, Mounted, check, explain, mount, purge, status, umount};
pub use promise::{Promise, PromiseError};
pub use purge::Purged;
pub use warm::{Warmed, warm};
