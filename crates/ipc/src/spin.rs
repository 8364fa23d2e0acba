//! How long to spin before sleeping.
//!
//! Spinning pays when the other side is at work on another core and answers within the time that a sleep and its
//! wake-up would cost. When it does not pay it takes the core from the side that would answer. So the budget follows
//! what happened: twice the longest wait, of those lately that ended while spinning, but half of what it was when no
//! answer came, and zero below the minimum. (Where quick answers take turns with slow ones, as for locks that others
//! want too, a budget that the quick ones pay for must not be spent on the slow ones.) From zero, a try is made now and
//! then, ever more seldom while tries fail; and at once after a sleep that was so short that spinning would have ended
//! it, until such a try fails. A try is long enough to see an answer from a side that had to be woken for it: otherwise
//! two sides that both sleep would never find back to spinning, each because of the other.
//!
//! On one core no answer can come during a spin, so neither side spins. A client does not spin, but for a glance, on
//! the core that its helper was on last: it sleeps, and spins again when one of them has moved. The helper does not
//! spin where all clients that lately asked were last on its core, and one of them has its answers: that client could
//! not ask. In a crowd (hints.rs) a core that spins is one that another client with an answer could use. There no side
//! spins for longer than a sleep would cost, also in a try, because a crowd keeps its helper awake.

use std::time::Duration;

use verbena_terms::{Clock, Time};

/// About what a wake-up costs where it costs much, on virtual machines whose idle cores halt.
pub(crate) const MOST: Duration = Duration::from_micros(100);
/// About what a wake-up costs at least: spinning so long costs no more than sleeping, whatever comes of it.
const ENOUGH: Duration = Duration::from_micros(10);
/// Below this a spin is not worth its beginning.
const LEAST: Duration = Duration::from_micros(3);
const FIRST_TRY_AFTER: u32 = 8;
const LONGEST_BETWEEN_TRIES: u32 = 256;
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;
/// As many as it takes an answer to come from a side that is at work on another core: with the pauses between them a microsecond and more, where a line takes 0.07 to 0.6 us there and
/// back.
pub(crate) const GLANCE: u32 = 64;

/// The budget of one waiting side. Decides, does not spin: [`until`] does.
#[derive(Clone, Debug)]
pub(crate) struct Spin {
    cores: usize,
    budget: Duration,
    /// What the longest took of those lately that ended while spinning.
    longest: Duration,
    waits_since_try: u32,
    try_after: u32,
    /// Why the next try comes before its time.
    hint: Option<Hint>,
    /// Why the try that is under way came before its time.
    tries: Option<Hint>,
    /// Short sleeps say nothing: a try after one was in vain, and nothing has come while spinning since.
    is_misled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hint {
    /// A sleep was short.
    Slept,
    /// The caller expects something soon.
    Expected,
}

impl Spin {
    pub(crate) fn new(cores: usize) -> Self {
        Spin {
            cores,
            budget: MOST,
            longest: MOST,
            waits_since_try: 0,
            try_after: FIRST_TRY_AFTER,
            hint: None,
            tries: None,
            is_misled: false,
        }
    }

    /// How long the wait that begins now may spin, in a crowd or without one.
    pub(crate) fn budget(&mut self, is_crowded: bool) -> Duration {
        if self.cores < 2 {
            return Duration::ZERO;
        }
        let most = longest(is_crowded);
        if self.budget.is_zero() {
            self.waits_since_try += 1;
            if self.hint.is_some() || self.waits_since_try >= self.try_after {
                self.waits_since_try = 0;
                self.tries = self.hint.take();
                return most;
            }
        }
        self.budget.min(most)
    }

    /// Whether waits spin at the moment, but for a try now and then.
    pub(crate) fn pays(&self) -> bool {
        self.cores >= 2 && !self.budget.is_zero()
    }

    /// Something came after spinning for so long.
    pub(crate) fn paid(&mut self, after: Duration) {
        self.longest = after.max(self.longest - self.longest / 8);
        self.budget = (2 * self.longest).clamp(ENOUGH, MOST);
        self.try_after = FIRST_TRY_AFTER;
        (self.hint, self.tries, self.is_misled) = (None, None, false);
    }

