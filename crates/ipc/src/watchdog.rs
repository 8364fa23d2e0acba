//! Ends waits in `msgrcv`, which knows no deadline.
//!
//! A client that waits for a response in a queue sleeps in the kernel until one comes. Its helper may be killed
//! meanwhile, and its deadline passes. So one thread of the program looks at the waits, and puts a *call*, a message
//! without content, into the queue of a wait whose time is over. We considered a timer's signal: it needs a handler in
//! a process that belongs to another program. We considered to sleep elsewhere and look into the queue when woken: that
//! is one more system call on either side of each message, and no longer what the papers measured.
//!
//! The thread is there while any such connection is. It is one for the whole program, and so the one thing in this crate
//! that is not owned by a connection or a server. After fork a child has none of its parent's threads: it gets one of its own.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use verbena_terms::{BootClock, Clock, Time};

use crate::error::Error;
use crate::queue::Queue;

/// How long the thread sleeps unless a wait needs it earlier.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// The right to be called. Given up when dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    wait: Arc<Wait>,
    watch: &'static Watch,
}

#[derive(Debug)]
struct Wait {
    queue: Queue,
    /// When to call, nanoseconds; 0 while no thread waits.
    until: AtomicU64,
}

#[derive(Debug)]
struct Watch {
    process: u32,
    waits: Mutex<Waits>,
    earlier: Condvar,
    /// When the thread looks next, nanoseconds.
    next_look: AtomicU64,
}

#[derive(Debug, Default)]
struct Waits {
    all: Vec<Arc<Wait>>,
    has_thread: bool,
}

/// That of this process. It is never freed: a process has one, and its child one more.
static WATCH: AtomicPtr<Watch> = AtomicPtr::new(std::ptr::null_mut());

impl Watch {
    fn of_this_process() -> &'static Watch {
        let process = std::process::id();
        loop {
            let found = WATCH.load(Ordering::Acquire);
            // SAFETY: null, or leaked below and never freed.
            if let Some(watch) = unsafe { found.as_ref() }.filter(|watch| watch.process == process) {
                return watch;
            }
            let (waits, earlier, next_look) = Default::default();
            let fresh = Box::into_raw(Box::new(Watch { process, waits, earlier, next_look }));
            if WATCH.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    /// Calls the waits whose time has come, until none is left to be watched.
    fn run(&'static self) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            waits.all.retain(|wait| Arc::strong_count(wait) > 1);
            if waits.all.is_empty() {
                waits.has_thread = false;
                return;
            }
            let now = BootClock.now();
            let mut next = now + LONGEST_SLEEP;
            // Stored before the waits are looked at: a wait that begins after the look sees it, and wakes this thread
            // if it is too late.
            self.next_look.store(next.nanos(), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            for wait in &waits.all {
                let until = wait.until.load(Ordering::Relaxed);
                if until == 0 {
                    continue;
                }
                if until > now.nanos() {
                    next = next.min(Time::from_nanos(until));
                } else if wait.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    // A queue that is full has something for it to take, and one that is gone has ended its wait.
                    let _ = wait.queue.call();
                }
            }
            self.next_look.store(next.nanos(), Ordering::Relaxed);
            let sleep = self.earlier.wait_timeout(waits, next.since(now));
            waits = sleep.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Watched {
    /// From now on waits in this queue may be watched.
    ///
    /// # Errors
    /// If there is no thread left for it.
    pub(crate) fn new(queue: Queue) -> Result<Self, Error> {
        let watch = Watch::of_this_process();
        let wait = Arc::new(Wait { queue, until: AtomicU64::new(0) });
        let mut waits = watch.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.all.push(wait.clone());
        if !waits.has_thread {
            let thread = std::thread::Builder::new().name("verbena-watch".into());
            if let Err(source) = thread.spawn(|| watch.run()) {
                waits.all.pop();
                return Err(Error::System { doing: "start a thread that watches deadlines", source });
            }
            waits.has_thread = true;
        }
        Ok(Watched { wait, watch })
    }

    /// Does what may wait in the queue, and has it called after that time.
    pub(crate) fn at_most<T>(&self, at_most: Duration, wait: impl FnOnce() -> T) -> T {
        let until = (BootClock.now() + at_most).nanos();
        self.wait.until.store(until, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if until < self.watch.next_look.load(Ordering::Relaxed) {
            // Under the lock the thread is not between its look and its sleep.
            let _held = self.watch.waits.lock().unwrap_or_else(PoisonError::into_inner);
            self.watch.earlier.notify_one();
        }
        let waited = wait();
        self.wait.until.store(0, Ordering::Relaxed);
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Message;
    use std::time::Instant;

    #[test]
    fn a_wait_ends_about_when_it_is_to() {
        let queue = Queue::make(getrandom::u32().unwrap() as i32 | 1).unwrap();
        let watched = Watched::new(queue).unwrap();
        let mut message = Message::default();
        for at_most in [40, 5, 300, 1].map(Duration::from_millis) {
            let began = Instant::now();
            assert!(watched.at_most(at_most, || queue.take(&mut message, true)).unwrap());
            assert!(message.piece().is_none());
            assert!(began.elapsed() >= at_most && began.elapsed() < at_most + Duration::from_secs(10));
        }
        drop(watched);
        // The thread goes when no wait is left, and comes back with the next one.
        let again = Watched::new(queue).unwrap();
        assert!(again.at_most(Duration::from_millis(5), || queue.take(&mut message, true)).unwrap());
        queue.remove().unwrap();
    }

    /// The thread is woken for a deadline that is earlier than what it sleeps for.
    #[test]
    fn short_waits_are_short() {
        let queue = Queue::make(getrandom::u32().unwrap() as i32 | 1).unwrap();
        let watched = Watched::new(queue).unwrap();
        let mut message = Message::default();
        let mut short = 0;
        for _ in 0..100 {
            let began = Instant::now();
            assert!(watched.at_most(Duration::from_millis(1), || queue.take(&mut message, true)).unwrap());
            short += u32::from(began.elapsed() < LONGEST_SLEEP);
        }
        queue.remove().unwrap();
        // One may fall into a moment in which the machine is busy; all were long if the thread slept on.
        assert!(short > 50, "{short} of 100");
    }

    #[test]
    fn many_waits_end_each_at_its_time() {
        let waits: Vec<_> = (0..40)
            .map(|at| {
                std::thread::spawn(move || {
                    let queue = Queue::make(getrandom::u32().unwrap() as i32 | 1).unwrap();
                    let watched = Watched::new(queue).unwrap();
                    let mut message = Message::default();
                    for round in 0..10 {
                        let at_most = Duration::from_millis(1 + (at * 7 + round * 3) % 30);
                        let began = Instant::now();
                        assert!(watched.at_most(at_most, || queue.take(&mut message, true)).unwrap());
                        assert!(began.elapsed() >= at_most);
                    }
                    queue.remove().unwrap();
                })
            })
            .collect();
        for wait in waits {
            wait.join().unwrap();
        }
    }
}
