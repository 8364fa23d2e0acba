//! A core for one thread.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::error::Error;

/// Refuses a core that this thread may not use.
pub(crate) fn check(core: usize) -> Result<(), Error> {
    let set = sched_getaffinity(None).map_err(|source| Error::system("read which cores may be used", source))?;
    if core < CpuSet::MAX_CPU && set.is_set(core) {
        return Ok(());
    }
    let usable: Vec<String> =
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core.to_string()).collect();
    Err(Error::Core { core, usable: usable.join(", ") })
}

/// Keeps this thread there from now on.
pub(crate) fn stay_on(core: usize) -> Result<(), Error> {
    check(core)?;
    verbena_terms::stay_on(core).map_err(|source| Error::system("stay on a core", source))
}
