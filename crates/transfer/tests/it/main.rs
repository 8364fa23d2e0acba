//! The machines under faults, and the store and channel on real files and sockets.
#![allow(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]

mod both_ways;
mod channels;
mod datagram_link;
mod datagrams;
mod descriptors;
mod faults;
mod hostile;
mod joining;
mod local;
mod quic;
mod real;
mod store;
mod tuning;
mod udp;
mod world;
