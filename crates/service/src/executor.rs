//! Runs a service: its state machine, the batches that it has in flight, and its messages.
//!
//! Waking the service's own thread would cost more than the service's answer takes to arrive. So the thread that brings work runs it: a program that submits a
//! command, or a fabric's thread that completes a batch or receives a message. While one thread runs the service, the others queue their work for that thread and
//! go on (flat combining, [`handoff`](crate::handoff)). The service's own thread serves deadlines and work that may block. It is called before it would look by
//! itself when something is due earlier, and it takes over from a thread that finds ever more work in the queue.
//!
//! A fabric's thread serves the whole node, its lease too. It runs nothing that may be slow: that work waits for the service's own thread.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use verbena_fabric::{Error, Message, Result};
use verbena_terms::{BootClock, Clock, Time};

use crate::handoff::{Handoff, Next};
use crate::peers::{OpenResult, OpenTask};

/// Messages in one turn, before anything else is looked at; also queued items in a row, before completions and messages are.
const BATCH: usize = 256;
/// How long a thread that brought work runs what others queue meanwhile.
const BRIEFLY: Duration = Duration::from_micros(500);
/// Items between two readings of the clock for [`BRIEFLY`].
const ITEMS_PER_CLOCK: u32 = 8;
/// Turns in which one thread looks at what arrived during the turn before. What arrives after them is left to the service's own thread.
const TURNS: usize = 16;

/// The part of a service that acts on a fabric. It never blocks: the executor decides when it runs.
pub trait Driver: Send + 'static {
    /// Checks whether the node's lease still holds.
    fn check_lease(&mut self);
    /// Handles a message.
    fn message(&mut self, message: &Message);
    /// Polls the batches in flight and carries on with what has completed.
    fn advance(&mut self);
    /// Whether a batch is in flight.
    fn has_batches(&self) -> bool;
    /// Ready when a batch has completed that no turn has looked at; otherwise wakes the task when one does.
    fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// The next message, if one has arrived; none between two incarnations.
    fn take_message(&mut self) -> Option<Message>;
    /// The next message; if none has arrived, wakes the task when one does.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Message>;
    /// What has to be opened since the last call. The executor runs each task on a thread that may block and passes its result to [`opened`](Self::opened).
    fn open_tasks(&mut self) -> Vec<OpenTask>;
    /// Takes the result of an open task.
    fn opened(&mut self, result: OpenResult);
    /// When there is work even if nothing arrives before.
    fn next_deadline(&self) -> Time;
    /// Whether the next turn may be slow: it allocates memory or copies values.
    fn may_be_slow(&self) -> bool;

    /// Handles this message and whatever else has arrived or is due.
    fn turn(&mut self, message: Option<Message>) {
        self.check_lease();
        if let Some(message) = message {
            self.message(&message);
        }
        for _ in 0..BATCH {
            let Some(message) = self.take_message() else { break };
            self.message(&message);
        }
        self.advance();
    }
}

/// A service: its driver, and the callers that wait for its answers.
pub trait Service: Send + 'static {
    /// What callers submit.
    type Command: Send + 'static;
    /// What acts on the fabric.
    type Driver: Driver;

    /// What acts on the fabric.
    fn driver(&mut self) -> &mut Self::Driver;
    /// Runs a command.
    fn command(&mut self, command: Self::Command);
    /// Whether this command may be slow. A fabric's thread does not run it then. The default is the safe answer.
    fn is_slow(_: &Self::Command) -> bool {
        true
    }
    /// Delivers the answers that the driver has. Called after each item and before the next one, so that callers get their answers in order.
    fn deliver_answers(&mut self);
    /// Called when no work is left until something arrives.
    fn idle(&mut self);
}

/// Numbers requests and bounds how many wait in the queue.
pub struct Admission {
    limit: usize,
    numbered: AtomicU64,
    /// Admitted and not started.
    waiting: AtomicUsize,
}

impl Admission {
    /// At most `limit` requests wait.
    pub fn new(limit: usize) -> Self {
        Admission { limit, numbered: AtomicU64::new(0), waiting: AtomicUsize::new(0) }
    }

