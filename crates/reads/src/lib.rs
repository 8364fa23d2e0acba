//! The log of reads: what relays have seen applications read, in a ring of each relay's region (rule Q2).
//!
//! A relay records the names of a read before it passes on the answer. A proxy in another process reads the relay's position before it forwards a request, and the ring
//! after the last byte of the answer is here: what was recorded in between is what the request can have read. Both are one-sided, so nothing is sent for a fill, and a
//! relay does the same work for one proxy and for ten.
//!
//! ```text
//!   proxy    position, moment ---- request to the application ---- last byte    position, entries
//!                \                     |                                           /
//!   relay         \                 statements                                    /
//!   region    [ epoch | moment | written | tags | ring: entry entry entry ... ]
//! ```
//!
//! [`layout`] draws the region, [`Entry`] what stands in the ring, [`Writer`] fills it, and [`Reading`] makes of two looks what a fill has read, or says why that is not
//! known: then the page depends on everything. [`ReadLogs`] is a node's part, run by the common runtime of services; [`Recorder`] is for its relay, [`Watching`] for its proxy.

mod counts;
mod entry;
pub mod layout;
mod reading;
mod rules;
pub mod service;
mod wire;
mod writer;

pub use counts::Metrics;
pub use entry::{Entry, Group, MAX_NAMES, Seen};
pub use reading::{End, Lost, Read, Reading, Span, Start};
pub use rules::Rules;
pub use service::{ReadLogs, Recorder, Watching};
pub use writer::{Stored, Writer};
