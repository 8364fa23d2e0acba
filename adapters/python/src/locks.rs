//! Connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Socket, Watch};

use crate::arguments::{self, Limit};
use crate::errors::{NotInTime, WrongThread, closed, raised};
use crate::hold::Hold;

/// How long a thread that waits keeps the connection from others, and Ctrl-C from being heard.
const TURN: Duration = Duration::from_millis(20);

/// A connection, shared by those who use it and by what is held.
pub(crate) struct Shared {
    locks: Mutex<Option<verbena_client::Locks>>,
    pub(crate) watch: Watch,
    /// In a child after a fork the mutex may be locked for ever, by a thread of the parent.
    maker: u32,
    thread: ThreadId,
}

impl Shared {
    /// Does something with the connection when it is its turn, while others have the interpreter.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut verbena_client::Locks) -> verbena_client::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.enter(what)).unwrap_or_else(|| Err(closed()))
    }

    /// The same with the interpreter, or without one; nothing if it is closed.
    pub(crate) fn enter<T>(
        &self,
        what: impl FnOnce(&mut verbena_client::Locks) -> verbena_client::Result<T>,
    ) -> Option<PyResult<T>> {
        if self.maker != std::process::id() {
            return Some(Err(raised(Error::Forked { maker: self.maker })));
        }
        let mut locks = self.locks.lock();
        let done = locks.as_mut().map(what);
        // To whoever waits for a turn: who gives it up here comes back at once.
        MutexGuard::unlock_fair(locks);
        done.map(|done| done.map_err(raised))
    }
}

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
        let patience = arguments::duration(timeout)?;
        let connect = || {
            let socket = path.map_or_else(|| Socket::new(None, None), |path| Ok(Socket::at(&path)))?;
            verbena_client::Locks::connect(&socket, patience)
        };
        let locks = py.detach(connect).map_err(raised)?;
        let watch = locks.watch().clone();
        let shared =
            Shared { locks: Mutex::new(Some(locks)), watch, maker: std::process::id(), thread: current().id() };
        Ok(Locks { shared: Arc::new(shared) })
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
        let (name, limit) = (arguments::name(name)?, arguments::limit(timeout)?);
        if self.shared.thread != current().id() {
            return Err(WrongThread::new_err("another thread made this connection: each connects for itself"));
        }
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        let began = Instant::now();
        let held = |hold| Ok(Hold::new(self.shared.clone(), hold, name.clone()));
        if limit == Limit::Now {
            return self.shared.with(py, |locks| locks.try_acquire(&name, mode)).and_then(held);
        }
        let wish = self.shared.with(py, |locks| locks.ask(&name, mode))?;
        let why = loop {
            let turn = match limit {
                Limit::Within(limit) => TURN.min(limit.saturating_sub(began.elapsed())),
                _ => TURN,
            };
            match self.shared.with(py, |locks| locks.wait(&wish, Some(turn)))? {
                Some(hold) => return held(hold),
                None if turn.is_zero() => {
                    break NotInTime::new_err(format!("the lock was not free within {:?}", began.elapsed()));
                }
                None => {}
            }
            if let Err(interrupt) = py.check_signals() {
                break interrupt;
            }
            match stop.map(|stop| stop.call_method0("is_set")?.is_truthy()).transpose() {
                Ok(Some(true)) => break NotInTime::new_err("the wait was stopped"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        // If the helper cannot be told, it has ended or is to be: what was asked for ends with the connection.
        let _ = self.shared.with(py, |locks| locks.give_up(wish));
        Err(why)
    }

    /// Closes the connection: all that it holds is released.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            if self.shared.maker == std::process::id() {
                drop(self.shared.locks.lock().take());
            }
        });
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}
