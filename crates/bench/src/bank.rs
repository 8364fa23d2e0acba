//! Rows about the cache bank for file systems (the IMCa paper): a GlusterFS volume with the bank's translators and without, through its mounts.

mod latency;
mod reading;
mod stat;
mod volume;

pub(crate) use latency::measure as latency;
pub(crate) use reading::{sharing, throughput};
pub(crate) use stat::measure as stat;
