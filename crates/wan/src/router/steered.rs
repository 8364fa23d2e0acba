//! When it changes which processor receives what.
//!
//! A frame that is sent waits in a queue of the processor that receives it. Where that is another one for the next
//! frame, that one's queue may be shorter: the frame behind overtakes the one before. So the processor that receives
//! what comes to sites follows the router, which sends it, when nothing has crossed for a moment and nothing waits.
//! What comes to the router others send, at any moment, also in the middle of the change. Its receiving processor
//! changes only where stamps put it in order, or after a long time without a frame. (Where a delay by which they did so
//! has just been taken away a few may be overtaken.)

use std::iter;
use std::time::Duration;

use verbena_terms::Time;

/// The least from one change of processors that receive to the next: where a thread goes to and fro it is not worth it.
const STAYS: Duration = Duration::from_millis(20);
/// And from one change of whether frames come to the router where they are sent to the next: what crosses may be much one moment and little the next.
const STAYS_MUCH: Duration = Duration::from_millis(200);
/// What crossed last has been received after so long, if it no longer waits; and whether something waits is asked so often at most.
const QUIET: Duration = Duration::from_micros(200);
/// After so long nothing of ours waits, whatever does: what comes to a processor is received in turn, and it keeps a thousand at most. On a machine with twenty times
/// the work that it can do, a processor came to what waited for it after more than 50 ms.
const LONG_QUIET: Duration = Duration::from_millis(200);

/// Which processor receives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steered {
    /// What comes to sites.
    pub sites: usize,
    /// What comes to the router; for `None`, the processor of the sender.
    pub router: Option<usize>,
}

/// How it is, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    since: Option<(Steered, [Time; 2])>,
    /// When it was last asked whether something waits.
    asked: Option<Time>,
}

/// What is known at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub now: Time,
    /// When a frame last came or left.
    pub crossed: Time,
    /// Whether what comes to the router in another order is put right by its stamps.
    pub is_put_right: bool,
}

impl Standing {
    /// How it is to be from now on, if that is another way than before: as wanted, or as much of it as may be now. Where that depends on it, it is asked whether
    /// frames wait for one of the processors that receive.
    pub fn change(&mut self, wanted: Steered, moment: Moment, waits: impl FnOnce(&[usize]) -> bool) -> Option<Steered> {
        let now = moment.now;
        let Some((before, since)) = self.since else {
            self.since = Some((wanted, [now; 2]));
            return Some(wanted);
        };
        let [sites, router] = since.map(|since| now.since(since));
        let is_one = before.router.is_some() && wanted.router.is_some();
        let is_long_quiet = now.since(moment.crossed) > LONG_QUIET;
        let moves_sites = before.sites != wanted.sites && sites > STAYS;
        let moves_router =
            is_one && before.router != wanted.router && router > STAYS && (moment.is_put_right || is_long_quiet);
        let waits = || waits(&iter::once(before.sites).chain(before.router).collect::<Vec<_>>());
        let may_move = (moves_sites || moves_router) && (is_long_quiet || self.is_quiet(moment, waits));
        let changes_router = before.router.is_none() != wanted.router.is_none() && router > STAYS_MUCH;
        let next = Steered {
            sites: if moves_sites && may_move { wanted.sites } else { before.sites },
            router: if changes_router || moves_router && may_move { wanted.router } else { before.router },
        };
        let since_when = |is_same, since| if is_same { since } else { now };
        let since =
            [since_when(next.sites == before.sites, since[0]), since_when(next.router == before.router, since[1])];
        self.since = Some((next, since));
        (next != before).then_some(next)
    }

