//! Drives the machines of `cluster` with a clock, a fabric, records and services. It decides nothing that they could.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{
    Keeper, KeeperAction, KeeperEvent, LeaseWord, Message, Notice, OfficeEvent, Participant, ParticipantAction,
    ParticipantEvent, StartRecord,
};
use verbena_fabric::{Address, Interconnect, Opened};
use verbena_ipc::Board;
use verbena_metrics::Registry;
use verbena_protocol::wire::{self, BOARD_LEASE};
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use crate::error::{Error, Result};
use crate::event::{Event, Observer};
use crate::membership::keeping::{Keeping, Kept, Register};
use crate::membership::life::Life;
use crate::membership::mailbox::Mailbox;
use crate::membership::post::Post;
use crate::membership::records::Records;
use crate::membership::service::{Replies, Service};
use crate::membership::status::Status;
use crate::membership::waiting::{Leaving, Waiting};

/// Between attempts at what the machine refuses: to store a record, to open a fabric.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// After the first attempt; twice as long after each further one.
const AGAIN_AT_ONCE: Duration = Duration::from_millis(10);
/// How long a search for the keeper may take.
const SEARCH: Duration = Duration::from_secs(2);
/// The longest sleep, so that no sum of times overflows a timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

mod meeting;

/// What membership is started with.
pub(crate) struct Parts {
    pub(crate) membership: verbena_cluster::Membership,
    /// Where the keeper is not always the same.
    pub(crate) register: Option<Register>,
    pub(crate) interconnect: Interconnect,
    pub(crate) records: Records,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) status: Arc<Status>,
    pub(crate) lease: Arc<LeaseWord>,
    /// Where programs see how long the lease lasts.
    pub(crate) board: Board,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) services: Vec<Box<dyn Service>>,
    pub(crate) observer: Observer,
}

/// The driver.
pub(crate) struct Driver {
    parts: Parts,
    participant: Participant,
    keeping: Keeping,
    /// The fabric of the present incarnation; `None` between two incarnations.
    post: Option<Post>,
    opened: Option<Opened>,
    /// Messages of this node to itself, where it is the keeper.
    local: Vec<Message>,
    waiting: Waiting,
    /// Why it ended, if not because it was asked to.
    failed: Option<Error>,
}

impl Driver {
    /// Starts the first incarnation. Returns an error at once if something prevents that.
    pub(crate) fn start(mut parts: Parts) -> Result<Self> {
        let now = BootClock.now();
        let record = parts.records.start()?;
        let keeper_record = parts.records.keeper()?;
        let (participant, actions) = Participant::start(&parts.membership, String::new(), record, now)?;
        let incarnation = participant.incarnation();
        let mailbox = parts.mailbox.clone();
        let keeping = match parts.register.take() {
            Some(register) => Keeping::office(&parts.membership, mailbox, register, now),
            None => {
                let tells = parts.board.tells_its_end();
                Keeping::fixed(&parts.membership, mailbox, incarnation, keeper_record, tells, now)
            }
        };
        let mut driver = Driver {
            parts,
            participant,
            keeping,
            post: None,
            opened: None,
            local: vec![],
            waiting: Waiting::default(),
            failed: None,
        };
        for action in actions {
            match action {
                ParticipantAction::Persist(record) => {
                    driver.parts.records.store_start_now(&record)?;
                    driver.open_life(incarnation)?;
                }
                ParticipantAction::Enrol => match driver.keeping.first_life()? {
                    Ok(life) => {
                        driver.participate(ParticipantEvent::Enrolled(life));
                        driver.open_life(driver.participant.incarnation())?;
                    }
                    Err(reason) => {
                        driver.trouble("no rank can be had: no incarnation can begin", &reason);
                        driver.preside(OfficeEvent::Enrol);
                    }
                },
                other => driver.act(other),
            }
        }
        Ok(driver)
    }

    /// Runs until the node has left, or cannot go on; says why it could not.
    pub(crate) fn run(mut self, runtime: &tokio::runtime::Runtime) -> Option<Error> {
        runtime.block_on(self.serve());
        let at_most = self.parts.membership.terms().renew_every();
        self.keeping.give_up(BootClock.now(), at_most);
        self.parts.services.iter_mut().for_each(|service| service.end());
        self.failed
    }

