//! Memory that nodes share.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyImportError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use verbena_client::{CheckpointOptions, NewSegment, PutOptions, SegmentInfo};

use crate::checkpoints::Checkpoints;
use crate::connection::{Shared, Wanted};
use crate::errors::{Elsewhere, Late, OutOfRange};
use crate::hold::Hold;
use crate::window::Window;

/// How often a value is looked at that others put over.
const LOOKS: usize = 1000;

/// A connection to the helper of this machine, for memory that nodes share. Any thread may use it, one after the other. Segments stay when it is closed.
///
/// path: its socket (ends in ".sock"), or the directory of one called local.sock; None: the user's own.
/// timeout: seconds to wait for the helper, and for each call.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Memory {
    shared: Arc<Shared>,
}

/// Memory of a node, under one name and with one promise.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Segment {
    shared: Arc<Shared>,
    info: SegmentInfo,
}

/// What was got: bytes, by the buffer protocol, so `memoryview` and `numpy.frombuffer` read it where it is.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Value {
    value: verbena_client::Value,
}

/// How old a segment's value is.
#[pyclass(frozen, module = "verbena")]
pub(crate) struct Stat {
    /// Of its value; grows by one with each put.
    #[pyo3(get)]
    version: u64,
    /// When that was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, or the coherence is "null".
    #[pyo3(get)]
    stamp_ns: u64,
    /// Seconds until its home takes its memory back; None where that has given no notice.
    #[pyo3(get)]
    goes_in: Option<f64>,
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (path=None, timeout=5.0))]
    fn new(py: Python<'_>, path: Option<PathBuf>, timeout: f64) -> PyResult<Self> {
        Ok(Memory { shared: Shared::connect(py, path, timeout)? })
    }

    /// A new segment of `bytes` zeros, 1 to 16 MiB, which stays until it is released or its home ends. Raises Exists, NoRoom.
    ///
    /// coherence: "null", "read", "write", "strict", "version", "delta(4)" or "temporal(20ms)".
    /// writers: nodes that can fill a slot at a time.
    /// copies: nodes that hold it, 1 to 4; it is lost when all of them are.
    /// placement: "most-free", "local", "spread" or a node's name.
    #[allow(clippy::too_many_arguments, reason = "as Python names them")]
    #[pyo3(signature = (bytes, name=None, *, coherence="strict", writers=3, copies=1, placement="most-free"))]
    fn allocate(
        &self,
        py: Python<'_>,
        bytes: u64,
        name: Option<String>,
        coherence: &str,
        writers: u8,
        copies: u8,
        placement: &str,
    ) -> PyResult<Segment> {
        let coherence = coherence.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
        let Ok(placement) = placement.parse();
        let new = NewSegment { name, bytes, coherence, writers, copies, placement };
        Ok(self.segment(self.shared.with(py, |memory| memory.allocate(new))?))
    }

    /// The segment of this name. Raises NotFound.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Segment> {
        Ok(self.segment(self.shared.with(py, |memory| memory.stat(name))?.segment))
    }

    /// The segments whose names begin with `prefix`; if it is empty, those without a name too. Raises Late if a home did not answer.
    #[pyo3(signature = (prefix=""))]
    fn list(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<Segment>> {
        let list = self.shared.with(py, |memory| memory.list(prefix))?;
        if !list.silent.is_empty() {
            let silent: Vec<_> = list.silent.into_iter().collect();
            return Err(Late::new_err(format!("homes that did not say what they have: {}", silent.join(", "))));
        }
        Ok(list.segments.into_iter().map(|info| self.segment(info)).collect())
    }

    /// Gives up the segment of this name; of one whose home is gone, the name.
    fn release(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.shared.with(py, |memory| memory.release(name))
    }

    /// Makes room for checkpoints of `processes` processes with parts of up to `bytes` bytes. Raises Exists, NoRoom.
    ///
    /// kept: how many have room, 2 to 64: the one that is being saved, and so many complete ones.
    /// copies: nodes that hold each part, 1 to 4.
    /// placement: "most-free", "local", "spread" or a node's name.
    #[allow(clippy::too_many_arguments, reason = "as Python names them")]
    #[pyo3(signature = (name, processes, bytes, *, kept=2, copies=1, placement="spread"))]
    fn make_checkpoints(
        &self,
        py: Python<'_>,
        name: String,
        processes: u32,
        bytes: u64,
        kept: u32,
        copies: u8,
        placement: &str,
    ) -> PyResult<Checkpoints> {
        let Ok(placement) = placement.parse();
        let options = CheckpointOptions { processes, bytes, copies, kept, placement };
        self.shared.with(py, |memory| memory.make_checkpoints(&name, &options))?;
        Ok(Checkpoints::new(self.shared.clone(), name))
    }

    /// The checkpoints of this name. Raises NotFound.
    fn checkpoints(&self, py: Python<'_>, name: String) -> PyResult<Checkpoints> {
        self.shared.with(py, |memory| memory.checkpoints(&name))?;
        Ok(Checkpoints::new(self.shared.clone(), name))
    }

    /// Closes the connection: the locks that it holds are released.
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

impl Memory {
    fn segment(&self, info: SegmentInfo) -> Segment {
        Segment { shared: self.shared.clone(), info }
    }
}

#[pymethods]
impl Segment {
    /// What it is called; None if it has no name.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.info.name.as_deref()
    }

    /// Which it is, as text; never another one's.
    #[getter]
    fn id(&self) -> String {
        self.info.id.to_string()
    }

    /// Bytes of its value.
    #[getter]
    fn size(&self) -> u64 {
        self.info.bytes
    }

    /// What it promises.
    #[getter]
    fn coherence(&self) -> String {
        self.info.coherence.to_string()
    }

    /// The name of the node in whose memory it is.
    #[getter]
    fn home(&self) -> &str {
        &self.info.home
    }

    /// The user whose it is.
    #[getter]
    fn owner(&self) -> u32 {
        self.info.owner
    }

    /// How many nodes are to hold it.
    #[getter]
    fn copies(&self) -> u8 {
        self.info.copies
    }

    /// The value, or `length` bytes of it from `offset` on: of one version, but for "null".
    #[pyo3(signature = (offset=0, length=None))]
    fn get(&self, py: Python<'_>, offset: u64, length: Option<u64>) -> PyResult<Value> {
        let id = self.info.id;
        let value = self.shared.with(py, |memory| memory.get_part(id, offset, length))?;
        Ok(Value { value })
    }

    /// Fills a buffer, an array of NumPy for instance, with the value from `offset` on; gives the version. After an error the buffer is as it was.
    #[pyo3(signature = (buffer, offset=0))]
    fn get_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: u64) -> PyResult<u64> {
        let into = plain(buffer)?;
        if into.readonly() {
            return Err(PyBufferError::new_err("the buffer cannot be written"));
        }
        let (id, length) = (self.info.id, into.len_bytes());
        let value = self.shared.with(py, |memory| memory.get_part(id, offset, Some(length as u64)))?;
        assert_eq!(value.bytes.len(), length, "invariant: what is got is what was asked for");
        // SAFETY: a buffer of so many bytes that may be written, in one piece, which is kept where it is as long as `into` is there; whoever else has it
        // needs the interpreter. What is read is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(value.bytes.as_ptr(), into.buf_ptr().cast(), length) };
        Ok(value.version)
    }

    /// Puts a buffer (bytes, an array of NumPy) in the place of the bytes from `offset` on, and gives the new version.
    ///
    /// over: the version that it is to replace, and no other; raises Conflict.
    #[pyo3(signature = (data, offset=0, over=None))]
    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64, over: Option<u64>) -> PyResult<u64> {
        let (id, given) = (self.info.id, plain(data)?);
        let length = given.len_bytes();
        if length as u64 > self.info.bytes {
            return Err(OutOfRange::new_err(format!("{length} bytes for a segment of {} bytes", self.info.bytes)));
        }
        let bytes = copied(given);
        self.shared.with(py, |memory| memory.put_with(id, &bytes, PutOptions { offset, over }))
    }

    /// The same segment by another connection. Asks nobody.
    fn by(&self, memory: &Memory) -> Segment {
        memory.segment(self.info.clone())
    }

    /// How old its value is.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let id = self.info.id;
        let stat = self.shared.with(py, |memory| memory.stat(id))?;
        let goes_in = stat.segment.goes_in_ms.map(|ms| ms as f64 / 1e3);
        Ok(Stat { version: stat.version, stamp_ns: stat.stamp_ns, goes_in })
    }

    /// Gives it up: its memory and its name are free.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let id = self.info.id;
        self.shared.with(py, |memory| memory.release(id))
    }

    /// Waits for its lock, as Locks.acquire. It keeps out whoever asks for it too, and no gets and puts. It is released when what this connection put has arrived.
    /// NotYours for another user's segment.
    #[pyo3(signature = (timeout=None, *, shared=false, stop=None))]
    fn lock(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        shared: bool,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Hold> {
        let id = self.info.id;
        self.shared.acquire(py, &Wanted { timeout, shared, stop }, |memory| memory.lock_name(id))
    }

    /// An array of NumPy with the value from `offset` on: the caller's own, also to be changed. As many items as there are, if `shape` is None.
    #[pyo3(signature = (dtype, shape=None, offset=0))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: &Bound<'py, PyAny>,
        shape: Option<Bound<'py, PyAny>>,
        offset: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (numpy, shape, dtype) = laid_out(py, dtype, shape, self.info.bytes.saturating_sub(offset))?;
        let array = numpy.call_method1("empty", (shape, dtype))?;
        self.get_into(py, &array, offset)?;
        Ok(array)
    }

    /// Puts an array of NumPy, or what becomes one, as `put`.
    #[pyo3(signature = (array, offset=0, over=None))]
    fn store(&self, py: Python<'_>, array: &Bound<'_, PyAny>, offset: u64, over: Option<u64>) -> PyResult<u64> {
        let array = numpy(py)?.call_method("ascontiguousarray", (array,), None::<&Bound<'_, PyDict>>)?;
        self.put(py, &array, offset, over)
    }

    /// Its newest value where it is, without a copy: where its home is this node. Raises Elsewhere.
    fn window(&self, py: Python<'_>) -> PyResult<Window> {
        let id = self.info.id;
        Ok(Window::onto(self.shared.with(py, |memory| memory.window(id))?))
    }

    /// What `function` makes of the newest value: of a Window onto it, or of a Value where there can be none. It is called again until what it saw was one version, whole.
    /// It must keep nothing of what it sees. Raises Late.
    fn look<'py>(&self, py: Python<'py>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        for _ in 0..LOOKS {
            match self.window(py) {
                Ok(window) => {
                    let seen = function.call1((window.clone(),));
                    // What is wrong with a value may be that it was overtaken; Ctrl-C is not.
                    let is_of_the_value = |error: &PyErr| error.is_instance_of::<PyException>(py);
                    if window.holds() || seen.as_ref().is_err_and(|error| !is_of_the_value(error)) {
                        return seen;
                    }
                }
                Err(error) if error.is_instance_of::<Elsewhere>(py) => {
                    return function.call1((self.get(py, 0, None)?,));
                }
                Err(error) => return Err(error),
            }
            py.check_signals()?;
        }
        Err(Late::new_err(format!("in {LOOKS} looks at the value another one was put over it: get it")))
    }

    fn __repr__(&self) -> String {
        let SegmentInfo { id, name, bytes, coherence, home, .. } = &self.info;
        let name = name.as_deref().unwrap_or("without a name");
        format!("<verbena.Segment {id} {name}, {bytes} bytes, {coherence}, at {home}>")
    }
}