    fn is_quiet(&mut self, moment: Moment, waits: impl FnOnce() -> bool) -> bool {
        let Moment { now, crossed, .. } = moment;
        if now.since(crossed) <= QUIET || self.asked.is_some_and(|asked| now.since(asked) <= QUIET) {
            return false;
        }
        self.asked = Some(now);
        !waits()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;
    const FIRST: Steered = Steered { sites: 0, router: Some(1) };
    const MOVED: Steered = Steered { sites: 1, router: Some(0) };
    const HALF: Steered = Steered { sites: 1, router: Some(1) };
    const MUCH: Steered = Steered { sites: 0, router: None };

    fn at(nanos: u64) -> Time {
        Time::from_nanos(1_000 * MS + nanos)
    }

    fn moment(now: u64, crossed: u64) -> Moment {
        Moment { now: at(now), crossed: at(crossed), is_put_right: true }
    }

    /// It was first looked at at 0.
    fn standing() -> Standing {
        let mut standing = Standing::default();
        assert_eq!(standing.change(FIRST, moment(0, 0), |_| true), Some(FIRST));
        standing
    }

    #[test]
    fn who_receives_changes_when_nothing_crosses_and_nothing_waits() {
        let mut standing = standing();
        // Not so soon, not while something crosses, and not before what is sent was received, by either.
        assert_eq!(standing.change(MOVED, moment(20 * MS, 0), |_| false), None);
        assert_eq!(standing.change(MOVED, moment(21 * MS, 21 * MS - 200_000), |_| false), None);
        assert_eq!(standing.change(MOVED, moment(22 * MS, 21 * MS), |who| who.contains(&0)), None);
        assert_eq!(standing.change(MOVED, moment(23 * MS, 21 * MS), |who| who.contains(&1)), None);
        assert_eq!(standing.change(MOVED, moment(24 * MS, 21 * MS), |who| who.iter().any(|one| *one > 1)), Some(MOVED));
        assert_eq!(standing.change(MOVED, moment(99 * MS, 21 * MS), |_| unreachable!()), None);
        // What waits so long after is of others.
        assert_eq!(standing.change(FIRST, moment(270 * MS, 71 * MS), |_| true), None);
        assert_eq!(standing.change(FIRST, moment(272 * MS, 71 * MS), |_| true), Some(FIRST));
    }

    #[test]
    fn what_comes_to_the_router_is_received_elsewhere_only_where_its_order_is_put_right_or_nobody_sends() {
        let mut standing = standing();
        let unsure = |now, crossed| Moment { is_put_right: false, ..moment(now, crossed) };
        assert_eq!(standing.change(MOVED, unsure(30 * MS, 29 * MS), |_| false), Some(HALF));
        assert_eq!(standing.change(MOVED, unsure(240 * MS, 41 * MS), |_| false), None);
        assert_eq!(standing.change(MOVED, unsure(242 * MS, 41 * MS), |_| true), Some(MOVED));
    }

    #[test]
    fn it_is_not_asked_all_the_time_whether_something_waits() {
        let (mut standing, asked) = (standing(), Cell::new(0));
        for micros in 0..1_000 {
            let waits = |_: &[usize]| {
                asked.set(asked.get() + 1);
                true
            };
            assert_eq!(standing.change(MOVED, moment(30 * MS + micros * 1_000, 1), waits), None);
        }
        assert_eq!(asked.get(), 5);
    }

    #[test]
    fn what_comes_as_it_is_sent_is_changed_while_much_crosses() {
        let mut standing = standing();
        let both = Steered { sites: 1, router: None };
        assert_eq!(standing.change(both, moment(200 * MS, 200 * MS), |_| false), None);
        assert_eq!(standing.change(both, moment(201 * MS, 201 * MS), |_| false), Some(MUCH));
        // The rest of it when it is quiet; and however often the router moves, the other is changed in its time.
        assert_eq!(standing.change(both, moment(222 * MS, 221 * MS), |_| false), Some(both));
        assert_eq!(standing.change(MUCH, moment(390 * MS, 389 * MS), |_| false), Some(MUCH));
        assert_eq!(standing.change(FIRST, moment(400 * MS, 399 * MS), |_| false), None);
        assert_eq!(standing.change(FIRST, moment(402 * MS, 402 * MS), |_| false), Some(FIRST));
    }
}
