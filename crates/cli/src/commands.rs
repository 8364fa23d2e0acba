//! One file per subcommand.

use clap::builder::RangedU64ValueParser;

mod address;
pub mod bank;
pub mod bench;
mod child;
pub mod cluster;
pub mod completions;
pub mod config;
pub mod cp;
pub mod database;
pub mod doctor;
pub mod explain;
pub mod fs;
pub mod ftp;
pub mod keys;
pub mod lock;
#[cfg(feature = "man")]
pub mod man;
pub mod mem;
pub mod node;
pub mod pool;
pub mod proxy;
pub mod purge;
mod reach;
mod relay;
mod running;
mod signals;
pub mod start;
pub mod status;
pub mod top;
pub mod traces;
pub mod wan;

/// A count of which 0 would mean nothing.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}
