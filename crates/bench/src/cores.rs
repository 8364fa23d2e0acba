//! Cores to stay on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use verbena_terms::usable_cores;

use crate::error::BenchError;

/// Two that this process may use, by their numbers, for the row `name`, which `needs` them.
pub(crate) fn two(name: &'static str, needs: &str) -> Result<[usize; 2], BenchError> {
    let missing = |reason: String| BenchError::NothingToMeasure { name, reason };
    match usable_cores().map_err(|error| missing(format!("the cores are not told: {error}")))?[..] {
        [one, other, ..] => Ok([one, other]),
        _ => Err(missing(format!("it needs two cores, {needs}"))),
    }
}

/// The set of this core.
pub(crate) fn only(core: usize) -> Result<CpuSet, String> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(format!("there is no core {core}"));
    }
    set.set(core);
    Ok(set)
}

/// Keeps the thread that made it on a core, with all that it starts meanwhile.
pub(crate) struct Stay {
    before: CpuSet,
}

impl Stay {
    /// From now on, until it is dropped.
    pub(crate) fn on(core: usize) -> Result<Self, String> {
        let failed = |error: rustix::io::Errno| format!("core {core}: {error}");
        let before = sched_getaffinity(None).map_err(failed)?;
        sched_setaffinity(None, &only(core)?).map_err(failed)?;
        Ok(Stay { before })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // Where it came from it may go back to; if not any more, it is at least on a core.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_its_core_and_goes_back() {
        let before = sched_getaffinity(None).unwrap();
        let core = *usable_cores().unwrap().last().unwrap();
        let stay = Stay::on(core).unwrap();
        let here = sched_getaffinity(None).unwrap();
        assert_eq!((here.count(), here.is_set(core)), (1, true));
        assert_eq!(std::thread::spawn(|| sched_getaffinity(None).unwrap().count()).join().unwrap(), 1);
        drop(stay);
        assert_eq!(sched_getaffinity(None).unwrap().count(), before.count());
        assert!(Stay::on(CpuSet::MAX_CPU).is_err());
    }
}
