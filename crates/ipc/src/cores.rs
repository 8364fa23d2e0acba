//! Cores of threads.

use crate::error::Error;

/// Refuses a core that this thread may not use.
pub(crate) fn check(core: usize) -> Result<(), Error> {
    let instead = verbena_terms::usable_instead_of(core)
        .map_err(|source| Error::system("read which cores may be used", source))?;
    instead.map_or(Ok(()), |usable| Err(Error::Core { core, usable }))
}

/// Keeps this thread there from now on.
pub(crate) fn stay_on(core: usize) -> Result<(), Error> {
    check(core)?;
    verbena_terms::stay_on(core).map_err(|source| Error::system("stay on a core", source))
}

/// How many this process may use: at least 1.
pub(crate) fn of_this_process() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// A core as a word of shared memory. 0 means that the core is not known.
pub(crate) fn word(core: usize) -> u64 {
    core as u64 + 1
}

/// Which one such a word says.
pub(crate) fn of_word(word: u64) -> Option<usize> {
    usize::try_from(word).ok()?.checked_sub(1)
}

/// The one that this thread is on. It may be on another one when this returns. No system call on x86; on aarch64 it is one.
pub(crate) fn current() -> usize {
    rustix::thread::sched_getcpu()
}
