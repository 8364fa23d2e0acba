//! The rows that need no nodes, and the traces they run on.
//!
//! - `rows`: Rows run for real, with their target in a process of its own: `verbena`.
//! - `traces`: `verbena traces` as its users see it: options in, files out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rows;
mod traces;
