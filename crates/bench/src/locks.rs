//! The experiments with locks, after chapter 4 of the dissertation.
//!
//! Nodes are processes in a view that does not change, each with the service of locks that a node has, over a fabric of this machine. Where the
//! way through a node's helper is measured, nodes are `verbena node`, and clients programs.

mod basic;
mod cascade;
mod client;
mod contention;
mod counted;
#[cfg(feature = "etcd")]
mod etcd;
mod node;
mod nodes;
mod others;
mod redis;
mod station;
mod trace;
mod work;

pub(crate) use basic::measure as basic;
pub(crate) use cascade::measure as cascade;
pub(crate) use client::{ROLE as CLIENT, serve as serve_client};
pub(crate) use contention::measure as contention;
pub(crate) use node::{ROLE as NODE, serve as serve_node};
pub(crate) use others::measure as others;
pub(crate) use trace::measure as trace;

use crate::report::{Axis, Line, Panel};

/// The fabrics that nodes are compared on.
const PLACES: [&str; 2] = ["shm", "tcp"];

fn panel(title: &str, x: &str, y: &str, is_logarithmic: bool, series: Vec<Line>) -> Panel {
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    let series = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    Panel { title: title.to_owned(), x: axis(x, false), y: axis(y, is_logarithmic), series }
}
