//! A core for one thread.

use crate::error::Error;

/// Refuses a core that this thread may not use.
pub(crate) fn check(core: usize) -> Result<(), Error> {
    let usable =
        verbena_terms::usable_cores().map_err(|source| Error::system("read which cores may be used", source))?;
    if usable.contains(&core) {
        return Ok(());
    }
    let usable: Vec<String> = usable.iter().map(usize::to_string).collect();
    Err(Error::Core { core, usable: usable.join(", ") })
}

/// Keeps this thread there from now on.
pub(crate) fn stay_on(core: usize) -> Result<(), Error> {
    check(core)?;
    verbena_terms::stay_on(core).map_err(|source| Error::system("stay on a core", source))
}
