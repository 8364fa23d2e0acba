//! The proxy between a client and an application, each of them a script: see [`crate::scene`].

mod believed;
mod bounds;
mod coded;
mod collapsing;
mod conditions;
mod connections;
mod database;
mod fills;
mod forms;
mod halves;
mod hops;
mod ignored;
mod joining;
mod orders;
mod origins;
mod passed;
mod passed_on;
mod places;
mod queries;
mod secure;
mod sharing;
mod sockets;
mod standard;
mod statuses;
mod tunnels;
mod updates;
