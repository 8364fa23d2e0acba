//! A service at its desk, where whoever wants something of it has it done.
//!
//! A request that had to wake the service's thread would wait for that longer than for its answer, and so would an answer, or a message. So whoever asks for something, or
//! hears something, goes to the desk and does it, unless somebody is there who does it too. Deadlines are the thread's, and what blocks: it is woken when something is due
//! before it looks by itself. And it relieves whoever finds ever more to do there.
//!
//! Who hears something is a fabric's thread, for which the whole node waits, its lease too. It does nothing that may take long: that is left to the service's thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use verbena_terms::{BootClock, Clock, Time};

use crate::contacts::{Opened, Opening};
use crate::error::{Error, Result};
use crate::handoff::{Handoff, Next};
use crate::message::{Inbox, Message};

/// Messages that are handled before anything else is looked at; and things that were left, before answers and messages are.
const AT_ONCE: usize = 256;
/// How long whoever comes does what others leave meanwhile.
const BRIEFLY: Duration = Duration::from_micros(500);
/// So many of them are done before it is asked how long that took.
const FEW: u32 = 8;
/// Turns in which whoever is at the desk looks at what arrived in the one before. After them that is the thread's.
const TURNS: usize = 16;

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
    /// Whether its next turn may take long.
    fn takes_long(&self) -> bool;

    /// Handles this message, and whatever else has arrived or is due.
    fn turn(&mut self, arrived: Option<Message>) {
        self.look_at_lease();
        if let Some(message) = arrived {
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
    /// Whether this may take long. Anything may, where nobody says which does not.
    fn is_long(_: &Self::Command) -> bool {
        true
    }
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
        let shared = Shared::new(service);
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
        self.0.leave(Left::Command(command), Patience::new(false));
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
    /// An answer or a message has come.
    Heard,
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
    /// Whoever has an answer or a message for the service comes to the desk by it.
    hears: Waker,
    /// When the thread looks, if nothing wakes it.
    looks_at: Time,
}

/// Has whoever hears something do what is to be done about it.
struct Hearer<S: Service>(Weak<Shared<S>>);

impl<S: Service> Wake for Hearer<S> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.leave(Left::Heard, Patience::new(true));
        }
    }
}

/// What is done half holds up every node: a process in which it is is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl<S: Service> Shared<S> {
    fn new(service: S) -> Arc<Self> {
        Arc::new_cyclic(|shared| {
            let hears = Waker::from(Arc::new(Hearer(Weak::clone(shared))));
            let handoff = Handoff::new(Seat { service, hears, looks_at: Time::ZERO });
            Shared { handoff, call: Notify::new(), is_over: AtomicBool::new(false) }
        })
    }

    fn leave(&self, left: Left<S::Command>, mut patience: Patience) {
        let guard = AbortOnPanic;
        self.handoff.leave(left);
        if self.handoff.try_serve(|seat, next| self.serve(seat, next, &mut patience)) {
            self.call.notify_one();
        }
        std::mem::forget(guard);
    }

    fn leave_to_thread(&self, left: Left<S::Command>) {
        self.handoff.leave(left);
        self.call.notify_one();
    }

    fn at_desk<T>(&self, act: impl FnOnce(&mut Seat<S>) -> T) -> T {
        let guard = AbortOnPanic;
        let mut patience = Patience::new(false);
        let (said, goes_on) = self.handoff.at_desk(|seat, next| self.serve(seat, next, &mut patience), act);
        if goes_on {
            self.call.notify_one();
        }
        std::mem::forget(guard);
        said
    }

    /// Whether whoever serves goes on when more is left.
    fn serve(&self, seat: &mut Seat<S>, next: Next<'_, Left<S::Command>>, patience: &mut Patience) -> bool {
        if patience.is_a_fabrics && seat.service.driver().takes_long() {
            return false;
        }
        loop {
            let mut wants_none = false;
            let mut wants = |left: &Left<S::Command>| {
                wants_none = !patience.has_time_for(left.is_long::<S>());
                !wants_none
            };
            let done = std::iter::from_fn(|| next(&mut wants)).take(AT_ONCE).map(|left| seat.serve(left)).count();
            if seat.end_turn() || seat.is_due_early() {
                self.call.notify_one();
            }
            if done < AT_ONCE {
                return !wants_none;
            }
        }
    }
}

