//! Whether a daemon is asked at all: one that failed rests, and costs nothing but misses.

use std::time::Duration;

/// A machine without input or output. Times are since any fixed moment.
#[derive(Clone, Debug, Default)]
pub struct DaemonHealth {
    failures: u32,
    rests_until: Duration,
}

impl DaemonHealth {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    /// Whether a request may go out now. After a rest one caller tries the daemon; the others still miss until it answers.
    pub fn may_ask(&mut self, now: Duration) -> bool {
        if self.failures == 0 {
            return true;
        }
        if now < self.rests_until {
            return false;
        }
        self.rests_until = now + self.rest();
        true
    }

    /// The daemon answered.
    pub fn answered(&mut self) {
        self.failures = 0;
    }

    /// The daemon did not answer in time, or ended the connection. Each failure in a row doubles its rest, from 100 ms to 5 s.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.rests_until = now + self.rest();
    }

    /// Whether the last request failed.
    pub fn is_down(&self) -> bool {
        self.failures > 0
    }

    fn rest(&self) -> Duration {
        Self::LONGEST.min(Self::SHORTEST * 2_u32.pow(self.failures.saturating_sub(1).min(10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_daemon_that_failed_rests_longer_each_time_and_one_caller_tries_it() {
        let mut health = DaemonHealth::default();
        assert!(health.may_ask(ms(0)));
        health.failed(ms(0));
        assert!(!health.may_ask(ms(99)));
        assert!(health.may_ask(ms(100)));
        assert!(!health.may_ask(ms(101)), "another caller already tries it");
        health.failed(ms(150));
        assert!(!health.may_ask(ms(349)));
        assert!(health.may_ask(ms(350)));
        health.answered();
        assert!(health.may_ask(ms(351)) && health.may_ask(ms(351)));
        for _ in 0..40 {
            health.failed(ms(1000));
        }
        assert!(health.may_ask(ms(6000)));
    }
}