    /// This wait has no budget, and what was expected of it is not of the next one.
    pub(crate) fn forgo(&mut self) {
        self.hint = None;
    }

    /// There is a reason to believe that what comes next comes soon.
    pub(crate) fn expects(&mut self) {
        self.hint = Some(Hint::Expected);
    }

    /// The wait took `waited`, most of it asleep: if the next wait is as long, spinning ends it.
    pub(crate) fn slept(&mut self, waited: Duration, is_crowded: bool) {
        if waited < longest(is_crowded) && !self.is_misled {
            self.hint = Some(Hint::Slept);
        }
    }

    /// The wait spun for `spun` in vain, of the budget `allowed`. (A wait without a budget says nothing, nor does one
    /// that something else cut short.)
    pub(crate) fn wasted(&mut self, spun: Duration, allowed: Duration) {
        if spun < allowed {
            return;
        }
        match self.tries.take() {
            _ if !self.budget.is_zero() => {}
            Some(Hint::Slept) => self.is_misled = true,
            Some(Hint::Expected) => {}
            None => self.try_after = (self.try_after * 2).min(LONGEST_BETWEEN_TRIES),
        }
        self.budget = self.budget.min(spun) / 2;
        if self.budget < LEAST {
            self.budget = Duration::ZERO;
        }
    }
}

/// The longest spin.
fn longest(is_crowded: bool) -> Duration {
    if is_crowded { ENOUGH } else { MOST }
}

/// Looks that often, without a look at the clock. Whether it is `there`. (A pause between two looks leaves the core's units to the other side where
/// both are threads of one core: there an answer came 6% sooner, on an AMD EPYC, and as soon where they were far apart.)
pub(crate) fn glance(looks: u32, mut there: impl FnMut() -> bool) -> bool {
    (0..looks).any(|_| {
        let found = there();
        if !found {
            std::hint::spin_loop();
        }
        found
    })
}

/// How a spin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spun {
    /// It came.
    Came { after: Duration },
    /// The budget ran out.
    Over,
    /// Nothing can come while we spin.
    Pointless { after: Duration },
}

