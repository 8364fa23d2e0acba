//! The page protocol: every order of events, whole clusters from seeds, the service on real memory.
//!
//! - `every_order`: Every order of events in a small world: one page, two proxies that read and update, two homes, and a view change,
//! - `homes`: Pages whose home changes with the view, and those whose home stays: nodes of one process over shared memory, views of a script.
//! - `never_stale`: The whole page protocol under a seed, with everything that can go wrong, and checkers that know the database's own
//! - `service`: The page protocol at work over a real fabric, between nodes of one process that share nothing else. Membership is a script here.
//! - `store_memory`: What a store says that it takes is what it takes. Alone in its file, because it looks at the memory of the whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod every_order;
mod homes;
mod never_stale;
mod service;
mod store_memory;
