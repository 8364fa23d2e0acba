//! The disk side of a session: one thread that works off what the machine asks of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender as Outbox, SyncSender, channel};
use std::thread::JoinHandle;

use crate::streams::Event;

/// A thread that works off jobs in their order.
pub(crate) struct Disk<Job> {
    jobs: Outbox<Job>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl<Job: Send + 'static> Disk<Job> {
    /// `is_over` is set when the session has ended; `is_kept` says which jobs are done even then.
    pub(crate) fn start<Work: Send + 'static>(
        events: SyncSender<Event<Work>>,
        (is_over, is_kept): (Arc<AtomicBool>, fn(&Job) -> bool),
        mut work: impl FnMut(Job) -> Option<Work> + Send + 'static,
    ) -> Disk<Job> {
        let (jobs, queue) = channel();
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while let Ok(job) = queue.recv() {
                if over.load(Ordering::Acquire) && !is_kept(&job) {
                    continue;
                }
                if let Some(done) = work(job) {
                    // The session may have ended.
                    let _ = events.send(Event::Done(done));
                }
            }
        });
        Disk { jobs, is_over, thread }
    }

    pub(crate) fn begin(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// Waits until nothing is done any more: what a session does when it is over would meet the next one. The receiver of its events is dropped before.
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Release);
        drop(self.jobs);
        // A panic of the thread has broken the session off.
        let _ = self.thread.join();
    }
}
