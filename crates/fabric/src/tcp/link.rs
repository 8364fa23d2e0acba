//! The way to one target in one class: a task that makes the connection when something waits, sends what waits, takes the answers,
//! keeps the deadlines, and makes the connection again. What it decides is in [`Ledger`].
//!
//! A poster on the control class sends its operation itself, if that is little and a connection in the clear takes it:
//! to wake the task would take longer. *Nothing stays queued:* a poster that finds the output taken has queued its
//! operation before, and the holder of the output looks afterwards whether anything is queued. A poster that has not
//! sent all wakes the task. A poster ends no operation, because it may hold what the woken waiter wants. While the
//! connection stands, the task waits for no poster, because its thread serves others too.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::counts::Counters;
use super::dial::Dialer;
use super::frames::{Broken, Frames};
use super::ledger::{Ledger, Wake};
use super::output::Output;
use super::stream::{Input, Sink, Stream};
use super::wire::parse_answers;
use crate::completion::Pending;
use crate::ending::Endings;
use crate::error::Result;
use crate::message::{Class, Port};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::region::RegionKey;

/// Rest after a failed attempt, doubled with each up to the second.
const SHORTEST_REST: Duration = Duration::from_millis(10);
const LONGEST_REST: Duration = Duration::from_millis(320);
/// The timer looks at least so often, so that no sum of times overflows it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

pub(super) struct Link {
    target: Incarnation,
    class: Class,
    /// Where frames go while there is a connection. Locked before the ledger.
    output: Mutex<Option<Output<Sink>>>,
    ledger: Mutex<Ledger>,
    work: Notify,
    timer: Notify,
    silent: Notify,
    dialer: Arc<Dialer>,
    counters: Arc<Counters>,
}

impl Link {
    pub(super) fn new(
        target: Incarnation,
        address: String,
        class: Class,
        dialer: Arc<Dialer>,
        counters: Arc<Counters>,
    ) -> Self {
        Link {
            target,
            class,
            output: Mutex::default(),
            ledger: Mutex::new(Ledger::new(target, address)),
            work: Notify::new(),
            timer: Notify::new(),
            silent: Notify::new(),
            dialer,
            counters,
        }
    }

    /// Where the target is found from the next attempt on.
    pub(super) fn moved(&self, address: &str) {
        let mut ledger = self.ledger.lock();
        if ledger.address != address {
            ledger.address = address.to_owned();
        }
    }

    pub(super) fn post(&self, key: &RegionKey, batch: Batch, deadline: Time) -> Pending<Completed> {
        let now = BootClock.now();
        let (pending, wake) = self.ledger.lock().post(now, key, batch, deadline);
        self.wake(wake, now);
        pending
    }

    pub(super) fn settle(&self, id: OperationId, deadline: Time) -> Pending<Settled> {
        let now = BootClock.now();
        let (pending, wake) = self.ledger.lock().settle(now, id, deadline);
        self.wake(wake, now);
        pending
    }

    pub(super) fn send(&self, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        let wake = self.ledger.lock().send(view, port, number, body)?;
        self.wake(wake, BootClock.now());
        Ok(())
    }

    /// Ends everything that waits or is under way.
    pub(super) fn close(&self) {
        self.with_ledger(|ledger, endings| ledger.close(endings));
    }

    /// Runs until the runtime is shut down.
    pub(super) async fn run(self: Arc<Self>) {
        tokio::join!(self.converse_for_ever(), self.keep_deadlines());
    }

    async fn converse_for_ever(&self) {
        let mut rest = SHORTEST_REST;
        loop {
            self.until_work().await;
            let rested = self.ledger.lock().rests_until();
            sleep_until(rested).await;
            let (address, next) = {
                let ledger = self.ledger.lock();
                (ledger.address.clone(), ledger.next_id())
            };
            match self.dialer.dial(self.target, &address, self.class, next).await {
                Ok(stream) => {
                    rest = SHORTEST_REST;
                    let reason = self.converse(stream).await;
                    self.counters.lost.add(1);
                    tracing::debug!(peer = %self.target, address, class = ?self.class, reason, "connection lost");
                    self.with_ledger(|ledger, endings| ledger.lost(endings));
                }
                Err(reason) => {
                    self.counters.unreached.add(1);
                    tracing::debug!(peer = %self.target, address, class = ?self.class, reason, "no connection");
                    let until = BootClock.now() + rest;
                    rest = (rest * 2).min(LONGEST_REST);
                    self.with_ledger(|ledger, endings| ledger.attempt_failed(until, &reason, endings));
                }
            }
        }
    }

