//! Predicts whether a program acquires a lock again right after releasing it, from what the program did before.

use std::time::Duration;

use verbena_lock::{Mode, Name};
use verbena_terms::Time;

/// A client that re-acquires a lock right after releasing it does so within this window; a Python program does, too.
pub(crate) const AGAIN: Duration = Duration::from_micros(100);
/// A program with at least this many points is expected to re-acquire the lock. A prompt re-acquire adds one point, up
/// to twice this number; any other acquire takes this number away. So one late acquire after many prompt ones is
/// forgiven: on a busy machine every program is late now and then.
const EXPECTED: u32 = 2;

/// Of one program.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// The lock that it released last, and when.
    released: Option<(Name, Time)>,
    /// The lock of which it was last seen whether it asks again, and its points.
    asks_again: Option<(Name, u32)>,
}

impl Habit {
    /// Whether it is expected to ask for this again at once, alone, when it has released it.
    pub(crate) fn is_expected(&self, name: &Name) -> bool {
        self.points_of(name) >= EXPECTED
    }

    /// It has released this: all that this thread does for that is done.
    pub(crate) fn released(&mut self, name: Name, now: Time) {
        self.released = Some((name, now));
    }

    /// It asks for this.
    pub(crate) fn asks(&mut self, name: &Name, mode: Mode, now: Time) {
        let Some((released, at)) = self.released.take() else { return };
        let is_again = released == *name && mode == Mode::Exclusive && now <= at + AGAIN;
        let before = self.points_of(&released);
        let points = if is_again { (before + 1).min(2 * EXPECTED) } else { before.saturating_sub(EXPECTED) };
        self.asks_again = Some((released, points));
    }

    fn points_of(&self, name: &Name) -> u32 {
        self.asks_again.as_ref().filter(|(other, _)| other == name).map_or(0, |(_, points)| *points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_micros(20);

    /// A program, and its time.
    struct Program(Habit, Time);

    impl Program {
        fn new() -> Self {
            Program(Habit::default(), Time::ZERO)
        }

        /// It has this lock, releases it, and after so long asks for the next one. Whether it was expected to ask for it again.
        fn then(&mut self, name: &str, after: Duration, next: &str, mode: Mode) -> bool {
            let named = |name: &str| Name::new(name.as_bytes()).unwrap();
            let is_expected = self.0.is_expected(&named(name));
            self.0.released(named(name), self.1);
            self.1 = self.1 + after;
            self.0.asks(&named(next), mode, self.1);
            is_expected
        }

        /// So often the same lock, after so long each time.
        fn again(&mut self, times: usize, after: Duration) -> Vec<bool> {
            (0..times).map(|_| self.then("a", after, "a", Mode::Exclusive)).collect()
        }
    }

    #[test]
    fn who_asks_again_twice_in_a_row_is_expected_to() {
        let mut program = Program::new();
        assert_eq!(program.again(5, SOON), [false, false, true, true, true]);
    }

    #[test]
    fn who_did_so_often_may_be_late_once() {
        let mut program = Program::new();
        program.again(100, SOON);
        assert_eq!(program.again(1, 2 * AGAIN), [true]);
        assert_eq!(program.again(3, SOON), [true; 3], "forgiven, and again after two more");
        assert_eq!(program.again(3, 2 * AGAIN), [true, true, false]);
        assert_eq!(program.again(3, SOON), [false, false, true]);
    }

    #[test]
    fn who_pauses_is_not() {
        let mut program = Program::new();
        assert_eq!(program.again(10, AGAIN + SOON), [false; 10]);
        // One pause after one request without.
        let turns = (0..10).flat_map(|_| [program.again(1, SOON), program.again(1, 2 * AGAIN)]);
        assert_eq!(turns.collect::<Vec<_>>().concat(), [false; 20]);
    }

    #[test]
    fn one_lock_says_nothing_of_another_nor_readers_of_writers() {
        let mut program = Program::new();
        program.again(5, SOON);
        assert!(!program.then("b", SOON, "b", Mode::Exclusive), "the first of it");
        let mut program = Program::new();
        program.again(5, SOON);
        for _ in 0..2 {
            assert!(program.then("a", SOON, "b", Mode::Exclusive), "it comes for another one");
        }
        assert!(!program.then("a", SOON, "a", Mode::Exclusive));
        let mut program = Program::new();
        for _ in 0..5 {
            assert!(!program.then("a", SOON, "a", Mode::Shared));
        }
    }
}
