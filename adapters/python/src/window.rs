//! A segment's value where it is.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::memory::{fill_for_reading, laid_out};

/// A segment's value as it was when it was looked for, where it is: in its home's memory, by the buffer protocol, so nothing is copied. Any thread may use it, also when the connection is closed.
///
/// Nobody waits for who reads: after some more puts a later value is there. What was read counts if `holds` is true after that. It keeps the memory mapped.
#[pyclass(frozen, module = "verbena")]
#[derive(Clone)]
pub(crate) struct Window {
    window: verbena_client::Window,
}

impl Window {
    pub(crate) fn onto(window: verbena_client::Window) -> Self {
        Window { window }
    }

    pub(crate) fn holds(&self) -> bool {
        self.window.holds()
    }
}

#[pymethods]
impl Window {
    /// Grows by one with each put.
    #[getter]
    fn version(&self) -> u64 {
        self.window.version()
    }

    /// When it was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, or the coherence is "null".
    #[getter]
    fn stamp_ns(&self) -> u64 {
        self.window.stamp_ns()
    }

    /// Whether all that was read so far was this version, and the newest at a moment after it was asked for. Asks nobody.
    #[getter(holds)]
    fn does_hold(&self) -> bool {
        self.holds()
    }

    /// Whether nothing newer was put so far. Asks nobody.
    #[getter]
    fn is_newest(&self) -> bool {
        self.window.is_newest()
    }

    /// The newest value, there; None where it is there no more: Segment.window finds it, or says what became of it.
    fn newest(&self) -> Option<Window> {
        self.window.newest().map(Window::onto)
    }

    /// An array of NumPy over the bytes from `offset` on, for reading: nothing is copied. As many items as there are, if `shape` is None.
    #[pyo3(signature = (dtype, shape=None, offset=0))]
    fn array<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        dtype: &Bound<'py, PyAny>,
        shape: Option<Bound<'py, PyAny>>,
        offset: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = (slf.get().window.len() as u64).saturating_sub(offset);
        let (numpy, shape, dtype) = laid_out(py, dtype, shape, bytes)?;
        let arguments = PyDict::new(py);
        arguments.set_item("buffer", slf)?;
        arguments.set_item("offset", offset)?;
        numpy.call_method("ndarray", (shape, dtype), Some(&arguments))
    }

    fn __len__(&self) -> usize {
        self.window.len()
    }

    /// # Safety
    /// `view` is one that the interpreter wants to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let window = &slf.get().window;
        // SAFETY: the interpreter gives the view; the object keeps the mapping. The bytes may change, which the interpreter may be shown, as those of any memory that is mapped.
        unsafe { fill_for_reading(view, slf.as_any(), window.as_ptr(), window.len(), flags) }
    }

    fn __repr__(&self) -> String {
        format!("<verbena.Window of {} bytes, version {}>", self.window.len(), self.window.version())
    }
}