    async fn serve(&mut self) {
        // The first incarnation was stored and opened where an error could still be returned. From here on a panic ends
        // the process.
        if self.post.is_some() {
            self.life_is_open();
        }
        while !self.participant.ended() && self.failed.is_none() {
            self.look_at_mailbox();
            self.try_again();
            self.look_for_keeper();
            self.keep_files();
            self.say_what_it_waits_for();
            self.participate(ParticipantEvent::Tick);
            self.keep(KeeperEvent::Tick);
            self.preside(OfficeEvent::Tick);
            let now = BootClock.now();
            if matches!(self.waiting.leaving, Leaving::Asked { until } if now >= until) {
                tracing::warn!("the keeper did not take leave in time: the lease runs out instead");
                break;
            }
            let sleep = self.wake_at().since(now).min(LONGEST_SLEEP);
            let mailbox = self.parts.mailbox.clone();
            match &mut self.post {
                Some(post) => tokio::select! {
                    message = post.inbox.next() => self.arrived(message),
                    () = mailbox.wait(sleep) => {}
                },
                None => mailbox.wait(sleep).await,
            }
        }
    }

    fn wake_at(&self) -> Time {
        let keeping = self.keeping.wake_at();
        let waiting = &self.waiting;
        let retries = [
            waiting.to_open.map(|(_, at)| at),
            waiting.start.map(|(_, at)| at),
            waiting.keeper.as_ref().map(|(_, at)| *at),
            match waiting.leaving {
                Leaving::No => None,
                Leaving::Closing { until } | Leaving::Asked { until } => Some(until),
            },
        ];
        retries.into_iter().flatten().chain([keeping, self.participant.wake_at()]).min().unwrap_or(Time::FAR)
    }

    // What comes in.

    fn arrived(&mut self, message: verbena_fabric::Message) {
        let Some(post) = &mut self.post else { return };
        let Some(read) = post.read(BootClock.now(), &message) else { return };
        self.deliver(read);
    }

    /// To the machine that it is for. A node that is the keeper has both.
    fn deliver(&mut self, message: Message) {
        use verbena_cluster::Body::{Acknowledge, Expel, Explain, Grant, Join, Leave, Propose, Refuse, Renew, Stand};
        match message.body {
            Join { .. } | Renew(_) | Acknowledge(_) | Leave { .. } | Expel(_) => {
                self.keep(KeeperEvent::Message(message));
            }
            Explain(dropped) => self.parts.status.explain(dropped),
            Grant(_) | Propose(_) | Stand(_) | Refuse(_) => {
                self.waiting.heard = BootClock.now();
                let from = message.from;
                self.participate(ParticipantEvent::Message(message));
                let is_member = self.participant.view().is_some();
                self.preside(OfficeEvent::Heard { from, is_member });
            }
        }
    }

    fn look_at_mailbox(&mut self) {
        let found = self.parts.mailbox.take();
        match found.start_stored {
            Some(Ok(())) => self.waiting.to_open = Some((self.participant.incarnation(), Time::ZERO)),
            Some(Err(reason)) => {
                let Incarnation { rank, start } = self.participant.incarnation();
                let again = BootClock.now() + AGAIN_AFTER;
                self.trouble("the start number cannot be stored: no incarnation can begin", &reason);
                self.waiting.start = Some((StartRecord { rank, start }, again));
            }
            None => {}
        }
        match found.keeper_stored {
            Some(Ok(())) => {
                self.parts.records.forget_keeper();
                self.keep(KeeperEvent::Persisted);
            }
            Some(Err(reason)) => {
                self.trouble("the keeper's record cannot be stored: no view can be made", &reason);
                let record = self.parts.records.keeper_under_way();
                self.waiting.keeper = record.map(|record| (record, BootClock.now() + AGAIN_AFTER));
            }
            None => {}
        }
        if found.keeper_moved {
            self.waiting.heard = Time::ZERO;
        }
        if let Some(search) = found.keeper_found {
            self.waiting.searching = false;
            match search {
                Ok((who, address)) => {
                    self.waiting.not_found = None;
                    self.parts.status.change(|facts| facts.keeper = Some(who));
                    self.post.iter_mut().for_each(|post| post.note(who, address.clone()));
                }
                Err(reason) => {
                    tracing::debug!(reason, "the keeper was not found");
                    self.waiting.not_found = Some(reason);
                }
            }
        }
        for (number, answer) in found.answers {
            let now = BootClock.now();
            match self.keeping.answered(now, self.participant.incarnation(), number, answer) {
                Ok((kept, silent)) => {
                    if let Some(reason) = silent {
                        self.trouble("who keeps the cluster cannot be found out or stored", &reason);
                    }
                    self.keep_on(kept);
                }
                Err(error) => self.failed = Some(error),
            }
        }
        self.hear_services(found.prepared, found.settled);
        if let Some(who) = found.expel {
            self.participate(ParticipantEvent::Expel(who));
        }
        if found.leave {
            self.leave(found.closed);
        }
    }

