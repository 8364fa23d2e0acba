//! Feeds events to the state machines and carries out their actions: all input and output of the page protocol. Never blocks: the
//! caller decides when to poll. It is the thread of a node ([`thread`](super::thread)) or a simulation.
//!
//! A home's acknowledgement is a word that it writes here one-sidedly: nothing announces it. So while one is awaited the driver has no
//! patience: the thread looks, yields and looks again (dissertation section 6.2.2), for a bounded time, and then at the pace of the timer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use verbena_cluster::View;
use verbena_fabric::{Class, Fabric, Message as Arrived};
use verbena_terms::{Complaints, Incarnation, Time, ViewNumber};

use super::introduction::Introduction;
use super::life::{Life, PROTOCOL};
use super::opening::{Opened, Opening};
use super::routes::{Routes, Table};
use super::{Command, Counts, Finish, Membership, Options, Refused, Shared};
use crate::home::{Home, HomeAction, KeptOut};
use crate::names::Scope;
use crate::record::{Recorded, Records};
use crate::rules::Rules;
use crate::updater::{Outcome, UpdateId, Updater, UpdaterAction, UpdaterCounts};
use crate::wire::{Message, Registered};

/// How long an acknowledgement is looked for without a pause.
const EAGER: Duration = Duration::from_micros(500);
/// After that, and for whatever else nothing announces.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The longest between two turns: a lease's renewal must not go unseen (see `Updater::lease`).
const IDLE: Duration = Duration::from_millis(20);
/// How often the counts are taken.
const COUNT_EVERY: Duration = Duration::from_millis(10);
/// How long updates may wait for a home before it is said which one it is.
const LATE: Duration = Duration::from_secs(1);
/// Messages that are handled before acknowledgements and deadlines are looked at again.
const AT_ONCE: usize = 256;

/// The part of a node that acts.
pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    options: Options,
    rules: Rules,
    records: Box<dyn Records>,
    /// `None` between two incarnations.
    pub(super) life: Option<Life>,
    updater: Updater,
    begins: HashMap<UpdateId, oneshot::Sender<Result<UpdateId, Refused>>>,
    finishes: HashMap<UpdateId, oneshot::Sender<Finish>>,
    registrations: HashMap<(Incarnation, u64), oneshot::Sender<Registered>>,
    membership: Option<Box<dyn Membership>>,
    /// A view without this node, which it may acknowledge once it has nothing open.
    leaving: Option<ViewNumber>,
    /// The cluster side to notify once nothing is left to be waited for.
    closing: Option<Box<dyn Membership>>,
    looking_since: Option<Time>,
    number: u64,
    counted: Time,
    /// What is to be opened where blocking is allowed.
    to_open: Vec<Opening>,
    complaints: Complaints,
    /// Of homes that do not acknowledge.
    late: Complaints,
}

