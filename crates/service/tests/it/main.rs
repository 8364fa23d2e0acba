//! A service from nothing, in the fault simulation.
#![allow(clippy::unwrap_used, reason = "a test")]

mod document;
mod sequence;
mod storm;
