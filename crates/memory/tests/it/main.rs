//! Shared memory: each promise checked over each provider, and whole clusters from seeds.
//!
//! - `processes`: The same with real processes on real fabrics: what each coherence promises holds for what they write down, writers are killed in the middle of puts, and
//! - `segments`: Segments among nodes of a simulated network where nothing fails: what is refused, and that nothing is changed by it.
//! - `storm`: A cluster in a storm: nodes that run the product's own driver over the simulated fabric, and clients that get and put, while nodes pause, crash and join

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod processes;
mod segments;
mod storm;
