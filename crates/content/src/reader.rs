//! The proxy's fills: one request makes a page for all that wait for it, and the page is stored only if its home agrees
//! (rules P2, P8).
//!
//! ```text
//!            words read, then          the answer is here          the home has
//!            forwarded                 and may be stored           accepted
//!  (start) ------------------> making --------------------> registering ------------> stored
//!                                |  others may join           |  nobody joins
//!                                | failed, or must not        | refused, or too late
//!                                | be stored                  v
//!                                +----------------------> not stored: who waited goes to the origin
//! ```
//!
//! A fill whose body takes long goes on by itself: its waiters go to the origin, and the page is stored when it is here.
//!
//! Waiters are served the page only if the home accepts it: acceptance means that the page was current at a moment
//! after the registration was sent, and so after every waiter had arrived.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use verbena_cluster::Lease;
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::hit::{Kind, Stamp, Words};
use crate::names::{PageId, Scope};
use crate::rules::Rules;
use crate::wire::{Refusal, Register, Registered};

/// Bounds of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReaderLimits {
    /// Fills at once. One more is forwarded alone and not stored.
    pub fills: usize,
    /// Requests that wait for one fill. One more is forwarded alone.
    pub waiters: usize,
    /// How long a registration may take.
    pub registration_deadline: Duration,
    /// Pages remembered as unstorable, rounded up to a power of two; the newer takes the place of the older.
    pub unstorable: usize,
    /// How long a page is remembered as unstorable.
    pub unstorable_for: Duration,
    /// How long it is remembered that the application failed to make a page, or of an answer alone that it is unstorable.
    pub failing_for: Duration,
}

impl Default for ReaderLimits {
    fn default() -> Self {
        ReaderLimits {
            fills: 4096,
            waiters: 1024,
            registration_deadline: Duration::from_millis(500),
            unstorable: 4096,
            unstorable_for: Duration::from_secs(60),
            failing_for: Duration::from_secs(1),
        }
    }
}

/// A fill, as its reader knows it. Never reused by one [`Reader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FillId(pub u64);

/// A request that waits for a fill, named by the caller.
pub type Waiter = u64;

/// What a request that missed does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// Forward it, and say [`Reader::answered`] or [`Reader::failed`].
    Lead(FillId),
    /// Wait until this fill is [`Settled`].
    Wait(FillId),
    /// Forward it, and do not store the answer.
    Alone(Alone),
}

/// Why a request is forwarded by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Alone {
    /// The page's words could not be read.
    #[error("the page's words could not be read")]
    NoWords,
    /// This node has no lease, or the view changed while the words were read.
    #[error("this node has no lease in the view of the words")]
    NoLease,
    /// An update is open: the page could not be registered.
    #[error("an update is open")]
    Busy,
    /// An earlier answer must not be stored, for the reason given here.
    #[error("an earlier answer could not be stored: {0}")]
    Unstorable(&'static str),
    /// The application has just failed to make it.
    #[error("the application has just failed to make it")]
    Failing,
    /// The page is being made, and its body takes long.
    #[error("it is being made, and takes long")]
    Slow,
    /// There are as many fills, or as many waiters, as may be.
    #[error("too many requests for it are under way")]
    Full,
}

/// Of what an answer that must not be stored says so, and for which reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unstorable {
    /// Of the page: its next answer will be no other.
    Page(&'static str),
    /// Of this answer: the next may be another, and is looked at after a moment.
    Answer(&'static str),
    /// Of this attempt, in which the application failed: remembered for a moment only.
    Failure,
}

/// Why a fill was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotStored {
    /// The answer must not be stored.
    #[error("the answer must not be stored")]
    Unstorable,
    /// No whole answer came.
    #[error("no whole answer came")]
    Failed,
    /// The home refused.
    #[error("the home refused it: {0}")]
    Refused(Refusal),
    /// The home did not answer in time.
    #[error("the home did not answer in time")]
    Late,
    /// A later request has had a newer answer.
    #[error("a later request has had a newer answer")]
    Overtaken,
}

