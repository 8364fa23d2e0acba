//! The experiments with shared memory, after the paper on DDSS in multi-core systems.

mod ipc;

pub(crate) use ipc::{ROLE as IPC_HELPER, measure as ipc, serve as serve_ipc};
