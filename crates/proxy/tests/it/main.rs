//! The proxy in front of applications and caches of a script.
//!
//! - `dialogues`: The proxy between a client and an application, each of them a script: see `scene`.
//! - `direct`: Hits beneath hyper, beside a proxy that has hyper answer all.
//! - `floods`: What clients and applications may do to a proxy without end: each is bounded, answered with the right status, and counted.
//! - `floods_http2`: The same over HTTP/2.
//! - `malformed`: Requests that two readers could take for different ones, over either version: the application gets one or none.
//! - `memory`: Floods of which the process's memory is measured: many pages, long bodies, slow readers and senders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogues;
mod direct;
mod floods;
mod floods_http2;
mod malformed;
mod memory;
mod scene;
