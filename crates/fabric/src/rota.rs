//! What a thread looks after on behalf of posters, and how it is woken. Where it sleeps is its own business.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use verbena_terms::{BootClock, Clock, Time};

use crate::error::{Error, Result};

/// The thread looks around at least so often, so that no sum of times overflows.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

pub(crate) struct Rota<L: ?Sized> {
    wake: OwnedFd,
    /// Those that were left to it since it last looked.
    left: Mutex<Vec<Arc<L>>>,
    /// Until when it sleeps, in nanoseconds; the end of time while it is awake: it may have looked past what comes now.
    sleeps_until: AtomicU64,
    is_over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<L: ?Sized> Rota<L> {
    pub(crate) fn new() -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Rota {
            wake: wake.map_err(|error| Error::system("make an event", error))?,
            left: Mutex::default(),
            sleeps_until: AtomicU64::new(Time::FAR.nanos()),
            is_over: AtomicBool::new(false),
            thread: Mutex::default(),
        })
    }

    /// Starts its thread, which works until it [is over](Self::is_over).
    pub(crate) fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = thread::Builder::new().name(name.into()).spawn(work);
        *self.thread.lock() = Some(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(())
    }

    /// After something was done at a link: it is looked after from now on where it `waits` for something and was not before, and looked at again at this time or
    /// earlier where it was.
    pub(crate) fn tell(&self, link: impl FnOnce() -> Arc<L>, waits: bool, was_left: bool, until: Time) {
        match (waits, was_left) {
            (true, false) => {
                self.left.lock().push(link());
                self.wake();
            }
            (true, true) if until.nanos() < self.sleeps_until.load(Ordering::SeqCst) => self.wake(),
            _ => {}
        }
    }

    /// Ends its thread.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
        // Its own thread cannot wait for itself: where the last holder of the fabric was woken by it, it ends after that.
        let thread = self.thread.lock().take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Those that were left to it since it last asked.
    pub(crate) fn take_left(&self) -> Vec<Arc<L>> {
        std::mem::take(&mut *self.left.lock())
    }

    /// Has its thread sleep until this time at most: `sleep` ends earlier when [`alarm`](Self::alarm) can be read.
    pub(crate) fn sleep(&self, until: Time, sleep: impl FnOnce(&Timespec)) {
        self.sleeps_until.store(until.nanos(), Ordering::SeqCst);
        let longest = until.since(BootClock.now()).min(LONGEST_SLEEP);
        sleep(&Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) });
        self.sleeps_until.store(Time::FAR.nanos(), Ordering::SeqCst);
    }

    /// What can be read when it is to wake up.
    pub(crate) fn alarm(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// It has woken up.
    pub(crate) fn quiet(&self) {
        // It fails only if the eventfd is already zero.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    fn wake(&self) {
        // It fails only after so many wake-ups that the thread cannot have missed them all.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
