//! The helper over HTTP.

mod announced;
mod answer;
pub(crate) mod api;
mod charts;
pub(crate) mod explains;
pub(crate) mod file;
mod touched;
