//! Leases (rule C2): the one thing that decides whether a node may act.
//!
//! A lease is counted twice, on two clocks that are never compared. The member counts from the moment when it *sent*
//! the renewal and takes the drift allowance off; the keeper counts from the moment when it *granted* it, which is
//! later, and puts the drift allowance on. So the member always stops first, whatever the network did to either
//! message, as long as the two clocks run apart by less than twice the allowance in one lease.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_terms::{Time, ViewNumber};

/// The length of a lease and its drift allowance. The same at every node of a cluster: a node with other terms is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct LeaseTerms {
    lease_ms: u32,
    drift_ms: u32,
}

/// What a member may do and until when: what the driver shares with the hot paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// When the lease is over, on this machine's clock. [`Time::ZERO`] without a lease.
    pub until: Time,
    /// The view that this member has acknowledged, the only one it may act in; 0 if none.
    pub acknowledged: ViewNumber,
    /// The last view that is known to be in effect; 0 if none.
    pub in_effect: ViewNumber,
}

/// A [`Lease`] that one thread writes and any thread reads with two loads, without a lock.
///
/// ```text
///  0                8                         16
///  +----------------+------------+------------+
///  | until, nanos   | in effect  | acknowl.   |     two aligned words; the second is [acknowledged : 32 | in effect : 32]
///  +----------------+------------+------------+
/// ```
///
/// A reader may see a lease and a view that were not written together. One such pair would be wrong: an *old* view with
/// a *new* lease, because the lease of a later incarnation would bring back a view that the others have left. The
/// writer therefore stores the views first and the end of the lease after them (release), and a reader loads the end
/// first (acquire) and the views after it: a reader that sees the new end sees the new views. The other mixed pair, an
/// *old* end with *new* views, claims less than either: the old lease was valid at the reader's `now`, and a reader
/// that posted something in the new view posted it after the new views were stored.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct LeaseWord {
    until: AtomicU64,
    views: AtomicU64,
}

/// Caps an interval at 250 ms, a wait that people do not mind.
const fn capped(millis: u64) -> u64 {
    if millis < 250 { millis } else { 250 }
}

impl LeaseTerms {
    /// 2 s (rule C4) with 20 ms for drift: each clock may be wrong by 1 %, a hundred times what a quartz is.
    pub const DEFAULT: LeaseTerms = LeaseTerms { lease_ms: 2000, drift_ms: 20 };
    /// Below this, scheduling alone loses leases.
    pub const SHORTEST_MS: u32 = 100;
    /// Above this, a node that died holds the others up for longer than any operator intends.
    pub const LONGEST_MS: u32 = 600_000;

    /// Terms of a lease of `lease_ms` with an allowance of `drift_ms`, both milliseconds; or what is wrong with them.
    pub fn new(lease_ms: u32, drift_ms: u32) -> Result<Self, String> {
        if !(Self::SHORTEST_MS..=Self::LONGEST_MS).contains(&lease_ms) {
            let (shortest, longest) = (Self::SHORTEST_MS, Self::LONGEST_MS);
            return Err(format!("a lease of {lease_ms} ms; it must be {shortest} ms to {longest} ms"));
        }
        if drift_ms == 0 || drift_ms > lease_ms / 4 {
            return Err(format!("a drift allowance of {drift_ms} ms; it must be 1 ms to a quarter of the lease"));
        }
        Ok(LeaseTerms { lease_ms, drift_ms })
    }

    /// The lease's nominal length.
    pub const fn lease(self) -> Duration {
        Duration::from_millis(self.lease_ms as u64)
    }

    /// What is taken off at the member and put on at the keeper.
    pub const fn drift(self) -> Duration {
        Duration::from_millis(self.drift_ms as u64)
    }

    /// When a member that sent its renewal at `sent` must stop.
    pub fn held_until(self, sent: Time) -> Time {
        sent + (self.lease() - self.drift())
    }

    /// When a lease that was granted at `granted` is over for certain, on the granter's clock.
    pub fn over_at(self, granted: Time) -> Time {
        granted + self.lease() + self.drift()
    }

    /// These or `other`, whichever takes longer to be over.
    pub fn longer(self, other: LeaseTerms) -> LeaseTerms {
        if self.lease() + self.drift() < other.lease() + other.drift() { other } else { self }
    }

    /// How often a member renews when all is quiet.
    pub const fn renew_every(self) -> Duration {
        Duration::from_millis(self.lease_ms as u64 / 4)
    }

    /// How often a node says again what it waits for an answer to: while it joins, looks for the keeper, or a view is not in effect yet. However long leases are,
    /// people wait for it.
    pub const fn ask_every(self) -> Duration {
        Duration::from_millis(capped(self.lease_ms as u64 / 8))
    }

    /// How long the keeper waits for more to happen before it makes a view of it.
    pub const fn gather(self) -> Duration {
        Duration::from_millis(capped(self.lease_ms as u64 / 40))
    }
}

impl TryFrom<(u32, u32)> for LeaseTerms {
    type Error = String;
    fn try_from((lease_ms, drift_ms): (u32, u32)) -> Result<Self, String> {
        LeaseTerms::new(lease_ms, drift_ms)
    }
}

impl From<LeaseTerms> for (u32, u32) {
    fn from(terms: LeaseTerms) -> Self {
        (terms.lease_ms, terms.drift_ms)
    }
}

impl Lease {
    /// No lease, no view: nothing is allowed.
    pub const NONE: Lease = Lease { until: Time::ZERO, acknowledged: ViewNumber(0), in_effect: ViewNumber(0) };

