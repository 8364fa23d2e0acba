//! The driver of a node's locks: what clients want of the machine, and what the node does with the machine's actions beside the fabric.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, View};
use verbena_fabric::{Message, Port, Region, RegionKey};
use verbena_service::driver::{self, Host, Machine};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_terms::{Clock, Complaints, Incarnation, Time};

use super::batches::WordBatch;
use super::listings::{Listings, Shown};
use super::removals::{self, Removals};
use super::{Attention, Metrics, words};
use crate::listing::Cursor;
use crate::wire::{Frame, WireError};
use crate::{
    Answer, Asker, Locks, LocksAction, LocksOptions, Name, Outcome, PostId, ProtocolViolation, Request, RequestId,
};

/// How long the thread looks without a pause after something came.
const EAGER: Duration = Duration::from_micros(500);
/// How long a home waits for members before the log names them.
const LONG: Duration = Duration::from_secs(1);

/// The driver of a node's locks.
pub(super) type Running = driver::Driver<Locks, LockHost>;

/// What became of a request, and how often all that clients held had been lost by then.
pub(super) struct Answered {
    pub(super) id: RequestId,
    pub(super) answer: Answer,
    pub(super) losses: u64,
}

/// What the node does with the actions of [`Locks`].
pub(super) struct LockHost {
    /// The words that this node is the home of, in the view that it has learnt of.
    words: Option<Box<dyn Region>>,
    answers: Vec<Answered>,
    /// How often all that clients held was lost.
    losses: u64,
    lapsed: Box<dyn FnMut(u64) + Send>,
    attention: Attention,
    /// When something was last asked for or came.
    stirred: Time,
    violations: Complaints,
    /// Shared with the batches in flight.
    metrics: Arc<Metrics>,
    /// Since when this home waits for members.
    awaits_since: Option<Time>,
    /// Limits the log of members that a home waits for to a line a second.
    late: Complaints,
    listings: Listings,
    removals: Removals,
    /// Evicted locks that the metric has counted.
    evictions: u64,
}

/// A driver between two incarnations. `lapsed` is called whenever all that clients hold is lost, before any other node can get it, with how often that was.
pub(super) fn new(
    options: LocksOptions,
    clock: Arc<dyn Clock>,
    attention: Attention,
    metrics: Metrics,
    lapsed: Box<dyn FnMut(u64) + Send>,
) -> Running {
    let host = LockHost {
        words: None,
        answers: vec![],
        losses: 0,
        lapsed,
        attention,
        stirred: Time::ZERO,
        violations: Complaints::default(),
        metrics: Arc::new(metrics),
        awaits_since: None,
        late: Complaints::default(),
        listings: Listings::default(),
        removals: Removals::default(),
        evictions: 0,
    };
    driver::Driver::new(Locks::new(options), host, clock)
}

/// What clients want of a node's locks.
pub(super) trait Clients {
    /// Whether its client keeps on holding what was kept for it.
    fn acquire(&mut self, id: RequestId, asker: Asker, name: Name, request: Request) -> bool;
    fn release(&mut self, id: RequestId) -> Result<(), ProtocolViolation>;
    /// If possible, what was granted to this request is kept for its client for a while.
    fn release_soon(&mut self, id: RequestId) -> Result<(), ProtocolViolation>;
    fn settle(&mut self);
    fn downgrade(&mut self, id: RequestId) -> Result<(), ProtocolViolation>;
    fn forget(&mut self, id: RequestId);
    fn list(&mut self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown);
    fn remove(&mut self, name: Name, told: removals::OnRemoved);
}

impl Clients for Running {
    fn acquire(&mut self, id: RequestId, asker: Asker, name: Name, request: Request) -> bool {
        use verbena_service::executor::Driver as _;
        self.check_lease();
        let keeps_on = self.act(|locks, host, now, out| {
            host.stir(now);
            locks.acquire(id, asker, name, request, out)
        });
        if !keeps_on {
            self.advance();
        }
        keeps_on
    }

    fn release(&mut self, id: RequestId) -> Result<(), ProtocolViolation> {
        self.command(|locks, _, _, out| locks.release(id, out))
    }

    fn release_soon(&mut self, id: RequestId) -> Result<(), ProtocolViolation> {
        use verbena_service::executor::Driver as _;
        self.check_lease();
        let released = self.act(|locks, _, _, out| locks.release_soon(id, out));
        if !self.machine().keeps() {
            self.advance();
        }
        released
    }

    fn settle(&mut self) {
        if self.machine().keeps() {
            self.command(|locks, _, _, out| locks.settle(out));
        }
    }

    fn downgrade(&mut self, id: RequestId) -> Result<(), ProtocolViolation> {
        self.command(|locks, _, _, out| locks.downgrade(id, out))
    }

    fn forget(&mut self, id: RequestId) {
        self.command(|locks, _, _, out| locks.forget(id, out));
    }

    fn list(&mut self, after: Option<Cursor>, prefix: Vec<u8>, shown: Shown) {
        self.command(|locks, host, now, out| {
            let number = host.listings.next();
            let asked = locks.list(number, after, prefix, out);
            // Before the actions are carried out: this node's own answer is among them.
            host.listings.begin(number, asked, shown, now);
        });
    }

