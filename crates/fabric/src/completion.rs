//! The way back of a posted operation: polled, awaited, or waited for by a thread.

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
pub struct Pending<T>(State<T>);

#[derive(Debug)]
enum State<T> {
    Ready(Result<T>),
    Waiting(Arc<Slot<T>>),
    Taken,
}

impl<T> Pending<T> {
    /// Complete already.
    pub const fn ready(result: Result<T>) -> Self {
        Pending(State::Ready(result))
    }

    /// A pair: the provider keeps the completer. If it is dropped without completing, the result is `if_dropped`.
    pub fn new(if_dropped: Error) -> (Completer<T>, Self) {
        let slot = Arc::new(Slot { cell: Mutex::new(Cell { result: None, waker: None }), arrived: Condvar::new() });
        (Completer { slot: slot.clone(), if_dropped: Some(if_dropped) }, Pending(State::Waiting(slot)))
    }

    /// The result, once: `None` while it is not there. After it was given, and only then, `None` again for ever.
    pub fn poll_now(&mut self) -> Option<Result<T>> {
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(result) => Some(result),
            State::Taken => None,
            State::Waiting(slot) => {
                let result = slot.cell.lock().result.take();
                if result.is_none() {
                    self.0 = State::Waiting(slot);
                }
                result
            }
        }
    }

    /// Blocks the thread until the result is there. Ends, because every operation has a deadline that its provider keeps.
    /// Not for a simulated fabric, whose time stands still meanwhile.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            State::Ready(result) => result,
            State::Taken => Err(Error::Closed),
            State::Waiting(slot) => {
                let mut cell = slot.cell.lock();
                loop {
                    if let Some(result) = cell.result.take() {
                        return result;
                    }
                    slot.arrived.wait(&mut cell);
                }
            }
        }
    }
}

impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let State::Waiting(slot) = &self.0 {
            let mut cell = slot.cell.lock();
            if cell.result.is_none() {
                cell.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(self.poll_now().unwrap_or(Err(Error::Closed)))
    }
}

/// The provider's end of a [`Pending`].
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
    pub fn complete(mut self, result: Result<T>) {
        self.if_dropped = None;
        self.slot.put(result);
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(error) = self.if_dropped.take() {
            self.slot.put(Err(error));
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
    fn put(&self, result: Result<T>) {
        let waker = {
            let mut cell = self.cell.lock();
            cell.result = Some(result);
            cell.waker.take()
        };
        self.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
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

    #[test]
    fn a_thread_that_waits_is_woken() {
        let (completer, pending) = Pending::new(Error::Closed);
        let waiter = std::thread::spawn(move || pending.wait());
        completer.complete(Ok("there"));
        assert_eq!(waiter.join().unwrap(), Ok("there"));
    }
}
