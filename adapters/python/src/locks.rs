//! Connections for locks.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::arguments;
use crate::connection::{Shared, Wanted};
use crate::hold::Hold;

/// A connection to the helper of this machine, for locks. The thread that makes it is the one that acquires.
///
/// path: its socket (ends in ".sock"), or the directory of one called local.sock; None: the user's own.
/// timeout: seconds to wait for the helper.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Locks {
    shared: Arc<Shared>,
}

#[pymethods]
impl Locks {
    #[new]
    #[pyo3(signature = (path=None, timeout=5.0))]
    fn new(py: Python<'_>, path: Option<PathBuf>, timeout: f64) -> PyResult<Self> {
        Ok(Locks { shared: Shared::connect(py, path, timeout)? })
    }

    /// Waits for a lock: `timeout` seconds, as long as it takes with None, not at all with 0. Raises NotInTime. What this connection holds it gets once more.
    ///
    /// name: text, which counts as UTF-8, or bytes; 1 to 1024 bytes.
    /// shared: with others that hold it so, rather than alone.
    /// stop: an event that ends the wait when another thread sets it; raises NotInTime too.
    #[pyo3(signature = (name, timeout=None, *, shared=false, stop=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        shared: bool,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Hold> {
        let name = arguments::name(name)?;
        self.shared.acquire(py, &Wanted { timeout, shared, stop }, |_| Ok(name))
    }

    /// Makes a lock's home forget it, for a name that will not be used again, and says whether it knew it. Raises InUse, with who holds it.
    fn remove(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        let name = arguments::name(name)?;
        self.shared.with(py, |memory| memory.locks().remove(&name))
    }

    /// Closes the connection: all that it holds is released.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
