//! The driver, and those who asked.
//!
//! A request that had to wake the service's thread would wait for that longer than for its answer. So whoever asks goes to the desk and does it, unless somebody is
//! there who does it too. What needs time (a deadline, an answer, a message) is the thread's: it is woken when something is due before it looks by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use verbena_fabric::Message as Arrived;
use verbena_terms::{BootClock, Clock, Time};

use super::driver::{Answered, Driver};
use super::handoff::{Handoff, Next};
use super::{Closed, Command, Metrics, Overloaded, Told};
use crate::{Answer, Refusal, RequestId};

/// Requests that may wait for whoever is at the desk. One more is refused.
const REQUESTS: usize = 8192;

/// What the thread shares with whoever holds a [`LockService`](super::LockService).
pub(super) struct Shared {
    desk: Handoff<Desk, Command>,
    requests: AtomicU64,
    /// Requests among what was left.
    waiting: AtomicUsize,
    /// The thread is to look.
    pub(super) call: Notify,
    /// Nobody is left who could ask.
    pub(super) is_over: AtomicBool,
}

impl Shared {
    pub(super) fn new(driver: Driver, metrics: Metrics) -> Self {
        let desk = Desk {
            driver,
            asked: HashMap::new(),
            held: 0,
            metrics,
            is_closed: false,
            closing: None,
            thread: Waker::noop().clone(),
            looks_at: Time::ZERO,
        };
        Shared {
            desk: Handoff::new(desk),
            requests: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            call: Notify::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// A request's number.
    pub(super) fn number(&self) -> Result<RequestId, Overloaded> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Overloaded);
        }
        Ok(RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// Has this done: by the caller, before this returns, if nobody is at the desk.
    pub(super) fn leave(&self, command: Command) {
        let guard = AbortOnPanic;
        self.desk.leave(command);
        self.desk.try_serve(|desk, next| self.serve(desk, next));
        std::mem::forget(guard);
    }

    /// Has it done by the thread, if nobody comes to the desk before: for who must not be held up by it.
    pub(super) fn leave_to_thread(&self, command: Command) {
        self.desk.leave(command);
        self.call.notify_one();
    }

    /// At the desk, when it is free, with what was left there done before.
    pub(super) fn at_desk<T>(&self, act: impl FnOnce(&mut Desk) -> T) -> T {
        let guard = AbortOnPanic;
        let said = self.desk.at_desk(|desk, next| self.serve(desk, next), act);
        std::mem::forget(guard);
        said
    }

    /// The same for another than the thread, which looks at what has become of it.
    pub(super) fn change<T>(&self, act: impl FnOnce(&mut Desk) -> T) -> T {
        let said = self.at_desk(act);
        self.call.notify_one();
        said
    }

    fn serve(&self, desk: &mut Desk, next: Next<'_, Command>) {
        while let Some(command) = next() {
            if let Command::Acquire { .. } = command {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            desk.command(command);
            // Before the lease is looked at again: what is granted and lost at once is told in this order.
            desk.tell_all();
        }
        desk.end_turn();
        if desk.is_due_early() {
            self.call.notify_one();
        }
    }
}

/// Grants that are passed on to nobody hold up every node: a process in which they are is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub(super) struct Desk {
    pub(super) driver: Driver,
    /// Requests that have not ended.
    asked: HashMap<RequestId, Asked>,
    /// Of these, how many are held.
    held: i64,
    metrics: Metrics,
    is_closed: bool,
    /// Who is told when nothing is held any more, and when at the latest.
    closing: Option<(Time, Closed)>,
    /// Wakes the thread.
    thread: Waker,
    /// When the thread looks, if nothing wakes it.
    looks_at: Time,
}

struct Asked {
    /// Whom to tell what becomes of it.
    told: Told,
    since: Time,
    is_held: bool,
}

impl Desk {
    /// The thread's: what woke it, and whatever else has arrived or is due.
    pub(super) fn turn(&mut self, woken: Option<Arrived>) {
        self.driver.turn(woken);
        self.tell_all();
        self.end_turn();
    }

    /// How long the thread may sleep from now on.
    pub(super) fn patience(&mut self) -> Duration {
        self.looks_at = self.driver.next_deadline();
        self.looks_at.since(BootClock.now())
    }

