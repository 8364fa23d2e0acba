//! When frames came, by the kernel's stamps.
//!
//! Stamps are of a clock that can be set, and the router's is another one: the two are read one after the other, once for all that is taken together, so
//! what is made of two stamps is a few microseconds less or more apart than they are. The order is that of the stamps themselves.

use std::time::Duration;

use verbena_terms::Time;

use super::arrival;

/// Frames are overtaken by others on the way here for so long at most. What is stamped earlier than that is of a clock that was set.
const OVERTAKEN: Duration = Duration::from_millis(1);

/// Of what comes at one end of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamps {
    /// The latest, and what was made of it.
    latest: Option<(u64, Time)>,
}

impl Stamps {
    /// When a frame came that has this stamp: after all with an earlier one and, if it was overtaken by some with a later one, before these. Now is given
    /// by the router's clock and by that of the stamps.
    pub fn place(&mut self, stamp: u64, clocks: (Time, Time)) -> Time {
        let at = arrival(stamp, clocks);
        let Some((latest, placed)) = self.latest else {
            self.latest = Some((stamp, at));
            return at;
        };
        let behind = Duration::from_nanos(latest.saturating_sub(stamp));
        if !behind.is_zero() && behind <= OVERTAKEN {
            return placed - behind;
        }
        let at = at.max(placed);
        self.latest = Some((stamp, at));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const REAL: u64 = 1_700_000_000_000_000_000;

    /// The router's clock at this moment, and that of the stamps, which was read `late` microseconds later.
    fn clocks(micros: u64, late: u64) -> (Time, Time) {
        (Time::from_nanos(1_000_000_000 + micros * US), Time::from_nanos(REAL + (micros + late) * US))
    }

    fn at(micros: u64) -> Time {
        clocks(micros, 0).0
    }

    #[test]
    fn who_was_overtaken_comes_before_who_overtook_it() {
        let mut stamps = Stamps::default();
        let placed: Vec<Time> =
            [10, 40, 20, 30, 50].into_iter().map(|micros| stamps.place(REAL + micros * US, clocks(60, 0))).collect();
        assert_eq!(placed, [10, 40, 20, 30, 50].map(at));
    }

    #[test]
    fn who_came_in_turn_stays_in_turn_whatever_clocks_say() {
        let mut stamps = Stamps::default();
        assert_eq!(stamps.place(REAL + 10 * US, clocks(20, 0)), at(10));
        // The clocks are read five microseconds apart, and then not: what came two later is not before it.
        assert_eq!(stamps.place(REAL + 11 * US, clocks(30, 0)), at(11));
        assert_eq!(stamps.place(REAL + 13 * US, clocks(40, 5)), at(11));
        assert_eq!(stamps.place(REAL + 50 * US, clocks(60, 0)), at(50));
    }

    #[test]
    fn a_clock_that_is_set_reorders_nothing() {
        let mut stamps = Stamps::default();
        assert_eq!(stamps.place(REAL + 10 * US, clocks(20, 0)), at(10));
        let (now, real) = clocks(30, 0);
        let an_hour = Duration::from_secs(3600);
        let back = (now, real - an_hour);
        assert_eq!(stamps.place(REAL + 25 * US - an_hour.as_nanos() as u64, back), at(25));
        assert_eq!(stamps.place(REAL + 28 * US - an_hour.as_nanos() as u64, back), at(28));
        // Without a stamp it has come now.
        assert_eq!(stamps.place(0, clocks(40, 0)), at(40));
        assert_eq!(stamps.place(REAL + 45 * US, clocks(50, 0)), at(45));
    }
}
