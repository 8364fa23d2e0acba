//! Threads whose panic ends the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::thread::{Builder, JoinHandle};

use crate::error::{Error, Result};

/// Starts a thread. If it panics the process aborts: its exit status is that of a signal, and the message of the panic and
/// this one are on standard error.
pub(crate) fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            tracing::error!(thread = name, "a part of the helper panicked: the process ends");
            abort();
        }
    };
    Builder::new().name(name.into()).spawn(guarded).map_err(|source| Error::System { doing: "start a thread", source })
}
