//! The helper's own page, which its clients map for reading only: whether it sleeps, where it runs, whether a crowd asks it, and its board.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bell;
use crate::cores;
use crate::error::Error;
use crate::layout::{
    BEACON, BEACON_BYTES, BOARD, BOARD_WORDS, FORMAT_WORD, HELPER_CORE, HELPER_CROWD, HELPER_LIFE, HELPER_POLLS,
    HELPER_SLEEPS,
};
use crate::life::{self, Life};
use crate::memory::{Mapping, Memory, Sharing};

/// The page in which the helper says whether it sleeps.
pub(crate) struct Beacon {
    page: Arc<Mapping>,
    descriptor: OwnedFd,
    life: Life,
}

impl Beacon {
    /// That of a helper that sleeps when nothing is to do, or of one that `polls`.
    pub(crate) fn new(polls: bool) -> Result<Self, Error> {
        let (page, descriptor) = Mapping::create("verbena-ipc-beacon", BEACON_BYTES, Sharing::ReadOnly)?;
        page.store(FORMAT_WORD, BEACON.word(), Ordering::Relaxed);
        page.store(HELPER_POLLS, polls.into(), Ordering::Relaxed);
        let page = Arc::new(page);
        let life = Life::begin(page.clone(), HELPER_LIFE)?;
        Ok(Beacon { page, descriptor, life })
    }

    /// Whether a reader of the page sees at once that this process has ended, however it ended.
    pub(crate) fn tells_its_end(&self) -> bool {
        self.life.is_told()
    }

    /// A descriptor of the page, to pass on.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, Error> {
        copy(&self.descriptor)
    }

    /// Sleeps by `sleep` with the beacon up, unless something is `there`. Whether it slept.
    pub(crate) fn sleep_unless(&self, there: impl FnMut() -> bool, sleep: impl FnOnce()) -> bool {
        bell::sleep_unless(&*self.page, HELPER_SLEEPS, 1, there, sleep)
    }

    /// Says on which core the helper is.
    pub(crate) fn say_core(&self, core: usize) {
        self.page.store(HELPER_CORE, cores::word(core), Ordering::Relaxed);
    }

    /// Says whether a crowd asks it.
    pub(crate) fn say_crowd(&self, is_one: bool) {
        self.page.store(HELPER_CROWD, is_one.into(), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.page.load(at, Ordering::Relaxed)
    }

    /// Writes a word of the board. A reader of the word sees what this process did before it.
    pub(crate) fn publish(&self, at: usize, value: u64) {
        assert!(at < BOARD_WORDS, "the board has {BOARD_WORDS} words, and not one at {at}");
        self.page.store(BOARD + at, value, Ordering::SeqCst);
    }

    /// Whether the helper sleeps, asked after something was published to it by this process.
    pub(crate) fn is_up(&self) -> bool {
        bell::announced(&*self.page, HELPER_SLEEPS, 1)
    }
}

/// The words of a helper's [`Board`](crate::Board), for any thread of a program. They stay readable when the connection has ended and when the helper has
/// died, as they were then.
#[derive(Clone, Debug)]
pub struct BoardReader {
    page: Arc<Mapping>,
}

/// Another descriptor of the same.
pub(crate) fn copy(descriptor: &OwnedFd) -> Result<OwnedFd, Error> {
    descriptor.try_clone().map_err(|source| Error::System { doing: "copy a descriptor", source })
}

impl BoardReader {
    pub(crate) fn of(page: Arc<Mapping>) -> Self {
        BoardReader { page }
    }

    /// Whether the helper has not ended: false at once when it has, however it ended, and before another process can
    /// have any file lock of the helper's. (It is true for ever where the kernel does not report it:
    /// [`Board::tells_its_end`](crate::Board::tells_its_end).)
    pub fn helper_lives(&self) -> bool {
        life::lives(self.page.load(HELPER_LIFE, Ordering::SeqCst))
    }

    /// A word as it is now: one load, without a word to the helper.
    ///
    /// # Panics
    /// From [`BOARD_WORDS`](crate::BOARD_WORDS) on.
    pub fn read(&self, at: usize) -> u64 {
        assert!(at < BOARD_WORDS, "the board has {BOARD_WORDS} words, and not one at {at}");
        self.page.load(BOARD + at, Ordering::SeqCst)
    }
}
