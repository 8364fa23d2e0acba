//! How long before a release the router is awake: timers wake it late, by tens of microseconds on most machines, and by hundreds on a virtual one
//! whose core was given away meanwhile. So it is measured.

use std::time::Duration;

use verbena_terms::Time;

/// So long at least, and at most.
pub(super) const LEAST: Duration = Duration::from_micros(200);
const MOST: Duration = Duration::from_millis(2);
/// What was measured is forgotten by a sixteenth each time this has passed.
const FADES: Duration = Duration::from_millis(100);

/// How late timers lately were.
#[derive(Debug)]
pub(super) struct Waking {
    margin: Duration,
    faded: Time,
}

impl Waking {
    pub fn new() -> Self {
        Waking { margin: LEAST, faded: Time::ZERO }
    }

    /// A timer that should have woken the thread at `asked` did so at `now`: so late again, and twice, is allowed for.
    pub fn note(&mut self, asked: Time, now: Time) {
        self.margin = self.margin.max(now.since(asked) * 2).min(MOST);
    }

    /// So long before a release the thread is to be awake.
    pub fn margin(&mut self, now: Time) -> Duration {
        if now.since(self.faded) >= FADES {
            self.faded = now;
            self.margin -= (self.margin - LEAST) / 16;
        }
        self.margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_late_is_allowed_for_and_forgotten() {
        let at = |micros| Time::ZERO + Duration::from_micros(micros);
        let mut waking = Waking::new();
        assert_eq!(waking.margin(at(0)), LEAST);
        waking.note(at(1_000), at(1_090));
        assert_eq!(waking.margin(at(1_090)), LEAST);
        waking.note(at(2_000), at(2_400));
        assert_eq!(waking.margin(at(2_400)), Duration::from_micros(800));
        waking.note(at(3_000), at(9_000));
        assert_eq!(waking.margin(at(9_000)), MOST);
        let later = |waking: &mut Waking, times: u64| (1..=times).map(|nth| waking.margin(at(nth * 100_000))).last();
        assert!(later(&mut waking, 10) < Some(MOST * 2 / 3));
        assert!(later(&mut Waking { ..waking }, 100) < Some(LEAST + LEAST / 10));
    }
}
