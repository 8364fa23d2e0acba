//! The machine by scripts, and the server as clients see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod bench;
mod clients;
mod dialogue;
mod extended;
mod hostile;
mod limits;
mod sessions;
mod sockets;
mod third;
mod tls;
