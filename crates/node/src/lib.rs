//! The helper: one process on each machine that holds its place in the cluster and answers the programs beside it.
//!
//! The decisions are made elsewhere, in machines without input and output. `cluster` decides which nodes are members
//! and until when a node may act; `content` decides what a page is worth. This crate gives them a clock
//! (CLOCK_BOOTTIME), a fabric, durable records and threads:
//!
//! ```text
//!   programs ---- ipc, HTTP ----> [answers, api] ----reads------+
//!                                                               v
//!   other nodes -- fabric, port 1 --> [membership] --writes--> status, lease word <--reads-- hot paths of services
//!                                        |    ^                 |
//!                                  store |    | desk: prepared, | notices
//!                                        v    | settled, stored v
//!                                  state directory          [Service]s
//! ```
//!
//! The code calls an incarnation a [`Life`] (rule C1). Its start number is durable before its fabric is opened. Its
//! fabric, with all regions, is dropped before the fabric of the next incarnation is opened. A service learns of the
//! incarnation, its views, its lease and its end through [`Service`]. The node acknowledges a view when every service
//! is ready for it.
//!
//! A panic on any thread of the helper ends the process with a signal: a helper that lost a part would be worse than none,
//! because peers and programs would wait for what never comes.

mod announced;
mod answers;
mod api;
mod application;
mod charts;
mod config;
mod desk;
mod drain;
mod error;
mod explains;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod habit;
mod helper;
mod history;
mod hosting;
mod keeping;
mod life;
mod loads;
mod locks;
mod mark;
mod membership;
mod memory;
mod neighbours;
mod open_updates;
mod pages;
mod parcel;
mod place;
mod pool;
mod post;
mod program_pages;
mod random;
mod reads;
mod records;
mod retry;
mod rings;
mod seats;
mod segments;
mod service;
mod status;
mod store;
mod successor;
mod teller;
mod thread;
mod tickets;
mod told;
mod touched;
mod waiting;
mod windows;

pub use application::Application;
pub use config::{NodeConfig, Settings};
pub use error::{Error, Result};
pub use explains::{Explains, Explanation};
pub use file::File;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Outcomes, node_message};
pub use helper::{Event, Helper, Observer};
pub use life::Life;
pub use service::{Replies, Service};
