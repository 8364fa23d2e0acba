//! The proxy in front of applications and caches of a script.
//!
//! - `dialogues`: The proxy between a client and an application, each of them a script: see `scene`.
//! - `floods`: What clients and applications may do to a proxy without end, beside what `memory` measures: each is bounded, answered with the
//! - `memory`: Floods: many pages, long bodies, slow readers and senders. All is bounded. One test at a time, because memory is measured.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogues;
mod floods;
mod memory;
mod scene;
