//! Looks after links while something is under way there: takes completions, keeps deadlines, connects again.
//!
//! One for each class, so that a word never waits behind a file. It sleeps until its channel tells of a completion, or looks without a pause where
//! [`Completions::Polled`] says so.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rdma_mummy_sys::{ibv_ack_cq_events, ibv_get_cq_event};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sideway::ibverbs::completion::CompletionChannel;
use verbena_terms::{BootClock, Clock, Time};

use super::adapter::Adapter;
use super::config::Completions;
use super::link::Link;
use crate::error::{Error, Result};

/// It looks around so often, whatever happens.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(super) struct Clerk {
    channel: Arc<CompletionChannel>,
    wake: OwnedFd,
    completions: Completions,
    /// Those that were left to it since it last looked.
    left: Mutex<Vec<Arc<Link>>>,
    /// Until when it sleeps, in nanoseconds; the end of time while it is awake: it may have looked past what comes now.
    sleeps_until: AtomicU64,
    is_over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Clerk {
    /// Starts it.
    pub(super) fn start(name: &str, adapter: &Adapter, completions: Completions) -> Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let clerk = Arc::new(Clerk {
            channel: adapter.channel()?,
            wake: wake.map_err(|error| Error::system("make an event", error))?,
            completions,
            left: Mutex::default(),
            sleeps_until: AtomicU64::new(Time::FAR.nanos()),
            is_over: AtomicBool::new(false),
            thread: Mutex::default(),
        });
        let its = clerk.clone();
        let started = thread::Builder::new().name(name.into()).spawn(move || its.work());
        *clerk.thread.lock() = Some(started.map_err(|error| Error::system("start a thread", error))?);
        Ok(clerk)
    }

    /// Where completions are to be told.
    pub(super) fn channel(&self) -> &Arc<CompletionChannel> {
        &self.channel
    }

    /// Whether it is to be told of completions, or looks for them without a pause.
    pub(super) fn is_told(&self) -> bool {
        self.completions == Completions::Told
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
        let mut links: Vec<Arc<Link>> = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            links.append(&mut self.left.lock());
            let mut until = Time::FAR;
            links.retain(|link| {
                let Some(next) = link.serve() else { return false };
                until = until.min(next);
                true
            });
            if !self.is_told() && !links.is_empty() {
                std::hint::spin_loop();
                continue;
            }
            self.sleeps_until.store(until.nanos(), Ordering::SeqCst);
            if self.left.lock().is_empty() {
                self.sleep(until.since(BootClock.now()).min(LONGEST_SLEEP));
            }
            self.sleeps_until.store(Time::FAR.nanos(), Ordering::SeqCst);
        }
    }

    /// Until something is told, or somebody wakes it.
    fn sleep(&self, longest: Duration) {
        // SAFETY: the descriptor is open as long as the channel.
        let channel = unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) };
        let mut ready = [PollFd::new(&self.wake, PollFlags::IN), PollFd::from_borrowed_fd(channel, PollFlags::IN)];
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        // Interrupted, it looks around and sleeps again.
        let _ = poll(&mut ready, Some(&longest));
        let [is_woken, is_told] = ready.map(|one| !one.revents().is_empty());
        if is_woken {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        if is_told {
            self.take_events();
        }
    }

    /// Whose they are does not matter: every link is looked at.
    fn take_events(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel is open and does not block; a queue that is given stays until its events are acknowledged, which is at once.
        unsafe {
            while ibv_get_cq_event(self.channel.comp_channel().as_ptr(), &mut queue, &mut context) == 0 {
                ibv_ack_cq_events(queue, 1);
            }
        }
    }
}