    /// Closes the services, then asks the keeper for a view without this node. The services close first: a node that
    /// has reported that nothing of it is open must not begin anything (rule P6).
    fn leave(&mut self, closed: Option<bool>) {
        let (now, lease) = (BootClock.now(), self.parts.membership.terms().lease());
        if self.waiting.leaving == Leaving::No {
            self.waiting.leaving = Leaving::Closing { until: now + lease };
            self.parts.status.change(|facts| facts.leaving = Some(wire::Leaving::Closing));
            for (nth, service) in self.parts.services.iter_mut().enumerate() {
                service.close(&Replies::new(self.parts.mailbox.clone(), nth));
            }
        }
        if let Leaving::Closing { until } = self.waiting.leaving
            && (closed.is_some() || now >= until)
        {
            let at_rest = closed.unwrap_or(false);
            if !at_rest {
                tracing::warn!(
                    "updates are open: the others wait for the longest transaction before they settle this node"
                );
            }
            let leaving = if at_rest { wire::Leaving::AtRest } else { wire::Leaving::WithOpen };
            self.parts.status.change(|facts| facts.leaving = Some(leaving));
            self.waiting.leaving = Leaving::Asked { until: now + lease + lease / 2 };
            self.participate(ParticipantEvent::Leave { at_rest });
        }
    }

    /// The newest view is without this node because the node leaves. What follows from that is part of leaving, not an
    /// event to report.
    fn is_gone(&self) -> bool {
        self.participant.view().is_some_and(|view| view.member(self.participant.incarnation()).is_none())
    }

    fn hear_services(&mut self, prepared: ViewNumber, settled: Option<Vec<Incarnation>>) {
        let Some(view) = self.participant.view().cloned() else { return };
        // Where the helper hosts no services there is nothing to settle.
        let settled = settled.unwrap_or_else(|| view.departed().iter().map(|gone| gone.incarnation).collect());
        for who in settled {
            self.participate(ParticipantEvent::Settled(who));
        }
        if prepared >= view.number() && self.participant.lease().acknowledged < view.number() {
            self.participate(ParticipantEvent::Prepared(view.number()));
        }
    }

    /// What failed before, once its time has come.
    fn try_again(&mut self) {
        let now = BootClock.now();
        if let Some((record, _)) = self.waiting.start.take_if(|(_, at)| *at <= now) {
            self.parts.records.store_start(record, &self.parts.mailbox);
        }
        if let Some((record, _)) = self.waiting.keeper.take_if(|(_, at)| *at <= now) {
            self.parts.records.store_keeper(record, &self.parts.mailbox);
        }
        if let Some((incarnation, _)) = self.waiting.to_open.take_if(|(_, at)| *at <= now) {
            match self.open_life(incarnation) {
                Ok(()) => self.life_is_open(),
                Err(error @ Error::Service { .. }) => self.failed = Some(error),
                Err(error) => {
                    // Services drop the fabric of the previous incarnation on their own threads. It has the address
                    // until then.
                    let wait = self.waiting.open_again.clamp(AGAIN_AT_ONCE, AGAIN_AFTER);
                    if wait == AGAIN_AFTER {
                        self.trouble("the fabric cannot be opened: no incarnation can begin", &error.to_string());
                    }
                    self.waiting.open_again = 2 * wait;
                    self.waiting.to_open = Some((incarnation, now + wait));
                }
            }
        }
    }

    // Incarnations.

