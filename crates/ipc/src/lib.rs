//! How a program reaches the helper of its node.
//!
//! Programs are many, short-lived and not trusted; the helper is one, runs on, and must not be hurt by any of them. A
//! program connects to a unix socket and the kernel says which user it runs as. The helper makes a piece of memory for
//! this client alone, seals its size, and passes it over the socket. From then on requests and responses go by the
//! [`Mode`] that the client asked for, and the socket says only one more thing: that the other side is gone.
//!
//! *Four ways to talk*, three of the paper and one of ours (DDSS, section 3). `mq`: System V message queues both ways. `rmq`: a ring
//! in the shared memory for requests, a queue for responses. `rcq`: rings both ways, looked at again and again. `adaptive`, which
//! is what a client gets that does not ask: rings both ways, looked at while that pays, and then a sleep. One thread of
//! the helper serves them all, each client as it likes.
//!
//! *Nothing is left behind.* The memory has no name; it is gone when both sides are, however they end. A queue is removed by
//! the helper when its client is gone; those of a helper that was killed stand in a record beside its socket, and the next one
//! removes them. The socket file itself is known to be stale by the lock beside it, and replaced.
//!
//! *No client is trusted.* The client can change its memory at any moment, from any thread, to anything, and the helper
//! neither reads beyond it, nor loops, nor waits, nor hands a service bytes that change afterwards: it copies a message
//! out, checks each length and position once, in its own copy, and drops the client at the first one that cannot be.
//! Each client has its own rings and queues, so the others notice nothing.
//!
//! *Nothing is unbounded.* A full request ring, or queue, makes the client wait until its deadline; a full one for responses makes
//! the helper keep the response and take nothing more from that client (session.rs). A program may have
//! [`MAX_OUTSTANDING`] requests on their way, the helper `max_clients` clients of two rings or queues each.
//!
//! *No call waits for ever.* Every call has a deadline. A request that was on its way when it passed may be executed
//! all the same, and the error says so (rule F2).
//!
//! The files, in the order of the story: `layout` and `message` (the bytes in the memory), `memory`, `ring`, `bell`
//! (how one sleeps and the other wakes it, and why no wake-up is lost), `spin`, `beacon`, `hints` and `wires` (what all
//! modes share), `rings` (the modes `rcq` and `adaptive`), `queue`, `piece`, `record` and `watchdog` (what it takes to
//! use queues), `queues` (the modes `mq` and `rmq`), `cores` and `config` (the helper's settings), `mode` (where the
//! modes plug in), `handshake` (the bytes on the socket), `directory` and `peer` (where the socket lies and which users
//! may connect), `session`, `request`, `watch`, `newcomers`, `server` (the helper), `connection` (the program).

mod beacon;
mod bell;
mod boot;
mod config;
mod connection;
mod cores;
mod counters;
mod directory;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod handshake;
mod hints;
mod layout;
mod life;
mod memory;
mod message;
mod mode;
mod newcomers;
mod peer;
mod piece;
mod queue;
mod queues;
mod readable;
mod record;
mod request;
mod ring;
mod rings;
mod server;
mod session;
mod spin;
mod watch;
mod watchdog;
mod wires;

pub use beacon::BoardReader;
pub use boot::boot_id;
pub use config::IpcConfig;
pub use connection::{Connection, MAX_OUTSTANDING, Response};
pub use counters::{ConnectionCounters, Counters, ModeCounters};
pub use directory::{Claim, hold, runtime_directory, usual_directory};
pub use error::{Breach, Error, Over, Refusal};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Outcomes, QueueOutcomes, queue_ends, ring_ends};
pub use handshake::Farewell;
pub use layout::BOARD_WORDS;
pub use mode::Mode;
pub use readable::ReadableMemory;
pub use request::{Board, ClientId, Event, Request, Responder, Waker};
pub use server::{Options, Server};
