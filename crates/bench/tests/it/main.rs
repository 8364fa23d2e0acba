//! The rows that need no nodes, and the traces they run on.
//!
//! - `rows`: Rows run for real, with their target in a process of its own: `verbena`.
//! - `traces`: `verbena traces` as its users see it: options in, files out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rows;
mod traces;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: rows use both cores.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
