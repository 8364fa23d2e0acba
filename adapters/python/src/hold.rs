//! What is held.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use verbena_client::Watch;
use verbena_client::wire::LockMode;

use crate::arguments::{self, Limit};
use crate::connection::Shared;
use crate::errors::{Lost, not_held};

/// A lock that is held, as long as its `with` block lasts, or until it is released. One that nobody refers to any more is released too.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Hold {
    shared: Arc<Shared>,
    name: Vec<u8>,
    held: Mutex<Held>,
}

struct Held {
    /// The last that was known.
    hold: verbena_client::Hold,
    is_over: bool,
}

impl Hold {
    pub(crate) fn new(shared: Arc<Shared>, hold: verbena_client::Hold, name: Vec<u8>) -> Self {
        Hold { shared, name, held: Mutex::new(Held { hold, is_over: false }) }
    }

    /// What is to be released, for the one who does it.
    fn take(&self) -> Option<verbena_client::Hold> {
        let mut held = self.held.lock();
        // Before others can have the lock: nobody who looks meanwhile hears that it is held.
        let was_over = std::mem::replace(&mut held.is_over, true);
        (!was_over).then_some(held.hold)
    }

    fn give_back(&self, py: Python<'_>, hold: verbena_client::Hold) -> PyResult<()> {
        let released = py.detach(|| self.shared.enter(|memory| memory.locks().release(hold)));
        released.unwrap_or_else(|| Err(Lost::new_err("the lock was lost: its connection was closed")))
    }
}

#[pymethods]
impl Hold {
    /// The lock's name.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.name)
    }

    /// The fencing token: larger than those of all who held the lock alone before.
    #[getter]
    fn token(&self) -> u64 {
        self.held.lock().hold.token()
    }

    /// Whether others may share it.
    #[getter]
    fn shared(&self) -> bool {
        self.held.lock().hold.mode() == LockMode::Shared
    }

    /// Whether it is still held, now. Asks nobody: a look at memory and at the clock.
    #[getter]
    fn held(&self) -> bool {
        let held = self.held.lock();
        !held.is_over && self.shared.watch.is_held(&held.hold)
    }

    /// Waits until it is no longer held, `timeout` seconds at most, without that as long as it takes. Says whether that is so, a few milliseconds
    /// after it is; at once if it is released by another thread. Others may use the connection meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn wait_lost(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let at_most = match arguments::limit(timeout)? {
            Limit::Now => Some(Duration::ZERO),
            Limit::Within(limit) => Some(limit),
            Limit::None => None,
        };
        let is_held = || Python::attach(|py| py.check_signals()).map(|()| self.held());
        py.detach(|| Watch::wait_until_not(at_most, is_held))
    }

    /// The moment until which it is held if the node's lease is not renewed any more, seconds of time.CLOCK_BOOTTIME.
    #[getter]
    fn lapses(&self) -> f64 {
        self.shared.watch.held_until().nanos() as f64 / 1e9
    }

    /// How long that is from now on, seconds; 0 if it is not held.
    #[getter]
    fn remaining(&self) -> f64 {
        let held = self.held.lock();
        if held.is_over { 0.0 } else { self.shared.watch.good_for(&held.hold).as_secs_f64() }
    }

    /// Lets others that share it hold the lock as well. The token is another one afterwards.
    fn share(&self, py: Python<'_>) -> PyResult<()> {
        let mut hold = {
            let held = self.held.lock();
            if held.is_over {
                return Err(not_held());
            }
            held.hold
        };
        let (shared, hold) = self.shared.with(py, |memory| Ok((memory.locks().share(&mut hold), hold)))?;
        // Also after an error: it may count as shared then.
        self.held.lock().hold = hold;
        shared.map_err(crate::errors::raised)
    }

    /// Releases it. Raises Lost if it was not held to the end.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let hold = self.take().ok_or_else(not_held)?;
        self.give_back(py, hold)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// What was raised inside is the cause of what is raised here.
    fn __exit__(
        &self,
        py: Python<'_>,
        _class: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // It was released inside.
        let Some(hold) = self.take() else { return Ok(()) };
        self.give_back(py, hold).inspect_err(|error| {
            if !raised.is_none() {
                error.set_cause(py, Some(PyErr::from_value(raised.clone())));
            }
        })
    }

    fn __repr__(&self) -> String {
        let held = self.held.lock();
        let how = if held.hold.mode() == LockMode::Shared { "shared" } else { "exclusive" };
        let over = if held.is_over { ", over" } else { "" };
        format!("<verbena.Hold {}, {how}, token {}{over}>", self.name.escape_ascii(), held.hold.token())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(hold) = self.take() {
            self.shared.forget(hold);
        }
    }
}
