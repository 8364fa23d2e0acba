//! What a connection is to all that use it.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Memory, Socket, Watch};

use crate::arguments::{self, Limit};
use crate::errors::{NotInTime, WrongThread, closed, raised};
use crate::hold::Hold;

/// How long a thread that waits for a lock keeps the connection from others, and whoever waits Ctrl-C from being heard.
pub(crate) const TURN: Duration = Duration::from_millis(20);

/// A connection, shared by those who use it and by what is held. One for locks is no less than one for memory.
pub(crate) struct Shared {
    /// What is called when a signal comes may use the connection whose call it interrupts: it is told, where another mutex would wait for itself.
    memory: ReentrantMutex<RefCell<Option<Memory>>>,
    pub(crate) watch: Watch,
    /// What nobody refers to any more, and is still to be released.
    forgotten: Mutex<Vec<verbena_client::Hold>>,
    /// Why a wait was stopped.
    interrupt: Arc<Mutex<Option<PyErr>>>,
    /// In a child after a fork the mutex may be locked for ever, by a thread of the parent.
    maker: u32,
    thread: ThreadId,
}

/// How a lock is wanted.
pub(crate) struct Wanted<'a, 'py> {
    pub(crate) timeout: Option<f64>,
    pub(crate) shared: bool,
    pub(crate) stop: Option<&'a Bound<'py, PyAny>>,
}

/// Where a helper is that was told nothing else. The directory is not made, nor looked at.
#[pyfunction]
pub fn usual_directory() -> PathBuf {
    verbena_client::usual_directory()
}

impl Shared {
    pub(crate) fn connect(py: Python<'_>, path: Option<PathBuf>, timeout: f64) -> PyResult<Arc<Self>> {
        let patience = arguments::duration(timeout)?;
        let path = match path {
            Some(path) => Some(path),
            // As the commands find it: by the configuration, if there is one.
            None => py.import("verbena._place")?.call_method0("socket")?.extract()?,
        };
        let connect = || {
            let socket = path.map_or_else(|| Socket::new(None, None), |path| Ok(Socket::at(&path)))?;
            Memory::connect(&socket, patience)
        };
        let mut memory = py.detach(connect).map_err(raised)?;
        let interrupt = Arc::<Mutex<Option<PyErr>>>::default();
        let interrupted = interrupt.clone();
        memory.while_it_waits(TURN, move || match Python::attach(|py| py.check_signals()) {
            Ok(()) => true,
            Err(error) => {
                *interrupted.lock() = Some(error);
                false
            }
        });
        let watch = memory.locks().watch().clone();
        Ok(Arc::new(Shared {
            memory: ReentrantMutex::new(RefCell::new(Some(memory))),
            watch,
            forgotten: Mutex::default(),
            interrupt,
            maker: std::process::id(),
            thread: current().id(),
        }))
    }

    /// Does something with the connection when it is its turn, while others have the interpreter.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        what: impl FnOnce(&mut Memory) -> verbena_client::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.enter(what)).unwrap_or_else(|| Err(closed()))
    }

    /// The same without the interpreter, which others may need before it is its turn; nothing if it is closed.
    pub(crate) fn enter<T>(&self, what: impl FnOnce(&mut Memory) -> verbena_client::Result<T>) -> Option<PyResult<T>> {
        if self.maker != std::process::id() {
            return Some(Err(raised(Error::Forked { maker: self.maker })));
        }
        let memory = self.memory.lock();
        let done = memory.try_borrow_mut().map_or_else(
            |_| Some(Err(in_a_call())),
            |mut memory| {
                let memory = memory.as_mut()?;
                let done = what(memory);
                for hold in self.forgotten.lock().drain(..) {
                    // Nobody is left to be told.
                    let _ = memory.locks().release(hold);
                }
                Some(done.map_err(|error| self.interrupt.lock().take().unwrap_or_else(|| raised(error))))
            },
        );
        // To whoever waits for a turn: who gives it up here comes back at once.
        ReentrantMutexGuard::unlock_fair(memory);
        done
    }

    /// Releases what nobody refers to any more: now, or when the call that this thread is in has ended.
    pub(crate) fn forget(&self, hold: verbena_client::Hold) {
        if self.maker != std::process::id() {
            return;
        }
        self.forgotten.lock().push(hold);
        let release = || drop(self.enter(|_| Ok(())));
        // An interpreter that ends has no other threads that may need it.
        if Python::try_attach(|py| py.detach(release)).is_none() {
            release();
        }
    }

    pub(crate) fn acquire(
        self: &Arc<Self>,
        py: Python<'_>,
        wanted: &Wanted<'_, '_>,
        name: impl FnOnce(&mut Memory) -> verbena_client::Result<Vec<u8>> + Send,
    ) -> PyResult<Hold> {
        let limit = arguments::limit(wanted.timeout)?;
        if self.thread != current().id() {
            return Err(WrongThread::new_err("another thread made this connection: each connects for itself"));
        }
        let mode = if wanted.shared { LockMode::Shared } else { LockMode::Exclusive };
        let began = Instant::now();
        let name = self.with(py, name)?;
        if limit == Limit::Now {
            let hold = self.with(py, |memory| memory.locks().try_acquire(&name, mode))?;
            return Ok(Hold::new(self.clone(), hold, name));
        }
        let wish = self.with(py, |memory| memory.locks().ask(&name, mode))?;
        let why = loop {
            let turn = match limit {
                Limit::Within(limit) => TURN.min(limit.saturating_sub(began.elapsed())),
                _ => TURN,
            };
            match self.with(py, |memory| memory.locks().wait(&wish, Some(turn)))? {
                Some(hold) => return Ok(Hold::new(self.clone(), hold, name)),
                None if turn.is_zero() => {
                    break NotInTime::new_err(format!("the lock was not free within {:?}", began.elapsed()));
                }
                None => {}
            }
            if let Err(interrupt) = py.check_signals() {
                break interrupt;
            }
            match arguments::is_set(wanted.stop) {
                Ok(true) => break NotInTime::new_err("the wait was stopped"),
                Ok(false) => {}
                Err(error) => break error,
            }
        };
        // If the helper cannot be told, it has ended or is to be: what was asked for ends with the connection.
        let _ = self.with(py, |memory| memory.locks().give_up(wish));
        Err(why)
    }

    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            if self.maker == std::process::id() {
                let memory = self.memory.lock();
                drop(memory.try_borrow_mut().map_err(|_| in_a_call())?.take());
            }
            Ok(())
        })
    }
}

fn in_a_call() -> PyErr {
    PyRuntimeError::new_err("this thread is in a call with this connection already, which a signal interrupted")
}
