//! Sleeping without losing a wake-up.
//!
//! The side that is about to sleep *announces* it in a word of shared memory; the side that made something happen
//! *notices* the announcement and wakes the sleeper. A side that does not sleep costs the other a fence and a load, no
//! system call.
//!
//! ```text
//!   sleeper                                 waker
//!   S1  announcement := what I wait for     W1  publish (a message, or a head)
//!   S2  fence (SeqCst)                      W2  fence (SeqCst)
//!   S3  is it there already?                W3  is it announced?
//!   S4  no: sleep                           W4  yes: wake
//!   S5  announcement := 0
//! ```
//!
//! *No wake-up is lost.* The two fences are in one total order. If S2 is first, W3 sees the announcement of S1 (or a
//! later value of the word) and the waker wakes; if W2 is first, S3 sees what W1 published and the sleeper does not
//! sleep. What is left is the moment between S3 and S4 while the wake-up of W4 goes by. With the futex, W4 first swaps
//! the announcement for 0 and then wakes, and the kernel sleeps only if the word still holds the announced value: the
//! swap is either before that look, and the sleeper returns at once, or after it, and the sleeper is already in the
//! queue that the wake-up empties (futex(2), FUTEX_WAIT). With the doorbell, W4 writes an eventfd, which remembers.
//! The swap can take away a later announcement than the one that W3 saw; the wake-up that follows it is then for that
//! one. A wake-up too many only makes the sleeper look again.
//!
//! The tests below run this code, not a copy of it, under the schedule explorer loom: every interleaving (two sleeps in
//! a row: those with at most three preemptions) and every value that the memory model lets a load return. Take away a
//! fence, S3 or the swap, and they find a sleeper that is never woken.
//!
//! *What a hostile other side can do:* clear or set the announcement, which costs its own wake-ups, or the waker one
//! system call for each thing that it publishes to that side. (By the word that says where it runs it can have the
//! helper sleep where it would have spun, which costs the next client a system call too.) It cannot make another side
//! sleep on, because every sleep has an end, and it cannot touch the announcement of the helper, which clients map for
//! reading only.

use std::sync::atomic::Ordering;

use crate::memory::Memory;

/// Announces `what` in `word`, and unless it is `there` already, sleeps by `sleep`. Afterwards nothing is announced.
/// Whether it slept.
pub(crate) fn sleep_unless(
    memory: &impl Memory,
    word: usize,
    what: u64,
    mut there: impl FnMut() -> bool,
    sleep: impl FnOnce(),
) -> bool {
    memory.store(word, what, Ordering::Relaxed);
    memory.fence();
    let sleeps = !there();
    if sleeps {
        sleep();
    }
    memory.store(word, 0, Ordering::Relaxed);
    sleeps
}

/// After something was published: whether one of the bits `what` is announced in `word`.
pub(crate) fn announced(memory: &impl Memory, word: usize, what: u64) -> bool {
    memory.fence();
    memory.load(word, Ordering::Relaxed) & what != 0
}

