//! The client against a helper of a script.
//!
//! - `layer`: The layer around services of all kinds, against a helper that does as the test says.
//! - `updates`: The client of the updates, against a helper that does as the test says: well, or in one of the ways in which a helper fails.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod layer;
mod updates;
