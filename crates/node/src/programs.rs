//! What programs of this machine ask through shared memory and queues.

pub(crate) mod answers;
pub(crate) mod kept_pages;
mod pending_reply;
pub(crate) mod program_locks;
mod reacquire;
mod rights;
pub(crate) mod rings;
pub(crate) mod segments;
mod staging;
mod windows;