    /// The request's number, from 1 on; `None` if `limit` requests wait already.
    pub fn admit(&self) -> Option<u64> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.limit {
            self.started();
            return None;
        }
        Some(self.numbered.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// One of the waiting requests is being run.
    pub fn started(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A service with its own thread, which ends when this is dropped.
pub struct Executor<S: Service>(Arc<Shared<S>>);

impl<S: Service> Drop for Executor<S> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.call.notify_one();
    }
}

impl<S: Service> Executor<S> {
    /// Starts the service's own thread under this name.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(name: &'static str, service: S) -> Result<Executor<S>> {
        Executor::start_with(name, service, || Ok(())).map_err(|error| Error::system("a thread for a service", error))
    }

    /// The same. The thread calls `prepare` before it serves anything.
    ///
    /// # Errors
    /// If the system refuses a thread, or `prepare` fails.
    pub fn start_with(
        name: &'static str,
        service: S,
        prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Executor<S>> {
        let shared = Shared::new(service);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let of_thread = shared.clone();
        let (report, prepared) = std::sync::mpsc::channel();
        let serve = move || {
            let result = prepare();
            let is_prepared = result.is_ok();
            // The receiver waits for this.
            let _ = report.send(result);
            if is_prepared {
                // A service that no thread runs any more does more harm than a dead process: its memory stays readable.
                let guard = AbortOnPanic;
                runtime.block_on(run(of_thread));
                std::mem::forget(guard);
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(serve)?;
        prepared.recv().map_err(io::Error::other)??;
        Ok(Executor(shared))
    }

    /// Runs the command: on the calling thread, before this returns, unless another thread runs the service, which then runs this too.
    pub fn submit(&self, command: S::Command) {
        self.0.submit(Item::Command(command), Budget::new(false));
    }

    /// Runs the command on the service's own thread, unless another one gets to it first: for a caller that must not be held up.
    pub fn submit_to_thread(&self, command: S::Command) {
        self.0.submit_to_thread(Item::Command(command));
    }

    /// Waits until the service is free, runs what is in its queue, then `act`. The service's own thread looks at the consequences.
    pub fn with<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let result = self.0.with(|slot| act(&mut slot.service));
        self.0.call.notify_one();
        result
    }
}

enum Item<C> {
    Command(C),
    Opened(Box<OpenResult>),
    /// A batch has completed or a message has arrived.
    Wake,
}

struct Shared<S: Service> {
    handoff: Handoff<Slot<S>, Item<S::Command>>,
    /// The service's own thread is to look.
    call: Notify,
    /// The executor was dropped.
    is_over: AtomicBool,
}

/// What one thread at a time has.
struct Slot<S> {
    service: S,
    /// Woken by a fabric's thread that has a completion or a message.
    waker: Waker,
    /// When the service's own thread looks if nothing calls it.
    looks_at: Time,
}

/// Has the fabric's thread that wakes it run the service.
struct RunOnWake<S: Service>(Weak<Shared<S>>);

impl<S: Service> Wake for RunOnWake<S> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.submit(Item::Wake, Budget::new(true));
        }
    }
}

/// A half-applied transition would block the whole cluster, so a panic while the service runs aborts the process.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<S: Service> Shared<S> {
    fn new(service: S) -> Arc<Self> {
        Arc::new_cyclic(|shared| {
            let waker = Waker::from(Arc::new(RunOnWake(Weak::clone(shared))));
            let handoff = Handoff::new(Slot { service, waker, looks_at: Time::ZERO });
            Shared { handoff, call: Notify::new(), is_over: AtomicBool::new(false) }
        })
    }

    fn submit(&self, item: Item<S::Command>, mut budget: Budget) {
        let guard = AbortOnPanic;
        self.handoff.push(item);
        if self.handoff.try_run(|slot, next| self.run(slot, next, &mut budget)) {
            self.call.notify_one();
        }
        std::mem::forget(guard);
    }

    fn submit_to_thread(&self, item: Item<S::Command>) {
        self.handoff.push(item);
        self.call.notify_one();
    }

    fn with<T>(&self, act: impl FnOnce(&mut Slot<S>) -> T) -> T {
        let guard = AbortOnPanic;
        let mut budget = Budget::new(false);
        let (result, is_left) = self.handoff.run_then(|slot, next| self.run(slot, next, &mut budget), act);
        if is_left {
            self.call.notify_one();
        }
        std::mem::forget(guard);
        result
    }

    /// Whether the calling thread goes on when more is queued.
    fn run(&self, slot: &mut Slot<S>, next: Next<'_, Item<S::Command>>, budget: &mut Budget) -> bool {
        if budget.is_of_fabric && slot.service.driver().may_be_slow() {
            return false;
        }
        loop {
            let mut is_spent = false;
            let mut takes = |item: &Item<S::Command>| {
                is_spent = !budget.allows(item.is_slow::<S>());
                !is_spent
            };
            let done = std::iter::from_fn(|| next(&mut takes)).take(BATCH).map(|item| slot.run(item)).count();
            if slot.end_turn() || slot.is_due_early() {
                self.call.notify_one();
            }
            if done < BATCH {
                return !is_spent;
            }
        }
    }
}

