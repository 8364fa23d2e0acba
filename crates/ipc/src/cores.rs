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

/// The one that this thread is on. It may be on another one when this returns.
pub(crate) fn current() -> usize {
    rustix::thread::sched_getcpu()
}
