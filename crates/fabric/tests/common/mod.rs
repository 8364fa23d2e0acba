//! What the tests of the provider `tcp` share.

#![allow(clippy::unwrap_used, reason = "these are tests")]

pub mod relay;
