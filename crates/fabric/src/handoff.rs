//! What several threads want done by whoever has something, without waiting for each other.
//!
//! ```text
//!   1  leave it                      3  serve: do what is left until nothing is
//!   2  is the desk free?  -- no -->  go away
//!                         -- yes ->  4  go away from the desk
//!                                    5  is something left?  -- yes --> 2
//! ```
//!
//! *Nothing stays there.* Who finds the desk taken at 2 has left something before, and whoever has it is not at 5 yet: it finds it there, or somebody else has done it.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// A desk, and what was left at it.
pub(crate) struct Handoff<D, C> {
    desk: Mutex<D>,
    left: Mutex<VecDeque<C>>,
}

/// Gives what was left, the oldest first.
pub(crate) type Next<'a, C> = &'a mut dyn FnMut() -> Option<C>;

impl<D, C> Handoff<D, C> {
    pub(crate) fn new(desk: D) -> Self {
        Handoff { desk: Mutex::new(desk), left: Mutex::default() }
    }

    /// For whoever comes next.
    pub(crate) fn leave(&self, what: C) {
        self.left.lock().push_back(what);
    }

    /// Serves for as long as `has_time`, unless somebody does, who then does what is left now too. Whether something is left for which somebody else has to come.
    pub(crate) fn try_serve(
        &self,
        mut has_time: impl FnMut() -> bool,
        mut serve: impl FnMut(&mut D, Next<'_, C>),
    ) -> bool {
        while !self.left.lock().is_empty() {
            let Some(mut desk) = self.desk.try_lock() else { return false };
            let mut is_over = false;
            serve(&mut desk, &mut || {
                is_over |= !has_time();
                if is_over { None } else { self.left.lock().pop_front() }
            });
            drop(desk);
            if is_over {
                // Who leaves something from here on finds the desk free.
                return !self.left.lock().is_empty();
            }
        }
        false
    }

    /// Does what was left before, and then acts: at the desk, as soon as it is free. What is left meanwhile as [`try_serve`](Self::try_serve), and the same is said of it.
    pub(crate) fn at_desk<T>(
        &self,
        has_time: impl FnMut() -> bool,
        mut serve: impl FnMut(&mut D, Next<'_, C>),
        act: impl FnOnce(&mut D) -> T,
    ) -> (T, bool) {
        let said = {
            let mut desk = self.desk.lock();
            let before = self.left.lock().len();
            let mut numbers = 0..before;
            serve(&mut desk, &mut || numbers.next().and_then(|_| self.left.lock().pop_front()));
            act(&mut desk)
        };
        (said, self.try_serve(has_time, serve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const THREADS: usize = 3;
    const ROUNDS: usize = 20_000;

    fn note(done: &mut Vec<usize>, next: Next<'_, usize>) {
        done.extend(std::iter::from_fn(next));
        // What is left from here on is not seen before this has gone away.
        std::thread::yield_now();
    }

    fn meet(at: &AtomicUsize, round: usize) {
        at.fetch_add(1, Ordering::SeqCst);
        while at.load(Ordering::SeqCst) < (round + 1) * THREADS {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_has_no_time_says_that_something_is_left() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.leave(what));
        let mut time = 3;
        let mut has_time = || {
            time -= 1;
            time >= 0
        };
        assert!(handoff.try_serve(&mut has_time, note));
        assert_eq!(*handoff.desk.lock(), [0, 1, 2]);
        assert!(handoff.try_serve(&mut has_time, note), "and it takes none of them");
        assert!(!handoff.try_serve(|| true, note));
        assert_eq!(*handoff.desk.lock(), [0, 1, 2, 3, 4]);
        assert!(!handoff.try_serve(|| false, note), "nothing is left");
    }

    #[test]
    fn what_was_left_before_is_done_before_somebody_acts() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.leave(what));
        let serve = |done: &mut Vec<usize>, next: Next<'_, usize>| {
            while let Some(what) = next() {
                done.push(what);
                // Each time something more: it is not waited for.
                handoff.leave(what + 10);
            }
        };
        let (before, goes_on) = handoff.at_desk(|| false, serve, |done| done.clone());
        assert_eq!((before, goes_on), (vec![0, 1, 2, 3, 4], true));
    }

    /// In each round all threads leave something at the same time. When all have returned it is done.
    #[test]
    fn nothing_stays_there() {
        let handoff = Handoff::new(vec![]);
        let [begun, ended, stayed] = [const { AtomicUsize::new(0) }; 3];
        let work = &|thread: usize| {
            for round in 0..ROUNDS {
                meet(&begun, round);
                handoff.leave(THREADS * round + thread);
                if thread == 2 && round % 2 == 0 {
                    handoff.at_desk(|| true, note, |_| ());
                } else {
                    handoff.try_serve(|| true, note);
                }
                meet(&ended, round);
                // The next round begins with this thread.
                if thread == 0 {
                    stayed.fetch_add(handoff.left.lock().len(), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        });
        let stayed = stayed.into_inner();
        let mut done = handoff.desk.into_inner();
        done.sort_unstable();
        assert_eq!(stayed, 0, "{stayed} of {} stayed there", THREADS * ROUNDS);
        assert_eq!(done, (0..THREADS * ROUNDS).collect::<Vec<_>>());
    }
}