    /// Opens the fabric of an incarnation whose start number is stored, and starts the services in it.
    fn open_life(&mut self, incarnation: Incarnation) -> Result<()> {
        let opened = self.parts.interconnect.open(incarnation)?;
        let address = opened.fabric.address();
        let post = Post::open(opened.fabric.clone(), self.parts.membership.clone())?;
        let life = Life {
            incarnation,
            fabric: opened.fabric.clone(),
            lease: self.parts.lease.clone(),
            membership: self.parts.membership.clone(),
            metrics: self.parts.metrics.clone(),
        };
        for service in &mut self.parts.services {
            let begun = service.begin(&life);
            begun.map_err(|reason| Error::Service { service: service.name(), reason })?;
        }
        let provider = opened.fabric.capabilities().provider;
        self.participant.reached_at(address.0.clone());
        self.parts.status.change(|facts| {
            facts.incarnation = incarnation;
            (facts.provider, facts.why) = (provider.into(), opened.why.clone());
            facts.address = address.shown();
        });
        self.observe(Event::Life { incarnation, provider, why: opened.why.clone(), address: address.shown() });
        (self.post, self.opened) = (Some(post), Some(opened));
        (self.waiting.heard, self.waiting.life_is_over, self.waiting.open_again) = (Time::ZERO, false, Duration::ZERO);
        Ok(())
    }

    fn life_is_open(&mut self) {
        let address = self.post.as_ref().map_or_else(String::new, |post| post.fabric.address().0);
        self.preside(OfficeEvent::Begun(self.participant.incarnation(), address));
        self.participate(ParticipantEvent::Persisted);
    }

    /// Drops the fabric with all regions before the next incarnation begins: a peer that still holds one of their keys
    /// finds nothing (rule C1).
    fn close_life(&mut self, next: Option<Incarnation>) {
        let Some(post) = self.post.take() else { return };
        if Some(post.fabric.identity()) == next {
            self.post = Some(post);
            return;
        }
        drop(post);
        self.opened = None;
        if !self.waiting.life_is_over {
            self.tell(Notice::Expelled(next));
        }
        self.parts.mailbox.clear_services();
    }

    // What the machines want done.

    fn participate(&mut self, event: ParticipantEvent) {
        for action in self.participant.handle(BootClock.now(), event) {
            self.act(action);
        }
        self.deliver_local();
    }

    fn keep(&mut self, event: KeeperEvent) {
        let Some(keeper) = &mut self.keeping.keeper else { return };
        for action in keeper.handle(BootClock.now(), event) {
            match action {
                KeeperAction::Persist(record) if self.keeping.is_fixed() => {
                    self.parts.records.store_keeper(record, &self.parts.mailbox);
                }
                KeeperAction::Persist(record) => self.preside(OfficeEvent::Store(Box::new(record))),
                KeeperAction::Send(message) => self.send(message),
                KeeperAction::Resign => {
                    tracing::warn!("most members are silent: another one is to keep the cluster");
                    self.preside(OfficeEvent::Unheard);
                }
            }
        }
        self.deliver_local();
    }

    fn preside(&mut self, event: OfficeEvent) {
        let kept = self.keeping.preside(BootClock.now(), self.participant.incarnation(), event);
        self.keep_on(kept);
    }

    fn keep_on(&mut self, kept: Vec<Kept>) {
        for what in kept {
            match what {
                Kept::ToKeeper(event) => self.keep(event),
                Kept::Enrolled(life) => {
                    self.participate(ParticipantEvent::Enrolled(life));
                    self.waiting.to_open = Some((self.participant.incarnation(), Time::ZERO));
                }
                Kept::Follow(holder) => {
                    self.parts.status.change(|facts| facts.keeper = Some(holder.who));
                    self.post.iter_mut().for_each(|post| post.note(holder.who, Address(holder.address.clone())));
                    self.participate(ParticipantEvent::Keeper(holder.who));
                }
            }
        }
    }

