//! The thread: gives the machines what arrives, does what they say.
//!
//! A home's acknowledgement is a word that it writes here one-sidedly: nothing announces it. So while one is awaited the thread looks, yields
//! and looks again (dissertation section 6.2.2), for a bounded time, and then at the pace of the timer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use verbena_cluster::View;
use verbena_fabric::{Class, Error, Fabric, Message as Arrived};
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::introduction::Introduction;
use super::life::{Life, Opened, PROTOCOL, open};
use super::routes::{Routes, Table};
use super::{Command, Counts, Finish, Membership, Options, Refused, Shared};
use crate::home::HomeAction;
use crate::updater::{Outcome, UpdateId, Updater, UpdaterAction, UpdaterCounts};
use crate::wire::{Message, Registered};

/// How long the thread looks for an acknowledgement before it leaves the looking to the timer.
const EAGER: Duration = Duration::from_micros(500);
/// The longest that it sleeps: a lease's renewal must not go unseen (see `Updater::lease`).
const IDLE: Duration = Duration::from_millis(20);
/// How often the counts are taken.
const COUNT_EVERY: Duration = Duration::from_millis(10);
/// Messages that are handled before acknowledgements and deadlines are looked at again.
const AT_ONCE: usize = 256;

pub(super) fn spawn(
    shared: Arc<Shared>,
    options: Options,
    commands: mpsc::WeakUnboundedSender<Command>,
    received: mpsc::UnboundedReceiver<Command>,
) -> verbena_fabric::Result<()> {
    let updater = Updater::new(Incarnation::default(), options.names.fingerprint(), options.updater);
    let driver = Driver {
        shared,
        options,
        commands,
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
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Error::system("a runtime for the page protocol", error))?;
    std::thread::Builder::new()
        .name("content".into())
        .spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| runtime.block_on(driver.run(received)));
            if std::panic::catch_unwind(run).is_err() {
                // Words that nobody moves any more must not stay readable: a process without this thread is worse than none.
                std::process::abort();
            }
        })
        .map_err(|error| Error::system("a thread for the page protocol", error))?;
    Ok(())
}

struct Driver {
    shared: Arc<Shared>,
    options: Options,
    commands: mpsc::WeakUnboundedSender<Command>,
    /// Between two lives there is none.
    life: Option<Life>,
    updater: Updater,
    begins: HashMap<UpdateId, oneshot::Sender<Result<UpdateId, Refused>>>,
    finishes: HashMap<UpdateId, oneshot::Sender<Finish>>,
    registrations: HashMap<(Incarnation, u64), oneshot::Sender<Registered>>,
    membership: Option<Box<dyn Membership>>,
    /// A view without this node, which it may acknowledge once it has nothing open.
    leaving: Option<ViewNumber>,
    /// Whom to tell that nothing is left to be waited for.
    closing: Option<Box<dyn Membership>>,
    looking_since: Option<Time>,
    number: u64,
    counted: Time,
}

enum Woken {
    Command(Option<Command>),
    Protocol(Arrived),
    Introduction(Arrived),
    Timer,
}

impl Driver {
    async fn run(mut self, mut received: mpsc::UnboundedReceiver<Command>) {
        loop {
            self.look_around();
            let patience = self.patience();
            let woken = tokio::select! {
                biased;
                command = received.recv() => Woken::Command(command),
                woken = arrival(&mut self.life) => woken,
                () = pause(patience) => Woken::Timer,
            };
            self.look_at_lease();
            match woken {
                Woken::Command(Some(command)) => {
                    self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.command(command);
                }
                Woken::Command(None) => return,
                Woken::Protocol(message) => self.arrived(message),
                Woken::Introduction(message) => self.introduced(&message),
                Woken::Timer => {}
            }
            for _ in 0..AT_ONCE {
                let Some(message) = self.life.as_ref().and_then(|life| life.protocol.try_take()) else { break };
                self.arrived(message);
            }
        }
    }

    fn now(&self) -> Time {
        BootClock.now()
    }

