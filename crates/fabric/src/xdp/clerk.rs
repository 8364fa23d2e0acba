//! The thread that looks after links whose answers have not come yet: takes them when they come, sends again, keeps deadlines.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use verbena_terms::{BootClock, Clock, Time};

use super::link::Link;
use crate::error::{Error, Result};

/// It looks at least so often, so that no sum of times overflows.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);
/// What wakes it, where links have numbers.
const WAKE: u64 = u64::MAX;

pub(super) struct Clerk {
    epoll: OwnedFd,
    wake: OwnedFd,
    /// Those that it looks after, and those that were left to it since it last looked.
    left: Mutex<Vec<Arc<Link>>>,
    next_number: AtomicU64,
    /// Until when it sleeps, in nanoseconds; the end of time while it is awake: it may have looked past what comes now.
    sleeps_until: AtomicU64,
    is_over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Clerk {
    /// Starts it.
    pub(super) fn start() -> Result<Arc<Self>> {
        let failed = |error: rustix::io::Errno| Error::system("make a poll", error);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let clerk = Arc::new(Clerk {
            epoll,
            wake,
            left: Mutex::default(),
            next_number: AtomicU64::new(0),
            sleeps_until: AtomicU64::new(Time::FAR.nanos()),
            is_over: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let its = clerk.clone();
        let started = thread::Builder::new().name("xdp-clerk".into()).spawn(move || its.work());
        *clerk.thread.lock() = Some(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(clerk)
    }

    /// A number for a link.
    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A link that may be left to it later.
    pub(super) fn meet(&self, link: &Arc<Link>) -> Result<()> {
        let nothing = EventFlags::ONESHOT;
        epoll::add(&self.epoll, link.socket(), EventData::new_u64(link.number), nothing)
            .map_err(|error| Error::system("poll a socket", error))
    }

    /// From now on it looks after this link, until nothing is waited for there.
    pub(super) fn look_after(&self, link: &Arc<Link>) {
        self.left.lock().push(link.clone());
        self.wake();
    }

    /// It is to look at its links again at this time, or earlier.
    pub(super) fn be_back_by(&self, time: Time) {
        if time.nanos() < self.sleeps_until.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Ends its thread.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
        // Its own thread cannot wait for itself: where the last holder of the fabric was woken by it, it ends after that.
        let thread = self.thread.lock().take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        // It fails only when it was told so often that it cannot have missed it.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn work(&self) {
        let mut links: HashMap<u64, Arc<Link>> = HashMap::new();
        let mut events = Vec::with_capacity(64);
        while !self.is_over.load(Ordering::SeqCst) {
            links.extend(self.left.lock().drain(..).map(|link| (link.number, link)));
            let mut until = Time::FAR;
            links.retain(|_, link| {
                let Some(next) = link.serve() else { return false };
                until = until.min(next);
                let told = EventFlags::IN | EventFlags::ONESHOT;
                // A socket that is being closed is polled no more.
                let _ = epoll::modify(&self.epoll, link.socket(), EventData::new_u64(link.number), told);
                true
            });
            self.sleeps_until.store(until.nanos(), Ordering::SeqCst);
            let sleep = until.since(BootClock.now()).min(LONGEST_SLEEP);
            let sleep = Timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
            events.clear();
            // Interrupted, it looks around and sleeps again.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&sleep));
            self.sleeps_until.store(Time::FAR.nanos(), Ordering::SeqCst);
            if events.iter().any(|event| event.data.u64() == WAKE) {
                let _ = rustix::io::read(&self.wake, &mut [0; 8]);
            }
        }
    }
}