/// How long the thread that brought work runs what others queue.
struct Budget {
    is_of_fabric: bool,
    until: Time,
    asked: u32,
}

impl Budget {
    fn new(is_of_fabric: bool) -> Self {
        Budget { is_of_fabric, until: BootClock.now() + BRIEFLY, asked: 0 }
    }

    fn allows(&mut self, is_slow: bool) -> bool {
        self.asked += 1;
        let may_run = !(self.is_of_fabric && is_slow);
        may_run && (!self.asked.is_multiple_of(ITEMS_PER_CLOCK) || BootClock.now() < self.until)
    }
}

impl<C> Item<C> {
    fn is_slow<S: Service<Command = C>>(&self) -> bool {
        match self {
            Item::Command(command) => S::is_slow(command),
            Item::Opened(_) | Item::Wake => false,
        }
    }
}

impl<S: Service> Slot<S> {
    fn run(&mut self, item: Item<S::Command>) {
        match item {
            Item::Command(command) => self.service.command(command),
            Item::Opened(result) => self.service.driver().opened(*result),
            Item::Wake => self.service.driver().turn(None),
        }
        self.service.deliver_answers();
    }

    fn turn(&mut self, message: Option<Message>) {
        self.service.driver().turn(message);
        self.service.deliver_answers();
    }

    /// Runs until there is no work before something arrives. Whether something has arrived all the same, which is left to the service's own thread.
    fn end_turn(&mut self) -> bool {
        let mut is_left = true;
        for _ in 0..TURNS {
            if self.service.driver().has_batches() {
                // A fabric sends what was posted together when it is polled once more.
                self.service.driver().advance();
                self.service.deliver_answers();
            }
            let context = &mut Context::from_waker(&self.waker);
            let driver = self.service.driver();
            let has_completed = driver.poll_completed(context).is_ready();
            match driver.poll_message(context) {
                Poll::Ready(message) => self.turn(Some(message)),
                Poll::Pending if has_completed => {}
                Poll::Pending => {
                    is_left = false;
                    break;
                }
            }
        }
        self.service.idle();
        is_left
    }

    /// Whether something is due before the service's own thread looks.
    fn is_due_early(&mut self) -> bool {
        let due = self.service.driver().next_deadline();
        let is_early = due < self.looks_at;
        // It looks as soon as it is called.
        self.looks_at = self.looks_at.min(due);
        is_early
    }

    /// A turn of the service's own thread: what to open, and how long the thread may sleep.
    fn thread_turn(&mut self) -> (Vec<OpenTask>, Duration) {
        self.turn(None);
        let is_left = self.end_turn();
        let tasks = self.service.driver().open_tasks();
        self.looks_at = if is_left { Time::ZERO } else { self.service.driver().next_deadline() };
        (tasks, self.looks_at.since(BootClock.now()))
    }
}

/// The service's own thread: deadlines, and what other threads left to it.
async fn run<S: Service>(shared: Arc<Shared<S>>) {
    while !shared.is_over.load(Ordering::Acquire) {
        let (tasks, sleep) = shared.with(Slot::thread_turn);
        for task in tasks {
            let shared = shared.clone();
            tokio::task::spawn_blocking(move || {
                // What is never opened would be waited for.
                let guard = AbortOnPanic;
                shared.submit_to_thread(Item::Opened(Box::new(task.run())));
                std::mem::forget(guard);
            });
        }
        tokio::select! {
            biased;
            () = shared.call.notified() => {}
            () = pause(sleep) => {}
        }
    }
}

async fn pause(time: Duration) {
    if time.is_zero() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests;