    /// The next message, for the thread, which is woken by it. Nothing where there is something else for it.
    pub(super) fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrived>> {
        if !self.thread.will_wake(context.waker()) {
            self.thread = context.waker().clone();
        }
        match (self.driver.poll_answered(context), &mut self.driver.life) {
            (Poll::Ready(()), _) => Poll::Ready(None),
            (Poll::Pending, Some(life)) => life.inbox.poll_next(context).map(Some),
            (Poll::Pending, None) => Poll::Pending,
        }
    }

    /// Whether something is due before the thread looks.
    fn is_due_early(&mut self) -> bool {
        let due = self.driver.next_deadline();
        let is_early = due < self.looks_at;
        // It looks as soon as it is called.
        self.looks_at = self.looks_at.min(due);
        is_early
    }

    /// Until nothing is to be done before something arrives: the thread is woken by that.
    fn end_turn(&mut self) {
        while self.driver.has_posts() {
            // A fabric sends what was posted together when it is looked at once more.
            self.driver.go_on();
            self.tell_all();
            if self.driver.poll_answered(&mut Context::from_waker(&self.thread)).is_pending() {
                break;
            }
        }
        let is_over = |(until, _): &mut (Time, Closed)| self.held == 0 || BootClock.now() >= *until;
        if let Some((_, closed)) = self.closing.take_if(is_over) {
            closed();
        }
        self.metrics.held.set(self.held);
        self.metrics.waiting.set(self.asked.len() as i64 - self.held);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View { view, prepared } => {
                self.driver.view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                if self.is_closed {
                    let mut told = told;
                    return self.refuse(&mut told);
                }
                self.asked.insert(id, Asked { told, since: BootClock.now(), is_held: false });
                self.driver.acquire(id, asker, name, request);
            }
            Command::Release { id, done } => {
                let released = self.driver.release(id);
                if released.is_err() {
                    // Whoever waits for it does not any more.
                    self.driver.forget(id);
                }
                self.ended(id);
                done(released);
            }
            Command::Downgrade { id, done } => done(self.driver.downgrade(id)),
            Command::Forget(id) => {
                self.driver.forget(id);
                if self.ended(id) == Some(false) {
                    self.metrics.requests.cancelled.increment();
                }
            }
            Command::List { after, prefix, shown } => self.driver.list(after, prefix, shown),
            Command::Remove { name, removed } => self.driver.remove(name, removed),
            Command::Opened(opened) => self.driver.opened(*opened),
            Command::Close { patience, closed } => self.close(BootClock.now() + patience, closed),
        }
    }

    fn tell_all(&mut self) {
        for Answered { id, answer, losses } in self.driver.answers() {
            let Some(asked) = self.asked.get_mut(&id) else { continue };
            let requests = &self.metrics.requests;
            let is_over = match &answer {
                Answer::Granted(..) => {
                    if !std::mem::replace(&mut asked.is_held, true) {
                        self.held += 1;
                        requests.granted.increment();
                        self.metrics.wait.record(BootClock.now().since(asked.since));
                    }
                    false
                }
                Answer::Refused(Refusal::Busy) => {
                    requests.not_free.increment();
                    true
                }
                Answer::Refused(_) => {
                    requests.refused.increment();
                    true
                }
                Answer::Deadlock(_) => {
                    requests.deadlock.increment();
                    true
                }
                Answer::Lost => true,
            };
            (asked.told)(answer, losses);
            if is_over {
                self.ended(id);
            }
        }
    }

    /// Who waits is told, and who holds a lock may end what it does.
    fn close(&mut self, until: Time, closed: Closed) {
        (self.is_closed, self.closing) = (true, Some((until, closed)));
        let waiting = self.asked.extract_if(|_, asked| !asked.is_held);
        for (id, mut asked) in waiting.collect::<Vec<_>>() {
            self.driver.forget(id);
            self.refuse(&mut asked.told);
        }
    }

    fn refuse(&self, told: &mut Told) {
        self.metrics.requests.refused.increment();
        told(Answer::Refused(Refusal::Leaving), 0);
    }

    /// Whether it was held.
    fn ended(&mut self, id: RequestId) -> Option<bool> {
        let asked = self.asked.remove(&id)?;
        self.held -= i64::from(asked.is_held);
        Some(asked.is_held)
    }
}
