//! Errors as Python raises them. The classes are in `python/verbena/_errors.py`.

use pyo3::exceptions::PyValueError;
use pyo3::{PyErr, import_exception};
use verbena_client::{Error, Failure};

import_exception!(verbena._errors, Conflict);
import_exception!(verbena._errors, Deadlock);
import_exception!(verbena._errors, Disconnected);
import_exception!(verbena._errors, Elsewhere);
import_exception!(verbena._errors, Exists);
import_exception!(verbena._errors, Failed);
import_exception!(verbena._errors, Forked);
import_exception!(verbena._errors, Gone);
import_exception!(verbena._errors, InUse);
import_exception!(verbena._errors, Late);
import_exception!(verbena._errors, Lost);
import_exception!(verbena._errors, NoAnswer);
import_exception!(verbena._errors, NoHelper);
import_exception!(verbena._errors, NoRoom);
import_exception!(verbena._errors, NotFound);
import_exception!(verbena._errors, NotHeld);
import_exception!(verbena._errors, NotInTime);
import_exception!(verbena._errors, NotPermitted);
import_exception!(verbena._errors, NotYours);
import_exception!(verbena._errors, OutOfRange);
import_exception!(verbena._errors, Reclaimed);
import_exception!(verbena._errors, Refused);
import_exception!(verbena._errors, Released);
import_exception!(verbena._errors, RolledBack);
import_exception!(verbena._errors, Unknown);
import_exception!(verbena._errors, WrongThread);

pub(crate) fn raised(error: Error) -> PyErr {
    let words = error.to_string();
    match error {
        Error::NotFree | Error::NotInTime { .. } => NotInTime::new_err(words),
        Error::InUse { .. } => InUse::new_err(words),
        Error::RolledBack => RolledBack::new_err(words),
        Error::Lost => Lost::new_err(words),
        Error::Deadlock { .. } => Deadlock::new_err(words),
        Error::Refused(_) => Refused::new_err(words),
        Error::NoHelper { .. } => NoHelper::new_err(words),
        Error::Forked { .. } => Forked::new_err(words),
        Error::Memory { why, .. } => match why {
            Failure::Bad => PyValueError::new_err(words),
            Failure::NotFound => NotFound::new_err(words),
            Failure::Exists => Exists::new_err(words),
            Failure::Released => Released::new_err(words),
            Failure::Lost => Gone::new_err(words),
            Failure::NotYours => NotYours::new_err(words),
            Failure::OutOfRange => OutOfRange::new_err(words),
            Failure::Conflict { current } => Conflict::new_err((words, current)),
            Failure::NoRoom => NoRoom::new_err(words),
            Failure::Late => Late::new_err(words),
            Failure::Unknown => Unknown::new_err(words),
            Failure::Reclaimed => Reclaimed::new_err(words),
            Failure::Elsewhere => Elsewhere::new_err(words),
            Failure::Unavailable => Refused::new_err(words),
        },
        error if error.is_over() => Disconnected::new_err(words),
        error if error.is_late() => NoAnswer::new_err(words),
        _ => Failed::new_err(words),
    }
}

pub(crate) fn closed() -> PyErr {
    Disconnected::new_err("the connection is closed")
}

pub(crate) fn not_held() -> PyErr {
    NotHeld::new_err("it is not held any more: it was released, or was lost")
}
