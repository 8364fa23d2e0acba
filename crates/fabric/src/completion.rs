//! The completion of a posted operation: polled, awaited, or waited for by a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// What a post gives back. Where the caller executes ([`Capabilities::synchronous`](crate::Capabilities::synchronous)) it holds
/// the result already: no allocation, no task switch, no system call.
#[derive(Debug)]
#[must_use = "a posted operation that nobody looks at has an outcome that nobody knows"]
pub struct Pending<T> {
    state: State<T>,
    held: Held,
}

/// Sends what was posted to be gathered.
pub(crate) trait Gatherer: Send + Sync {
    /// All of it, now.
    fn send_gathered(self: Arc<Self>);
}

/// Whether the operation may still wait for others to be sent with it, and how its waiter has looked at it. Dropped, it
/// is sent.
struct Held {
    gatherer: Option<Arc<dyn Gatherer>>,
    was_looked_at: bool,
    was_awaited: bool,
}

impl Held {
    fn send(&mut self) {
        if let Some(gatherer) = self.gatherer.take() {
            gatherer.send_gathered();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.send();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("is_sent", &self.gatherer.is_none()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum State<T> {
    Ready(Result<T>),
    Waiting(Arc<Slot<T>>),
    Taken,
}

impl<T> Pending<T> {
    /// Complete already.
    pub const fn ready(result: Result<T>) -> Self {
        Pending::of(State::Ready(result))
    }

    /// A pair: the provider keeps the completer. If it is dropped without completing, the result is `if_dropped`.
    pub fn new(if_dropped: Error) -> (Completer<T>, Self) {
        let slot = Arc::new(Slot { cell: Mutex::new(Cell { result: None, waker: None }), arrived: Condvar::new() });
        (Completer { slot: slot.clone(), if_dropped: Some(if_dropped) }, Pending::of(State::Waiting(slot)))
    }

    const fn of(state: State<T>) -> Self {
        Pending { state, held: Held { gatherer: None, was_looked_at: false, was_awaited: false } }
    }

    /// It may wait for others to be sent with it: until a thread waits for it, or it is awaited or looked at for the second time. So all that
    /// the tasks of a thread post in one turn go together.
    pub(crate) fn gathered_by(mut self, gatherer: Arc<dyn Gatherer>) -> Self {
        if matches!(self.state, State::Waiting(_)) {
            self.held.gatherer = Some(gatherer);
        }
        self
    }

    /// The result, once: `None` while it is not there. After it was given, and only then, `None` again for ever.
    pub fn poll_now(&mut self) -> Option<Result<T>> {
        let result = self.take();
        if result.is_none() && std::mem::replace(&mut self.held.was_looked_at, true) && self.held.gatherer.is_some() {
            self.held.send();
            return self.take();
        }
        result
    }

    /// Whether the result is there, and stays there; if not, the task is woken when it comes.
    pub fn is_there(&mut self, context: &mut Context<'_>) -> bool {
        match Pin::new(&mut *self).poll(context) {
            Poll::Ready(result) => {
                *self = Pending::ready(result);
                true
            }
            Poll::Pending => false,
        }
    }

    fn take(&mut self) -> Option<Result<T>> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Some(result),
            State::Taken => None,
            State::Waiting(slot) => {
                let result = slot.cell.lock().result.take();
                if result.is_none() {
                    self.state = State::Waiting(slot);
                } else {
                    // Sent with others.
                    self.held.gatherer = None;
                }
                result
            }
        }
    }

    /// Blocks the thread until the result is there. Ends, because every operation has a deadline that its provider keeps.
    /// Not for a simulated fabric, whose time stands still meanwhile.
    pub fn wait(mut self) -> Result<T> {
        if let Some(result) = self.take() {
            return result;
        }
        self.held.send();
        let State::Waiting(slot) = self.state else { return Err(Error::Closed) };
        let mut cell = slot.cell.lock();
        loop {
            if let Some(result) = cell.result.take() {
                return result;
            }
            slot.arrived.wait(&mut cell);
        }
    }
}

impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if self.held.gatherer.is_some() {
            if !std::mem::replace(&mut self.held.was_awaited, true) {
                // Behind the other tasks that are ready, which may have something to post.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.held.send();
        }
        if let State::Waiting(slot) = &self.state {
            let mut cell = slot.cell.lock();
            if cell.result.is_none() {
                cell.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(self.take().unwrap_or(Err(Error::Closed)))
    }
}

/// The provider's end of a [`Pending`]. Complete and drop it with no lock held: the waiter that it wakes may act at
/// once, in this thread.
#[derive(Debug)]
pub struct Completer<T> {
    slot: Arc<Slot<T>>,
    if_dropped: Option<Error>,
}

impl<T> Completer<T> {
    /// From now on a drop without completing means this: a provider says so when it sends what it had only queued.
    pub fn if_dropped(&mut self, error: Error) {
        self.if_dropped = Some(error);
    }

    /// Hands over the result and wakes who waits.
    pub fn complete(self, result: Result<T>) {
        if let Some(waker) = self.hand_over(result) {
            waker.wake();
        }
    }

    /// Hands over the result. A task that waits for it is to be woken by what this gives.
    pub(crate) fn hand_over(mut self, result: Result<T>) -> Option<Waker> {
        self.if_dropped = None;
        self.slot.put(result)
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(waker) = self.if_dropped.take().and_then(|error| self.slot.put(Err(error))) {
            waker.wake();
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    cell: Mutex<Cell<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Cell<T> {
    result: Option<Result<T>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    fn put(&self, result: Result<T>) -> Option<Waker> {
        let waker = {
            let mut cell = self.cell.lock();
            cell.result = Some(result);
            cell.waker.take()
        };
        self.arrived.notify_all();
        waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_given_once() {
        let (completer, mut pending) = Pending::new(Error::Closed);
        assert!(pending.poll_now().is_none());
        completer.complete(Ok(7));
        assert_eq!(pending.poll_now(), Some(Ok(7)));
        assert_eq!(pending.poll_now(), None);
    }

    #[test]
    fn a_dropped_completer_says_what_its_provider_left() {
        let (completer, pending) = Pending::<u8>::new(Error::Late);
        drop(completer);
        assert_eq!(pending.wait(), Err(Error::Late));
    }

    #[test]
    fn what_a_drop_means_can_change() {
        let (mut completer, pending) = Pending::<u8>::new(Error::Closed);
        completer.if_dropped(Error::Late);
        drop(completer);
        assert_eq!(pending.wait(), Err(Error::Late));
    }

    /// Counts the calls to send, and completes what it has then.
    struct Sender(Mutex<(u32, Option<Completer<u8>>)>);

    impl Gatherer for Sender {
        fn send_gathered(self: Arc<Self>) {
            let mut sent = self.0.lock();
            sent.0 += 1;
            if let Some(completer) = sent.1.take() {
                completer.complete(Ok(7));
            }
        }
    }

    fn gathered() -> (Arc<Sender>, Pending<u8>) {
        let (completer, pending) = Pending::new(Error::Closed);
        let sender = Arc::new(Sender(Mutex::new((0, Some(completer)))));
        (sender.clone(), pending.gathered_by(sender))
    }

    #[test]
    fn what_is_gathered_is_sent_when_it_is_looked_at_again_awaited_again_waited_for_or_dropped() {
        let sent = |sender: &Sender| sender.0.lock().0;
        let (sender, mut pending) = gathered();
        assert!(pending.poll_now().is_none() && sent(&sender) == 0);
        assert_eq!((pending.poll_now(), sent(&sender)), (Some(Ok(7)), 1));

        let (sender, mut pending) = gathered();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pending.poll_now().is_none());
        assert!(Pin::new(&mut pending).poll(&mut context).is_pending() && sent(&sender) == 0);
        assert_eq!(Pin::new(&mut pending).poll(&mut context), Poll::Ready(Ok(7)));
        assert_eq!(sent(&sender), 1);

        let (sender, pending) = gathered();
        assert_eq!((pending.wait(), sent(&sender)), (Ok(7), 1));

        let (sender, pending) = gathered();
        drop(pending);
        assert_eq!(sent(&sender), 1);
    }

    #[test]
    fn what_was_sent_with_others_is_not_sent_again() {
        let (sender, mut pending) = gathered();
        sender.clone().send_gathered();
        assert_eq!(pending.poll_now(), Some(Ok(7)));
        drop(pending);
        assert_eq!(sender.0.lock().0, 1);
    }

    #[test]
    fn a_thread_that_waits_is_woken() {
        let (completer, pending) = Pending::new(Error::Closed);
        let waiter = std::thread::spawn(move || pending.wait());
        completer.complete(Ok("there"));
        assert_eq!(waiter.join().unwrap(), Ok("there"));
    }
}
