//! The machines of cooperative caching, each alone and together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cells;
mod copies;
mod holder;
mod random;
mod register;
mod simulation;
mod table;
mod traces;
mod world;
