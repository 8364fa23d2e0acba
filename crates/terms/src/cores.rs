//! A core for one thread.

use rustix::io::{Errno, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this thread may use, by number, the least first.
///
/// # Errors
/// What the system said, which it has no reason to.
pub fn usable_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// The cores that this thread may use, as text such as `0, 1`, if `core` is none of them.
///
/// # Errors
/// What the system said, which it has no reason to.
pub fn usable_instead_of(core: usize) -> Result<Option<String>> {
    let usable = usable_cores()?;
    let list = || usable.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    Ok((!usable.contains(&core)).then(list))
}

/// Keeps this thread, and whatever it starts, off that core from now on. Where it may use no other one it stays as it is.
///
/// It takes no lock and allocates nothing, so a child may call it between fork and exec.
///
/// # Errors
/// What the system said, which it has no reason to.
pub fn keep_off(core: usize) -> Result<()> {
    let mut set = sched_getaffinity(None)?;
    if core >= CpuSet::MAX_CPU || set.count() < 2 {
        return Ok(());
    }
    set.unset(core);
    sched_setaffinity(None, &set)
}

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
    fn who_keeps_off_a_core_uses_the_others() {
        let all = usable_cores().unwrap();
        let left = |off: Vec<usize>| {
            std::thread::spawn(move || {
                off.into_iter().for_each(|core| keep_off(core).unwrap());
                usable_cores().unwrap()
            })
            .join()
            .unwrap()
        };
        assert_eq!(left(vec![usize::MAX]), all);
        let (first, rest) = all.split_first().unwrap();
        assert_eq!(left(vec![*first]), if rest.is_empty() { &all } else { rest });
        assert_eq!(left(all.clone()), all[all.len() - 1..]);
    }

    #[test]
    fn a_core_that_may_not_be_used_is_told_with_those_that_may() {
        let told = std::thread::spawn(|| {
            let core = rustix::thread::sched_getcpu();
            stay_on(core).unwrap();
            (core, usable_instead_of(core).unwrap(), usable_instead_of(usize::MAX).unwrap())
        });
        let (core, own, other) = told.join().unwrap();
        assert_eq!((own, other), (None, Some(core.to_string())));
    }

    #[test]
    fn a_core_that_there_cannot_be_is_refused() {
        let core = rustix::thread::sched_getcpu();
        let stays = std::thread::spawn(move || stay_on(core).map(|()| rustix::thread::sched_getcpu()));
        assert_eq!(stays.join().unwrap().unwrap(), core);
        assert!(stay_on(CpuSet::MAX_CPU).is_err() && stay_on(usize::MAX).is_err());
    }
}
