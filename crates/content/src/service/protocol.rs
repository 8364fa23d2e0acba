//! The page protocol of one node as one machine: its [`Home`], which is new in each incarnation, its [`Updater`], which goes through all of them, and the
//! introductions by which members come by each other's regions.
//!
//! What the updater says to the own home does not leave the machine. What the home says in return stands in the actions before it acts again, and actions are
//! carried out in their order: of two words for one place the later one stays.

use std::sync::Arc;

use verbena_cluster::{Lease, View};
use verbena_fabric::{Message as Arrived, Port, RegionKey};
use verbena_service::driver::{self, Machine};
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::Options;
use super::batches::{Head, PageBatch};
use super::introduction::Introduction;
use super::members::{Members, Opening};
use crate::change::Change;
use crate::home::{Home, HomeAction};
use crate::names::Scope;
use crate::rules::Rules;
use crate::table::PageTable;
use crate::updater::{BeginError, Outcome, UpdateId, Updater, UpdaterAction};
use crate::wire::{Message, Register, Registered, WireError};

/// Messages of the page protocol.
pub(super) const PROTOCOL: Port = Port(16);
/// Introductions, which belong to no view.
pub(super) const INTRODUCTIONS: Port = Port(17);

/// A node's part in the page protocol.
pub(super) struct Protocol {
    options: Options,
    rules: Rules,
    me: Incarnation,
    lease: Lease,
    /// The newest one of this incarnation.
    view: Option<Arc<View>>,
    /// `None` between two incarnations.
    home: Option<Home>,
    updater: Updater,
    members: Members,
}

/// What the machine wants done.
pub(super) enum Action {
    /// This node is in this view, as far as the fabric's messages go.
    SetView(ViewNumber),
    /// Send a message to another node. May be lost.
    Send(Message),
    /// A home has answered this node's registration.
    Registered(Registered),
    /// Store a word of the own page table.
    Store { offset: u64, word: u64 },
    /// Write a word at an updater.
    Acknowledge { to: Incarnation, word: u32, value: u64 },
    /// Read the record of a departed incarnation and say [`Protocol::recorded`].
    ReadRecord { of: Incarnation, lease_is_over: bool },
    /// This home has settled a departed incarnation.
    Settled(Incarnation),
    /// Records of incarnations that this view does not name are needed no more.
    ForgetRecords(Arc<View>),
    /// Put an update into the own record, before anything that follows (rule P6).
    Opened { number: u64, scope: Scope },
    /// The update of this number is over.
    Ended(u64),
    /// The update has begun at every home.
    Forward(UpdateId),
    /// It could not begin in time.
    Abort(UpdateId),
    /// Give the application's answer to the client.
    Answer(UpdateId),
    /// Close the client's connection without one.
    Close(UpdateId),
    /// This node may acknowledge the view.
    Prepared(ViewNumber),
    /// Send this node's keys.
    Introduce { to: Incarnation, view: ViewNumber, is_home: bool, wants_answer: bool },
    /// Open a member's regions, which it has told the keys of.
    Open { acknowledgements: RegionKey, table: Option<RegionKey> },
    /// This home's page table can be read from now on.
    Route(PageTable),
    /// What this member has was dropped, for this reason.
    Unusable(Incarnation, String),
}

impl Protocol {
    /// Between two incarnations.
    pub(super) fn new(options: Options, rules: Rules) -> Self {
        let me = Incarnation::default();
        let updater = Updater::with_rules(me, options.names.fingerprint(), options.updater, rules);
        let members = Members::default();
        Protocol { options, rules, me, lease: Lease::NONE, view: None, home: None, updater, members }
    }

    pub(super) fn home(&self) -> Option<&Home> {
        self.home.as_ref()
    }

    pub(super) fn updater(&self) -> &Updater {
        &self.updater
    }

    /// The name of a member of the newest view.
    pub(super) fn name_of(&self, member: Incarnation) -> &str {
        self.view.as_ref().and_then(|view| view.member(member)).map_or("", |member| member.name.as_str())
    }

    // What is asked of it.

    pub(super) fn begin(
        &mut self,
        scope: Scope,
        change: Change,
        now: Time,
        out: &mut Vec<Action>,
    ) -> Result<UpdateId, BeginError> {
        self.update(now, out, |updater, actions| updater.begin_as(change, scope, now, actions))
    }

