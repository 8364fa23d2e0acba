//! The protocol beside the real memcached, cut anywhere, and at its limits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod differential;
mod generate;
mod leases;
mod limits;
mod normal;
mod server;
