//! The registry of metrics, as its readers see it.
//!
//! - `faces`: One registry, several faces: they must say the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod faces;
