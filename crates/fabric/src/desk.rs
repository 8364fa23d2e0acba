//! A service at its desk, where whoever wants something of it has it done.
//!
//! A request that had to wake the service's thread would wait for that longer than for its answer. So whoever asks goes to the desk and does it, unless somebody is
//! there who does it too. What needs time (a deadline, an answer, a message) is the thread's: it is woken when something is due before it looks by itself.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use verbena_terms::{BootClock, Clock, Time};

use crate::contacts::{Opened, Opening};
use crate::error::{Error, Result};
use crate::handoff::{Handoff, Next};
use crate::message::{Inbox, Message};

/// Messages that are handled before anything else is looked at.
const AT_ONCE: usize = 256;

/// The part of a service that acts. It never waits: the desk gives it its turns.
pub trait Driver: Send + 'static {
    /// Looks whether the node's lease still holds.
    fn look_at_lease(&mut self);
    /// Handles a message.
    fn arrived(&mut self, message: &Message);
    /// Looks at what it has posted once more.
    fn go_on(&mut self);
    /// Whether something that it posted is on its way.
    fn has_posts(&self) -> bool;
    /// Ready when an answer has come that no turn has looked at.
    fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// Where its messages arrive.
    fn inbox(&mut self) -> Option<&mut Inbox>;
    /// What has to be opened since this was asked last; [`opened`](Self::opened) is the answer to each.
    fn openings(&mut self) -> Vec<Opening>;
    /// What came of one.
    fn opened(&mut self, opened: Opened);
    /// When there is something to do if nothing arrives before.
    fn next_deadline(&self) -> Time;

    /// Handles what woke the thread, and whatever else has arrived or is due.
    fn turn(&mut self, woken: Option<Message>) {
        self.look_at_lease();
        if let Some(message) = woken {
            self.arrived(&message);
        }
        for _ in 0..AT_ONCE {
            let Some(message) = self.inbox().and_then(|inbox| inbox.try_take()) else { break };
            self.arrived(&message);
        }
        self.go_on();
    }
}

/// A service: its driver, and those who asked for something.
pub trait Service: Send + 'static {
    /// What it can be left.
    type Command: Send + 'static;
    /// What acts.
    type Driver: Driver;

    /// What acts.
    fn driver(&mut self) -> &mut Self::Driver;
    /// Does what was left.
    fn command(&mut self, command: Self::Command);
    /// Tells those who asked what the driver has for them. Done each time that it may have something, before the next thing is done: so everybody is told things in their order.
    fn tell_all(&mut self);
    /// Nothing is to be done before something arrives.
    fn rests(&mut self);
}

/// Requests, as they are numbered and counted before they come to a desk.
pub struct Queue {
    most: usize,
    numbered: AtomicU64,
    /// Those that nobody has looked at.
    waiting: AtomicUsize,
}

impl Queue {
    /// So many may wait.
    pub fn new(most: usize) -> Self {
        Queue { most, numbered: AtomicU64::new(0), waiting: AtomicUsize::new(0) }
    }

    /// A request's number, from 1 on; nothing if too many wait.
    pub fn number(&self) -> Option<u64> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.taken();
            return None;
        }
        Some(self.numbered.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Somebody looks at one.
    pub fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A service, with its thread, which ends when this is dropped.
pub struct Desk<S: Service>(Arc<Shared<S>>);

impl<S: Service> Drop for Desk<S> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.call.notify_one();
    }
}

impl<S: Service> Desk<S> {
    /// Starts the thread, which has this name.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(name: &'static str, service: S) -> Result<Desk<S>> {
        let seat = Seat { service, thread: Waker::noop().clone(), looks_at: Time::ZERO };
        let (handoff, call, is_over) = (Handoff::new(seat), Notify::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { handoff, call, is_over });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| Error::system("a runtime for a service", error))?;
        let its = shared.clone();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || runtime.block_on(run(its)))
            .map_err(|error| Error::system("a thread for a service", error))?;
        Ok(Desk(shared))
    }

    /// Has this done: by the caller, before this returns, if nobody is at the desk.
    pub fn leave(&self, command: S::Command) {
        let guard = AbortOnPanic;
        self.0.handoff.leave(Left::Command(command));
        self.0.handoff.try_serve(|seat, next| self.0.serve(seat, next));
        std::mem::forget(guard);
    }

    /// Has it done by the thread, if nobody comes to the desk before: for who must not be held up by it.
    pub fn leave_to_thread(&self, command: S::Command) {
        self.0.leave_to_thread(Left::Command(command));
    }

    /// At the desk, when it is free, with what was left there done before. The thread looks at what has become of it.
    pub fn change<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let said = self.0.at_desk(|seat| act(&mut seat.service));
        self.0.call.notify_one();
        said
    }
}

