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

    /// Serves, unless somebody does, who then does what is left now too.
    pub(crate) fn try_serve(&self, mut serve: impl FnMut(&mut D, Next<'_, C>)) {
        while !self.left.lock().is_empty() {
            let Some(mut desk) = self.desk.try_lock() else { return };
            serve(&mut desk, &mut || self.left.lock().pop_front());
        }
    }

    /// Serves, and then acts: at the desk, as soon as it is free.
    pub(crate) fn at_desk<T>(&self, mut serve: impl FnMut(&mut D, Next<'_, C>), act: impl FnOnce(&mut D) -> T) -> T {
        let said = {
            let mut desk = self.desk.lock();
            serve(&mut desk, &mut || self.left.lock().pop_front());
            act(&mut desk)
        };
        self.try_serve(serve);
        said
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
