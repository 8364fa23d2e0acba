//! `shm`: processes of one host, on memory that they share.
//!
//! A region is a sealed memfd: a header page and the data ([`layout`]). A holder of its key gets the descriptor over a
//! unix socket, maps it, and from then on *executes its own operations*, with the processor's loads, stores and
//! atomics. The owner does not take part: stopped, it still "answers". A post is two loads more than the operation
//! itself (is the region live, is its owner) and a look at the clock; it takes no lock, no allocation up to four
//! elements, and no system call. It is complete when it returns, so no operation ever ends as unknown or needs to be
//! settled (F2 holds of itself).
//!
//! ```text
//!   owner's process                                    peer's process
//!   +----------------+   abstract unix socket          +----------------+
//!   | service thread |<--- hello, open --------------->| whoever opens  |   once for each region
//!   |                |     welcome, opened+descriptor  |                |
//!   |                |<=== messages: control ==========| whoever sends  |   a connection for each class
//!   |                |<=== messages: bulk =============|                |
//!   +----------------+                                 +----------------+
//!   |  Region        |-- memfd: header page | data ----|  Remote        |   operations, without any thread
//! ```
//!
//! **Revocation (F4).** Every making of a region is a memfd of its own, so a region made anew is other memory and old
//! memory is never used again: the kernel frees it when the last mapping goes. The owner first writes `revoked` into
//! the old header; a peer that has it open looks there before each batch (and, for a batch of reads alone, once more
//! behind it). An operation that looked just before may still land in the old memory, which is never read again.
//!
//! **Death.** A process that is killed marks nothing, and its memory stays in its peers' mappings. The connection by
//! which a peer opened its regions is the lifeline: the kernel hangs it up when the owner's process ends, the peer's
//! service thread sees that and marks the link, and every operation from then on is [`Error::Unreachable`]. Until it
//! has seen it (microseconds on an idle machine, as long as that thread waits for a processor on a busy one) an
//! operation on a dead owner's memory succeeds, as one does on the memory of an owner that dies a moment later; what
//! must not rest on a dead node is protected by leases (C1, C5).
//!
//! **Nothing is left.** The memory has no name, the socket's name is abstract, every descriptor is close-on-exec: when the last process
//! ends, by whatever signal, the kernel has taken everything back.
//!
//! **Access.** The socket's name is random, and not a secret (`/proc/net/unix` shows it); the address also carries a
//! secret that must be shown, and both sides check the other's user id: the same, or one that was allowed. A key to
//! read brings a descriptor that was opened for reading, which the kernel never maps for writing. The memory's mode is
//! 0400, so that opening it again through `/proc/self/fd` for writing is refused to another user; a process of the
//! *same* user could change the mode first, and root needs not even that. Against those rights are a guard against
//! mistakes, as they are against anyone who may attach a debugger. Abstract names belong to a network namespace: peers
//! in another one do not reach this one, peers in another pid or mount namespace do. A peer that was let in is believed
//! when it names its incarnation: processes that may share memory are one party.

mod fabric;
mod frame;
mod hub;
mod layout;
mod link;
mod place;
mod region;
mod remote;
mod segment;
mod service;

pub use fabric::{Settings, Shm};

/// Parses arbitrary bytes as a packet of the sockets; panics if what parses is not written as a packet that reads the same.
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub fn fuzz_frame(packet: &[u8]) {
    frame::exercise(packet);
}

#[cfg(doc)]
use crate::Error;
