//! The helper: one process on each machine that holds its place in the cluster and answers the programs beside it.
//!
//! The decisions are made elsewhere, in machines without input and output. `cluster` decides which nodes are members
//! and until when a node may act; `content` decides what a page is worth. This crate gives them a clock
//! (CLOCK_BOOTTIME), a fabric, durable records and threads:
//!
//! ```text
//!   programs -- ipc, HTTP --> [programs, http_api] ------reads----------+
//!                                                                       v
//!   other nodes -- fabric, port 1 --> [membership] --writes--> status, lease word <--reads-- hot paths of services
//!                                        |    ^                         |
//!                                  store |    | mailbox: prepared,      | notices
//!                                        v    | settled, stored         v
//!                          [local]: state directory                [services]
//! ```
//!
//! The code calls an incarnation a [`Life`] (rule C1). Its start number is durable before its fabric is opened. Its
//! fabric, with all regions, is dropped before the fabric of the next incarnation is opened. A service learns of the
//! incarnation, its views, its lease and its end through [`Service`]. The node acknowledges a view when every service
//! is ready for it.
//!
//! A panic on any thread of the helper ends the process with a signal: a helper that lost a part would be worse than none,
//! because peers and programs would wait for what never comes.

mod config;
mod error;
mod event;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod helper;
mod http_api;
mod local;
mod membership;
mod programs;
mod random;
mod retry;
mod services;
mod thread;

pub use config::{NodeConfig, Settings};
pub use error::{Error, Result};
pub use event::{Event, Observer};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Outcomes, node_message};
pub use helper::Helper;
pub use http_api::explains::{Explains, Explanation};
pub use http_api::file::File;
pub use local::application::Application;
pub use membership::life::Life;
pub use membership::service::{Replies, Service};
