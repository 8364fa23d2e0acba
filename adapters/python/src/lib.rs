//! Locks of the cluster, memory that its nodes share, and a WAN in a box, for Python: the module `verbena._native`.
//!
//! A connection is the thread's that made it, because to the helper it is one client: a second thread would have at once what the first one has. Other
//! threads may release what it holds, so it is behind a mutex, which a thread that waits for a lock gives away every few milliseconds. Between two of these
//! it looks whether Ctrl-C was pressed. Its place in the lock's queue it keeps all the while ([`verbena_client::Wish`]). Whether something is held is read
//! past the mutex ([`verbena_client::Watch`]). The interpreter is never kept from others while anybody waits.
//!
//! Memory is asked for in one go by any thread, one after the other. A call that waits keeps the mutex, and looks every few milliseconds whether Ctrl-C was
//! pressed; so nobody waits for the mutex with the interpreter.
//!
//! What is Python in Python is in `python/verbena`: the errors, asyncio, and what is done in the sites of a WAN.

mod arguments;
mod checkpoints;
mod connection;
mod errors;
mod hold;
mod locks;
mod memory;
mod wan;
mod window;

use pyo3::pymodule;

/// What `verbena` is made of.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::checkpoints::{CheckpointState, Checkpoints, Joined};
    #[pymodule_export]
    use super::connection::usual_directory;
    #[pymodule_export]
    use super::hold::Hold;
    #[pymodule_export]
    use super::locks::Locks;
    #[pymodule_export]
    use super::memory::{Memory, Segment, Stat, Value};
    #[pymodule_export]
    use super::wan::{Wan, guard};
    #[pymodule_export]
    use super::window::Window;

    /// What tells other guards that one is a guard.
    #[pymodule_export]
    const GUARD_ARGUMENT: &str = verbena_wan::GUARD_ARGUMENT;
}