#[pymethods]
impl Value {
    /// Grows by one with each put.
    #[getter]
    fn version(&self) -> u64 {
        self.value.version
    }

    /// When it was put, nanoseconds since 1970 by its writer's clock; 0 if nothing was, or the coherence is "null".
    #[getter]
    fn stamp_ns(&self) -> u64 {
        self.value.stamp_ns
    }

    fn __len__(&self) -> usize {
        self.value.bytes.len()
    }

    /// # Safety
    /// `view` is one that the interpreter wants to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.get().value.bytes;
        // SAFETY: the interpreter gives the view; the bytes are the object's, and neither moved nor changed while it is there.
        unsafe { fill_for_reading(view, slf.as_any(), bytes.as_ptr(), bytes.len(), flags) }
    }

    fn __repr__(&self) -> String {
        format!("<verbena.Value of {} bytes, version {}>", self.value.bytes.len(), self.value.version)
    }
}

#[pymethods]
impl Stat {
    fn __repr__(&self) -> String {
        format!("<verbena.Stat version {}, stamp_ns {}>", self.version, self.stamp_ns)
    }
}

/// The bytes of a buffer.
pub(crate) fn bytes_of(buffer: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    plain(buffer).map(copied)
}

fn copied(buffer: PyUntypedBuffer) -> Vec<u8> {
    let length = buffer.len_bytes();
    let mut bytes = Vec::<u8>::with_capacity(length);
    // SAFETY: a buffer of so many bytes in one piece (`plain` is where they come from), which is kept where it is as long as `buffer` is there; whoever else has it needs the
    // interpreter. So many have room in the vector, and are written then.
    unsafe {
        std::ptr::copy_nonoverlapping(buffer.buf_ptr().cast_const().cast(), bytes.as_mut_ptr(), length);
        bytes.set_len(length);
    }
    bytes
}

