//! Runs a service's state machine on a fabric.
//!
//! Locks, memory, the monitor and the systems after them have one shape. A *machine* takes commands, messages, completed batches and the time, and gives actions; it
//! performs no input or output. A *driver* carries its actions out on a fabric. The [`executor`] runs the driver on the thread that brings it work. The
//! [`endpoint`] is what the driver has on the fabric of one incarnation of its node: its port, the [`peers`], and the [`batches`] in flight, whose effects [`settle`]
//! accounts for when an answer is lost.
//!
//! ```text
//!   callers --submit--> executor --> driver --> machine (no I/O)
//!                          ^            |          |
//!   fabric's threads --wake+            +<-actions-+
//!                                       v
//!                                   endpoint: inbox, peers, batches
//! ```

#![forbid(unsafe_code)]

pub mod batches;
pub mod driver;
pub mod endpoint;
pub mod executor;
mod handoff;
pub mod hosted;
pub mod peers;
pub mod read_once;
pub mod settle;