    pub(super) fn finished(&mut self, id: UpdateId, outcome: Outcome, now: Time, out: &mut Vec<Action>) {
        self.update(now, out, |updater, actions| updater.finished(id, outcome, now, actions));
    }

    pub(super) fn register(&mut self, register: Register, now: Time, out: &mut Vec<Action>) {
        self.send(Message::Register(register), now, out);
    }

    pub(super) fn gone(&mut self, member: Incarnation, now: Time, out: &mut Vec<Action>) {
        self.update(now, out, |updater, actions| updater.gone(member, now, actions));
    }

    pub(super) fn close(&mut self) {
        self.updater.close();
    }

    /// What an acknowledgement word of this node holds.
    pub(super) fn acknowledged(&mut self, word: u32, value: u64, now: Time, out: &mut Vec<Action>) {
        self.update(now, out, |updater, actions| updater.acknowledged(word, value, now, actions));
    }

    /// The record of a departed incarnation, which was read when that could forward nothing more.
    pub(super) fn recorded(&mut self, of: Incarnation, open: &[(u64, Scope)], now: Time, out: &mut Vec<Action>) {
        self.at_home(now, out, |home, actions| home.recorded(of, open, actions));
    }

    // The machines that it consists of.

    fn at_home(&mut self, now: Time, out: &mut Vec<Action>, event: impl FnOnce(&mut Home, &mut Vec<HomeAction>)) {
        let Some(home) = &mut self.home else { return };
        let mut actions = vec![];
        event(home, &mut actions);
        for action in actions {
            match action {
                HomeAction::Store { offset, word } => out.push(Action::Store { offset, word }),
                HomeAction::Acknowledge { to, word, value } => out.push(Action::Acknowledge { to, word, value }),
                HomeAction::Send(message) => self.send(message, now, out),
                HomeAction::ReadRecord { of, lease_is_over } => out.push(Action::ReadRecord { of, lease_is_over }),
                HomeAction::Settled(who) => out.push(Action::Settled(who)),
            }
        }
    }

    fn update<T>(
        &mut self,
        now: Time,
        out: &mut Vec<Action>,
        event: impl FnOnce(&mut Updater, &mut Vec<UpdaterAction>) -> T,
    ) -> T {
        let mut actions = vec![];
        let result = event(&mut self.updater, &mut actions);
        for action in actions {
            match action {
                UpdaterAction::Send(message) => self.send(message, now, out),
                UpdaterAction::Opened { number, scope } => out.push(Action::Opened { number, scope }),
                UpdaterAction::Ended(number) => out.push(Action::Ended(number)),
                UpdaterAction::Forward(id) => out.push(Action::Forward(id)),
                UpdaterAction::Abort(id) => out.push(Action::Abort(id)),
                UpdaterAction::Answer(id) => out.push(Action::Answer(id)),
                UpdaterAction::Close(id) => out.push(Action::Close(id)),
                UpdaterAction::Prepared(view) => out.push(Action::Prepared(view)),
            }
        }
        result
    }

    /// Between two incarnations there is no home to hear it, and no fabric to send it by.
    fn send(&mut self, message: Message, now: Time, out: &mut Vec<Action>) {
        if message.to() == self.me {
            self.receive(message, now, out);
        } else {
            out.push(Action::Send(message));
        }
    }

    fn receive(&mut self, message: Message, now: Time, out: &mut Vec<Action>) {
        match message {
            Message::Registered(registered) => out.push(Action::Registered(registered)),
            message => self.at_home(now, out, |home, actions| home.receive(message, now, actions)),
        }
    }

    // Introductions.

    fn introduce(&mut self, to: Incarnation, wants_answer: bool, out: &mut Vec<Action>) {
        let is_home = self.view.as_ref().is_some_and(|view| view.homes().any(|home| home.incarnation == self.me));
        out.push(Action::Introduce { to, view: self.lease.acknowledged, is_home, wants_answer });
    }

