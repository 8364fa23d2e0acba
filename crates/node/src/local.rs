//! What nodes of one machine share: places, seats, files, and the marks by which they learn of each other.

pub(crate) mod application;
pub(crate) mod conflict_marker;
pub(crate) mod open_updates;
pub(crate) mod place;
pub(crate) mod seats;
pub(crate) mod store;
pub(crate) mod takeover;