/// The end of a fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled<K> {
    /// Which fill.
    pub fill: FillId,
    /// Its page's key.
    pub key: K,
    /// What to store the page under, or why not to.
    pub stored: Result<Stamp, NotStored>,
    /// Requests to be served the page.
    pub serve: Vec<Waiter>,
    /// Requests to be forwarded alone.
    pub forward: Vec<Waiter>,
}

/// The machine of one proxy's fills. `K` is the whole key of a page: two pages may share a [`PageId`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader<K> {
    me: Incarnation,
    limits: ReaderLimits,
    rules: Rules,
    fills: BTreeMap<FillId, Fill<K>>,
    /// The fill of a page that may be joined.
    joinable: BTreeMap<K, FillId>,
    unstorable: Vec<Remembered>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fill<K> {
    key: K,
    page: PageId,
    kind: Kind,
    view: ViewNumber,
    words: Words,
    waiters: Vec<Waiter>,
    /// Its body takes long: no request waits for it.
    is_slow: bool,
    /// A request that was sent later has had its answer.
    is_overtaken: bool,
    registering: Option<Registering>,
}

/// A page whose requests are not to wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Remembered {
    page: PageId,
    why: Alone,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Registering {
    deadline: Time,
    depends_on_everything: bool,
}

impl<K: Ord + Clone> Reader<K> {
    /// A reader with no fill.
    pub fn new(me: Incarnation, limits: ReaderLimits) -> Self {
        Reader::with_rules(me, limits, Rules::ALL)
    }

    #[doc(hidden)]
    pub fn with_rules(me: Incarnation, limits: ReaderLimits, rules: Rules) -> Self {
        let slots = limits.unstorable.max(1).next_power_of_two();
        Reader {
            me,
            limits,
            rules,
            fills: BTreeMap::new(),
            joinable: BTreeMap::new(),
            unstorable: vec![Remembered { page: PageId(0), why: Alone::Failing, until: Time::ZERO }; slots],
            next: 1,
        }
    }

    /// Fills under way.
    pub fn len(&self) -> usize {
        self.fills.len()
    }

    /// Whether no fill is under way.
    pub fn is_empty(&self) -> bool {
        self.fills.is_empty()
    }

    /// A request for a page of this kind missed. `words` are the page's words and the view in which their read was posted, read after the
    /// request arrived; `lease` and `now` were taken after they arrived.
    pub fn start(
        &mut self,
        key: &K,
        (page, kind): (PageId, Kind),
        waiter: Waiter,
        words: Option<(ViewNumber, Words)>,
        lease: &Lease,
        now: Time,
    ) -> Start {
        let (view, words) = match self.ready((page, kind), words, lease, now) {
            Ok(ready) => ready,
            Err(why) => return Start::Alone(why),
        };
        if let Some(joined) = self.join(key, kind, (view, words), waiter) {
            return joined;
        }
        if self.fills.len() >= self.limits.fills {
            return Start::Alone(Alone::Full);
        }
        let id = FillId(self.next);
        self.next += 1;
        let (is_slow, is_overtaken) = (false, false);
        let (key_of_it, waiters, registering) = (key.clone(), Vec::new(), None);
        let fill = Fill { key: key_of_it, page, kind, view, words, waiters, is_slow, is_overtaken, registering };
        self.fills.insert(id, fill);
        self.joinable.insert(key.clone(), id);
        Start::Lead(id)
    }

    /// What [`start`](Self::start) would come to, without anything being begun: whether the request would lead (`None`), wait for a fill, or go by itself.
    pub fn foresee(
        &self,
        key: &K,
        (page, kind): (PageId, Kind),
        words: Option<(ViewNumber, Words)>,
        lease: &Lease,
        now: Time,
    ) -> Option<Result<FillId, Alone>> {
        let ready = match self.ready((page, kind), words, lease, now) {
            Ok(ready) => ready,
            Err(why) => return Some(Err(why)),
        };
        let is_full = self.fills.len() >= self.limits.fills;
        self.joinable(key, kind, ready).or_else(|| is_full.then_some(Err(Alone::Full)))
    }

    /// The fill waited, and is forwarded only now. These words, which were read since, take the place of those that it began with: what moved
    /// them meanwhile is no reason to refuse it. Its waiters arrived before. Words under which it could not begin change nothing.
    pub fn waited(&mut self, id: FillId, (view, words): (ViewNumber, Words), lease: &Lease, now: Time) {
        if lease.valid_at(now) == Some(view)
            && let Some(fill) = self.fills.get_mut(&id).filter(|fill| fill.registering.is_none())
            && !words.are_busy(fill.kind)
        {
            (fill.view, fill.words) = (view, words);
        }
    }

