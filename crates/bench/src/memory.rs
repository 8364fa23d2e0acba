//! The experiments with shared memory, after the paper on DDSS in multi-core systems.

mod apps;
mod checkpoint;
mod ipc;
mod onload;
mod ops;
mod scale;

pub(crate) use apps::{ROLE as FILE_SERVER, measure as apps, serve as serve_file};
pub(crate) use checkpoint::measure as checkpoint;
pub(crate) use ipc::{ROLE as IPC_HELPER, measure as ipc, serve as serve_ipc};
pub(crate) use onload::measure as onload;
pub(crate) use ops::measure as ops;
pub(crate) use scale::measure as scale;
