//! How operations end at their caller, for every provider that sends them as frames: with which outcome, and that the
//! caller hears of it when no lock is held.

use std::task::Waker;

use verbena_terms::{Incarnation, ViewNumber};

use crate::completion::Completer;
use crate::error::{Error, Result};
use crate::operation::{Completed, Operation, OperationId, Settled};
use crate::region::{RegionKey, Secret};

/// Operations of one target and class that are queued or under way.
pub(crate) const MOST_UNDER_WAY: usize = 16 << 10;

/// Collected under a lock, handed over without: the code that is woken may run anything.
#[derive(Default)]
#[must_use = "who posted is not woken before these are handed over"]
pub(crate) struct Endings(Vec<Ending>);

enum Ending {
    Batch(Completer<Completed>, Result<Completed>),
    Settle(Completer<Settled>, Result<Settled>),
}

impl Endings {
    pub(crate) fn batch(&mut self, completer: Completer<Completed>, result: Result<Completed>) {
        self.0.push(Ending::Batch(completer, result));
    }

    pub(crate) fn settle(&mut self, completer: Completer<Settled>, result: Result<Settled>) {
        self.0.push(Ending::Settle(completer, result));
    }

    /// Hands all over, in order. A waiter for several of them is woken once, when all are there.
    pub(crate) fn hand_over(&mut self) {
        let mut wakers: Vec<Waker> = vec![];
        for ending in self.0.drain(..) {
            let waker = match ending {
                Ending::Batch(completer, result) => completer.hand_over(result),
                Ending::Settle(completer, result) => completer.hand_over(result),
            };
            wakers.extend(waker.filter(|waker| wakers.last().is_none_or(|last| !last.will_wake(waker))));
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// How a target says that a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All elements were executed.
    Done,
    /// The element after the last one executed was refused: the key is not one of this region as it is now.
    Revoked,
    /// The key only reads.
    Denied,
    /// Outside a region of this many bytes.
    OutOfBounds(u64),
    /// A word that is not aligned.
    Misaligned,
    /// The window bars it, or knows nothing of it any more.
    Unknown,
}

/// Which memory, and by what right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionId {
    pub(crate) region: u32,
    pub(crate) view: ViewNumber,
    pub(crate) secret: Secret,
}

impl From<&RegionKey> for RegionId {
    fn from(key: &RegionKey) -> Self {
        RegionId { region: key.region, view: key.view, secret: key.secret }
    }
}

/// What is wrong with a batch of which `done` elements were executed. `None` if nothing is.
pub(crate) fn refusal(
    target: Incarnation,
    region: RegionId,
    operations: &[Operation],
    outcome: Outcome,
    done: usize,
    ids: Option<(OperationId, OperationId)>,
) -> Option<Error> {
    let RegionId { region, view, .. } = region;
    let range = || operations[done].range();
    Some(match outcome {
        Outcome::Done => return None,
        Outcome::Revoked => Error::Revoked { target, region, view },
        Outcome::Denied => Error::Denied { target, region },
        Outcome::OutOfBounds(region_bytes) => Error::OutOfBounds { at: range().0, length: range().1, region_bytes },
        Outcome::Misaligned => Error::Misaligned { at: range().0 },
        Outcome::Unknown => unknown(target, ids),
    })
}

/// The end of what was sent and not answered: these identifiers are to be settled (F2).
pub(crate) fn unknown(target: Incarnation, ids: Option<(OperationId, OperationId)>) -> Error {
    Error::Unknown { target, first: ids.map(|(first, _)| first), last: ids.map(|(_, last)| last) }
}

/// [`MOST_UNDER_WAY`] is reached.
pub(crate) const fn queue_full() -> Error {
    Error::Full { what: "the queue of operations to a node", most: MOST_UNDER_WAY }
}

pub(crate) fn at_most(what: &'static str, asked: usize, most: usize) -> Result<()> {
    if asked > most { Err(Error::TooLarge { what, asked: asked as u64, most: most as u64 }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use parking_lot::Mutex;

    use super::*;
    use crate::completion::Pending;

    struct Task {
        woken: AtomicUsize,
        pending: Mutex<Vec<Pending<Settled>>>,
        there: AtomicUsize,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::Relaxed);
            let there = self.pending.lock().iter_mut().filter_map(Pending::poll_now).count();
            self.there.fetch_add(there, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_for_several_is_woken_once_when_all_are_there() {
        let task = Arc::new(Task { woken: AtomicUsize::new(0), pending: Mutex::default(), there: AtomicUsize::new(0) });
        let waker = Waker::from(task.clone());
        let mut endings = Endings::default();
        for _ in 0..5 {
            let (completer, mut pending) = Pending::new(Error::Closed);
            assert!(!pending.is_there(&mut Context::from_waker(&waker)));
            task.pending.lock().push(pending);
            endings.settle(completer, Ok(Settled::Barred));
        }
        endings.hand_over();
        assert_eq!((task.woken.load(Ordering::Relaxed), task.there.load(Ordering::Relaxed)), (1, 5));
    }
}
