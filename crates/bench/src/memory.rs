//! The experiments with shared memory, after the paper on DDSS in multi-core systems.

mod ipc;
mod onload;
mod ops;
mod scale;

pub(crate) use ipc::{ROLE as IPC_HELPER, measure as ipc, serve as serve_ipc};
pub(crate) use onload::measure as onload;
pub(crate) use ops::measure as ops;
pub(crate) use scale::measure as scale;