/// Spins until `there`, until `budget` is over, or until it is `pointless`.
pub(crate) fn until(
    clock: &impl Clock,
    budget: Duration,
    mut there: impl FnMut() -> bool,
    pointless: impl Fn() -> bool,
) -> Spun {
    let began: Time = clock.now();
    loop {
        if glance(LOOKS, &mut there) {
            return Spun::Came { after: clock.now().since(began) };
        }
        if clock.now() >= began + budget {
            return Spun::Over;
        }
        if pointless() {
            return Spun::Pointless { after: clock.now().since(began) };
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
            let budget = spin.budget(false);
            if !budget.is_zero() {
                spun += budget;
                spin.wasted(budget, budget);
            }
        }
        spun
    }

    #[test]
    fn on_one_core_nobody_spins() {
        let mut spin = Spin::new(1);
        assert!(spin.budget(false).is_zero());
        spin.paid(MOST);
        assert!(spin.budget(false).is_zero());
    }

    #[test]
    fn spinning_that_does_not_pay_ends() {
        let mut spin = Spin::new(2);
        assert_eq!(spin.budget(false), MOST);
        spun_in_vain(&mut spin, 1_000);
        let later = spun_in_vain(&mut spin, 2_560);
        assert!(later <= MOST * 10 && later >= MOST * 9, "{later:?}");
    }

    #[test]
    fn spinning_that_pays_comes_back() {
        let mut spin = Spin::new(2);
        spun_in_vain(&mut spin, 1_000);
        let tries = (0..LONGEST_BETWEEN_TRIES).filter(|_| !spin.budget(false).is_zero()).count();
        assert_eq!(tries, 1);
        spin.paid(MOST);
        assert_eq!(spin.budget(false), MOST);
    }

    /// Spinning does not pay.
    fn worthless() -> Spin {
        let mut spin = Spin::new(2);
        while spin.pays() {
            spin.wasted(MOST, MOST);
        }
        spin
    }

    #[test]
    fn a_short_sleep_is_followed_by_a_try_unless_it_misled_before() {
        let mut spin = worthless();
        for (waited, is_crowded) in [(MOST, false), (10 * MOST, false), (ENOUGH, true)] {
            spin.slept(waited, is_crowded);
            assert_eq!(spin.budget(is_crowded), Duration::ZERO, "a spin would not have been long enough");
        }
        spin.slept(MOST / 2, false);
        assert_eq!(spin.budget(false), MOST);
        spin.wasted(MOST, MOST);
        spin.slept(MOST / 2, false);
        assert_eq!(spin.budget(false), Duration::ZERO, "it misled");
        // The caller knows more.
        spin.expects();
        assert_eq!(spin.budget(false), MOST);
        spin.paid(MOST / 4);
        while spin.pays() {
            spin.wasted(MOST, MOST);
        }
        spin.slept(MOST / 2, false);
        assert_eq!(spin.budget(false), MOST);
    }

    /// An idle client tries in vain, and so does one whose expectation fails: neither says anything of short sleeps,
    /// and the latter nothing of tries.
    #[test]
    fn tries_of_one_kind_say_nothing_of_the_others() {
        let mut spin = worthless();
        spun_in_vain(&mut spin, 1_000);
        spin.slept(MOST / 2, false);
        assert_eq!(spin.budget(false), MOST);
        let mut spin = worthless();
        for _ in 0..100 {
            spin.expects();
            assert_eq!(spin.budget(false), MOST);
            spin.wasted(MOST, MOST);
        }
        let waits = (1..).find(|_| !spin.budget(false).is_zero());
        assert_eq!(waits, Some(FIRST_TRY_AFTER));
        spin.slept(MOST / 2, false);
        assert_eq!(spin.budget(false), MOST);
    }

    #[test]
    fn what_quick_answers_pay_for_is_not_spent_on_slow_ones() {
        let mut spin = Spin::new(2);
        let quick = Duration::from_micros(1);
        (0..100).for_each(|_| spin.paid(quick));
        assert_eq!(spin.budget(false), ENOUGH);
        spin.paid(MOST / 4);
        assert_eq!(spin.budget(false), MOST / 2);
        (0..100).for_each(|_| spin.paid(quick));
        assert_eq!(spin.budget(false), ENOUGH);
    }

    #[test]
    fn in_a_crowd_nobody_spins_for_longer_than_a_sleep_costs() {
        let mut spin = Spin::new(2);
        spin.paid(MOST);
        assert_eq!([false, true].map(|is_crowded| spin.budget(is_crowded)), [MOST, ENOUGH]);
        spin.wasted(ENOUGH / 8, ENOUGH);
        assert_eq!(spin.budget(false), MOST, "a wait that was cut short");
        spin.wasted(ENOUGH, ENOUGH);
        assert_eq!([false, true].map(|is_crowded| spin.budget(is_crowded)), [ENOUGH / 2; 2]);
        while spin.pays() {
            spin.wasted(ENOUGH, ENOUGH);
        }
        let tries: Vec<Duration> = (0..512).map(|_| spin.budget(true)).filter(|spun| !spun.is_zero()).collect();
        assert!(!tries.is_empty() && tries.iter().all(|spun| *spun == ENOUGH), "{tries:?}");
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
        let look = || {
            looks += 1;
            false
        };
        assert_eq!(until(&clock, Duration::from_micros(10), look, || false), Spun::Over);
        assert_eq!(looks, 10 * LOOKS);
        let after = Duration::from_micros(1);
        assert_eq!(until(&clock, Duration::ZERO, || true, || true), Spun::Came { after });
        let pointless = until(&clock, Duration::from_secs(1), || false, || true);
        assert_eq!(pointless, Spun::Pointless { after: 2 * after });
    }
}
