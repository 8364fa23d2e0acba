//! Rows of the HTTP cache.

mod herd;
mod hits;
mod purge;
mod servers;

pub(crate) use herd::measure as herd;
pub(crate) use hits::measure as hits;
pub(crate) use purge::measure as purge;
