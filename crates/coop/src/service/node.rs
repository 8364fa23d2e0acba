//! A node's part in the pool over its lives: [`Coop`] with what it needs to meet the other nodes.
//!
//! In each view the members tell each other where their regions are, until each knows. Hand-overs are said again until they are heard, so that a view
//! that begins costs no keys; all else is said once. A change that no home has heard of is begun again while its program waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Member, Role, View};
use verbena_fabric::{Region, RegionKey, Rights};
use verbena_memcache::Operation;
use verbena_memcache::semantics::Answer;
use verbena_service::driver::Machine;
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::config::layout;
use super::reads::PoolRead;
use super::region::{Objects, TableWords};
use super::wire::{Layout, Letter, MOST_ENTRIES, Said};
use crate::machine::Action;
use crate::object::ReadBack;
use crate::table::{Geometry, Look};
use crate::{
    Board, Chosen, Clocks, Command, Completion, Coop, Failure, Frame, Place, Reply, SchemeName, Settings, Table,
};

/// How long a node waits for another's region before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The same for what is numbered.
const SAY_AGAIN: Duration = Duration::from_millis(20);
/// Numbered letters on their way.
const WINDOW: usize = 16;
/// Pause before a change that no home heard of is begun again.
const BEGIN_AGAIN: Duration = Duration::from_millis(3);
/// How often deadlines and expiry are looked at.
const TICK: Duration = Duration::from_millis(10);

/// What a node wants done.
#[derive(Debug)]
pub enum Deed {
    /// Make the node's region; [`PoolNode::registered`] is the outcome.
    Register(Layout),
    /// Another node's region, to be read.
    Open(RegionKey),
    /// Send a letter.
    Send(Incarnation, Letter),
    /// A frame of the node to itself.
    Hear(ViewNumber, Frame),
    /// Read a table.
    ReadTable {
        /// Whose outcome it is.
        id: u64,
        /// Whose table.
        home: Incarnation,
        /// Of the key.
        hash: u64,
        /// By which the buckets are found.
        geometry: Geometry,
    },
    /// Read an object.
    ReadObject {
        /// Whose outcome it is.
        id: u64,
        /// Where.
        place: Place,
        /// At which member.
        holder: Option<Incarnation>,
    },
    /// Tell a program.
    Answer(u64, Reply),
}

/// A node that lends memory, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lender {
    /// Its name.
    pub name: String,
    /// It is no home.
    pub is_passive: bool,
    /// What it said last.
    pub board: Option<Board>,
}

/// Another member that lends memory.
#[derive(Debug)]
struct Partner {
    layout: Option<Layout>,
    ask_at: Time,
}

/// A program's command.
#[derive(Debug)]
struct Asked {
    request: u64,
    /// To begin it again. A read that fails is a miss.
    command: Option<Command>,
    until: Time,
}

/// A node's part in the pool.
pub struct PoolNode {
    settings: Settings,
    /// Seconds of the Unix clock.
    wall: fn() -> u64,
    me: Incarnation,
    lease: Lease,
    view: Option<Arc<View>>,
    coop: Option<Coop<Objects>>,
    own: Option<(RegionKey, Layout)>,
    partners: BTreeMap<Incarnation, Partner>,
    unheard: BTreeMap<u64, (Incarnation, Frame, Time)>,
    numbered: u64,
    /// By the number that the machine knows each by.
    asked: BTreeMap<u64, Asked>,
    commands: u64,
    /// Commands that are begun again.
    again: Vec<(Time, Asked)>,
    tick_at: Time,
    /// The scheme of the last life, if one was chosen.
    chosen: Chosen,
}

impl PoolNode {
    /// Between two incarnations.
    pub fn new(settings: Settings, wall: fn() -> u64) -> PoolNode {
        PoolNode {
            settings,
            wall,
            me: Incarnation::default(),
            lease: Lease::NONE,
            view: None,
            coop: None,
            own: None,
            partners: BTreeMap::new(),
            unheard: BTreeMap::new(),
            numbered: 0,
            asked: BTreeMap::new(),
            commands: 0,
            again: vec![],
            tick_at: Time::ZERO,
            chosen: Chosen::default(),
        }
    }

    /// The machine, once it has its memory.
    pub fn coop(&self) -> Option<&Coop<Objects>> {
        self.coop.as_ref()
    }

