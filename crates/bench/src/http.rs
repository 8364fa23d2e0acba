//! Rows of the HTTP cache.

mod herd;

pub(crate) use herd::measure as herd;
