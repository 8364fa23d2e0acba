//! What peers send that cannot be used: all of it is counted, and at most one line in a time is logged, so that a bad peer cannot fill
//! the log.

use std::time::Duration;

use crate::Time;

/// The shortest time between two lines, unless another is chosen.
const EVERY: Duration = Duration::from_secs(1);

/// How much was received that cannot be used.
#[derive(Debug)]
pub struct Complaints {
    every: Duration,
    counted: u64,
    unsaid: u64,
    silent_until: Time,
}

impl Default for Complaints {
    fn default() -> Self {
        Complaints::every(EVERY)
    }
}

impl Complaints {
    /// With no two lines in less than this time.
    pub fn every(every: Duration) -> Self {
        Complaints { every, counted: 0, unsaid: 0, silent_until: Time::ZERO }
    }

    /// One more. If a line may be logged: how many there were since the last line.
    pub fn another(&mut self, now: Time) -> Option<u64> {
        self.counted += 1;
        self.unsaid += 1;
        if now < self.silent_until {
            return None;
        }
        self.silent_until = now + self.every;
        Some(std::mem::take(&mut self.unsaid))
    }

    /// How many there were in all.
    pub fn counted(&self) -> u64 {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_every_one_counts() {
        let mut complaints = Complaints::default();
        let lines: Vec<u64> =
            (0..2500).filter_map(|ms| complaints.another(Time::ZERO + Duration::from_millis(ms))).collect();
        assert_eq!(lines, [1, 1000, 1000]);
        assert_eq!(complaints.counted(), 2500);
    }
}