    /// Members of its view that lend memory.
    pub fn members(&self) -> usize {
        self.view.as_ref().map_or(0, |view| view.members().iter().filter(|member| member.roles.has(Role::Pool)).count())
    }

    /// Whether all entries that others are home of in this view have arrived there.
    pub fn has_handed_over(&self) -> bool {
        self.unheard.is_empty()
    }

    /// What is where at another member, once it said so.
    pub fn layout_of(&self, member: Incarnation) -> Option<Layout> {
        self.partners.get(&member)?.layout
    }

    /// What one batch at the own table would give.
    pub fn look(&self, hash: u64, geometry: Geometry) -> Option<Look> {
        self.coop.as_ref().map(|coop| coop.table().look(hash, geometry))
    }

    /// What one batch at the own objects would give.
    pub fn read(&self, place: Place) -> ReadBack {
        use crate::holder::Memory;
        let Some(coop) = &self.coop else { return ReadBack::default() };
        let memory = coop.holder().memory();
        let first = memory.read_word(place.offset);
        let bytes = memory.read(place.offset, place.units);
        ReadBack { first, bytes, last: memory.read_word(place.offset) }
    }

    /// The node's region is there.
    pub fn registered(&mut self, region: Arc<dyn Region>, now: Time, out: &mut Vec<Deed>) {
        let layout = layout(&self.settings);
        let (first, largest) = self.settings.buckets;
        let table = Table::over(Box::new(TableWords(region.clone())), first, largest);
        self.own = Some((region.key(Rights::Read), layout));
        let objects = Objects { region, layout };
        let mut coop = Coop::over(self.me, objects, table, self.settings.clone());
        coop.follow(self.chosen);
        self.coop = Some(coop);
        self.enter(now, out);
    }

    fn enter(&mut self, now: Time, out: &mut Vec<Deed>) {
        let Some(view) = self.view.clone() else { return };
        let lease = self.lease;
        self.run(now, out, |coop, clocks, actions| {
            coop.lease(lease, clocks.now);
            coop.view(&view, actions);
        });
    }

    /// The nodes of its view that lend memory, by name, with what they said last; `None` if they have not yet.
    pub fn lenders(&self) -> Vec<Lender> {
        let boards: BTreeMap<Incarnation, Board> = self.coop.iter().flat_map(Coop::boards).collect();
        let members = self.view.iter().flat_map(|view| view.members());
        let lender = |member: &Member| Lender {
            name: member.name.clone(),
            is_passive: !member.is_pool_home(),
            board: boards.get(&member.incarnation).copied(),
        };
        members.filter(|member| member.roles.has(Role::Pool)).map(lender).collect()
    }

    /// The scheme that it goes by.
    pub fn scheme(&self) -> Chosen {
        self.coop.as_ref().map_or(self.chosen, Coop::chosen)
    }

    /// The scheme that is configured for it.
    pub fn configured_scheme(&self) -> SchemeName {
        self.settings.scheme
    }

    /// Another scheme, for all nodes. False if there is no machine yet that could say so.
    pub fn choose(&mut self, name: SchemeName) -> bool {
        self.coop.as_mut().map(|coop| coop.choose(name)).is_some()
    }

    /// A program's command.
    pub fn command(&mut self, request: u64, command: Command, now: Time, out: &mut Vec<Deed>) {
        let until = now + self.settings.patience;
        self.begin(Asked { request, command: Some(command), until }, now, out);
    }

    fn begin(&mut self, mut asked: Asked, now: Time, out: &mut Vec<Deed>) {
        let Some(command) = &asked.command else { return };
        if self.coop.is_none() {
            return self.put_off(asked, now, out);
        }
        self.commands += 1;
        let (id, command) = (self.commands, command.clone());
        if only_reads(&command) {
            asked.command = None;
        }
        self.asked.insert(id, asked);
        self.run(now, out, |coop, clocks, actions| coop.command(id, command, clocks, actions));
    }

    /// No home heard of it.
    fn put_off(&mut self, asked: Asked, now: Time, out: &mut Vec<Deed>) {
        let is_read = asked.command.as_ref().is_none_or(only_reads);
        if is_read {
            out.push(Deed::Answer(asked.request, Reply::Answer(Answer::Miss, vec![])));
        } else if now + BEGIN_AGAIN < asked.until {
            self.again.push((now + BEGIN_AGAIN, asked));
        } else {
            out.push(Deed::Answer(asked.request, Reply::Failed(Failure::HomeAway)));
        }
    }

