//! A queue of work for a value that one thread at a time has, without any thread waiting for another (flat combining).
//!
//! ```text
//!   1  push an item                  3  run what is queued until nothing is
//!   2  is the value free? -- no -->  return
//!                         -- yes ->  4  give the value back
//!                                    5  is something queued? -- yes --> 2
//! ```
//!
//! *Nothing stays in the queue.* A thread that finds the value taken at 2 has pushed its item before. The thread that has the value is not at 5 yet, so it finds
//! the item there, unless a third thread has run it.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A value and the queue of work for it.
pub(crate) struct Handoff<V, I> {
    value: Mutex<V>,
    queue: Mutex<VecDeque<I>>,
}

/// Gives the oldest queued item, if the predicate takes that one.
pub(crate) type Next<'a, I> = &'a mut dyn FnMut(&mut dyn FnMut(&I) -> bool) -> Option<I>;

impl<V, I> Handoff<V, I> {
    pub(crate) fn new(value: V) -> Self {
        Handoff { value: Mutex::new(value), queue: Mutex::default() }
    }

    /// Queues an item for the next thread that runs.
    pub(crate) fn push(&self, item: I) {
        self.queue.lock().push_back(item);
    }

    /// Runs queued items until `run` returns false, unless another thread has the value: that one runs what is queued now too. Whether items are left that
    /// another thread has to come for.
    pub(crate) fn try_run(&self, mut run: impl FnMut(&mut V, Next<'_, I>) -> bool) -> bool {
        while !self.queue.lock().is_empty() {
            let Some(mut value) = self.value.try_lock() else { return false };
            let goes_on = run(&mut value, &mut |takes| self.queue.lock().pop_front_if(|item| takes(item)));
            drop(value);
            if !goes_on {
                // A thread that pushes an item from here on finds the value free.
                return !self.queue.lock().is_empty();
            }
        }
        false
    }

    /// Waits for the value, runs all items that were queued by then, and then `act`. Items queued meanwhile are run as by [`try_run`](Self::try_run); the second
    /// result is that method's.
    pub(crate) fn run_then<T>(
        &self,
        mut run: impl FnMut(&mut V, Next<'_, I>) -> bool,
        act: impl FnOnce(&mut V) -> T,
    ) -> (T, bool) {
        let result = {
            let mut value = self.value.lock();
            let mut before = 0..self.queue.lock().len();
            // `act` relies on all of them: the budget does not apply.
            run(&mut value, &mut |_| before.next().and_then(|_| self.queue.lock().pop_front()));
            act(&mut value)
        };
        (result, self.try_run(run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const THREADS: usize = 3;
    const ROUNDS: usize = 5_000;

    fn note(done: &mut Vec<usize>, next: Next<'_, usize>) -> bool {
        done.extend(std::iter::from_fn(|| next(&mut |_| true)));
        // What is pushed from here on is not seen before this thread has given the value back.
        std::thread::yield_now();
        true
    }

    fn meet(at: &AtomicUsize, round: usize) {
        at.fetch_add(1, Ordering::SeqCst);
        while at.load(Ordering::SeqCst) < (round + 1) * THREADS {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_whose_budget_is_spent_says_that_items_are_left() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.push(what));
        let below = |most| {
            move |done: &mut Vec<usize>, next: Next<'_, usize>| {
                done.extend(std::iter::from_fn(|| next(&mut |what| *what < most)));
                false
            }
        };
        assert!(handoff.try_run(below(3)));
        assert_eq!(*handoff.value.lock(), [0, 1, 2]);
        assert!(handoff.try_run(below(3)), "and it takes none of them");
        assert!(!handoff.try_run(below(9)));
        assert_eq!(*handoff.value.lock(), [0, 1, 2, 3, 4]);
        assert!(!handoff.try_run(below(0)), "nothing is left");
    }

    #[test]
    fn queued_items_run_before_act() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.push(what));
        let run = |done: &mut Vec<usize>, next: Next<'_, usize>| {
            while let Some(what) = next(&mut |what| *what < 5) {
                done.push(what);
                // Each time something more: it is not waited for.
                handoff.push(what + 10);
            }
            false
        };
        let (before, goes_on) = handoff.run_then(run, |done| done.clone());
        assert_eq!((before, goes_on), (vec![0, 1, 2, 3, 4], true));
    }

    /// In each round all threads push an item at the same time. When all have returned, all items have run.
    #[test]
    fn nothing_stays_in_the_queue() {
        let handoff = Handoff::new(vec![]);
        let [begun, ended, stayed] = [const { AtomicUsize::new(0) }; 3];
        let work = &|thread: usize| {
            for round in 0..ROUNDS {
                meet(&begun, round);
                handoff.push(THREADS * round + thread);
                if thread == 2 && round % 2 == 0 {
                    handoff.run_then(note, |_| ());
                } else {
                    handoff.try_run(note);
                }
                meet(&ended, round);
                // The next round begins with this thread.
                if thread == 0 {
                    stayed.fetch_add(handoff.queue.lock().len(), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let stayed = stayed.into_inner();
        let mut done = handoff.value.into_inner();
        done.sort_unstable();
        assert_eq!(stayed, 0, "{stayed} of {} stayed in the queue", THREADS * ROUNDS);
        assert_eq!(done, (0..THREADS * ROUNDS).collect::<Vec<_>>());
    }
}
