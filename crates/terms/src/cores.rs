//! A core for one thread.

use rustix::io::{Errno, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps this thread there from now on.
///
/// # Errors
/// If there is no such core, or this process may not use it.
pub fn stay_on(core: usize) -> Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_there_cannot_be_is_refused() {
        let core = rustix::thread::sched_getcpu();
        let stays = std::thread::spawn(move || stay_on(core).map(|()| rustix::thread::sched_getcpu()));
        assert_eq!(stays.join().unwrap().unwrap(), core);
        assert!(stay_on(CpuSet::MAX_CPU).is_err() && stay_on(usize::MAX).is_err());
    }
}
