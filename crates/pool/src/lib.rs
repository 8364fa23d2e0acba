//! A server of the memcached protocol, text and meta, over the cooperative cache of the node in the same process.
//!
//! A thread a core accepts connections over TCP and a unix socket. A connection's requests are executed one after the other, so its answers come in
//! order; the keys of one `get` are read together. What a client may do is bounded: connections, lines, values, and how long it may leave answers
//! unread. [`Client`] is the other end, for commands and tests.

#![forbid(unsafe_code)]

mod client;
mod config;
mod connection;
mod execute;
mod observed;
mod server;
mod statistics;
mod tenants;

pub use client::{Client, ClientError, Value};
pub use config::{ListenerConfig, MemcachedConfig};
pub use server::{Bound, Server, ServerError};
