//! The helper inside one process.
//!
//! - `floods`: What programs may do to their helper without end: each is bounded, refused by name, and seen in the metrics.
//! - `helper`: One helper in this process: lives, status, services. Several processes are tested with the command.
//! - `panic`: A panic in a service ends the process: seen from outside, by a process that this test starts.
//! - `seats`: Helpers that nobody configured, in one process: they are one cluster, and go on when the first of them ends (rule P11).
//! - `removed_files`: files of the runtime directory are removed while a helper runs, and put back.
//! - `updates`: A helper in this process, told of writes as a program does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod floods;
mod helper;
mod panic;
mod removed_files;
mod seats;
mod updates;
