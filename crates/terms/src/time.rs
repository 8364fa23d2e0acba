//! Time as the protocols see it: nanoseconds on a clock that goes on while the machine sleeps (rule C2).

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, in nanoseconds on CLOCK_BOOTTIME (or on a simulator's clock). Comparable only within one machine: it never
/// crosses to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than every moment a clock shows.
    pub const FAR: Time = Time(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// Where the time comes from: the machine, or a simulator.
pub trait Clock: Send + Sync {
    /// The moment it is now. Never goes back.
    fn now(&self) -> Time;
}

/// CLOCK_BOOTTIME: unlike the monotonic clock it counts suspended time, so a lease also runs out on a machine that
/// slept (rule C2).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Time {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Time(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::FAR + Duration::from_secs(1), Time::FAR);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Duration::ZERO);
    }

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(first > Time::ZERO && second >= first);
    }
}