    fn introduced(&mut self, introduction: Introduction, now: Time, out: &mut Vec<Action>) {
        let Introduction { from, table, acknowledgements, wants_answer } = introduction;
        // Of a view not learnt of yet: the other repeats itself.
        if !self.members.has(from) {
            return;
        }
        // The transport knows the sender (rule F5): no node introduces another.
        if acknowledgements.owner != from || table.as_ref().is_some_and(|table| table.owner != from) {
            return out.push(Action::Unusable(from, "the keys of another node".into()));
        }
        if wants_answer {
            self.introduce(from, false, out);
            self.members.introduced_to(from, now);
        }
        match self.members.told_keys(from, table.is_some()) {
            Some(Opening::WithTable) => out.push(Action::Open { acknowledgements, table }),
            Some(Opening::AcknowledgementsOnly) => out.push(Action::Open { acknowledgements, table: None }),
            None => {}
        }
    }
}

impl Machine for Protocol {
    type Action = Action;
    type Frame = Frame;
    type Batch = PageBatch;

    /// A new home for each incarnation. What was forwarded stays open in the updater, between two of them too.
    fn start_incarnation(&mut self, me: Incarnation, _: &mut Vec<Action>) {
        (self.me, self.lease, self.view, self.members) = (me, Lease::NONE, None, Members::default());
        self.home = None;
        if me != Incarnation::default() {
            let names = self.options.names.fingerprint();
            self.home = Some(Home::with_rules(me, names, self.options.home, self.rules));
            self.updater.rejoined(me);
        }
    }

    fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<Action>) {
        if let Some(home) = &mut self.home {
            home.lease(lease);
            if lease.acknowledged != self.lease.acknowledged {
                out.push(Action::SetView(lease.acknowledged));
            }
        }
        self.lease = lease;
        self.update(now, out, |updater, actions| updater.lease(lease, now, actions));
    }

    /// The own home learns of the view before it hears what the updater begins in it.
    fn view(&mut self, view: &Arc<View>, _: Option<RegionKey>, now: Time, out: &mut Vec<Action>) {
        self.view = Some(view.clone());
        self.members.view(view, self.me, now);
        self.at_home(now, out, |home, actions| home.view(view, now, actions));
        out.push(Action::ForgetRecords(view.clone()));
        self.update(now, out, |updater, actions| updater.view(view, now, actions));
    }

    fn frame(&mut self, frame: Frame, now: Time, out: &mut Vec<Action>) {
        match frame {
            Frame::Message(message) => self.receive(message, now, out),
            Frame::Introduction(introduction) => self.introduced(introduction, now, out),
        }
    }

    /// The head of a page table was read.
    fn completed(&mut self, home: Incarnation, head: Head, now: Time, out: &mut Vec<Action>) {
        self.members.head_read(home, head.is_ok(), now);
        out.push(match head {
            Ok(table) => Action::Route(table),
            Err(reason) => Action::Unusable(home, format!("a page table that cannot be used: {reason}")),
        });
    }

    /// What was said to this member so far was lost.
    fn connected(&mut self, member: Incarnation, now: Time, out: &mut Vec<Action>) {
        if member != self.me {
            self.members.connected(member, now);
            self.update(now, out, |updater, actions| updater.reconnected(member, now, actions));
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        self.at_home(now, out, |home, actions| home.tick(now, actions));
    }

    /// After acknowledgement words were looked at: what is acknowledged by now is not said again, and not aborted.
    fn flush(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.updater.next_deadline().is_some_and(|at| at <= now) {
            self.update(now, out, |updater, actions| updater.tick(now, actions));
        }
        for member in self.members.due(now) {
            self.introduce(member, true, out);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let home = self.home.as_ref().and_then(Home::next_deadline);
        [home, self.updater.next_deadline(), self.members.next_deadline()].into_iter().flatten().min()
    }
}

/// What members say to each other.
pub(super) enum Frame {
    /// Of a view.
    Message(Message),
    /// Of no view: it counts in whichever view the members are.
    Introduction(Introduction),
}

impl driver::Frame for Frame {
    type Error = WireError;

    fn decode(arrived: &Arrived) -> Result<Frame, WireError> {
        match arrived.port {
            INTRODUCTIONS => Introduction::decode(&arrived.body).map(Frame::Introduction),
            _ => Message::decode(&arrived.body).map(Frame::Message),
        }
    }

    fn sender(&self) -> Incarnation {
        match self {
            Frame::Message(message) => message.from(),
            Frame::Introduction(introduction) => introduction.from,
        }
    }

    fn view(&self) -> Option<ViewNumber> {
        match self {
            Frame::Message(message) => Some(message.view()),
            Frame::Introduction(_) => None,
        }
    }
}
