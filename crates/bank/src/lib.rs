//! A bank of file blocks: it holds bytes, never truth (rule B1).
//!
//! A bank is memory on other machines that answers faster than a file system. It may be old, foreign, torn or gone, so
//! nothing that it says is believed. A block is asked for under a key that names the file, its version and the block
//! (rule B2). The version comes from the file system itself, after the request arrived. A block of an older version has
//! another key, and is a miss. The bytes stand in an envelope with a checksum under the volume's secret: an item that
//! does not prove itself is a miss too, and is counted by its fault.
//!
//! What decides has no input or output: [`Daemons`] places blocks, [`Stamp`] says whether a version can be trusted,
//! [`decide`] whether an open file may use the bank, and [`Read`] takes one read from its blocks to its bytes.
//! `memcached::Link` turns requests into bytes and bytes into answers. [`Memcached`] holds the sockets, and [`start`] starts daemons. [`SharedMemory`] is the other kind of bank: segments of the local helper. [`gluster`] loads a bank's translators into volumes.
//! [`Near`] is memory of the process itself, before either. A [`Listing`] is a directory as blocks.
//! [`Blocks`] joins them: blocks in, blocks out, misses counted by cause.

mod blocks;
mod counters;
mod daemons;
mod decide;
mod envelope;
pub mod gluster;
mod key;
mod kind;
mod listing;
mod memcached;
mod memory;
mod near;
mod placement;
mod read;
mod rules;
mod seal;
mod secret;
mod start;
mod version;

pub use blocks::{Bank, Blocks, Found, Introduction, Miss, Removed};
pub use counters::{Counters, Counts};
pub use daemons::{Address, Daemon, Daemons, ListError};
pub use decide::{Direct, Opening, decide};
pub use envelope::{Envelope, Fault};
pub use key::{BlockKey, FileKey, Name};
pub use kind::Kind;
pub use listing::{Attributes, Listing, ListingHead, NameEntry};
pub use memcached::{Answer, DaemonHealth, Link, LinkError, Memcached, Options, Reply, Request, Store, parse_answer};
pub use memory::{MemoryOptions, MemoryStatus, SharedMemory};
pub use near::{Near, NearStatus};
pub use placement::{Placement, libmemcache_crc32};
pub use read::{After, BlockSize, BlockSizeError, End, Read, Run};
pub use rules::Rules;
pub use secret::{Secret, SecretError};
pub use start::{Running, StartError, StartOptions, start};
pub use version::{Clocks, Stamp, Time};