/// After something was published: wakes the one who sleeps on the futex `word`, if it announced that it waits for one
/// of the bits `what`. Whether it did.
pub(crate) fn wake_if_announced(memory: &impl Memory, word: usize, what: u64) -> bool {
    let wakes = announced(memory, word, what);
    if wakes {
        memory.swap(word, 0, Ordering::Relaxed);
        memory.wake(word);
    }
    wakes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Place;
    use crate::ring::{Consumer, Header, Producer};
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Arc, Condvar, Mutex};
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    const SLEEPS: usize = 0;
    const BEACON: usize = 1;
    const WANTS_ROOM: usize = 2;
    /// Two messages without payload fill it.
    const RING: Place = Place { head: 3, data: 4, lines: 2, longest: 0 };
    const NOTHING: Header = Header { kind: 1, number: 0 };

    /// The shared memory as loom sees it. `kernel` stands for the lock of the futex's queue: the look at the word and
    /// the entry into the queue are one step. Its sleeps never time out, so that a lost wake-up is a deadlock.
    struct Explored {
        words: Vec<AtomicU64>,
        kernel: Mutex<()>,
        queue: Condvar,
    }

    impl Explored {
        fn new() -> Arc<Self> {
            let words = (0..20).map(|_| AtomicU64::new(0)).collect();
            Arc::new(Explored { words, kernel: Mutex::new(()), queue: Condvar::new() })
        }
    }

    impl Memory for Explored {
        fn load(&self, word: usize, order: Ordering) -> u64 {
            self.words[word].load(order)
        }
        fn store(&self, word: usize, value: u64, order: Ordering) {
            self.words[word].store(value, order);
        }
        fn swap(&self, word: usize, value: u64, order: Ordering) -> u64 {
            self.words[word].swap(value, order)
        }
        fn fence(&self) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
        fn sleep(&self, word: usize, expected: u64, _: Duration) {
            let held = self.kernel.lock().unwrap();
            if self.words[word].load(Ordering::Relaxed) == expected {
                drop(self.queue.wait(held).unwrap());
            }
        }
        fn wake(&self, _: usize) {
            let _held = self.kernel.lock().unwrap();
            self.queue.notify_one();
        }
    }

    /// An eventfd: it remembers that it rang.
    struct Doorbell {
        rang: Mutex<bool>,
        heard: Condvar,
    }

    impl Doorbell {
        fn ring(&self) {
            *self.rang.lock().unwrap() = true;
            self.heard.notify_one();
        }
        fn listen(&self) {
            let mut rang = self.rang.lock().unwrap();
            while !*rang {
                rang = self.heard.wait(rang).unwrap();
            }
            *rang = false;
        }
    }

    /// Explores, and says how many schedules there were. `preemptions` bounds how often a thread is interrupted where it
    /// could have gone on; none is every schedule there is.
    fn explore(preemptions: Option<usize>, test: impl Fn() + Sync + Send + 'static) -> usize {
        let schedules = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = schedules.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            test();
        });
        schedules.load(Ordering::Relaxed)
    }

    #[test]
    fn the_futex_side_loses_no_wake_up() {
        let schedules = explore(None, || futex_side(1));
        assert!(schedules > 100, "{schedules}");
    }

    #[test]
    fn the_futex_side_sleeps_again_and_loses_no_message() {
        let schedules = explore(Some(3), || futex_side(2));
        assert!(schedules > 100, "{schedules}");
    }

    fn futex_side(messages: u64) {
        let memory = Explored::new();
        let theirs = memory.clone();
        let helper = loom::thread::spawn(move || {
            let mut responses = Producer::new(RING);
            for number in 1..=messages {
                assert!(responses.push(&*theirs, Header { kind: 1, number }, &[]).unwrap());
                wake_if_announced(&*theirs, SLEEPS, 1);
            }
        });
        let mut responses = Consumer::new(RING);
        let mut expected = 1;
        while expected <= messages {
            match responses.pop(&*memory, &mut Vec::new()).unwrap() {
                Some(header) => {
                    assert_eq!(header, Header { kind: 1, number: expected });
                    expected += 1;
                }
                None => {
                    let sleep = || memory.sleep(SLEEPS, 1, Duration::ZERO);
                    sleep_unless(&*memory, SLEEPS, 1, || responses.waiting(&*memory), sleep);
                }
            }
        }
        helper.join().unwrap();
    }

    #[test]
    fn the_doorbell_side_loses_no_wake_up() {
        let schedules = explore(None, || doorbell_side(1));
        assert!(schedules > 100, "{schedules}");
    }

    #[test]
    fn the_doorbell_side_sleeps_again_and_loses_no_message() {
        let schedules = explore(Some(3), || doorbell_side(2));
        assert!(schedules > 100, "{schedules}");
    }

    fn doorbell_side(messages: u64) {
        let memory = Explored::new();
        let bell = Arc::new(Doorbell { rang: Mutex::new(false), heard: Condvar::new() });
        let (theirs, their_bell) = (memory.clone(), bell.clone());
        let client = loom::thread::spawn(move || {
            let mut requests = Producer::new(RING);
            for _ in 0..messages {
                assert!(requests.push(&*theirs, NOTHING, &[]).unwrap());
                if announced(&*theirs, BEACON, 1) {
                    their_bell.ring();
                }
            }
        });
        let mut requests = Consumer::new(RING);
        let mut taken = 0;
        while taken < messages {
            match requests.pop(&*memory, &mut Vec::new()).unwrap() {
                Some(_) => taken += 1,
                None => {
                    sleep_unless(&*memory, BEACON, 1, || requests.waiting(&*memory), || bell.listen());
                }
            }
        }
        client.join().unwrap();
    }

    /// The helper wants room before it sleeps; the client makes room and rings only if both are announced.
    #[test]
    fn room_that_is_made_is_heard_of() {
        let schedules = explore(None, || {
            let memory = Explored::new();
            let bell = Arc::new(Doorbell { rang: Mutex::new(false), heard: Condvar::new() });
            let mut responses = Producer::new(RING);
            while responses.push(&*memory, NOTHING, &[]).unwrap() {}
            let (theirs, their_bell) = (memory.clone(), bell.clone());
            let client = loom::thread::spawn(move || {
                Consumer::new(RING).pop(&*theirs, &mut Vec::new()).unwrap().unwrap();
                if announced(&*theirs, WANTS_ROOM, 1) && announced(&*theirs, BEACON, 1) {
                    their_bell.ring();
                }
            });
            memory.store(WANTS_ROOM, 1, Ordering::Relaxed);
            while !responses.push(&*memory, NOTHING, &[]).unwrap() {
                sleep_unless(&*memory, BEACON, 1, || responses.has_room(&*memory, 0), || bell.listen());
            }
            client.join().unwrap();
        });
        assert!(schedules > 10, "{schedules}");
    }
}
