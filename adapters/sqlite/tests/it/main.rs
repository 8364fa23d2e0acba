//! The extension, loaded by programs that have an SQLite of their own, against real nodes.

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod shells;
