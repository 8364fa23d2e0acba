//! Gives the machine what arrives, and does what it says, in turns. It never waits; who gives it its turns does.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::{Fabric, Inbox, Message};
use verbena_service::executor::{self, Driver as _};
use verbena_service::peers::{OpenResult, OpenTask};
use verbena_terms::{Clock, Complaints, Incarnation, Time};

use super::listings::{Listings, Shown};
use super::own_region::OwnRegion;
use super::removals::{self, Removals};
use super::{Attention, Metrics};
use crate::listing::Cursor;
use crate::wire::Frame;
use crate::{Answer, Asker, Locks, LocksAction, LocksOptions, Name, Request, RequestId, Strange};

/// How long something is looked for without a pause.
const EAGER: Duration = Duration::from_micros(500);
/// The longest between two turns: that the lease has ended must not be seen late.
const IDLE: Duration = Duration::from_millis(20);
/// After so long it is said whom a home waits for.
const LONG: Duration = Duration::from_secs(1);

/// The part of a node that acts.
pub(super) struct Driver {
    clock: Arc<dyn Clock>,
    /// Known from the first life on.
    lease: Option<Arc<LeaseWord>>,
    locks: Locks,
    /// Between two lives there is none.
    pub(super) own_region: Option<OwnRegion>,
    answers: Vec<Answered>,
    /// How often all that clients held was lost.
    losses: u64,
    lapsed: Box<dyn FnMut(u64) + Send>,
    attention: Attention,
    /// When something was last asked for or came.
    stirred: Time,
    complaints: Complaints,
    metrics: Metrics,
    /// Since when this home waits for members.
    awaits_since: Option<Time>,
    /// Once a second it is said for whom.
    late: Complaints,
    listings: Listings,
    removals: Removals,
    /// Locks that were evicted, as far as they are counted.
    evictions: u64,
}

/// What became of a request, and how often all that clients held had been lost by then.
pub(super) struct Answered {
    pub(super) id: RequestId,
    pub(super) answer: Answer,
    pub(super) losses: u64,
}

impl Driver {
    /// `lapsed` is called whenever all that clients hold is lost, before anybody else can get it, with how often that was.
    pub(super) fn new(
        options: LocksOptions,
        clock: Arc<dyn Clock>,
        attention: Attention,
        metrics: Metrics,
        lapsed: Box<dyn FnMut(u64) + Send>,
    ) -> Self {
        Driver {
            clock,
            lease: None,
            locks: Locks::new(options),
            own_region: None,
            answers: vec![],
            losses: 0,
            lapsed,
            attention,
            stirred: Time::ZERO,
            complaints: Complaints::default(),
            metrics,
            awaits_since: None,
            late: Complaints::default(),
            listings: Listings::default(),
            removals: Removals::default(),
            evictions: 0,
        }
    }

    /// What became of requests since this was asked last.
    pub(super) fn answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// How the words of this home stand.
    #[cfg(feature = "testing")]
    pub(super) fn home_words(&self) -> crate::HomeWords {
        self.locks.home_words()
    }

    /// What broke the protocol or could not be read, so far.
    #[cfg(feature = "testing")]
    pub(super) fn complained(&self) -> u64 {
        self.complaints.counted()
    }

    // Lives and views.

    pub(super) fn life_begins(
        &mut self,
        fabric: Arc<dyn Fabric>,
        lease: &Arc<LeaseWord>,
    ) -> verbena_fabric::Result<()> {
        self.lease.get_or_insert_with(|| lease.clone());
        let own = OwnRegion::start(fabric, self.metrics.clone())?;
        self.act(|locks, out| locks.life_begins(own.endpoint.me(), out));
        self.own_region = Some(own);
        Ok(())
    }

    /// Drops all that belongs to the life, the fabric and its regions too.
    pub(super) fn life_ends(&mut self) {
        self.act(|locks, out| locks.life_begins(Incarnation::default(), out));
        self.own_region = None;
    }

