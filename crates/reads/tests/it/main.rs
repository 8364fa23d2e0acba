//! Logs of reads: simulated, and on a fabric.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod simulation;
