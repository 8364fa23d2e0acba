//! Programs and their helper, over each mode.
//!
//! - `calls`: A helper and its programs in one process: what a call promises.
//! - `processes`: Programs and helpers in processes of their own: killed, stopped, and hostile.
//! - `queues`: What another process of the same user can do to the queues of a client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[macro_use]
mod common;

mod calls;
mod processes;
mod queues;