/// How long whoever has come does what others leave.
struct Patience {
    is_a_fabrics: bool,
    until: Time,
    asked: u32,
}

impl Patience {
    fn new(is_a_fabrics: bool) -> Self {
        Patience { is_a_fabrics, until: BootClock.now() + BRIEFLY, asked: 0 }
    }

    fn has_time_for(&mut self, is_long: bool) -> bool {
        self.asked += 1;
        let may = !(self.is_a_fabrics && is_long);
        may && (!self.asked.is_multiple_of(FEW) || BootClock.now() < self.until)
    }
}

impl<C> Left<C> {
    fn is_long<S: Service<Command = C>>(&self) -> bool {
        match self {
            Left::Command(command) => S::is_long(command),
            Left::Opened(_) | Left::Heard => false,
        }
    }
}

impl<S: Service> Seat<S> {
    fn serve(&mut self, left: Left<S::Command>) {
        match left {
            Left::Command(command) => self.service.command(command),
            Left::Opened(opened) => self.service.driver().opened(*opened),
            Left::Heard => self.service.driver().turn(None),
        }
        self.service.tell_all();
    }

    fn turn(&mut self, arrived: Option<Message>) {
        self.service.driver().turn(arrived);
        self.service.tell_all();
    }

    /// Until nothing is to be done before something is heard. Whether something has arrived all the same, which nobody has looked at: it is the thread's.
    fn end_turn(&mut self) -> bool {
        let mut goes_on = true;
        for _ in 0..TURNS {
            if self.service.driver().has_posts() {
                // A fabric sends what was posted together when it is looked at once more.
                self.service.driver().go_on();
                self.service.tell_all();
            }
            let context = &mut Context::from_waker(&self.hears);
            let driver = self.service.driver();
            let answered = driver.poll_answered(context).is_ready();
            match driver.inbox().map_or(Poll::Pending, |inbox| inbox.poll_next(context)) {
                Poll::Ready(message) => self.turn(Some(message)),
                Poll::Pending if answered => {}
                Poll::Pending => {
                    goes_on = false;
                    break;
                }
            }
        }
        self.service.rests();
        goes_on
    }

    /// Whether something is due before the thread looks.
    fn is_due_early(&mut self) -> bool {
        let due = self.service.driver().next_deadline();
        let is_early = due < self.looks_at;
        // It looks as soon as it is called.
        self.looks_at = self.looks_at.min(due);
        is_early
    }

    /// The thread's: whatever has arrived or is due. Gives what is to be opened, and how long the thread may sleep.
    fn thread_turn(&mut self) -> (Vec<Opening>, Duration) {
        self.turn(None);
        let goes_on = self.end_turn();
        let openings = self.service.driver().openings();
        self.looks_at = if goes_on { Time::ZERO } else { self.service.driver().next_deadline() };
        (openings, self.looks_at.since(BootClock.now()))
    }
}

/// The thread: there for what nobody asks for at the moment, which are deadlines, and for what others left to it.
async fn run<S: Service>(shared: Arc<Shared<S>>) {
    while !shared.is_over.load(Ordering::Acquire) {
        let (openings, patience) = shared.at_desk(Seat::thread_turn);
        for opening in openings {
            let shared = shared.clone();
            tokio::task::spawn_blocking(move || shared.leave_to_thread(Left::Opened(Box::new(opening.run()))));
        }
        tokio::select! {
            biased;
            () = shared.call.notified() => {}
            () = pause(patience) => {}
        }
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

#[cfg(test)]
mod tests;
