//! What a node does with the actions of the page protocol: its own regions, the routes of reads, the record of open updates, and the answers to callers and to
//! membership.
//!
//! A home's acknowledgement is a word that it writes here one-sidedly: nothing announces it. So while one is awaited the service's thread looks, yields and looks
//! again (dissertation section 6.2.2), for a bounded time, and then at the pace of a timer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use verbena_cluster::View;
use verbena_fabric::{Error, RegionKey};
use verbena_service::driver::{self, Host};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_terms::{Complaints, Incarnation, Time, ViewNumber};

use super::batches::{ACKNOWLEDGEMENTS, PageBatch, TABLE};
use super::protocol::{Action, INTRODUCTIONS, PROTOCOL, Protocol};
use super::regions::OwnRegions;
use super::routes::{Access, Routes, Table};
use super::{Counts, Finish, Membership, Options, Refused, Shared};
use crate::home::{Home, KeptOut};
use crate::record::{Recorded, Records};
use crate::rules::Rules;
use crate::table::PageTable;
use crate::updater::{Outcome, UpdateId, UpdaterCounts};
use crate::wire::Registered;

/// How long an acknowledgement is looked for without a pause.
const EAGER: Duration = Duration::from_micros(500);
/// After that.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How often the counts are taken.
const COUNT_EVERY: Duration = Duration::from_millis(10);
/// How long updates may wait for a home before it is said which one it is.
const LATE: Duration = Duration::from_secs(1);

/// The driver of a node's part in the page protocol.
pub(super) type Running = driver::Driver<Protocol, PagesHost>;

/// What the node does with the actions of [`Protocol`].
pub(super) struct PagesHost {
    shared: Arc<Shared>,
    /// Fingerprint of the key of names.
    names: u64,
    records: Box<dyn Records>,
    /// `None` between two incarnations.
    own: Option<OwnRegions>,
    begins: HashMap<UpdateId, oneshot::Sender<Result<UpdateId, Refused>>>,
    finishes: HashMap<UpdateId, oneshot::Sender<Finish>>,
    registrations: HashMap<(Incarnation, u64), oneshot::Sender<Registered>>,
    membership: Option<Box<dyn Membership>>,
    /// A view without this node, which it may acknowledge once it has nothing open.
    leaving: Option<ViewNumber>,
    /// The cluster side to notify once nothing is left to be waited for.
    closing: Option<Box<dyn Membership>>,
    looking_since: Option<Time>,
    counted: Time,
    /// Messages and regions of peers that were dropped.
    unusable: u64,
    /// Of regions that cannot be used.
    regions: Complaints,
    /// Of homes that do not acknowledge.
    late: Complaints,
}

/// A driver between two incarnations.
pub(super) fn new(shared: Arc<Shared>, options: Options, rules: Rules, records: Box<dyn Records>) -> Running {
    let clock = shared.clock.clone();
    let host = PagesHost {
        shared,
        names: options.names.fingerprint(),
        records,
        own: None,
        begins: HashMap::new(),
        finishes: HashMap::new(),
        registrations: HashMap::new(),
        membership: None,
        leaving: None,
        closing: None,
        looking_since: None,
        counted: Time::ZERO,
        unusable: 0,
        regions: Complaints::default(),
        late: Complaints::default(),
    };
    driver::Driver::new(Protocol::new(options, rules), host, clock)
}

impl PagesHost {
    // What callers wait for.

    pub(super) fn await_begin(&mut self, id: UpdateId, reply: oneshot::Sender<Result<UpdateId, Refused>>) {
        self.begins.insert(id, reply);
    }

    pub(super) fn await_finish(&mut self, id: UpdateId, reply: oneshot::Sender<Finish>) {
        self.finishes.insert(id, reply);
    }

    pub(super) fn await_registration(&mut self, home: Incarnation, request: u64, reply: oneshot::Sender<Registered>) {
        self.registrations.retain(|_, waiting| !waiting.is_closed());
        self.registrations.insert((home, request), reply);
    }

    /// The cluster side of the view that is about to be entered. Between two incarnations there is none.
    pub(super) fn set_membership(&mut self, membership: Box<dyn Membership>) {
        if self.own.is_some() {
            self.membership = Some(membership);
        }
    }

    pub(super) fn close_with(&mut self, membership: Box<dyn Membership>) {
        self.closing = Some(membership);
    }

    fn finish(&mut self, id: UpdateId, finish: Finish) {
        if let Some(reply) = self.finishes.remove(&id) {
            reply_to(reply, finish);
        }
    }

    fn forward(&mut self, id: UpdateId, protocol: &mut Protocol, now: Time, more: &mut VecDeque<Action>) {
        let reply = self.begins.remove(&id);
        // The caller is gone: then the update was not forwarded.
        if reply.is_none_or(|reply| reply.send(Ok(id)).is_err()) {
            // Behind what was said before: homes handle nothing that comes after a gap.
            let mut actions = vec![];
            protocol.finished(id, Outcome::NotSent, now, &mut actions);
            more.extend(actions);
        }
    }

    // Other members' regions.