/// What a turn is for.
pub(super) enum Woken {
    Command(Command),
    Protocol(Arrived),
    Introduction(Arrived),
    Timer,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, options: Options, rules: Rules, records: Box<dyn Records>) -> Self {
        let (nobody, names) = (Incarnation::default(), options.names.fingerprint());
        let updater = Updater::with_rules(nobody, names, options.updater, rules);
        Driver {
            shared,
            options,
            rules,
            records,
            life: None,
            updater,
            begins: HashMap::new(),
            finishes: HashMap::new(),
            registrations: HashMap::new(),
            membership: None,
            leaving: None,
            closing: None,
            looking_since: None,
            number: 0,
            counted: Time::ZERO,
            to_open: Vec::new(),
            complaints: Complaints::default(),
            late: Complaints::default(),
        }
    }

    /// Handles what woke it and what else has arrived, then looks at acknowledgements and deadlines.
    pub(super) fn turn(&mut self, woken: Woken) {
        self.look_at_lease();
        match woken {
            Woken::Command(command) => {
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                self.command(command);
            }
            Woken::Protocol(message) => self.arrived(message),
            Woken::Introduction(message) => self.introduced(&message),
            Woken::Timer => {}
        }
        for _ in 0..AT_ONCE {
            let Some(message) = self.life.as_ref().and_then(|life| life.protocol.try_take()) else { break };
            self.arrived(message);
        }
        self.look_around();
    }

    /// What has to be opened since this was asked last; [`Command::Opened`] is the answer to each.
    pub(super) fn openings(&mut self) -> Vec<Opening> {
        std::mem::take(&mut self.to_open)
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// How long the driver has nothing to do if no event arrives.
    pub(super) fn patience(&self) -> Duration {
        let now = self.now();
        if self.looking_since.is_some_and(|since| now.since(since) < EAGER) {
            return Duration::ZERO;
        }
        let life = self.life.as_ref();
        let looks = self.looking_since.is_some() || life.is_some_and(Life::is_reading);
        let looking = looks.then(|| now + LOOK_AGAIN);
        let settling = life.and_then(|life| life.home.next_deadline());
        let acquaintance = life.and_then(Life::next_acquaintance);
        let deadlines = [looking, settling, acquaintance, self.updater.next_deadline()];
        let next = deadlines.into_iter().flatten().min();
        next.map_or(IDLE, |next| next.since(now).min(IDLE))
    }

    /// Acknowledgements and deadlines.
    fn look_around(&mut self) {
        self.look_at_lease();
        let (now, mut updated) = (self.now(), Vec::new());
        self.at_home(|home, out| home.tick(now, out));
        if let Some(life) = &mut self.life {
            let words: Vec<u32> = self.updater.waiting_words().collect();
            for word in words {
                self.updater.acknowledged(word, life.acknowledgement(word), now, &mut updated);
            }
            life.look_at_batches(now);
        }
        if self.updater.next_deadline().is_some_and(|at| at <= now) {
            self.updater.tick(now, &mut updated);
        }
        self.update(updated);
        self.leave();
        if self.updater.is_drained()
            && let Some(membership) = self.closing.take()
        {
            membership.closed(self.updater.is_at_rest());
        }
        self.introduce(now);
        self.look_at_heads();
        if now.since(self.counted) >= COUNT_EVERY {
            self.counted = now;
            self.look_for_late_homes(now);
            self.publish_counts();
        }
        self.looking_since = match self.updater.waiting_words().next() {
            Some(_) => self.looking_since.or(Some(now)),
            None => None,
        };
    }

    /// The updater prepares no view that does not name it. If nothing is open, and every home knows that, there is nothing to prepare;
    /// otherwise the lease runs out first.
    fn leave(&mut self) {
        if self.updater.counts() != UpdaterCounts::default() || self.updater.waiting_words().next().is_some() {
            return;
        }
        if let (Some(view), Some(membership)) = (self.leaving.take(), &self.membership) {
            membership.prepared(view);
        }
    }

    fn publish_counts(&mut self) {
        let home = self.life.as_ref().map(|life| life.home.counts()).unwrap_or_default();
        *self.shared.counts.lock() =
            Counts { home, updater: self.updater.counts(), unusable: self.complaints.counted(), begun: 0 };
        let kept_out = self.life.iter().flat_map(|life| life.home.kept_out());
        *self.shared.kept_out.lock() = kept_out.collect();
    }

    /// One home that does not acknowledge holds up every update: the operator has to know which.
    fn look_for_late_homes(&mut self, now: Time) {
        let late = self.updater.late_homes(LATE, now);
        let Some(&(home, updates)) = late.iter().max_by_key(|(_, updates)| *updates) else { return };
        if self.late.another(now).is_none() {
            return;
        }
        let member = self.life.as_ref().and_then(|life| life.view.as_ref()?.member(home));
        let name = member.map_or("", |member| member.name.as_str());
        tracing::warn!(home = name, incarnation = %home, updates, homes = late.len(), "a home has not acknowledged updates for a second: they wait");
    }

    fn look_at_lease(&mut self) {
        let lease = self.shared.lease();
        if let Some(life) = &mut self.life {
            life.home.lease(lease);
            life.fabric.set_view(lease.acknowledged);
        }
        let mut actions = Vec::new();
        self.updater.lease(lease, self.now(), &mut actions);
        self.update(actions);
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        let mut actions = Vec::new();
        match command {
            Command::View { view, membership } => self.learn(&view, membership),
            Command::Gone(incarnation) => self.updater.gone(incarnation, now, &mut actions),
            Command::Close(membership) => {
                self.updater.close();
                self.closing = Some(membership);
            }
            Command::LifeBegins { fabric, reply } => {
                let begun = self.live(fabric);
                // The caller that starts the incarnation waits for this; if it is gone, the incarnation goes
                // on all the same.
                let _ = reply.send(begun);
            }
            Command::LifeEnds(reply) => {
                self.die();
                let _ = reply.send(());
            }
            Command::Begin { scope, change, reply } => match self.updater.begin_as(change, scope, now, &mut actions) {
                Ok(id) => {
                    self.begins.insert(id, reply);
                }
                Err(full) => reply_to(reply, Err(full.into())),
            },
            Command::Finished { id, outcome, reply } => {
                if let Some(reply) = reply {
                    self.finishes.insert(id, reply);
                }
                self.updater.finished(id, outcome, now, &mut actions);
            }
            Command::Register { register, reply } => {
                self.registrations.retain(|_, waiting| !waiting.is_closed());
                self.registrations.insert((register.to, register.request), reply);
                self.send(Message::Register(register));
            }
            Command::Opened(opened) => self.opened(opened),
        }
        self.update(actions);
    }

    // Views.

    fn learn(&mut self, view: &Arc<View>, membership: Box<dyn Membership>) {
        let now = self.now();
        let Some(life) = &mut self.life else { return };
        life.meet_members(view, now);
        let mut routes = Routes::clone(&self.shared.routes.load());
        let known: Vec<Table> = view.homes().filter_map(|home| routes.table(home.incarnation).cloned()).collect();
        routes.learn(view, self.shared.lease().acknowledged);
        known.into_iter().for_each(|table| routes.open(table));
        routes.open(life.own_table());
        self.shared.routes.store(Arc::new(routes));
        self.membership = Some(membership);
        self.leaving = view.member(life.me()).is_none().then(|| view.number());
        self.at_home(|home, out| home.view(view, now, out));
        self.records.forget(view);
        let mut updated = Vec::new();
        self.updater.view(view, now, &mut updated);
        self.update(updated);
    }

    fn live(&mut self, fabric: Arc<dyn Fabric>) -> verbena_fabric::Result<()> {
        let life = Life::begin(fabric, &self.options, self.rules)?;
        // Before a home hears of this incarnation: what is open goes on in it.
        let open: Vec<(u64, Scope)> = self.updater.open_set().map(|(number, scope)| (number, scope.clone())).collect();
        self.records.begin(life.me(), self.options.names.fingerprint(), &open);
        self.updater.rejoined(life.me());
        self.shared.identity.store(life.me().to_word(), Ordering::SeqCst);
        self.life = Some(life);
        Ok(())
    }

    /// Drops all that belongs to the incarnation, the fabric and its regions too. What was forwarded stays open in the
    /// updater.
    fn die(&mut self) {
        self.shared.routes.store(Arc::new(Routes::default()));
        self.membership = None;
        self.leaving = None;
        self.registrations.clear();
        self.life = None;
    }

    // What arrives.

    fn arrived(&mut self, message: Arrived) {
        match Message::decode(&message.body) {
            Ok(decoded) if decoded.from() == message.from => self.receive(decoded),
            Ok(decoded) => self.complain(message.from, &format_args!("a message in the name of {}", decoded.from())),
            Err(error) => self.complain(message.from, &format_args!("a message that cannot be read: {error}")),
        }
    }

    fn complain(&mut self, from: Incarnation, what: &dyn std::fmt::Display) {
        if let Some(number) = self.complaints.another(self.now()) {
            tracing::warn!(%from, number, "dropped {what}");
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Registered(registered) => {
                if let Some(reply) = self.registrations.remove(&(registered.from, registered.request)) {
                    reply_to(reply, registered);
                }
            }
            message => {
                let now = self.now();
                self.at_home(|home, out| home.receive(message, now, out));
            }
        }
    }

    fn send(&mut self, message: Message) {
        let to = message.to();
        let Some(life) = &self.life else { return };
        if to == life.me() {
            return self.receive(message);
        }
        let Some(known) = life.peers.get(&to) else { return };
        self.number += 1;
        let view = match &message {
            Message::Updates(updates) => updates.view,
            Message::Register(register) => register.view,
            Message::Registered(registered) => registered.view,
        };
        // It may be lost: the machine that needs it sends it again.
        if let Err(error) = known.peer.send(Class::Control, view, PROTOCOL, self.number, &message.encode()) {
            tracing::debug!(%to, %error, "a message of the page protocol was not sent");
        }
    }

    // What the machines say.

    /// Lets the home act, and does all that it says before it can act again: the updater's own messages reach it within a turn, and of two
    /// words for one place the later one has to stay.
    fn at_home(&mut self, event: impl FnOnce(&mut Home, &mut Vec<HomeAction>)) {
        let Some(life) = &mut self.life else { return };
        let mut actions = Vec::new();
        event(&mut life.home, &mut actions);
        for action in actions {
            match action {
                HomeAction::Store { offset, word } => {
                    if let Some(life) = &self.life {
                        life.store(offset, word);
                    }
                }
                HomeAction::Acknowledge { to, word, value } => {
                    let now = self.now();
                    if let Some(life) = &mut self.life {
                        life.acknowledge(to, word, value, now);
                    }
                }
                HomeAction::Send(message) => self.send(message),
                HomeAction::ReadRecord { of, lease_is_over } => self.read_record(of, lease_is_over),
                HomeAction::Settled(who) => {
                    if let Some(membership) = &self.membership {
                        membership.settled(who);
                    }
                }
            }
        }
    }

    /// Rule P6. Says at the end of the lease what is kept out of the cache, why, and until when.
    fn read_record(&mut self, of: Incarnation, lease_is_over: bool) {
        let recorded = self.records.read(of, self.options.names.fingerprint(), lease_is_over);
        let open = match &recorded {
            Recorded::Open(open) => {
                self.at_home(|home, out| home.recorded(of, open, out));
                open.len()
            }
            Recorded::InUse => return,
            Recorded::Unknown(_) if !lease_is_over => return,
            Recorded::Unknown(_) => 0,
        };
        let until = self.life.as_ref().and_then(|life| life.home.kept_out().find(|kept| kept.by == of));
        let Some(KeptOut { until, .. }) = until else { return };
        let seconds = until.since(self.now()).as_secs_f32().ceil();
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

    fn update(&mut self, actions: Vec<UpdaterAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                UpdaterAction::Send(message) => self.send(message),
                UpdaterAction::Opened { number, scope } => self.records.opened(number, &scope),
                UpdaterAction::Ended(number) => self.records.ended(number),
                UpdaterAction::Forward(id) => {
                    let reply = self.begins.remove(&id);
                    // The caller is gone: then the update was not forwarded.
                    if reply.is_none_or(|reply| reply.send(Ok(id)).is_err()) {
                        // Behind what was said before: homes handle nothing that comes after a gap.
                        let mut more = Vec::new();
                        self.updater.finished(id, Outcome::NotSent, self.now(), &mut more);
                        actions.extend(more);
                    }
                }
                UpdaterAction::Abort(id) => {
                    if let Some(reply) = self.begins.remove(&id) {
                        reply_to(reply, Err(Refused::NotBegun));
                    }
                }
                UpdaterAction::Answer(id) => self.finish(id, Finish::Answer),
                UpdaterAction::Close(id) => self.finish(id, Finish::Close),
                UpdaterAction::Prepared(view) => {
                    if let Some(membership) = &self.membership {
                        membership.prepared(view);
                    }
                }
            }
        }
    }

    fn finish(&mut self, id: UpdateId, finish: Finish) {
        if let Some(reply) = self.finishes.remove(&id) {
            reply_to(reply, finish);
        }
    }

    // Introductions.

    fn introduce(&mut self, now: Time) {
        let Some(life) = &mut self.life else { return };
        let view = self.shared.lease().acknowledged;
        life.connect_again(now);
        for peer in life.to_introduce(now) {
            life.introduce_to(peer, view, true, now);
        }
    }

    fn introduced(&mut self, message: &Arrived) {
        let introduction = match Introduction::decode(&message.body) {
            Ok(introduction) if introduction.from == message.from => introduction,
            Ok(other) => {
                return self.complain(message.from, &format_args!("an introduction in the name of {}", other.from));
            }
            Err(error) => {
                return self.complain(message.from, &format_args!("an introduction that cannot be read: {error}"));
            }
        };
        let now = self.now();
        let Some(life) = &mut self.life else { return };
        if introduction.wants_answer {
            life.introduce_to(introduction.from, self.shared.lease().acknowledged, false, now);
        }
        self.to_open.extend(life.may_open(introduction, now));
    }

    fn opened(&mut self, opened: Opened) {
        let now = self.now();
        let Some(life) = self.life.as_mut().filter(|life| life.me() == opened.me) else { return };
        let peer = opened.peer;
        if let Err(reason) = life.opened(opened, now) {
            self.complain(peer, &format_args!("regions that cannot be opened: {reason}"));
        }
    }

    fn look_at_heads(&mut self) {
        let Some(life) = self.life.as_mut().filter(|life| life.is_reading()) else { return };
        for (peer, table) in life.tables(self.options.names.fingerprint()) {
            match table {
                Ok(table) => {
                    let mut routes = Routes::clone(&self.shared.routes.load());
                    routes.open(table);
                    self.shared.routes.store(Arc::new(routes));
                }
                Err(reason) => self.complain(peer, &format_args!("a page table that cannot be used: {reason}")),
            }
        }
    }
}

/// The caller may have gone.
fn reply_to<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