    /// The body takes long. The fill goes on, and no request waits for it any more: those that did are given, to be forwarded, and those that come are
    /// forwarded alone.
    pub fn slow(&mut self, id: FillId) -> Vec<Waiter> {
        let Some(fill) = self.fills.get_mut(&id).filter(|fill| fill.registering.is_none()) else { return vec![] };
        fill.is_slow = true;
        std::mem::take(&mut fill.waiters)
    }

    /// A request for what this key names was sent after its fill and has an answer that may be newer: what the fill brings is not kept, or later requests
    /// would go back in time.
    pub fn overtaken(&mut self, key: &K) {
        if let Some(fill) = self.joinable.get(key).and_then(|id| self.fills.get_mut(id)) {
            fill.is_overtaken = true;
        }
    }

    /// The answer is here, whole, and depends on `scope`. Send what is returned, then wait for
    /// [`registered`](Self::registered). `None` if the fill is not known.
    pub fn answered(&mut self, id: FillId, scope: Scope, now: Time) -> Option<Register> {
        let fill = self.fills.get_mut(&id)?;
        fill.registering = Some(Registering {
            deadline: now + self.limits.registration_deadline,
            depends_on_everything: scope == Scope::Everything,
        });
        let register = Register {
            view: fill.view,
            from: self.me,
            to: fill.words.home,
            request: id.0,
            page: fill.page,
            kind: fill.kind,
            scope,
            clock: fill.words.clock,
            word: fill.words.word,
            common: fill.words.common(fill.kind),
        };
        // From here on no request joins (rule P8). Of a standard page no other fill begins either: only their order tells which of two
        // answers is the newer (rule H6).
        if self.rules.waiters_early && (fill.kind == Kind::Coherent || !self.rules.one_refresh) {
            let key = fill.key.clone();
            self.close(&key, id);
        }
        Some(register)
    }

    /// The key of a fill that is under way.
    pub fn key(&self, id: FillId) -> Option<&K> {
        self.fills.get(&id).map(|fill| &fill.key)
    }

    /// The answer is here and must not be stored. It is remembered, so that the page's requests are not serialised.
    pub fn unstorable(&mut self, id: FillId, why: Unstorable, now: Time) -> Option<Settled<K>> {
        let page = self.fills.get(&id)?.page;
        self.remember(page, why, now);
        self.settle(id, Err(NotStored::Unstorable), false)
    }

    /// The page's answers must not be stored, as one that was registered at its head showed later.
    pub fn remember(&mut self, page: PageId, why: Unstorable, now: Time) {
        let (why, lasts) = match why {
            Unstorable::Page(why) => (Alone::Unstorable(why), self.limits.unstorable_for),
            Unstorable::Answer(why) => (Alone::Unstorable(why), self.limits.failing_for),
            Unstorable::Failure => (Alone::Failing, self.limits.failing_for),
        };
        let slot = self.unstorable_slot(page);
        self.unstorable[slot] = Remembered { page, why, until: now + lasts };
    }

    /// No whole answer came.
    pub fn failed(&mut self, id: FillId) -> Option<Settled<K>> {
        self.settle(id, Err(NotStored::Failed), false)
    }

    /// The home has answered. `lease` and `now` were taken after its message arrived. `None` if it is not about a
    /// fill under way: it is late, or belongs to another reader.
    pub fn registered(&mut self, registered: &Registered, lease: &Lease, now: Time) -> Option<Settled<K>> {
        let id = FillId(registered.request);
        let fill = self.fills.get(&id)?;
        let registering = fill.registering?;
        if registered.to != self.me || registered.from != fill.words.home {
            return None;
        }
        let words = fill.words;
        let kind = fill.kind;
        let compares_clock = registering.depends_on_everything && self.rules.clock_compared;
        let stored = match registered.outcome {
            Ok(word) if kind == Kind::Standard => Ok(Stamp::standard(words.home, word, words.purge)),
            Ok(word) => Ok(Stamp::new(words.home, word, words.everything, compares_clock.then_some(words.clock))),
            Err(refusal) => Err(NotStored::Refused(refusal)),
        };
        let acts = lease.valid_at(now) == Some(fill.view);
        self.settle(id, stored, acts)
    }

