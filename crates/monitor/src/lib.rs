//! The resource monitor: how loaded each node is, in words that others read one-sidedly (DDSS, section 4.2.5).
//!
//! Each node looks at its machine several times a second and publishes what it saw on its *board*, a region that all
//! members may read. A reader reads the boards of the others, as often as it likes, and disturbs no node: a node that
//! is too busy to answer a question is just the one that is asked about. [`Meter`] makes a
//! [`Load`](verbena_terms::Load) of what the kernel says, [`board`] lays it out, [`Watch`] decides
//! when it is published, which boards are read and what still counts as news, and [`Monitor`] runs it by the common runtime of services (`verbena_service`).
//! What was found is in [`Loads`], for the proxy, `verbena top` and the dashboard.

pub mod board;
mod config;
mod host;
mod loads;
mod meter;
mod metrics;
mod monitor;
mod watch;
mod wire;

pub use config::MonitorConfig;
pub use host::{Board, ReadBoard};
pub use loads::{Loads, Seen, Wanted, Watching, Whose};
pub use meter::{Meter, Reading};
pub use metrics::Metrics;
pub use monitor::{Monitor, Source};
pub use watch::{Action, Watch};
pub use wire::{Frame, Message};
