//! What is known of the loads of a view's members, and which of them are wanted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use verbena_terms::{BootClock, Clock, Incarnation, Load, Time};

/// A load is no news any more when none came for so long, or for three times as long as its node takes to publish one.
const FRESH: Duration = Duration::from_secs(1);

/// A member's load, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The member.
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

/// Names a node or a machine whose load is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of the node of this name.
    Node(String),
    /// That of the machine at this address.
    Host(IpAddr),
}

impl Whose {
    /// Whether it is that of the node of this name, on that machine.
    fn is(&self, name: &str, host: Option<IpAddr>) -> bool {
        match self {
            Whose::Node(wanted) => wanted == name,
            Whose::Host(wanted) => Some(*wanted) == host,
        }
    }
}

/// The loads of the members of the view. Cheap to clone; reading takes no lock.
#[derive(Clone, Default)]
pub struct Loads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: ArcSwap<Vec<Seen>>,
    /// The loads that each watcher always wants, by the watcher's number.
    watched: Mutex<BTreeMap<u64, Vec<Whose>>>,
    numbers: AtomicU64,
    /// Until when all loads are wanted, nanoseconds.
    wanted_until: AtomicU64,
    /// Called when loads are wanted that were not before.
    on_wanted: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Something was found.
    changed: Notify,
}

impl Loads {
    /// All that is known, in order of incarnation. Loads of others are known only after a [watch](Self::watch) or a
    /// [look](Self::look).
    pub fn all(&self) -> Arc<Vec<Seen>> {
        self.0.seen.load_full()
    }

    /// How loaded this machine is, if that is news.
    pub fn own(&self, now: Time) -> Option<Load> {
        self.find(now, |seen| seen.is_own)
    }

    fn find(&self, now: Time, is_it: impl Fn(&Seen) -> bool) -> Option<Load> {
        let seen = self.0.seen.load();
        seen.iter().find(|seen| is_it(seen) && seen.is_fresh(now)).map(|seen| seen.load)
    }

    /// How loaded that one is, if that is known and news.
    pub fn of(&self, whose: &Whose, now: Time) -> Option<Load> {
        self.find(now, |seen| whose.is(&seen.name, seen.host))
    }

    /// Wants all loads for `patience` from now on.
    pub fn look(&self, patience: Duration) {
        let now = BootClock.now();
        let before = self.0.wanted_until.fetch_max((now + patience).nanos(), Ordering::Relaxed);
        if before < now.nanos() {
            self.call();
        }
    }

    /// Wants these loads until the returned value is dropped.
    pub fn watch(&self, whose: Vec<Whose>) -> Watching {
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        self.0.watched.lock().insert(number, whose);
        self.call();
        Watching { loads: self.clone(), number }
    }

    /// Waits for what is found after this was called.
    pub fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    /// The loads that are wanted.
    pub(crate) fn wanted_of(&self, now: Time) -> Wanted {
        if self.0.wanted_until.load(Ordering::Relaxed) >= now.nanos() {
            return Wanted::All;
        }
        Wanted::These(self.0.watched.lock().values().flatten().cloned().collect())
    }

    /// Has `call` called whenever loads are wanted that were not before. There is one monitor; it must not block.
    pub(crate) fn on_wanted(&self, call: impl Fn() + Send + Sync + 'static) {
        let is_first = self.0.on_wanted.set(Box::new(call)).is_ok();
        debug_assert!(is_first, "two monitors find out the same loads");
    }

    fn call(&self) {
        if let Some(call) = self.0.on_wanted.get() {
            call();
        }
    }

    pub(crate) fn set(&self, seen: Vec<Seen>) {
        self.0.seen.store(Arc::new(seen));
        self.0.changed.notify_waiters();
    }
}

/// The loads that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Of every member.
    All,
    /// Of these alone.
    These(Vec<Whose>),
}

impl Wanted {
    /// Whether of the node of this name, on that machine.
    pub fn has(&self, name: &str, host: Option<IpAddr>) -> bool {
        match self {
            Wanted::All => true,
            Wanted::These(these) => these.iter().any(|whose| whose.is(name, host)),
        }
    }
}

/// As long as it is there, those loads are read.
pub struct Watching {
    loads: Loads,
    number: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.loads.0.watched.lock().remove(&self.number);
    }
}
