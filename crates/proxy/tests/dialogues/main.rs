//! The proxy between a client and an application, each of them a script: see `scene`.
#![allow(clippy::unwrap_used, reason = "a test")]

mod bounds;
mod collapsing;
mod conditions;
mod connections;
mod fills;
mod forms;
mod halves;
mod hops;
mod orders;
mod origins;
mod passed;
mod places;
mod queries;
#[allow(dead_code, reason = "shared with the tests of memory")]
mod scene;
mod sharing;
mod statuses;
mod updates;
