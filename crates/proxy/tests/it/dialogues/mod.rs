//! The proxy between a client and an application, each of them a script: see [`crate::scene`].

mod bounds;
mod collapsing;
mod connections;
mod fills;
mod forms;
mod hops;
mod orders;
mod origins;
mod places;
mod sharing;
mod statuses;
mod updates;
