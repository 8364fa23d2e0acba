//! When it changes which processor receives what.
//!
//! A frame that is sent waits in a queue of the processor that receives it. Where that is another one for the next frame, that one's queue may be
//! shorter: the frame behind overtakes the one before. So nothing is to wait, and nothing to have crossed for a moment, when it changes (as the kernel's own
//! receive flow steering does it, Documentation/networking/scaling.rst).

use std::time::Duration;

use verbena_terms::Time;

/// The least from one change of processors that receive to the next: where a thread goes to and fro it is not worth it.
const STAYS: Duration = Duration::from_millis(20);
/// And from one change of whether frames come to the router where they are sent to the next: what crosses may be much one moment and little the next.
const STAYS_MUCH: Duration = Duration::from_millis(200);
/// What crossed last has been received after so long, if it no longer waits; and whether something waits is asked so often at most.
const QUIET: Duration = Duration::from_micros(200);

/// Which processor receives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steered {
    /// What comes to sites.
    pub here: usize,
    /// What comes to the router is received where it is sent, and otherwise by another one than that.
    pub as_sent: bool,
}

/// How it is, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    now: Option<(Steered, Time)>,
    /// When it was last asked whether something waits.
    asked: Option<Time>,
}

impl Standing {
    /// How it is to be from now on, if that is another way than before: as wanted, or as much of it as may be now. `crossed` is when a frame last came or
    /// left. Whether frames may wait for the processors that receive now is asked with the one that receives what comes to sites.
    pub fn change(
        &mut self,
        wanted: Steered,
        now: Time,
        crossed: Time,
        waits: impl FnOnce(usize) -> bool,
    ) -> Option<Steered> {
        let next = match self.now {
            None => wanted,
            Some((before, since)) => {
                let is_over = |least| now.since(since) > least;
                let as_sent = if is_over(STAYS_MUCH) { wanted.as_sent } else { before.as_sent };
                let moves = wanted.here != before.here
                    && is_over(STAYS)
                    && now.since(crossed) > QUIET
                    && self.asked.is_none_or(|asked| now.since(asked) > QUIET);
                let may_move = moves && {
                    self.asked = Some(now);
                    !waits(before.here)
                };
                Steered { here: if may_move { wanted.here } else { before.here }, as_sent }
            }
        };
        if self.now.is_some_and(|(before, _)| before == next) {
            return None;
        }
        self.now = Some((next, now));
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST: Steered = Steered { here: 0, as_sent: false };
    const MOVED: Steered = Steered { here: 1, as_sent: false };

    fn at(nanos: u64) -> Time {
        Time::from_nanos(1_000 * MS + nanos)
    }

    /// It was first looked at at 0.
    fn standing() -> Standing {
        let mut standing = Standing::default();
        assert_eq!(standing.change(FIRST, at(0), at(0), |_| true), Some(FIRST));
        standing
    }

    #[test]
    fn who_receives_changes_when_nothing_crosses_and_nothing_waits() {
        let mut standing = standing();
        // Not so soon, not while something crosses, and not before what is sent was received.
        assert_eq!(standing.change(MOVED, at(20 * MS), at(0), |_| false), None);
        assert_eq!(standing.change(MOVED, at(21 * MS), at(21 * MS - 200_000), |_| false), None);
        assert_eq!(standing.change(MOVED, at(22 * MS), at(21 * MS), |who| who == FIRST.here), None);
        assert_eq!(standing.change(MOVED, at(23 * MS), at(21 * MS), |who| who != FIRST.here), Some(MOVED));
        assert_eq!(standing.change(MOVED, at(99 * MS), at(21 * MS), |_| unreachable!()), None);
    }

    #[test]
    fn it_is_not_asked_all_the_time_whether_something_waits() {
        let mut standing = standing();
        let mut asked = 0;
        for micros in 0..1_000 {
            let waits = |_| {
                asked += 1;
                true
            };
            assert_eq!(standing.change(MOVED, at(30 * MS + micros * 1_000), at(0), waits), None);
        }
        assert!((4..=5).contains(&asked), "{asked}");
    }

    #[test]
    fn what_comes_as_it_is_sent_is_changed_while_much_crosses() {
        let mut standing = standing();
        let much = Steered { here: 1, as_sent: true };
        assert_eq!(standing.change(much, at(200 * MS), at(200 * MS), |_| false), None);
        let half = Steered { here: 0, as_sent: true };
        assert_eq!(standing.change(much, at(201 * MS), at(201 * MS), |_| false), Some(half));
        // The rest of it when it is quiet.
        assert_eq!(standing.change(much, at(222 * MS), at(221 * MS), |_| false), Some(much));
        assert_eq!(standing.change(MOVED, at(400 * MS), at(221 * MS), |_| false), None);
        assert_eq!(standing.change(MOVED, at(423 * MS), at(423 * MS), |_| false), Some(MOVED));
    }
}
