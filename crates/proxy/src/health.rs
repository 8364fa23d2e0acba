//! How one of the application's processes is, as far as requests to it have told: without input and output.
//!
//! A process that takes no connection is tried until it takes one. A process that takes connections and does not answer (stopped, out of
//! threads) looks well to a check that only connects. So it is left alone for a time that doubles, and then *tried* with a single read:
//! other requests go to it only when that was answered.

use std::time::Duration;

use tokio::time::Instant;

/// How long one that did not take a connection, or was silent once, is left alone.
const REST: Duration = Duration::from_secs(2);
/// How often that doubles while it stays silent: up to 64 seconds.
const DOUBLED: u32 = 5;

/// How an origin is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    ill: Option<Ill>,
    answered: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Ill {
    rests_until: Instant,
    /// Requests in a row that it did not answer; 0 if it takes no connection.
    silences: u32,
}

/// How good a process is as the first choice for a request. The lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Well,
    /// One read finds out.
    Tried,
    Resting,
}

impl Health {
    pub fn standing(&self, now: Instant) -> Standing {
        match self.ill {
            None => Standing::Well,
            Some(ill) if now < ill.rests_until => Standing::Resting,
            Some(_) => Standing::Tried,
        }
    }

    pub const fn is_well(&self) -> bool {
        self.ill.is_none()
    }

    /// Whether connecting to it can show that it is back.
    pub fn wants_connection(&self) -> bool {
        self.ill.is_some_and(|ill| ill.silences == 0)
    }

    /// It took no connection.
    pub fn refused(&mut self, now: Instant) {
        self.ill = Some(Ill { rests_until: now + REST, silences: 0 });
    }

    /// It took a connection.
    pub fn connected(&mut self) {
        if self.wants_connection() {
            self.ill = None;
        }
    }

    /// It began to answer a request.
    pub fn answered(&mut self, now: Instant) {
        self.ill = None;
        self.answered = Some(now);
    }

    /// It did not begin to answer a request of `asked` in time. If it has answered others since, it is only slow at that one.
    pub fn silent(&mut self, asked: Instant, now: Instant) {
        if self.answered.is_some_and(|answered| answered >= asked) {
            return;
        }
        // Requests that were under way when it fell ill end one after the other, and say nothing new.
        if self.standing(now) == Standing::Resting {
            return;
        }
        let silences = self.ill.map_or(0, |ill| ill.silences).saturating_add(1);
        self.ill = Some(Ill { rests_until: now + REST * (1 << (silences - 1).min(DOUBLED)), silences });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_that_takes_no_connection_is_tried_until_it_does() {
        let now = Instant::now();
        let mut health = Health::default();
        assert_eq!(health.standing(now), Standing::Well);
        health.refused(now);
        assert_eq!(health.standing(now + SECOND), Standing::Resting);
        assert_eq!(health.standing(now + REST), Standing::Tried);
        assert!(health.wants_connection());
        health.connected();
        assert!(health.is_well());
    }

    #[test]
    fn one_that_is_silent_rests_longer_each_time_until_it_answers() {
        let start = Instant::now();
        let (mut health, mut now) = (Health::default(), start);
        for doubled in [1, 2, 4, 8, 16, 32, 32] {
            let asked = now;
            now += SECOND;
            health.silent(asked, now);
            health.connected();
            assert_eq!(health.standing(now + REST * doubled - Duration::from_nanos(1)), Standing::Resting, "{doubled}");
            now += REST * doubled;
            assert_eq!(health.standing(now), Standing::Tried, "a connection shows nothing, time alone does not heal");
        }
        health.answered(now);
        assert_eq!(health.standing(now), Standing::Well);
        health.silent(now + SECOND, now + 2 * SECOND);
        assert_eq!(health.standing(now + 2 * SECOND + REST), Standing::Tried, "it begins from the shortest again");
    }

    #[test]
    fn one_that_is_slow_at_one_thing_is_well() {
        let now = Instant::now();
        let mut health = Health::default();
        health.answered(now + SECOND);
        health.silent(now, now + 60 * SECOND);
        assert!(health.is_well());
    }

    #[test]
    fn what_was_under_way_when_it_fell_ill_counts_once() {
        let now = Instant::now();
        let mut health = Health::default();
        for n in 0..100 {
            health.silent(now, now + SECOND + Duration::from_millis(n));
        }
        assert_eq!(health.standing(now + SECOND + REST), Standing::Tried);
    }
}