    fn remove(&mut self, name: Name, told: removals::OnRemoved) {
        self.command(|locks, host, now, out| {
            let number = host.removals.next();
            let home = locks.remove(number, name, out);
            // Before the actions are carried out: this node may be the home.
            host.removals.begin(number, home, told, now);
        });
    }
}

impl LockHost {
    /// What became of requests since the last call.
    pub(super) fn answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// Violations of the protocol that the machine found, so far.
    #[cfg(feature = "testing")]
    pub(super) fn violations(&self) -> u64 {
        self.violations.counted()
    }

    fn stir(&mut self, now: Time) {
        if self.attention == Attention::Everything {
            self.stirred = now;
        }
    }

    fn look_at_home(&mut self, locks: &Locks, now: Time) {
        let words = locks.home_words();
        self.metrics.home_locks.set(words.used as i64);
        self.metrics.home_free.set(words.free as i64);
        let evictions = words.evictions - std::mem::replace(&mut self.evictions, words.evictions);
        self.metrics.evictions.add(evictions);
        let awaited = locks.awaited();
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
}

impl Host<Locks> for LockHost {
    /// Messages about locks.
    const PORTS: Ports = Ports::of_view(Port(18));

    fn act(
        &mut self,
        action: LocksAction,
        _: &mut Locks,
        endpoint: Option<&mut Endpoint<WordBatch>>,
        now: Time,
        _: &mut VecDeque<LocksAction>,
    ) {
        match (action, endpoint) {
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
            (LocksAction::ProtocolViolation(from, violation), _) => {
                self.metrics.unusable.increment();
                if let Some(number) = self.violations.another(now) {
                    tracing::warn!(%from, number, "dropped {violation}");
                }
            }
            (LocksAction::Post(id, slot, batch), Some(endpoint)) => {
                endpoint.submit(WordBatch::new(id, slot, batch, self.metrics.clone()), now);
                self.stirred = now;
            }
            (LocksAction::Store { at, word }, Some(_)) => words::store(self.words.as_deref(), at, word),
            (LocksAction::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (LocksAction::Send(frame), Some(endpoint)) => {
                if endpoint.send(frame.to, frame.view, || frame.encode()) {
                    self.metrics.frames.increment();
                    self.metrics.messages.add(frame.messages.len() as u64);
                }
            }
            // Between two incarnations there is no member to hear it.
            (_, None) => {}
        }
    }

    fn enter_view(&mut self, locks: &Locks, view: &View, endpoint: &Endpoint<WordBatch>) -> Option<RegionKey> {
        words::enter_view(&mut self.words, view, locks.region_bytes(), endpoint).unwrap_or_else(|error| {
            tracing::error!(%error, "there is no memory for the words of locks: this home refuses those that it is asked for");
            None
        })
    }

    fn end_incarnation(&mut self) {
        self.words = None;
    }

    fn message_arrived(&mut self, now: Time) {
        self.stir(now);
    }

    fn message_dropped(&mut self) {
        self.metrics.unusable.increment();
    }

    fn turn_ended(&mut self, locks: &Locks, has_completed: bool, now: Time) {
        if has_completed {
            self.stirred = now;
        }
        self.look_at_home(locks, now);
        self.listings.end(now);
        self.removals.end(now);
    }

    fn next_deadline(&self, now: Time) -> Option<Time> {
        let eager = (self.attention == Attention::Everything && now < self.stirred + EAGER).then_some(now);
        [eager, self.listings.next_deadline(), self.removals.next_deadline()].into_iter().flatten().min()
    }

    fn may_be_slow(&self, locks: &Locks, lease: Lease, now: Time) -> bool {
        locks.is_changed_by(lease, now)
    }
}

impl Machine for Locks {
    type Action = LocksAction;
    type Frame = Frame;
    type Batch = WordBatch;

    fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<LocksAction>) {
        Locks::start_incarnation(self, me, out);
    }

    fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<LocksAction>) {
        Locks::lease(self, lease, now, out);
    }

    fn view(&mut self, view: &Arc<View>, region: Option<RegionKey>, now: Time, out: &mut Vec<LocksAction>) {
        Locks::view(self, view, region, now, out);
    }

    fn frame(&mut self, frame: Frame, now: Time, out: &mut Vec<LocksAction>) {
        self.heard(frame, now, out);
    }

    fn completed(&mut self, id: PostId, outcome: Outcome, _: Time, out: &mut Vec<LocksAction>) {
        Locks::completed(self, id, &outcome, out);
    }

    fn connected(&mut self, member: Incarnation, _: Time, _: &mut Vec<LocksAction>) {
        self.reached(member);
    }

    fn flush(&mut self, now: Time, out: &mut Vec<LocksAction>) {
        Locks::flush(self, now, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        Locks::next_deadline(self)
    }
}

impl driver::Frame for Frame {
    type Error = WireError;

    fn decode(message: &Message) -> Result<Frame, WireError> {
        Frame::decode(&message.body)
    }

    fn sender(&self) -> Incarnation {
        self.from
    }

    fn view(&self) -> Option<verbena_terms::ViewNumber> {
        Some(self.view)
    }
}
