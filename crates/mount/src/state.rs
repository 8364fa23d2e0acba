//! What the bank must know of one file on this mount.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use verbena_bank::{Rules, Stamp, Time};

use crate::cache::Arrival;
use crate::explain::LastAccess;

/// Counts that decide whether open files may still use the bank.
#[derive(Debug, Default)]
pub(crate) struct State {
    writers: AtomicU64,
    /// Raised when a writer opens or closes the file.
    writing: AtomicU64,
    /// Raised when a lock is taken on it.
    locking: AtomicU64,
    /// Raised when another stamp than the last was seen, and at a purge.
    changing: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    stamp: Option<Stamp>,
    /// The stamp under which the kernel's pages of the file were read; none if they are not known to be of one.
    pages: Option<Stamp>,
    told: Told,
    /// Opens for which the kernel is being made to ask anew.
    dropping: usize,
    /// What became of the last open or read.
    last: Option<LastAccess>,
    /// Of a directory: whether this user may list it, and when that was looked at.
    may_list: Option<(Instant, bool)>,
    /// Of a directory: when this mount changed it last, and perhaps who may list it.
    changed: Option<Instant>,
    /// Of a directory: when a name was found to lead elsewhere than was said, in nanoseconds since the machine started.
    moved: Option<Time>,
}

/// Of which state of the file the kernel was told, and may believe it still.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    One(Stamp),
    /// Which of them it believes is not known.
    Several,
}

/// A moment in the life of a file. What was validated in one counts in no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    writing: u64,
    locking: u64,
    changing: u64,
}

impl State {
    /// Open files that can write.
    pub(crate) fn writers(&self) -> u64 {
        self.writers.load(SeqCst)
    }

    pub(crate) fn epoch(&self, rules: Rules) -> Epoch {
        Epoch {
            writing: if rules.writers { self.writing.load(SeqCst) } else { 0 },
            locking: self.locking.load(SeqCst),
            changing: self.changing.load(SeqCst),
        }
    }

    pub(crate) fn writer_opens(&self) {
        self.writers.fetch_add(1, SeqCst);
        self.writing.fetch_add(1, SeqCst);
    }

    pub(crate) fn writer_closes(&self) {
        self.writing.fetch_add(1, SeqCst);
        self.writers.fetch_sub(1, SeqCst);
    }

    pub(crate) fn lock_taken(&self) {
        self.locking.fetch_add(1, SeqCst);
    }

    /// A name of this directory leads elsewhere than was said: what was said of its names before counts no more.
    pub(crate) fn names_moved(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).moved = Some(Arrival::now().since_start());
    }

    /// What was said of the names of this directory counts if it was taken later.
    pub(crate) fn names_since(&self) -> Option<Time> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).moved
    }

    /// What was looked at before, of who may list the directory, counts no more.
    pub(crate) fn rights_changed(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).changed = Some(Instant::now());
    }

    /// What the file system below said of the file last, at an open or when it was asked for attributes.
    pub(crate) fn seen(&self) -> Option<Stamp> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).stamp
    }

    /// Whether this user may list the directory: `look` looks, and what it says counts for a time.
    pub(crate) fn may_list(&self, counts: Duration, look: impl FnOnce() -> bool) -> bool {
        let (known, changed) = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.may_list, seen.changed)
        };
        if let Some((looked, may_list)) = known
            && looked.elapsed() < counts
            && changed.is_none_or(|changed| looked > changed)
        {
            return may_list;
        }
        let (looked, may_list) = (Instant::now(), look());
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).may_list = Some((looked, may_list));
        may_list
    }

    /// Notes what the file system below says of the file now.
    pub(crate) fn observe(&self, stamp: Stamp) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.stamp.replace(stamp) != Some(stamp) {
            self.changing.fetch_add(1, SeqCst);
        }
    }

    /// The kernel is told of a state of the file, which it may believe for a while.
    pub(crate) fn told(&self, stamp: Stamp) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.told = match seen.told {
            Told::Nothing => Told::One(stamp),
            Told::One(told) if told == stamp => Told::One(stamp),
            Told::One(_) | Told::Several => Told::Several,
        };
    }

    /// Whether the kernel may believe another state of the file than this one. It is made to ask anew then, and [`State::dropped`] says what became of that.
    /// Until then it may believe it still, and each open that comes waits too.
    pub(crate) fn is_news(&self, stamp: Stamp) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_told = match seen.told {
            Told::Nothing => false,
            Told::One(told) => told != stamp,
            Told::Several => true,
        };
        let is_news = is_told || seen.dropping > 0;
        if is_news {
            seen.told = Told::Nothing;
            seen.dropping += 1;
        }
        is_news
    }

    /// The kernel was made to ask anew, for one open; or could not be.
    pub(crate) fn dropped(&self, is_done: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.dropping -= 1;
        if !is_done {
            seen.told = Told::Several;
        }
    }

    /// Nothing that was known of the file counts any more.
    pub(crate) fn purged(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Seen { dropping, changed, moved, .. } = *seen;
        *seen = Seen { last: Some(LastAccess::Purged), dropping, changed, moved, ..Seen::default() };
        self.changing.fetch_add(1, SeqCst);
    }

    /// Notes what became of an open or a read.
    pub(crate) fn accessed(&self, access: LastAccess) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last = Some(access);
    }

    /// What became of the last one.
    pub(crate) fn last(&self) -> Option<LastAccess> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// The kernel's pages are those of this stamp from now on. Says whether they were before.
    pub(crate) fn pages_are(&self, stamp: Option<Stamp>) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut seen.pages, stamp) == stamp && stamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_state_than_the_kernel_was_told_of_is_news_once() {
        let (state, stamp) = (State::default(), |size| Stamp { modified: 0, changed: 0, size });
        assert!(!state.is_news(stamp(1)), "it was told of none");
        state.told(stamp(1));
        state.told(stamp(1));
        assert!(!state.is_news(stamp(1)) && state.is_news(stamp(2)));
        state.dropped(true);
        assert!(!state.is_news(stamp(2)));
        // Answers may reach the kernel in another order.
        state.told(stamp(1));
        state.told(stamp(2));
        state.told(stamp(2));
        assert!(state.is_news(stamp(2)));
        state.dropped(true);
        assert!(!state.is_news(stamp(2)));
    }

    #[test]
    fn news_is_for_each_open_until_the_kernel_was_made_to_ask_anew() {
        let (state, stamp) = (State::default(), |size| Stamp { modified: 0, changed: 0, size });
        state.told(stamp(1));
        assert!(state.is_news(stamp(2)) && state.is_news(stamp(2)));
        state.dropped(true);
        // A purge ends no open.
        state.purged();
        assert!(state.is_news(stamp(2)), "the second is not done yet");
        state.dropped(true);
        state.dropped(true);
        assert!(!state.is_news(stamp(2)));
        // It believes what it did.
        state.told(stamp(2));
        assert!(state.is_news(stamp(3)));
        state.dropped(false);
        assert!(state.is_news(stamp(3)));
        state.dropped(true);
        assert!(!state.is_news(stamp(3)));
    }

    #[test]
    fn who_may_list_a_directory_is_looked_at_again_after_a_change() {
        let (state, hour) = (State::default(), Duration::from_secs(3600));
        assert!(state.may_list(hour, || true) && state.may_list(hour, || false));
        // A change that comes while it is looked at counts too.
        assert!(state.may_list(Duration::ZERO, || {
            state.rights_changed();
            true
        }));
        assert!(!state.may_list(hour, || false) && !state.may_list(hour, || true));
        state.rights_changed();
        assert!(state.may_list(hour, || true));
    }
}