    /// When this returns it has ended what it did in older views.
    pub(super) fn view(&mut self, view: &Arc<View>) {
        self.check_lease();
        let bytes = self.locks.region_bytes();
        let Some(own) = &mut self.own_region else { return };
        let words = own.enter_view(view, bytes, self.clock.now()).unwrap_or_else(|error| {
            tracing::error!(%error, "there is no memory for the words of locks: this home refuses those that it is asked for");
            None
        });
        // Memory takes its time.
        let now = self.clock.now();
        self.act(|locks, out| locks.view(view, words, now, out));
        self.advance();
    }

    // Clients.

    /// Whether its client holds on what was kept for it.
    pub(super) fn acquire(&mut self, id: RequestId, asker: Asker, name: Name, request: Request) -> bool {
        self.something_came();
        self.check_lease();
        let holds_on = self.act(|locks, out| locks.acquire(id, asker, name, request, out));
        if !holds_on {
            self.advance();
        }
        holds_on
    }

    pub(super) fn release(&mut self, id: RequestId) -> Result<(), Strange> {
        self.change(|locks, out| locks.release(id, out))
    }

    /// If it can be, what was granted to this request is kept for its client for a while.
    pub(super) fn release_soon(&mut self, id: RequestId) -> Result<(), Strange> {
        self.check_lease();
        let said = self.act(|locks, out| locks.release_soon(id, out));
        if !self.locks.keeps() {
            self.advance();
        }
        said
    }

    pub(super) fn keeps(&self) -> bool {
        self.locks.keeps()
    }

    pub(super) fn settle(&mut self) {
        if self.locks.keeps() {
            self.check_lease();
            self.act(Locks::settle);
            self.advance();
        }
    }

    pub(super) fn downgrade(&mut self, id: RequestId) -> Result<(), Strange> {
        self.change(|locks, out| locks.downgrade(id, out))
    }

    pub(super) fn forget(&mut self, id: RequestId) {
        self.check_lease();
        self.act(|locks, out| locks.forget(id, out));
        self.advance();
    }

    pub(super) fn list(&mut self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown) {
        self.check_lease();
        let (number, now) = (self.listings.next(), self.clock.now());
        let mut actions = vec![];
        let asked = self.locks.list(number, after, prefix, &mut actions);
        // Before what it says is done: this node's own answer is in it.
        self.listings.begin(number, asked, shown, now);
        self.act(|_, out| out.append(&mut actions));
        self.advance();
    }

    pub(super) fn remove(&mut self, name: Name, told: removals::Told) {
        self.check_lease();
        let (number, now) = (self.removals.next(), self.clock.now());
        let mut actions = vec![];
        let home = self.locks.remove(number, name, &mut actions);
        // Before what it says is done: this node may be the home.
        self.removals.begin(number, home, told, now);
        self.act(|_, out| out.append(&mut actions));
        self.advance();
    }

    // Within.

    fn change(
        &mut self,
        event: impl FnOnce(&mut Locks, &mut Vec<LocksAction>) -> Result<(), Strange>,
    ) -> Result<(), Strange> {
        self.check_lease();
        let said = self.act(event);
        self.advance();
        said
    }

    fn lease(&self) -> Lease {
        self.lease.as_ref().map_or(Lease::NONE, |lease| lease.load())
    }

    fn something_came(&mut self) {
        if self.attention == Attention::Everything {
            self.stirred = self.clock.now();
        }
    }

    fn look_at_home(&mut self, now: Time) {
        let words = self.locks.home_words();
        self.metrics.home_locks.set(words.used as i64);
        self.metrics.home_free.set(words.free as i64);
        let evictions = words.evictions - std::mem::replace(&mut self.evictions, words.evictions);
        self.metrics.evictions.add(evictions);
        let awaited = self.locks.awaited();
        self.metrics.home_awaited.set(awaited.len() as i64);
        let Some(member) = awaited.first() else {
            self.awaits_since = None;
            return;
        };
        let since = *self.awaits_since.get_or_insert(now);
        if now.since(since) >= LONG && self.late.another(now).is_some() {
            tracing::warn!(%member, members = awaited.len(), "this home of locks grants none: members have not said for a second or more what they have of them");
        }
    }

    fn complain(&mut self, from: Incarnation, what: &dyn std::fmt::Display) {
        self.metrics.unusable.increment();
        if let Some(number) = self.complaints.another(self.clock.now()) {
            tracing::warn!(%from, number, "dropped {what}");
        }
    }