/// A buffer that is bytes in one piece.
fn plain(buffer: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(buffer)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not in one piece (C-contiguous)"));
    }
    // Names of fields stand between colons.
    let format = buffer.format().to_string_lossy();
    if format.split(':').step_by(2).any(|part| part.contains('O')) {
        return Err(PyTypeError::new_err("references to Python's objects are of no use elsewhere"));
    }
    Ok(buffer)
}

/// What an array of so many bytes is made by: NumPy, the shape that is wanted, or as many items as they are, and the type as NumPy has it.
pub(crate) fn laid_out<'py>(
    py: Python<'py>,
    dtype: &Bound<'py, PyAny>,
    shape: Option<Bound<'py, PyAny>>,
    bytes: u64,
) -> PyResult<(Bound<'py, PyModule>, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let numpy = numpy(py)?;
    let dtype = numpy.call_method1("dtype", (dtype,))?;
    if let Some(shape) = shape {
        return Ok((numpy, shape, dtype));
    }
    let item = dtype.getattr("itemsize")?.extract()?;
    match bytes.checked_rem(item) {
        Some(0) => Ok((numpy, (bytes / item).into_pyobject(py)?.into_any(), dtype)),
        _ => Err(PyValueError::new_err(format!("{bytes} bytes are no array of items of {item} bytes"))),
    }
}

/// Fills a view of an object with bytes of it, for reading alone: it is refused to whoever wants to write.
///
/// # Safety
/// `view` is one that the interpreter wants to be filled; so many bytes stay at `at` for as long as the object is there.
pub(crate) unsafe fn fill_for_reading(
    view: *mut ffi::Py_buffer,
    object: &Bound<'_, PyAny>,
    at: *const u8,
    bytes: usize,
    flags: c_int,
) -> PyResult<()> {
    let (at, length) = (at.cast_mut().cast(), bytes as ffi::Py_ssize_t);
    // SAFETY: the caller's; the view keeps the object.
    match unsafe { ffi::PyBuffer_FillInfo(view, object.as_ptr(), at, length, 1, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(object.py())),
    }
}

fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("numpy").map_err(|error| {
        let without = PyImportError::new_err("arrays need NumPy, which is not installed: get, get_into and put do not");
        without.set_cause(py, Some(error));
        without
    })
}
