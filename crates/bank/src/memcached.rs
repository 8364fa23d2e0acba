//! Daemons of memcached, by its meta protocol.

mod health;
mod link;
mod pool;
mod wire;

pub use health::DaemonHealth;
pub use link::{Link, LinkError};
pub use pool::{Memcached, Options};
pub use wire::{Answer, Reply, Request, Store, parse_answer};
