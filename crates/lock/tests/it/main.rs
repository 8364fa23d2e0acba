//! Locks: dialogues, every order of events, whole clusters from seeds, each scheme over each provider.
//!
//! - `dialogues`: What one machine says in one situation: what the promises cost, and what cannot be.
//! - `every_order`: Every order of events in a small world: one lock, some participants that request it a few times each, in any mode, and its home.
//! - `fabrics`: Each scheme over each provider that needs no adapter: services as nodes have them, whose clients take a lock by turns. What nodes use is killed, stopped and cut off
//! - `forgetting`: A member that is asked to forget words (rule L4): when it answers, and that it does not know them afterwards.
//! - `million`: What a lock takes of memory: at the node whose clients hold it, and at its home. In a process of its own, which has nothing else to do.
//! - `nodes`: Locks among nodes of a simulated network where nothing fails: what it takes to get one, and what is told whom.
//! - `storm`: A cluster in a storm: nodes that run the product's own driver over the simulated fabric, and clients that want locks, while nodes pause, crash and join

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogues;
mod every_order;
mod fabrics;
mod forgetting;
mod million;
mod nodes;
mod storm;