    /// How long there is nothing to do unless something arrives.
    fn patience(&self) -> Duration {
        let now = self.now();
        if self.looking_since.is_some_and(|since| now.since(since) < EAGER) {
            return Duration::ZERO;
        }
        let looking = self.looking_since.map(|_| now + Duration::from_millis(1));
        let life = self.life.as_ref();
        let introductions =
            life.into_iter().flat_map(|life| life.peers.values()).filter_map(|known| known.introduce_at);
        let settling = life.and_then(|life| life.home.next_deadline());
        let deadlines = [looking, settling, self.updater.next_deadline()];
        let next = deadlines.into_iter().flatten().chain(introductions).min();
        next.map_or(IDLE, |next| next.since(now).min(IDLE))
    }

    /// Acknowledgements and deadlines.
    fn look_around(&mut self) {
        self.look_at_lease();
        let (now, mut updated, mut held) = (self.now(), Vec::new(), Vec::new());
        if let Some(life) = &mut self.life {
            let words: Vec<u32> = self.updater.waiting_words().collect();
            for word in words {
                self.updater.acknowledged(word, life.acknowledgement(word), now, &mut updated);
            }
            if life.home.next_deadline().is_some_and(|at| at <= now) {
                life.home.tick(now, &mut held);
            }
        }
        if self.updater.next_deadline().is_some_and(|at| at <= now) {
            self.updater.tick(now, &mut updated);
        }
        self.update(updated);
        self.hold(held);
        self.leave();
        if self.updater.is_drained()
            && let Some(membership) = self.closing.take()
        {
            membership.closed(self.updater.is_at_rest());
        }
        self.introduce(now);
        self.publish_counts(now);
        self.looking_since = match self.updater.waiting_words().next() {
            Some(_) => self.looking_since.or(Some(now)),
            None => None,
        };
    }

    /// The updater prepares no view that does not name it. Without anything open, and with every home knowing that, there is nothing to
    /// prepare; otherwise the lease runs out first.
    fn leave(&mut self) {
        if self.updater.counts() != UpdaterCounts::default() || self.updater.waiting_words().next().is_some() {
            return;
        }
        if let (Some(view), Some(membership)) = (self.leaving.take(), &self.membership) {
            membership.prepared(view);
        }
    }

    fn publish_counts(&mut self, now: Time) {
        if now.since(self.counted) >= COUNT_EVERY {
            self.counted = now;
            let home = self.life.as_ref().map(|life| life.home.counts()).unwrap_or_default();
            *self.shared.counts.lock() = Counts { home, updater: self.updater.counts() };
        }
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
                // Who begins a life waits for this; if not, the life is as good.
                let _ = reply.send(begun);
            }
            Command::LifeEnds(reply) => {
                self.die();
                let _ = reply.send(());
            }
            Command::Begin { scope, reply } => match self.updater.begin(scope, now, &mut actions) {
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
        let Some(life) = &mut self.life else { return };
        life.meet_members(view);
        let mut routes = Routes::clone(&self.shared.routes.load());
        let known: Vec<Table> = view.homes().filter_map(|home| routes.table(home.incarnation).cloned()).collect();
        routes.learn(view, self.shared.lease().acknowledged);
        known.into_iter().for_each(|table| routes.open(table));
        routes.open(life.own_table());
        self.shared.routes.store(Arc::new(routes));
        self.membership = Some(membership);
        self.leaving = view.member(life.me()).is_none().then(|| view.number());
        let (now, mut held, mut updated) = (BootClock.now(), Vec::new(), Vec::new());
        life.home.view(view, now, &mut held);
        self.updater.view(view, now, &mut updated);
        self.hold(held);
        self.update(updated);
    }

    fn live(&mut self, fabric: Arc<dyn Fabric>) -> verbena_fabric::Result<()> {
        let life = Life::begin(fabric, &self.options)?;
        self.updater.rejoined(life.me());
        self.shared.identity.store(life.me().to_word(), Ordering::SeqCst);
        self.life = Some(life);
        Ok(())
    }

