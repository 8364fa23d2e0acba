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

/// Gives what was left, the oldest first, if whoever serves wants that one.
pub(crate) type Next<'a, C> = &'a mut dyn FnMut(&mut dyn FnMut(&C) -> bool) -> Option<C>;

impl<D, C> Handoff<D, C> {
    pub(crate) fn new(desk: D) -> Self {
        Handoff { desk: Mutex::new(desk), left: Mutex::default() }
    }

    /// For whoever comes next.
    pub(crate) fn leave(&self, what: C) {
        self.left.lock().push_back(what);
    }

    /// Serves until `serve` says that it has had enough, unless somebody does, who then does what is left now too. Whether something is left for which somebody else has to
    /// come.
    pub(crate) fn try_serve(&self, mut serve: impl FnMut(&mut D, Next<'_, C>) -> bool) -> bool {
        while !self.left.lock().is_empty() {
            let Some(mut desk) = self.desk.try_lock() else { return false };
            let goes_on = serve(&mut desk, &mut |wants| self.left.lock().pop_front_if(|left| wants(left)));
            drop(desk);
            if !goes_on {
                // Who leaves something from here on finds the desk free.
                return !self.left.lock().is_empty();
            }
        }
        false
    }

    /// Does what was left before, and then acts: at the desk, as soon as it is free. What is left meanwhile as [`try_serve`](Self::try_serve), and the same is said of it.
    pub(crate) fn at_desk<T>(
        &self,
        mut serve: impl FnMut(&mut D, Next<'_, C>) -> bool,
        act: impl FnOnce(&mut D) -> T,
    ) -> (T, bool) {
        let said = {
            let mut desk = self.desk.lock();
            let mut before = 0..self.left.lock().len();
            // Whoever acts relies on all of it.
            serve(&mut desk, &mut |_| before.next().and_then(|_| self.left.lock().pop_front()));
            act(&mut desk)
        };
        (said, self.try_serve(serve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const THREADS: usize = 3;
    const ROUNDS: usize = 20_000;

    fn note(done: &mut Vec<usize>, next: Next<'_, usize>) -> bool {
        done.extend(std::iter::from_fn(|| next(&mut |_| true)));
        // What is left from here on is not seen before this has gone away.
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
    fn who_has_had_enough_says_that_something_is_left() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.leave(what));
        let below = |most| {
            move |done: &mut Vec<usize>, next: Next<'_, usize>| {
                done.extend(std::iter::from_fn(|| next(&mut |what| *what < most)));
                false
            }
        };
        assert!(handoff.try_serve(below(3)));
        assert_eq!(*handoff.desk.lock(), [0, 1, 2]);
        assert!(handoff.try_serve(below(3)), "and it takes none of them");
        assert!(!handoff.try_serve(below(9)));
        assert_eq!(*handoff.desk.lock(), [0, 1, 2, 3, 4]);
        assert!(!handoff.try_serve(below(0)), "nothing is left");
    }

    #[test]
    fn what_was_left_before_is_done_before_somebody_acts() {
        let handoff = Handoff::new(vec![]);
        (0..5).for_each(|what| handoff.leave(what));
        let serve = |done: &mut Vec<usize>, next: Next<'_, usize>| {
            while let Some(what) = next(&mut |what| *what < 5) {
                done.push(what);
                // Each time something more: it is not waited for.
                handoff.leave(what + 10);
            }
            false
        };
        let (before, goes_on) = handoff.at_desk(serve, |done| done.clone());
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
                    handoff.at_desk(note, |_| ());
                } else {
                    handoff.try_serve(note);
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
