//! The cluster: its machines alone, what crosses the network, whole clusters from seeds.
//!
//! - `alone`: A node that is alone is its own keeper and serves without waiting for anybody.
//! - `decode`: Any bytes give a message or an error, never a panic, and what is decoded encodes to what was read.
//! - `sim`: Seeded simulation of a whole cluster with every fault, and checkers that look after each step; dialogues in the same world.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alone;
mod decode;
mod sim;
