//! How long to spin before sleeping.
//!
//! Spinning pays when the other side is at work on another core and answers within the time that a sleep and its
//! wake-up would cost. When it does not pay it takes the core from whoever would answer. So the budget follows what
//! happened: all of it when something came while spinning, half of it when nothing did, and below the least none. From
//! there a try is made now and then, ever more seldom while tries fail. A try is long enough to see an answer from a
//! side that had to be woken for it, and one that pays restores the whole budget: otherwise two sides that both sleep
//! would never find back to spinning, each because of the other. On one core nothing can come while we spin: nobody
//! does.

use std::time::Duration;

use verbena_terms::{Clock, Time};

/// About what a wake-up costs where it costs much, on virtual machines whose idle cores halt.
const MOST: Duration = Duration::from_micros(100);
/// Below this a spin is not worth its beginning.
const LEAST: Duration = Duration::from_micros(3);
const FIRST_TRY_AFTER: u32 = 8;
const LONGEST_BETWEEN_TRIES: u32 = 256;
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;

/// The budget of one waiting side. Decides, does not spin: [`until`] does.
#[derive(Clone, Debug)]
pub(crate) struct Spin {
    cores: usize,
    budget: Duration,
    waits_since_try: u32,
    try_after: u32,
}

impl Spin {
    pub(crate) fn new(cores: usize) -> Self {
        Spin { cores, budget: MOST, waits_since_try: 0, try_after: FIRST_TRY_AFTER }
    }

    /// With the cores that this process may use.
    pub(crate) fn for_this_process() -> Self {
        Spin::new(std::thread::available_parallelism().map_or(1, |cores| cores.get()))
    }

    /// How long the wait that begins now may spin.
    pub(crate) fn budget(&mut self) -> Duration {
        if self.cores < 2 {
            return Duration::ZERO;
        }
        if self.budget.is_zero() {
            self.waits_since_try += 1;
            if self.waits_since_try >= self.try_after {
                self.waits_since_try = 0;
                return MOST;
            }
        }
        self.budget
    }

    /// Something came while spinning.
    pub(crate) fn paid(&mut self) {
        self.budget = MOST;
        self.try_after = FIRST_TRY_AFTER;
    }

    /// The budget ran out. (A wait that had none says nothing.)
    pub(crate) fn wasted(&mut self) {
        if self.budget.is_zero() {
            self.try_after = (self.try_after * 2).min(LONGEST_BETWEEN_TRIES);
        }
        self.budget /= 2;
        if self.budget < LEAST {
            self.budget = Duration::ZERO;
        }
    }
}

/// Spins until `there`, or until `budget` is over. Whether it came.
pub(crate) fn until(clock: &impl Clock, budget: Duration, mut there: impl FnMut() -> bool) -> bool {
    let end: Time = clock.now() + budget;
    loop {
        for _ in 0..LOOKS {
            if there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if clock.now() >= end {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Waits where nothing ever comes while spinning.
    fn spun_in_vain(spin: &mut Spin, waits: u32) -> Duration {
        let mut spun = Duration::ZERO;
        for _ in 0..waits {
            let budget = spin.budget();
            if !budget.is_zero() {
                spun += budget;
                spin.wasted();
            }
        }
        spun
    }

    #[test]
    fn on_one_core_nobody_spins() {
        let mut spin = Spin::new(1);
        assert!(spin.budget().is_zero());
        spin.paid();
        assert!(spin.budget().is_zero());
    }

    #[test]
    fn spinning_that_does_not_pay_ends() {
        let mut spin = Spin::new(2);
        assert_eq!(spin.budget(), MOST);
        spun_in_vain(&mut spin, 1_000);
        let later = spun_in_vain(&mut spin, 2_560);
        assert!(later <= MOST * 10 && later >= MOST * 9, "{later:?}");
    }

    #[test]
    fn spinning_that_pays_comes_back() {
        let mut spin = Spin::new(2);
        spun_in_vain(&mut spin, 1_000);
        let tries = (0..LONGEST_BETWEEN_TRIES).filter(|_| !spin.budget().is_zero()).count();
        assert_eq!(tries, 1);
        spin.paid();
        assert_eq!(spin.budget(), MOST);
    }

    struct Ticking(Cell<u64>);
    // SAFETY: only this thread has it; `Clock` asks for it.
    unsafe impl Sync for Ticking {}
    impl Clock for Ticking {
        fn now(&self) -> Time {
            self.0.set(self.0.get() + 1_000);
            Time::from_nanos(self.0.get())
        }
    }

    #[test]
    fn a_spin_is_bounded_and_sees_what_comes() {
        let clock = Ticking(Cell::new(0));
        let mut looks = 0;
        assert!(!until(&clock, Duration::from_micros(10), || {
            looks += 1;
            false
        }));
        assert_eq!(looks, 10 * LOOKS);
        assert!(until(&clock, Duration::ZERO, || true));
    }
}