    fn act(&mut self, action: ParticipantAction) {
        match action {
            ParticipantAction::Persist(record) => {
                self.close_life(Some(Incarnation { rank: record.rank, start: record.start }));
                self.parts.records.store_start(record, &self.parts.mailbox);
            }
            ParticipantAction::Enrol => {
                self.close_life(None);
                self.preside(OfficeEvent::Over);
                self.preside(OfficeEvent::Enrol);
            }
            ParticipantAction::Publish(lease) => {
                // First publish the lease on the board: a reader of the board must not take what the lease grants for
                // lost.
                self.parts.board.publish(BOARD_LEASE, lease.until.nanos());
                self.parts.lease.store(lease);
                self.post.iter().for_each(|post| post.fabric.set_view(lease.acknowledged));
            }
            ParticipantAction::Send(message) => self.send(message),
            ParticipantAction::Tell(notice) => self.tell(notice),
        }
    }

    fn send(&mut self, message: Message) {
        if message.to.rank == self.participant.incarnation().rank {
            // Bounded by what two machines say to each other about one event.
            self.local.push(message);
        } else if let Some(post) = &mut self.post {
            if let Some(view) = self.keeping.keeper.as_ref().and_then(Keeper::view) {
                post.know(view);
            }
            post.send(&message);
        }
    }

    fn deliver_local(&mut self) {
        while !self.local.is_empty() {
            let message = self.local.remove(0);
            self.deliver(message);
        }
    }

    fn tell(&mut self, notice: Notice) {
        self.parts.status.note(&notice);
        // Names and settled incarnations must be known before a service connects to a member of the view.
        if let Notice::ViewLearnt(view) = &notice {
            self.keeping.know(view);
            self.parts.mailbox.view_learnt(view);
        }
        for (nth, service) in self.parts.services.iter_mut().enumerate() {
            service.notice(&notice, &Replies::new(self.parts.mailbox.clone(), nth));
        }
        match notice {
            Notice::ViewLearnt(_) | Notice::ViewInEffect(_) | Notice::LeaseLost if self.is_gone() => {}
            Notice::ViewLearnt(view) => self.observe(Event::ViewLearnt {
                view: view.number(),
                members: view.members().iter().map(|member| member.incarnation).collect(),
            }),
            Notice::ViewInEffect(view) => self.observe(Event::ViewInEffect { view }),
            Notice::LeaseLost => self.observe(Event::LeaseLost),
            Notice::Expelled(next) => {
                self.waiting.life_is_over = true;
                self.observe(Event::Expelled { next });
            }
            Notice::Refused(refusal) => self.observe(Event::Refused { reason: refusal.to_string() }),
            Notice::Left => self.observe(Event::Left),
            Notice::Superseded(by) => self.failed = Some(Error::Superseded(by)),
            Notice::Failed(error) => self.failed = Some(error.into()),
            Notice::MemberAcknowledged { .. }
            | Notice::MemberOut { .. }
            | Notice::DepartedSettled(_)
            | Notice::LeaseExtended(_) => {}
        }
    }

    // The keeper, seen from another node.

    /// Looks for the keeper after a silence: it may have started another incarnation elsewhere.
    fn look_for_keeper(&mut self) {
        let terms = self.parts.membership.terms();
        let silent = BootClock.now().since(self.waiting.heard) > terms.renew_every() * 2;
        if self.keeping.keeper.is_some()
            || self.waiting.searching
            || !silent
            || BootClock.now() < self.waiting.search_after
        {
            return;
        }
        let (Some(opened), Some(rank)) = (&self.opened, self.parts.membership.keeper()) else { return };
        let line = self.parts.membership.configured(rank).expect("invariant: the keeper is a configured node");
        let (finder, mailbox) = (opened.finder.clone(), self.parts.mailbox.clone());
        let address = Address(line.address.clone());
        self.waiting.searching = true;
        self.waiting.search_after = BootClock.now() + terms.ask_every();
        let deadline = BootClock.now() + SEARCH;
        // The handle is not needed: the outcome comes by the mailbox.
        drop(tokio::task::spawn_blocking(move || {
            let found = finder.find(rank, &address, deadline).map_err(|error| error.to_string());
            mailbox.keeper_found(found);
        }));
    }

    fn observe(&mut self, event: Event) {
        (self.parts.observer)(&event);
    }

    fn trouble(&mut self, what: &str, reason: &str) {
        tracing::error!(reason, "{what}");
        self.observe(Event::Trouble { what: what.into(), reason: reason.into() });
    }
}