    /// Time has passed: gives up registrations that take too long.
    pub fn tick(&mut self, now: Time) -> Vec<Settled<K>> {
        let late: Vec<FillId> = self
            .fills
            .iter()
            .filter(|(_, fill)| fill.registering.is_some_and(|registering| registering.deadline <= now))
            .map(|(&id, _)| id)
            .collect();
        late.into_iter().filter_map(|id| self.settle(id, Err(NotStored::Late), false)).collect()
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub fn next_deadline(&self) -> Option<Time> {
        self.fills.values().filter_map(|fill| fill.registering).map(|registering| registering.deadline).min()
    }

    /// This node is another incarnation now (rule C1). Fills under way will be refused, for they are of an older view.
    pub fn rejoined(&mut self, me: Incarnation) {
        self.me = me;
    }

    fn join(&mut self, key: &K, kind: Kind, (view, words): (ViewNumber, Words), waiter: Waiter) -> Option<Start> {
        let id = match self.joinable(key, kind, (view, words))? {
            Ok(id) => id,
            Err(why) => return Some(Start::Alone(why)),
        };
        let fill = self.fills.get_mut(&id).expect("invariant: a joinable fill is under way");
        fill.waiters.push(waiter);
        Some(Start::Wait(id))
    }

    /// The fill that a request of these words waits for, or why it goes by itself beside it.
    fn joinable(&self, key: &K, kind: Kind, (view, words): (ViewNumber, Words)) -> Option<Result<FillId, Alone>> {
        let &id = self.joinable.get(key)?;
        let fill = self.fills.get(&id).expect("invariant: a joinable fill is under way");
        if fill.kind != kind {
            return None;
        }
        // Words that moved since mean that it will be refused: a new fill is better.
        if (fill.view, fill.words.of(kind)) != (view, words.of(kind)) && self.rules.waiters_early {
            return None;
        }
        if fill.is_slow || (fill.registering.is_some() && kind == Kind::Standard) {
            return Some(Err(Alone::Slow));
        }
        if fill.waiters.len() >= self.limits.waiters {
            return Some(Err(Alone::Full));
        }
        Some(Ok(id))
    }

    /// The words under which a request that missed may be filled, or wait for a fill.
    fn ready(
        &self,
        (page, kind): (PageId, Kind),
        words: Option<(ViewNumber, Words)>,
        lease: &Lease,
        now: Time,
    ) -> Result<(ViewNumber, Words), Alone> {
        let (view, words) = words.ok_or(Alone::NoWords)?;
        if lease.valid_at(now) != Some(view) {
            return Err(Alone::NoLease);
        }
        if words.are_busy(kind) {
            return Err(Alone::Busy);
        }
        match self.remembered(page, now) {
            Some(why) => Err(why),
            None => Ok((view, words)),
        }
    }

    fn settle(&mut self, id: FillId, stored: Result<Stamp, NotStored>, acts: bool) -> Option<Settled<K>> {
        let fill = self.fills.remove(&id)?;
        self.close(&fill.key, id);
        let stored = if fill.is_overtaken { stored.and(Err(NotStored::Overtaken)) } else { stored };
        let (serve, forward) = match stored.is_ok() && acts {
            true => (fill.waiters, Vec::new()),
            false => (Vec::new(), fill.waiters),
        };
        Some(Settled { fill: id, key: fill.key, stored, serve, forward })
    }

    fn close(&mut self, key: &K, id: FillId) {
        if self.joinable.get(key) == Some(&id) {
            self.joinable.remove(key);
        }
    }

    fn remembered(&self, page: PageId, now: Time) -> Option<Alone> {
        let remembered = self.unstorable[self.unstorable_slot(page)];
        (remembered.page == page && now < remembered.until).then_some(remembered.why)
    }

    fn unstorable_slot(&self, page: PageId) -> usize {
        page.0 as usize & (self.unstorable.len() - 1)
    }
}

#[cfg(test)]
mod tests;
