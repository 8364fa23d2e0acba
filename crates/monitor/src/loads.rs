//! What is known of the loads of a view's members, for whoever wants to know.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use verbena_terms::{BootClock, Clock, Incarnation, Load, Time};

/// A load is no news any more when none came for so long, or for three times as long as its node takes to publish one.
const FRESH: Duration = Duration::from_secs(1);

/// A member's load, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whose.
    pub who: Incarnation,
    /// What it is called.
    pub name: String,
    /// Whether it is the node that looks.
    pub is_own: bool,
    /// Where its machine is reached, if its address says that.
    pub host: Option<IpAddr>,
    /// How loaded it was.
    pub load: Load,
    /// When its board was seen to change last. The publisher's clock is another one.
    pub at: Time,
}

impl Seen {
    /// Whether it says how the node is, and not how it was.
    pub fn is_fresh(&self, now: Time) -> bool {
        now.since(self.at) <= FRESH.max(3 * Duration::from_millis(self.load.every_ms.into()))
    }
}

/// The loads of the members of the view. Cheap to clone; reading takes no lock.
#[derive(Clone, Default)]
pub struct Loads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: ArcSwap<Vec<Seen>>,
    /// Those who want to know always.
    watching: AtomicUsize,
    /// Until when somebody wants to know, nanoseconds.
    wanted_until: AtomicU64,
    wanted: Notify,
}

impl Loads {
    /// All that is known, in order of incarnation. Nothing is known where nobody asked to [watch](Self::watch) or [look](Self::look).
    pub fn all(&self) -> Arc<Vec<Seen>> {
        self.0.seen.load_full()
    }

    /// How loaded the node of this name is, if that is known and news.
    pub fn of_node(&self, name: &str, now: Time) -> Option<Load> {
        self.find(now, |seen| seen.name == name)
    }

    /// How loaded the machine at this address is, if a node there says so, and it is news.
    pub fn of_host(&self, host: IpAddr, now: Time) -> Option<Load> {
        self.find(now, |seen| seen.host == Some(host))
    }

    /// How loaded this machine is, if that is news.
    pub fn own(&self, now: Time) -> Option<Load> {
        self.find(now, |seen| seen.is_own)
    }

    fn find(&self, now: Time, is_it: impl Fn(&Seen) -> bool) -> Option<Load> {
        let seen = self.0.seen.load();
        seen.iter().find(|seen| is_it(seen) && seen.is_fresh(now)).map(|seen| seen.load)
    }

    /// Somebody wants to know for so long from now on.
    pub fn look(&self, patience: Duration) {
        let now = BootClock.now();
        let before = self.0.wanted_until.fetch_max((now + patience).nanos(), Ordering::Relaxed);
        if before < now.nanos() {
            self.0.wanted.notify_one();
        }
    }

    /// Somebody wants to know as long as what is given back is there.
    pub fn watch(&self) -> Watching {
        self.0.watching.fetch_add(1, Ordering::Relaxed);
        self.0.wanted.notify_one();
        Watching(self.clone())
    }

    pub(crate) fn are_wanted(&self, now: Time) -> bool {
        self.0.watching.load(Ordering::Relaxed) > 0 || self.0.wanted_until.load(Ordering::Relaxed) >= now.nanos()
    }

    /// Waits until somebody wants to know who did not before.
    pub(crate) async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    pub(crate) fn set(&self, seen: Vec<Seen>) {
        self.0.seen.store(Arc::new(seen));
    }
}

/// As long as it is there, the loads of the others are read.
pub struct Watching(Loads);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.0.watching.fetch_sub(1, Ordering::Relaxed);
    }
}
