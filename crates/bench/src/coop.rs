//! The experiments with the cooperative cache, after chapter 7 of the dissertation.
//!
//! ```text
//!   clients (threads here) -- memcached's protocol --> proxies: `verbena pool`      back-end nodes: `verbena node --pool-passive`
//!           |                                              +------------- one cache ---------------+
//!           +-- HTTP, what was missed --> origin: files
//! ```
//!
//! Pools and nodes are processes of this program, started as users start them. A client that misses a file gets it from
//! the origin and stores it.

mod client;
mod lookup;
mod memcached;
mod pools;
mod schemes;
mod trace;

pub(crate) use lookup::measure as lookup;
pub(crate) use memcached::measure as memcached;
pub(crate) use schemes::measure as schemes;
pub(crate) use trace::measure as trace;