    /// Works on a connection until it breaks; says why it did.
    async fn converse(&self, stream: Stream) -> String {
        self.ledger.lock().connected(BootClock.now());
        let (input, sink) = stream.split();
        let _connected = Connected::new(self, sink);
        tokio::select! {
            reason = self.write() => reason,
            reason = self.read(Frames::new(input)) => reason,
            () = self.silent.notified() => "nothing was heard for too long".into(),
        }
    }

    /// Sends what others leave to it.
    async fn write(&self) -> String {
        loop {
            if let Err(error) = poll_fn(|context| self.poll_send(context)).await {
                return error.to_string();
            }
            self.work.notified().await;
        }
    }

    /// Never waits for the holder of the output, as the thread has others to serve.
    fn poll_send(&self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            let Some(mut taken) = self.output.try_lock() else { return Poll::Ready(Ok(())) };
            let Some(output) = &mut *taken else { return Poll::Ready(Ok(())) };
            let mut endings = Endings::default();
            let sent =
                output.poll_send(context, |frame| self.ledger.lock().gather(BootClock.now(), frame, &mut endings));
            drop(taken);
            endings.hand_over();
            if !matches!(sent, Poll::Ready(Ok(()))) || !self.has_work() {
                return sent;
            }
        }
    }

    /// Sends what is queued, on behalf of the poster. Returns whether the task has nothing to do about it.
    fn send_now(&self, now: Time) -> bool {
        let Some(mut taken) = self.output.try_lock() else { return true };
        let Some(output) = &mut *taken else { return false };
        let is_sent = output.send_now(now, |frame| self.ledger.lock().gather_few(now, frame));
        drop(taken);
        if is_sent {
            self.counters.by_posters.add(1);
        }
        is_sent && !self.has_work()
    }

    async fn read(&self, mut frames: Frames<Input>) -> String {
        loop {
            let reason = match self.read_one(&mut frames).await {
                Ok(true) => continue,
                Ok(false) => "the target closed it".into(),
                Err(Broken::Io(error)) => error.to_string(),
                Err(broken) => {
                    self.counters.malformed.add(1);
                    tracing::warn!(peer = %self.target, class = ?self.class, %broken, "an answer that cannot be read");
                    broken.to_string()
                }
            };
            return reason;
        }
    }

    async fn read_one<R: AsyncRead + Unpin>(&self, frames: &mut Frames<R>) -> std::result::Result<bool, Broken> {
        let Some(bytes) = frames.arrive().await? else { return Ok(false) };
        let answers = parse_answers(frames.frame(bytes))?;
        self.with_ledger(|ledger, endings| ledger.answered(BootClock.now(), &answers, endings))
            .map_err(Broken::OutOfPlace)?;
        frames.consume(bytes);
        Ok(true)
    }

    async fn keep_deadlines(&self) {
        let patience = match self.class {
            Class::Control => Duration::from_secs(1),
            // A full frame takes its time on a slow line.
            Class::Bulk => Duration::from_secs(5),
        };
        loop {
            let next = self.with_ledger(|ledger, endings| ledger.expire(BootClock.now(), patience, endings));
            if next.silent {
                self.silent.notify_waiters();
            }
            tokio::select! {
                () = sleep_until(next.at) => {}
                () = self.timer.notified() => {}
            }
        }
    }

    async fn until_work(&self) {
        while !self.has_work() {
            self.work.notified().await;
        }
    }

    fn has_work(&self) -> bool {
        self.ledger.lock().has_work()
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger, &mut Endings) -> T) -> T {
        let mut endings = Endings::default();
        let outcome = act(&mut self.ledger.lock(), &mut endings);
        endings.hand_over();
        outcome
    }

    fn wake(&self, wake: Wake, now: Time) {
        if wake.timer {
            self.timer.notify_one();
        }
        if wake.writer && !self.send_now(now) {
            self.work.notify_one();
        }
    }
}

/// While this is there frames go out.
struct Connected<'a>(&'a Link);

impl<'a> Connected<'a> {
    fn new(link: &'a Link, sink: Sink) -> Self {
        let is_for_posters = link.class == Class::Control && !sink.holds_up_reading();
        *link.output.lock() = Some(Output::new(sink, is_for_posters));
        Connected(link)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        *self.0.output.lock() = None;
    }
}

async fn sleep_until(at: Time) {
    tokio::time::sleep(at.since(BootClock.now()).min(LONGEST_SLEEP)).await;
}