    fn acknowledge(&self, (to, word, value): (Incarnation, u32, u64), endpoint: &mut Endpoint<PageBatch>, now: Time) {
        let Some(own) = &self.own else { return };
        let Some(at) = own.offset_of(word) else { return };
        if to == endpoint.me() {
            own.acknowledge(at, value);
        } else if endpoint.region_of(to, ACKNOWLEDGEMENTS).is_some() {
            endpoint.submit(PageBatch::acknowledge(to, at, value), now);
        }
        // Otherwise it is lost: the updater asks again.
    }

    fn open_route(&self, layout: PageTable, endpoint: &Endpoint<PageBatch>) {
        if let Some(remote) = endpoint.region_of(layout.home(), TABLE) {
            let mut routes = Routes::clone(&self.shared.routes.load());
            routes.open(Table { layout, access: Access::Peer(remote.clone()) });
            self.shared.routes.store(Arc::new(routes));
        }
    }

    fn is_unusable(&mut self, from: Incarnation, what: &dyn std::fmt::Display, now: Time) {
        self.unusable += 1;
        if let Some(number) = self.regions.another(now) {
            tracing::warn!(%from, number, "dropped {what}");
        }
    }

    // The dead.

    /// Rule P6. Says at the end of the lease what is kept out of the cache, why, and until when.
    fn read_record(
        &mut self,
        (of, lease_is_over): (Incarnation, bool),
        protocol: &mut Protocol,
        now: Time,
        more: &mut VecDeque<Action>,
    ) {
        let recorded = self.records.read(of, self.names, lease_is_over);
        let open = match &recorded {
            Recorded::Open(open) => {
                let mut actions = vec![];
                protocol.recorded(of, open, now, &mut actions);
                more.extend(actions);
                open.len()
            }
            Recorded::InUse => return,
            Recorded::Unknown(_) if !lease_is_over => return,
            Recorded::Unknown(_) => 0,
        };
        let until = protocol.home().and_then(|home| home.kept_out().find(|kept| kept.by == of));
        let Some(KeptOut { until, .. }) = until else { return };
        let seconds = until.since(now).as_secs_f32().ceil();
        match recorded {
            Recorded::Unknown(reason) => tracing::warn!(
                updater = %of, reason, seconds,
                "a node died and left no record of its open updates: what they may touch is not cached until its longest transaction is over"
            ),
            _ => tracing::warn!(
                updater = %of, open, seconds,
                "a node died with updates open: what they touch is not cached until its longest transaction is over"
            ),
        }
    }

    // Membership.

    /// The updater prepares no view that does not name it. If nothing is open, and every home knows that, there is nothing to prepare;
    /// otherwise the lease runs out first.
    fn leave(&mut self, protocol: &Protocol) {
        let updater = protocol.updater();
        if self.leaving.is_none()
            || updater.counts() != UpdaterCounts::default()
            || updater.waiting_words().next().is_some()
        {
            return;
        }
        if let (Some(view), Some(membership)) = (self.leaving.take(), &self.membership) {
            membership.prepared(view);
        }
    }

    // What is seen.

    fn publish_counts(&mut self, protocol: &Protocol) {
        let home = protocol.home().map(Home::counts).unwrap_or_default();
        *self.shared.counts.lock() =
            Counts { home, updater: protocol.updater().counts(), unusable: self.unusable, begun: 0 };
        *self.shared.kept_out.lock() = protocol.home().into_iter().flat_map(Home::kept_out).collect();
    }

    /// One home that does not acknowledge holds up every update: the operator has to know which.
    fn look_for_late_homes(&mut self, protocol: &Protocol, now: Time) {
        let late = protocol.updater().late_homes(LATE, now);
        let Some(&(home, updates)) = late.iter().max_by_key(|(_, updates)| *updates) else { return };
        if self.late.another(now).is_some() {
            let name = protocol.name_of(home);
            tracing::warn!(home = name, incarnation = %home, updates, homes = late.len(), "a home has not acknowledged updates for a second: they wait");
        }
    }
}

impl Host<Protocol> for PagesHost {
    const PORTS: Ports = Ports { of_view: Some(PROTOCOL), of_no_view: Some(INTRODUCTIONS) };

