//! How a program reaches the helper of its node.
//!
//! Programs are many, short-lived and not trusted; the helper is one, lives on, and must not be hurt by any of them. A
//! program connects to a unix socket and the kernel says who it is. The helper makes a piece of memory for this client
//! alone, with a ring for requests and a ring for responses, seals its size, and passes it over the socket. From then
//! on requests and responses go through the rings, without a system call while both sides are at work, and the socket
//! says only one more thing: that the other side is gone.
//!
//! *Nothing is left behind.* The memory has no name; it is gone when both sides are, however they end. The socket
//! file of a helper that was killed is known to be stale by the lock beside it, and replaced.
//!
//! *Nobody is believed.* The client can change its memory at any moment, from any thread, to anything, and the helper
//! neither reads beyond it, nor loops, nor waits, nor hands a service bytes that change afterwards: it copies a message
//! out, checks each length and position once, in its own copy, and drops the client at the first one that cannot be. One
//! client's rings are no other's, so the others notice nothing.
//!
//! *Nothing is unbounded.* A full request ring makes the client wait until its deadline; a full response ring makes
//! the helper keep the response and take nothing more from that client (session.rs). A program may have
//! [`MAX_OUTSTANDING`] requests on their way, the helper `max_clients` clients of two rings each.
//!
//! *Nobody waits for ever.* Every call has a deadline. A request that was in the ring when it passed may be executed all
//! the same, and the error says so (rule F2).
//!
//! The files, in the order of the story: `layout` and `message` (the bytes in the memory), `memory`, `ring`, `bell` (how
//! one sleeps and the other wakes it, and why no wake-up is lost), `spin`, `adaptive` (the four together), `mode` (where
//! other ways plug in), `handshake` (the bytes on the socket), `directory` and `peer` (where it lies and who may come),
//! `session`, `request`, `server` (the helper), `connection` (the program).

mod adaptive;
mod bell;
mod connection;
mod counters;
mod directory;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod handshake;
mod layout;
mod memory;
mod message;
mod mode;
mod peer;
mod request;
mod ring;
mod server;
mod session;
mod spin;

pub use adaptive::BoardReader;
pub use connection::{Connection, MAX_OUTSTANDING, Response};
pub use counters::{ConnectionCounters, Counters};
pub use directory::{Claim, runtime_directory};
pub use error::{Breach, Error, Over, Refusal};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Outcomes, ring_ends};
pub use handshake::Farewell;
pub use layout::BOARD_WORDS;
pub use mode::Mode;
pub use request::{Board, ClientId, Event, Request, Responder, Waker};
pub use server::{Options, Server};
