//! Which process is killed, paused or started again, and when: drawn from a seed.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SIGKILL, and another life after a while.
    Kill,
    /// SIGSTOP for longer than a lease, then SIGCONT.
    Pause,
    /// SIGTERM, and another life when it has ended.
    Restart,
}

/// All of them.
pub const KINDS: [Kind; 3] = [Kind::Kill, Kind::Pause, Kind::Restart];

impl Kind {
    /// What it is called where it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Pause => "pause",
            Kind::Restart => "restart",
        }
    }
}

/// One of them, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// After the start.
    pub at: Duration,
    /// Which process, by its number.
    pub target: usize,
    /// What is done to it.
    pub kind: Kind,
    /// How long it is stopped, or is not there.
    pub lasts: Duration,
}

/// How long faults last.
#[derive(Clone, Debug)]
pub struct Lengths {
    /// From SIGSTOP to SIGCONT.
    pub pause: Range<Duration>,
    /// From SIGKILL to the next life.
    pub down: Range<Duration>,
}

/// So many faults, spread over a time. Every process meets every kind before any meets one twice; one in four comes together with the
/// next.
pub fn plan(seed: u64, targets: usize, count: usize, over: Range<Duration>, lengths: &Lengths) -> VecDeque<Fault> {
    let mut random = Pcg64::seed_from_u64(seed);
    let step = over.end.saturating_sub(over.start) / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
    let mut bag = Vec::new();
    let mut at = over.start;
    let mut together = false;
    let mut plan = VecDeque::new();
    for number in 0..count {
        if bag.is_empty() {
            bag = (0..targets).flat_map(|target| KINDS.map(|kind| (target, kind))).collect();
        }
        let (target, kind) = bag.swap_remove(below(&mut random, bag.len() as u64) as usize);
        let lasts = match kind {
            Kind::Kill => between(&mut random, &lengths.down),
            Kind::Pause => between(&mut random, &lengths.pause),
            Kind::Restart => Duration::ZERO,
        };
        if !together {
            let start = over.start + step * u32::try_from(number).unwrap_or(u32::MAX);
            at = between(&mut random, &(start..start + step));
        }
        together = !together && below(&mut random, 4) == 0;
        plan.push_back(Fault { at, target, kind, lasts });
    }
    plan
}

/// A time in a range.
pub fn between(random: &mut Pcg64, range: &Range<Duration>) -> Duration {
    let width = range.end.saturating_sub(range.start).as_micros() as u64;
    range.start + Duration::from_micros(below(random, width.max(1)))
}

/// A number below a bound.
pub fn below(random: &mut Pcg64, bound: u64) -> u64 {
    random.next_u64() % bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_happens_to_everyone_in_time() {
        let seconds = |from, to| Duration::from_secs(from)..Duration::from_secs(to);
        let lengths = Lengths { pause: seconds(2, 3), down: seconds(0, 1) };
        let faults = plan(7, 5, 30, seconds(10, 100), &lengths);
        assert_eq!(faults, plan(7, 5, 30, seconds(10, 100), &lengths));
        assert_ne!(faults, plan(8, 5, 30, seconds(10, 100), &lengths));
        for target in 0..5 {
            for kind in KINDS {
                let of_it = faults.iter().filter(|fault| (fault.target, fault.kind) == (target, kind));
                assert_eq!(of_it.count(), 2, "{kind:?} of {target}");
            }
        }
        let pairs = faults.iter().zip(faults.iter().skip(1));
        assert!(pairs.clone().all(|(one, next)| one.at <= next.at));
        assert!(pairs.filter(|(one, next)| one.at == next.at).count() > 2, "some come together");
        assert!(faults.iter().all(|fault| seconds(10, 100).contains(&fault.at)));
        assert!(faults.iter().filter(|fault| fault.kind == Kind::Pause).all(|fault| fault.lasts.as_secs() == 2));
    }
}
