//! The proxy in front of applications and caches of a script.
//!
//! - `dialogues`: The proxy between a client and an application, each of them a script: see `scene`.
//! - `floods`: What clients and applications may do to a proxy without end: each is bounded, answered with the right status, and counted.
//! - `memory`: Floods of which the process's memory is measured: many pages, long bodies, slow readers and senders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogues;
mod floods;
mod memory;
mod scene;