    fn act<T>(&mut self, event: impl FnOnce(&mut Locks, &mut Vec<LocksAction>) -> T) -> T {
        let mut actions = vec![];
        let said = event(&mut self.locks, &mut actions);
        let now = self.clock.now();
        for action in actions {
            match (action, &mut self.own_region) {
                (LocksAction::Lapsed, _) => {
                    self.losses += 1;
                    self.metrics.losses.increment();
                    (self.lapsed)(self.losses);
                }
                (LocksAction::Answer(id, answer), _) => {
                    self.answers.push(Answered { id, answer, losses: self.losses });
                }
                (LocksAction::Listed { number, from, page }, _) => self.listings.heard(number, from, page),
                (LocksAction::Removed { number, from, removal }, _) => self.removals.heard(number, from, removal),
                (LocksAction::Strange(from, strange), _) => self.complain(from, &strange),
                (LocksAction::Post(id, slot, batch), Some(own)) => {
                    own.post(id, slot, batch, now);
                    self.stirred = now;
                }
                (LocksAction::Store { at, word }, Some(own)) => own.store(at, word),
                (LocksAction::Open(key), Some(own)) => own.endpoint.learn(key, now),
                (LocksAction::Send(frame), Some(own)) => own.send(&frame),
                // Between two lives nobody hears it.
                (_, None) => {}
            }
        }
        said
    }
}

impl executor::Driver for Driver {
    fn may_be_slow(&self) -> bool {
        self.locks.is_changed_by(self.lease(), self.clock.now())
    }

    fn check_lease(&mut self) {
        let (lease, now) = (self.lease(), self.clock.now());
        self.act(|locks, out| locks.lease(lease, now, out));
    }

    fn message(&mut self, message: &Message) {
        self.something_came();
        match Frame::decode(&message.body) {
            Ok(frame) if frame.from == message.from && frame.view == message.view => {
                let now = self.clock.now();
                self.act(|locks, out| locks.heard(frame, now, out));
            }
            Ok(frame) => self.complain(message.from, &format_args!("a frame of {} in {}", frame.from, frame.view)),
            Err(error) => self.complain(message.from, &error),
        }
    }

    fn advance(&mut self) {
        let mut now = self.clock.now();
        while let Some(own) = &mut self.own_region {
            let done = own.endpoint.poll(now);
            if done.is_empty() {
                break;
            }
            self.stirred = now;
            for (id, outcome) in done {
                self.act(|locks, out| locks.completed(id, &outcome, out));
            }
            now = self.clock.now();
        }
        self.act(|locks, out| locks.flush(now, out));
        self.look_at_home(now);
        self.listings.end(now);
        self.removals.end(now);
    }

    fn has_batches(&self) -> bool {
        self.own_region.as_ref().is_some_and(|own| own.endpoint.has_batches())
    }

    fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.own_region.as_mut().map_or(Poll::Pending, |own| own.endpoint.poll_completed(context))
    }

    fn inbox(&mut self) -> Option<&mut Inbox> {
        self.own_region.as_mut().map(|own| own.endpoint.inbox())
    }

    fn open_tasks(&mut self) -> Vec<OpenTask> {
        let now = self.clock.now();
        self.own_region.as_mut().map(|own| own.endpoint.open_tasks(now)).unwrap_or_default()
    }

    fn opened(&mut self, result: OpenResult) {
        let now = self.clock.now();
        if let Some(member) = self.own_region.as_mut().and_then(|own| own.endpoint.opened(result, now)) {
            self.locks.reached(member);
        }
        self.advance();
    }

    fn next_deadline(&self) -> Time {
        let now = self.clock.now();
        if self.attention == Attention::Everything && now < self.stirred + EAGER {
            return now;
        }
        let again = self.own_region.as_ref().and_then(|own| own.endpoint.next_deadline());
        let next = [again, self.locks.next_deadline(), self.listings.next_deadline(), self.removals.next_deadline()]
            .into_iter()
            .flatten()
            .min();
        next.unwrap_or(Time::FAR).min(now + IDLE)
    }
}