    /// Drops all that belongs to the life, the fabric and its regions too. What was forwarded stays open in the updater.
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
            Ok(decoded) => {
                tracing::warn!(from = %message.from, claimed = %decoded.from(), "a message in another's name")
            }
            Err(error) => tracing::warn!(from = %message.from, %error, "a message that cannot be read"),
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
                let (now, mut actions) = (self.now(), Vec::new());
                if let Some(life) = &mut self.life {
                    life.home.receive(message, now, &mut actions);
                }
                self.hold(actions);
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
        // It may be lost: whoever needs it says it again.
        if let Err(error) = known.peer.send(Class::Control, view, PROTOCOL, self.number, &message.encode()) {
            tracing::debug!(%to, %error, "a message of the page protocol was not sent");
        }
    }

    // What the machines say.

    fn hold(&mut self, actions: Vec<HomeAction>) {
        for action in actions {
            match action {
                HomeAction::Store { offset, word } => {
                    if let Some(life) = &self.life {
                        life.store(offset, word);
                    }
                }
                HomeAction::Acknowledge { to, word, value } => {
                    if let Some(life) = &self.life {
                        life.acknowledge(to, word, value);
                    }
                }
                HomeAction::Send(message) => self.send(message),
                HomeAction::Settled(who) => {
                    if let Some(membership) = &self.membership {
                        membership.settled(who);
                    }
                }
            }
        }
    }

    fn update(&mut self, actions: Vec<UpdaterAction>) {
        for action in actions {
            match action {
                UpdaterAction::Send(message) => self.send(message),
                UpdaterAction::Forward(id) => {
                    let reply = self.begins.remove(&id);
                    // Whoever wanted it is gone: then it was not forwarded.
                    if reply.is_none_or(|reply| reply.send(Ok(id)).is_err()) {
                        let mut actions = Vec::new();
                        self.updater.finished(id, Outcome::NotSent, self.now(), &mut actions);
                        self.update(actions);
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
        for peer in life.to_introduce(now) {
            life.introduce_to(peer, view, true);
        }
    }

    fn introduced(&mut self, message: &Arrived) {
        let Some(life) = &mut self.life else { return };
        let introduction = match Introduction::decode(&message.body) {
            Ok(introduction) if introduction.from == message.from => introduction,
            Ok(_) => return tracing::warn!(from = %message.from, "an introduction in another's name"),
            Err(error) => return tracing::warn!(from = %message.from, %error, "an introduction that cannot be read"),
        };
        if introduction.wants_answer {
            life.introduce_to(introduction.from, self.shared.lease().acknowledged, false);
        }
        let Some(peer) = life.may_open(introduction.from) else { return };
        let (names, me) = (self.options.names.fingerprint(), life.me());
        let (commands, shared) = (self.commands.clone(), self.shared.clone());
        tokio::task::spawn_blocking(move || {
            let opened = open(me, peer.as_ref(), introduction, names);
            if let Some(commands) = commands.upgrade() {
                shared.waiting.fetch_add(1, Ordering::Relaxed);
                // If the thread has ended meanwhile, nobody needs it.
                let _ = commands.send(Command::Opened(opened));
            }
        });
    }

    fn opened(&mut self, opened: Opened) {
        let Some(life) = self.life.as_mut().filter(|life| life.me() == opened.me) else { return };
        let peer = opened.peer;
        match life.opened(opened) {
            Ok(Some(table)) => {
                let mut routes = Routes::clone(&self.shared.routes.load());
                routes.open(table);
                self.shared.routes.store(Arc::new(routes));
            }
            Ok(None) => {}
            Err(reason) => {
                tracing::warn!(%peer, reason, "a peer's regions cannot be opened; it is asked again");
            }
        }
    }
}

/// The next message. Without a life there is none.
async fn arrival(life: &mut Option<Life>) -> Woken {
    let Some(life) = life else { return std::future::pending().await };
    tokio::select! {
        message = life.protocol.next() => Woken::Protocol(message),
        message = life.introductions.next() => Woken::Introduction(message),
    }
}

async fn pause(patience: Duration) {
    if patience.is_zero() {
        std::thread::yield_now();
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(patience).await;
    }
}

/// Whoever asked may have gone.
fn reply_to<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