    /// The view that this member may act in at `now`: serve hits, accept registrations, grant locks (rule C5).
    pub fn valid_at(&self, now: Time) -> Option<ViewNumber> {
        (now < self.until && self.acknowledged > ViewNumber(0)).then_some(self.acknowledged)
    }

    /// The same, only if that view is known to be in effect: what forwarding an update takes besides (rules C3, P3).
    pub fn in_effect_at(&self, now: Time) -> Option<ViewNumber> {
        self.valid_at(now).filter(|view| *view == self.in_effect)
    }
}

impl LeaseWord {
    /// A word that allows nothing.
    pub const fn new() -> Self {
        LeaseWord { until: AtomicU64::new(0), views: AtomicU64::new(0) }
    }

    /// Publishes `lease`. One thread only; when it returns, and before anything that is sent after it arrives anywhere,
    /// every thread reads it.
    pub fn store(&self, lease: Lease) {
        self.store_in_steps(lease, || {});
    }

    /// What was published: never an older view with a newer lease.
    pub fn load(&self) -> Lease {
        self.load_in_steps(|| {})
    }

    /// `between` is what another thread does between the two stores: nothing, outside tests.
    fn store_in_steps(&self, lease: Lease, between: impl FnOnce()) {
        let views = (lease.acknowledged.0 as u64) << 32 | lease.in_effect.0 as u64;
        self.views.store(views, Ordering::Release);
        between();
        self.until.store(lease.until.nanos(), Ordering::Release);
        // An acknowledgement that follows must not leave the machine before these have.
        fence(Ordering::SeqCst);
    }

    /// `between` is what the writer does between the two loads: nothing, outside tests.
    fn load_in_steps(&self, between: impl FnOnce()) -> Lease {
        let until = Time::from_nanos(self.until.load(Ordering::Acquire));
        between();
        let views = self.views.load(Ordering::Acquire);
        Lease { until, acknowledged: ViewNumber((views >> 32) as u32), in_effect: ViewNumber(views as u32) }
    }

    /// The view to act in at `now`. `now` is read *after* what is being judged is in hand (rule P1), and this is called
    /// after `now` was read.
    pub fn valid_at(&self, now: Time) -> Option<ViewNumber> {
        self.load().valid_at(now)
    }

    /// As [`Lease::in_effect_at`].
    pub fn in_effect_at(&self, now: Time) -> Option<ViewNumber> {
        self.load().in_effect_at(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn long_leases_make_nobody_wait_to_join() {
        let [usual, long] = [2_000, 600_000].map(|lease_ms| LeaseTerms::new(lease_ms, 20).unwrap());
        assert_eq!((usual.ask_every().as_millis(), usual.gather().as_millis()), (250, 50));
        assert_eq!((long.ask_every().as_millis(), long.gather().as_millis()), (250, 250));
        assert_eq!(long.renew_every().as_secs(), 150);
    }

    #[test]
    fn the_member_stops_before_the_keeper_says_so() {
        let terms = LeaseTerms::DEFAULT;
        let sent = Time::from_nanos(7 * MS);
        assert_eq!(terms.held_until(sent), Time::from_nanos(1987 * MS));
        assert_eq!(terms.over_at(sent), Time::from_nanos(2027 * MS));
    }

    #[test]
    fn terms_that_cannot_work_are_refused() {
        assert!(LeaseTerms::new(2000, 0).is_err());
        assert!(LeaseTerms::new(2000, 501).is_err());
        assert!(LeaseTerms::new(99, 1).is_err());
        assert!(LeaseTerms::new(600_001, 1).is_err());
        assert_eq!(LeaseTerms::new(2000, 20), Ok(LeaseTerms::DEFAULT));
    }

    #[test]
    fn a_lease_allows_its_own_view_only_while_it_lasts() {
        let word = LeaseWord::new();
        assert_eq!(word.valid_at(Time::ZERO), None);
        word.store(Lease { until: Time::from_nanos(10), acknowledged: ViewNumber(4), in_effect: ViewNumber(3) });
        assert_eq!(word.valid_at(Time::from_nanos(9)), Some(ViewNumber(4)));
        assert_eq!(word.in_effect_at(Time::from_nanos(9)), None);
        assert_eq!(word.valid_at(Time::from_nanos(10)), None);
        word.store(Lease { until: Time::from_nanos(10), acknowledged: ViewNumber(4), in_effect: ViewNumber(4) });
        assert_eq!(word.in_effect_at(Time::from_nanos(9)), Some(ViewNumber(4)));
        word.store(Lease { until: Time::FAR, ..Lease::NONE });
        assert_eq!(word.valid_at(Time::ZERO), None, "a lease without a view allows nothing");
    }

    #[test]
    fn no_reader_sees_an_old_view_with_a_new_lease() {
        let lease = |round: u32| Lease {
            until: Time::from_nanos(round as u64 * MS),
            acknowledged: ViewNumber(round),
            in_effect: ViewNumber(round),
        };
        let check = |seen: Lease| {
            let of_lease = (seen.until.nanos() / MS) as u32;
            assert!(seen.acknowledged.0 >= of_lease, "{} with lease {of_lease}", seen.acknowledged);
            of_lease
        };
        let word = LeaseWord::new();
        word.store(lease(1));
        // The reader runs between the two stores.
        word.store_in_steps(lease(2), || assert_eq!(check(word.load()), 1));
        // The writer runs between the two loads.
        assert_eq!(check(word.load_in_steps(|| word.store(lease(3)))), 2);
        assert_eq!(check(word.load()), 3);
    }
}