    /// A frame of this node to itself, at a time that was read behind what it rests on.
    pub fn hear(&mut self, view: ViewNumber, frame: Frame, now: Time, out: &mut Vec<Deed>) {
        let me = self.me;
        self.run(now, out, |coop, clocks, actions| coop.frame(me, view, frame, clocks, actions));
    }

    /// A frame could not be sent.
    pub fn not_sent(&mut self, said: Said, now: Time, out: &mut Vec<Deed>) {
        if let Said::Frame(Frame::Ask(ask)) = said {
            self.run(now, out, |coop, clocks, actions| coop.not_sent(ask.id, ask.serial, clocks, actions));
        }
    }

    /// Gives the machine an event, and makes deeds of its actions.
    fn run(
        &mut self,
        now: Time,
        out: &mut Vec<Deed>,
        event: impl FnOnce(&mut Coop<Objects>, Clocks, &mut Vec<Action>),
    ) {
        let Some(coop) = &mut self.coop else { return };
        let mut actions = vec![];
        event(coop, Clocks { now, seconds: (self.wall)() }, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, view, frame } if to == self.me => out.push(Deed::Hear(view, frame)),
                Action::Send { to, view, frame: Frame::HandOver(entries) } => {
                    for entries in entries.chunks(MOST_ENTRIES) {
                        self.numbered += 1;
                        let frame = Frame::HandOver(entries.to_vec());
                        self.unheard.insert(self.numbered, (to, frame, Time::ZERO));
                    }
                    debug_assert_eq!(self.view.as_ref().map(|current| current.number()), Some(view));
                }
                Action::Send { to, view, frame } => {
                    out.push(Deed::Send(to, Letter { view, from: self.me, said: Said::Frame(frame) }));
                }
                Action::ReadTable { id, home, hash, geometry } => {
                    out.push(Deed::ReadTable { id, home, hash, geometry });
                }
                Action::ReadObject { id, place, holder } => out.push(Deed::ReadObject { id, place, holder }),
                Action::Answer { id, reply } => {
                    let Some(asked) = self.asked.remove(&id) else { continue };
                    match reply {
                        Reply::Failed(Failure::HomeAway) => self.put_off(asked, now, out),
                        reply => out.push(Deed::Answer(asked.request, reply)),
                    }
                }
            }
        }
    }

    fn region(&self, asks: bool) -> Option<Said> {
        self.own.as_ref().map(|(key, layout)| Said::Region { key: key.clone(), layout: *layout, asks })
    }

    fn say(&self, to: Incarnation, view: ViewNumber, said: Said, out: &mut Vec<Deed>) {
        out.push(Deed::Send(to, Letter { view, from: self.me, said }));
    }

    fn number(&self) -> ViewNumber {
        self.view.as_ref().map_or(ViewNumber(0), |view| view.number())
    }

    fn told_region(&mut self, letter: &Letter, key: &RegionKey, layout: Layout, asks: bool, out: &mut Vec<Deed>) {
        if letter.view != self.number() {
            return;
        }
        if let Some(partner) = self.partners.get_mut(&letter.from).filter(|partner| partner.layout.is_none()) {
            partner.layout = Some(layout);
            out.push(Deed::Open(key.clone()));
        }
        if asks && let Some(said) = self.region(false) {
            self.say(letter.from, letter.view, said, out);
        }
    }

    fn say_unheard(&mut self, now: Time, out: &mut Vec<Deed>) {
        let view = self.number();
        for (number, (to, frame, due)) in self.unheard.iter_mut().take(WINDOW) {
            if *due <= now {
                *due = now + SAY_AGAIN;
                let said = Said::Numbered(*number, frame.clone());
                out.push(Deed::Send(*to, Letter { view, from: self.me, said }));
            }
        }
    }
}

/// Whether nothing comes of the command but its answer.
pub(super) fn only_reads(command: &Command) -> bool {
    matches!(command, Command::Execute { operation: Operation::Read(read), .. } if read.vivify.is_none() && read.touch.is_none())
}

impl Machine for PoolNode {
    type Action = Deed;
    type Frame = Letter;
    type Batch = PoolRead;

