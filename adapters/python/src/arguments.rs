//! What Python passes.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use verbena_client::MAX_NAME_BYTES;

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Not at all.
    Now,
    Within(Duration),
    /// As long as it takes.
    None,
}

/// A lock's name: bytes, or text as UTF-8.
pub(crate) fn name(given: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let name = if let Ok(text) = given.cast::<PyString>() {
        text.encode_utf8()?.as_bytes().to_vec()
    } else if let Ok(bytes) = given.cast::<PyBytes>() {
        bytes.as_bytes().to_vec()
    } else {
        return Err(PyTypeError::new_err(format!("a lock's name is str or bytes, not {}", given.get_type().name()?)));
    };
    match name.len() {
        1..=MAX_NAME_BYTES => Ok(name),
        bytes => {
            Err(PyValueError::new_err(format!("a lock's name of {bytes} bytes: it must have 1 to {MAX_NAME_BYTES}")))
        }
    }
}

pub(crate) fn limit(seconds: Option<f64>) -> PyResult<Limit> {
    match seconds {
        None | Some(f64::INFINITY) => Ok(Limit::None),
        Some(0.0) => Ok(Limit::Now),
        Some(seconds) => duration(seconds).map(Limit::Within),
    }
}

/// Whether an event that ends a wait is set.
pub(crate) fn is_set(stop: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    stop.map_or(Ok(false), |stop| stop.call_method0("is_set")?.is_truthy())
}

pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("a timeout of {seconds} seconds: {error}")))
}