enum Left<C> {
    Command(C),
    Opened(Box<Opened>),
}

struct Shared<S: Service> {
    handoff: Handoff<Seat<S>, Left<S::Command>>,
    /// The thread is to look.
    call: Notify,
    /// Nobody is left who could ask.
    is_over: AtomicBool,
}

struct Seat<S> {
    service: S,
    /// Wakes the thread.
    thread: Waker,
    /// When the thread looks, if nothing wakes it.
    looks_at: Time,
}

/// What is done half holds up every node: a process in which it is is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<S: Service> Shared<S> {
    fn leave_to_thread(&self, left: Left<S::Command>) {
        self.handoff.leave(left);
        self.call.notify_one();
    }

    fn at_desk<T>(&self, act: impl FnOnce(&mut Seat<S>) -> T) -> T {
        let guard = AbortOnPanic;
        let said = self.handoff.at_desk(|seat, next| self.serve(seat, next), act);
        std::mem::forget(guard);
        said
    }

    fn serve(&self, seat: &mut Seat<S>, next: Next<'_, Left<S::Command>>) {
        while let Some(left) = next() {
            match left {
                Left::Command(command) => seat.service.command(command),
                Left::Opened(opened) => seat.service.driver().opened(*opened),
            }
            seat.service.tell_all();
        }
        seat.end_turn();
        if seat.is_due_early() {
            self.call.notify_one();
        }
    }
}

impl<S: Service> Seat<S> {
    /// Until nothing is to be done before something arrives: the thread is woken by that.
    fn end_turn(&mut self) {
        while self.service.driver().has_posts() {
            // A fabric sends what was posted together when it is looked at once more.
            self.service.driver().go_on();
            self.service.tell_all();
            if self.service.driver().poll_answered(&mut Context::from_waker(&self.thread)).is_pending() {
                break;
            }
        }
        self.service.rests();
    }

    /// Whether something is due before the thread looks.
    fn is_due_early(&mut self) -> bool {
        let due = self.service.driver().next_deadline();
        let is_early = due < self.looks_at;
        // It looks as soon as it is called.
        self.looks_at = self.looks_at.min(due);
        is_early
    }

    /// The thread's: what woke it, and whatever else has arrived or is due. Gives what is to be opened, and how long the thread may sleep.
    fn turn(&mut self, woken: Option<Message>) -> (Vec<Opening>, Duration) {
        self.service.driver().turn(woken);
        self.service.tell_all();
        self.end_turn();
        let openings = self.service.driver().openings();
        self.looks_at = self.service.driver().next_deadline();
        (openings, self.looks_at.since(BootClock.now()))
    }

    /// The next message, for the thread, which is woken by it. Nothing where there is something else for it.
    fn poll_arrival(&mut self, context: &mut Context<'_>) -> Poll<Option<Message>> {
        if !self.thread.will_wake(context.waker()) {
            self.thread = context.waker().clone();
        }
        let driver = self.service.driver();
        if driver.poll_answered(context).is_ready() {
            return Poll::Ready(None);
        }
        driver.inbox().map_or(Poll::Pending, |inbox| inbox.poll_next(context).map(Some))
    }
}

/// The thread: there for what nobody asks for at the moment, which are messages, answers and deadlines.
async fn run<S: Service>(shared: Arc<Shared<S>>) {
    let mut woken = None;
    while !shared.is_over.load(Ordering::Acquire) {
        let (openings, patience) = shared.at_desk(|seat| seat.turn(woken.take()));
        for opening in openings {
            let shared = shared.clone();
            tokio::task::spawn_blocking(move || shared.leave_to_thread(Left::Opened(Box::new(opening.run()))));
        }
        woken = tokio::select! {
            biased;
            () = shared.call.notified() => None,
            message = poll_fn(|context| shared.at_desk(|seat| seat.poll_arrival(context))) => message,
            () = pause(patience) => None,
        };
    }
}

async fn pause(patience: Duration) {
    if patience.is_zero() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(patience).await;
    }
}