    /// What the last life sent may have been decided.
    fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<Deed>) {
        let asked = std::mem::take(&mut self.asked);
        let again = std::mem::take(&mut self.again);
        for asked in asked.into_values() {
            let is_read = asked.command.is_none();
            let reply = if is_read { Reply::Answer(Answer::Miss, vec![]) } else { Reply::Unknown };
            out.push(Deed::Answer(asked.request, reply));
        }
        let (chosen, commands) = (self.scheme(), self.commands);
        *self = PoolNode { me, again, commands, chosen, ..PoolNode::new(self.settings.clone(), self.wall) };
    }

    fn lease(&mut self, lease: Lease, now: Time, _: &mut Vec<Deed>) {
        self.lease = lease;
        if let Some(coop) = &mut self.coop {
            coop.lease(lease, now);
        }
    }

    fn view(&mut self, view: &Arc<View>, _: Option<RegionKey>, now: Time, out: &mut Vec<Deed>) {
        self.view = Some(view.clone());
        self.unheard.clear();
        let others = view.members().iter().filter(|member| member.roles.has(Role::Pool));
        let others = others.map(|member| member.incarnation).filter(|other| *other != self.me);
        self.partners = others.map(|other| (other, Partner { layout: None, ask_at: now })).collect();
        match self.coop {
            None => out.push(Deed::Register(layout(&self.settings))),
            Some(_) => self.enter(now, out),
        }
    }

    fn frame(&mut self, letter: Letter, now: Time, out: &mut Vec<Deed>) {
        let (from, view) = (letter.from, letter.view);
        match letter.said {
            Said::Frame(frame) => {
                self.run(now, out, |coop, clocks, actions| coop.frame(from, view, frame, clocks, actions));
            }
            Said::Numbered(number, frame) => {
                // Without its memory a node keeps nothing.
                if self.coop.is_some() {
                    self.run(now, out, |coop, clocks, actions| coop.frame(from, view, frame, clocks, actions));
                    self.say(from, view, Said::Heard(number), out);
                }
            }
            Said::Heard(number) => {
                self.unheard.remove(&number);
                self.say_unheard(now, out);
            }
            Said::Region { ref key, layout, asks } => self.told_region(&letter, key, layout, asks, out),
        }
    }

    fn completed(&mut self, id: u64, completion: Completion, now: Time, out: &mut Vec<Deed>) {
        self.run(now, out, |coop, clocks, actions| coop.completed(id, completion, clocks, actions));
    }

    fn connected(&mut self, member: Incarnation, _: Time, _: &mut Vec<Deed>) {
        if let Some(partner) = self.partners.get_mut(&member) {
            partner.ask_at = Time::ZERO;
        }
        self.unheard.values_mut().filter(|(to, _, _)| *to == member).for_each(|(_, _, due)| *due = Time::ZERO);
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Deed>) {
        if let Some(said) = self.region(true) {
            let view = self.number();
            let due = self.partners.iter_mut().filter(|(_, other)| other.layout.is_none() && other.ask_at <= now);
            let due: Vec<Incarnation> = due
                .map(|(other, partner)| {
                    partner.ask_at = now + ASK_AGAIN;
                    *other
                })
                .collect();
            due.into_iter().for_each(|other| self.say(other, view, said.clone(), out));
        }
        self.say_unheard(now, out);
        if now >= self.tick_at {
            self.tick_at = now + TICK;
            self.run(now, out, |coop, clocks, actions| coop.tick(clocks, actions));
        }
        if self.again.iter().any(|(at, _)| *at <= now) {
            let (due, later) = std::mem::take(&mut self.again).into_iter().partition(|(at, _)| *at <= now);
            self.again = later;
            for (_, asked) in due {
                self.begin(asked, now, out);
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let asks = self.partners.values().filter(|other| other.layout.is_none()).map(|other| other.ask_at);
        let says = self.unheard.values().take(WINDOW).map(|(_, _, due)| *due);
        let again = self.again.iter().map(|(at, _)| *at);
        let is_waited_for = self.coop.as_ref().is_some_and(|coop| coop.next_deadline().is_some());
        let works = (is_waited_for || !self.asked.is_empty()).then_some(self.tick_at);
        asks.chain(says).chain(again).chain(works).min()
    }
}