    fn act(
        &mut self,
        action: Action,
        protocol: &mut Protocol,
        endpoint: Option<&mut Endpoint<PageBatch>>,
        now: Time,
        more: &mut VecDeque<Action>,
    ) {
        match (action, endpoint) {
            (Action::Store { offset, word }, _) => {
                if let Some(own) = &self.own {
                    own.store(offset, word);
                }
            }
            (Action::Registered(registered), _) => {
                if let Some(reply) = self.registrations.remove(&(registered.from, registered.request)) {
                    reply_to(reply, registered);
                }
            }
            (Action::ReadRecord { of, lease_is_over }, _) => {
                self.read_record((of, lease_is_over), protocol, now, more);
            }
            (Action::Settled(who), _) => {
                if let Some(membership) = &self.membership {
                    membership.settled(who);
                }
            }
            (Action::Prepared(view), _) => {
                if let Some(membership) = &self.membership {
                    membership.prepared(view);
                }
            }
            (Action::ForgetRecords(view), _) => self.records.forget(&view),
            (Action::Opened { number, scope }, _) => self.records.opened(number, &scope),
            (Action::Ended(number), _) => self.records.ended(number),
            (Action::Forward(id), _) => self.forward(id, protocol, now, more),
            (Action::Abort(id), _) => {
                if let Some(reply) = self.begins.remove(&id) {
                    reply_to(reply, Err(Refused::NotBegun));
                }
            }
            (Action::Answer(id), _) => self.finish(id, Finish::Answer),
            (Action::Close(id), _) => self.finish(id, Finish::Close),
            (Action::Unusable(from, what), _) => self.is_unusable(from, &what, now),
            (Action::SetView(view), Some(endpoint)) => endpoint.fabric().set_view(view),
            (Action::Send(message), Some(endpoint)) => {
                // It may be lost: the machine that needs it sends it again.
                endpoint.send(message.to(), message.view(), || message.encode());
            }
            (Action::Acknowledge { to, word, value }, Some(endpoint)) => {
                self.acknowledge((to, word, value), endpoint, now);
            }
            (Action::Introduce { to, view, is_home, wants_answer }, Some(endpoint)) => {
                if let Some(own) = &self.own {
                    endpoint.send_of_no_view(to, view, || own.introduction(is_home, wants_answer).encode());
                }
            }
            (Action::Open { acknowledgements, table }, Some(endpoint)) => {
                endpoint.learn_of(ACKNOWLEDGEMENTS, acknowledgements, now);
                if let Some(table) = table {
                    endpoint.submit(PageBatch::read_head(&table, self.names), now);
                    endpoint.learn_of(TABLE, table, now);
                }
            }
            (Action::Route(table), Some(endpoint)) => self.open_route(table, endpoint),
            // Between two incarnations there is no member to hear it.
            (_, None) => {}
        }
    }

    fn start_incarnation(&mut self, protocol: &Protocol, endpoint: &Endpoint<PageBatch>) -> verbena_fabric::Result<()> {
        let me = endpoint.me();
        let home = protocol.home().expect("invariant: an incarnation has a home");
        self.own = Some(OwnRegions::new(home, me, endpoint.fabric())?);
        // Before a home hears of this incarnation: what is open goes on in it.
        let open: Vec<_> = protocol.updater().open_set().map(|(number, scope)| (number, scope.clone())).collect();
        self.records.begin(me, self.names, &open);
        self.shared.identity.store(me.to_word(), Ordering::SeqCst);
        Ok(())
    }

    fn enter_view(&mut self, _: &Protocol, view: &View, endpoint: &Endpoint<PageBatch>) -> Option<RegionKey> {
        let view = Arc::new(view.clone());
        let mut routes = Routes::clone(&self.shared.routes.load());
        let known: Vec<Table> = view.homes().filter_map(|home| routes.table(home.incarnation).cloned()).collect();
        routes.learn(&view, self.shared.lease().acknowledged);
        known.into_iter().chain(self.own.as_ref().map(OwnRegions::table)).for_each(|table| routes.open(table));
        self.shared.routes.store(Arc::new(routes));
        self.leaving = view.member(endpoint.me()).is_none().then(|| view.number());
        None
    }

    /// What was forwarded stays open in the updater.
    fn end_incarnation(&mut self) {
        self.shared.routes.store(Arc::new(Routes::default()));
        self.membership = None;
        self.leaving = None;
        self.registrations.clear();
        self.own = None;
    }

    fn message_dropped(&mut self) {
        self.unusable += 1;
    }

    fn open_failed(&mut self, owner: Incarnation, error: &Error, now: Time) {
        self.is_unusable(owner, &format_args!("a region that cannot be opened: {error}"), now);
    }

    fn is_looking(&self, protocol: &Protocol) -> bool {
        self.own.is_some() && protocol.updater().waiting_words().next().is_some()
    }

    fn look(&mut self, protocol: &mut Protocol, now: Time, out: &mut Vec<Action>) {
        let Some(own) = &self.own else { return };
        let words: Vec<u32> = protocol.updater().waiting_words().collect();
        for word in words {
            protocol.acknowledged(word, own.acknowledgement(word), now, out);
        }
    }

    fn turn_ended(&mut self, protocol: &Protocol, _: bool, now: Time) {
        self.leave(protocol);
        if let Some(membership) = self.closing.take_if(|_| protocol.updater().is_drained()) {
            membership.closed(protocol.updater().is_at_rest());
        }
        if now.since(self.counted) >= COUNT_EVERY {
            self.counted = now;
            self.look_for_late_homes(protocol, now);
            self.publish_counts(protocol);
        }
        let is_waiting = protocol.updater().waiting_words().next().is_some();
        self.looking_since = is_waiting.then(|| self.looking_since.unwrap_or(now));
    }

    fn next_deadline(&self, now: Time) -> Option<Time> {
        let is_eager = |since: Time| now.since(since) < EAGER;
        self.looking_since.map(|since| if is_eager(since) { now } else { now + LOOK_AGAIN })
    }
}

/// The caller may have gone.
fn reply_to<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
