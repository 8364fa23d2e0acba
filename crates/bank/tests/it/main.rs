//! The bank against real daemons that die, stop and come back.

#![allow(clippy::unwrap_used)]

mod daemon;
mod faults;
mod names;
mod serving;
