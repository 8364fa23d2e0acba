//! A small world in virtual time: nodes, their memory, a network, clients, an application; and what goes wrong with them.
//!
//! One-sided reads sample each word at a moment of its own between post and completion; one-sided writes may land long
//! after they were given up; messages are lost, doubled, delayed and so reordered; links fail one way or both; nodes stop
//! for longer than their lease, die and start again; a dead home's memory stays readable. Everything comes from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use verbena_cluster::{Configured, LeaseTerms, Role, Roles};
use verbena_content::{Names, Rules};
use verbena_terms::{Incarnation, Lapse, Rank, Time};

use crate::checker::{Checker, Sent};
use crate::database::{self, Content, Database, PAGES, Row, State};
use crate::dice::Dice;
use crate::node::{Input, Node, RequestId};

pub const MICRO: u64 = 1_000;
pub const MILLI: u64 = 1_000_000;
pub const LEASE_MS: u64 = LeaseTerms::SHORTEST_MS as u64;
pub const MAX_TRANSACTION_MS: u64 = 300;

/// What may go wrong, and how often. Everything is in thousandths or in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: u64,
    pub doubled: u64,
    pub slow: u64,
    pub late_write: u64,
    pub pauses: u64,
    pub longest_pause_ms: u64,
    pub crashes: u64,
    pub cuts: u64,
    pub outcome_unknown: u64,
    pub memory_outlives: bool,
    pub memory_needs_cpu: bool,
}

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub seed: u64,
    pub rules: Rules,
    /// P1: the lease is looked at before a copy is served.
    pub lease_looked_at: bool,
    pub faults: Faults,
    /// Writes that announce nothing, in thousandths.
    pub writes_of_everything: u64,
    /// Pages that declare nothing, in thousandths.
    pub pages_of_everything: u64,
    pub answers_do_not_count: bool,
    pub duration_ms: u64,
    pub read_every_us: u64,
    pub write_every_us: u64,
    /// Dependency sets that a home keeps.
    pub pages_kept: usize,
    /// Some pages have one `PageId`.
    pub pages_share_ids: bool,
    /// Between the check and the first byte of a write, at most.
    pub gap_us: u64,
}

/// What a client waits for.
#[derive(Clone, Debug)]
pub struct Request {
    pub sent: Sent,
    pub kind: Kind,
    pub node: usize,
    pub life: u64,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Read { page: u64 },
    Write { rows: Vec<Row>, announces: bool, commit: Option<State> },
}

#[derive(Clone, Debug)]
pub enum Event {
    /// Something reaches a node's process.
    At { node: usize, life: u64, input: Input },
    /// A word of a page table changes.
    Store { home: Incarnation, offset: u64, word: u64 },
    /// A home's word lands in an updater's memory.
    Land { updater: Incarnation, word: u32, value: u64 },
    /// One word of a batch is read.
    Sample { read: u64, at: usize },
    /// A read has waited long enough.
    GiveUp { read: u64 },
    /// The application looks into the database for a page.
    Query { node: usize, life: u64, request: RequestId, page: u64 },
    /// The application's transaction commits.
    Commit { request: RequestId },
    /// Nature strikes.
    Fault,
    /// A client sends something.
    Client { write: bool },
}

pub struct Read {
    pub node: usize,
    pub life: u64,
    pub request: RequestId,
    pub home: Incarnation,
    pub offsets: [u64; 3],
    pub words: [u64; 3],
}

pub struct World {
    pub now: u64,
    pub dice: Dice,
    pub settings: Settings,
    pub names: Names,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    pub nodes: Vec<Node>,
    /// Page tables, and whether the process behind them lives or its memory stays anyway.
    pub tables: BTreeMap<Incarnation, BTreeMap<u64, u64>>,
    pub acknowledgements: BTreeMap<Incarnation, BTreeMap<u32, u64>>,
    pub reads: BTreeMap<u64, Read>,
    /// When each link works again.
    cut_until: BTreeMap<(usize, usize), u64>,
    pub database: Database,
    pub checker: Checker,
    pub requests: BTreeMap<RequestId, Request>,
    pub outcomes: BTreeMap<RequestId, &'static str>,
    pub calm: bool,
    pub steps: u64,
    pub struck: u64,
    /// What every transaction takes beside chance.
    pub transaction_takes: u64,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        let mut world = World {
            now: 0,
            dice: Dice::new(settings.seed),
            settings,
            names: Names::new([9; 16]),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            nodes: Vec::new(),
            tables: BTreeMap::new(),
            acknowledgements: BTreeMap::new(),
            reads: BTreeMap::new(),
            cut_until: BTreeMap::new(),
            database: Database::default(),
            checker: Checker::new(settings.answers_do_not_count),
            requests: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            calm: false,
            steps: 0,
            struck: 0,
            transaction_takes: 0,
        };
        let both = Roles::ALL;
        let proxy = Roles::of(Role::Reader).and(Role::Updater);
        let members: Vec<Configured> = [both, both, both, proxy, proxy]
            .into_iter()
            .enumerate()
            .map(|(at, roles)| Configured { name: format!("n{at}"), address: format!("n{at}:1"), roles })
            .collect();
        for at in 0..members.len() {
            let offset = world.dice.within(0, 1 << 50);
            world.nodes.push(Node::new(at, members.clone(), offset));
        }
        for at in 0..world.nodes.len() {
            world.boot(at);
        }
        world
    }

    pub fn lease_terms() -> (Lapse, Lapse) {
        (Lapse(Duration::from_millis(LEASE_MS)), Lapse(Duration::from_millis(5)))
    }

    /// Handles everything until `until`.
    pub fn run_until(&mut self, until: u64) {
        while let Some(&Reverse((at, id))) = self.queue.peek() {
            if at > until {
                break;
            }
            self.queue.pop();
            self.now = at;
            self.steps += 1;
            assert!(self.steps < 5_000_000, "it goes on for ever");
            let event = self.events.remove(&id).expect("invariant: what is queued is known");
            self.handle(event);
        }
        self.now = until;
    }

    pub fn schedule(&mut self, at: u64, event: Event) {
        let id = self.next;
        self.next += 1;
        self.queue.push(Reverse((at.max(self.now), id)));
        self.events.insert(id, event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::At { node, life, input } => self.at_node(node, life, input),
            Event::Store { home, offset, word } => {
                self.tables.entry(home).or_default().insert(offset, word);
            }
            Event::Land { updater, word, value } => self.land(updater, word, value),
            Event::Sample { read, at } => self.sample(read, at),
            Event::GiveUp { read } => {
                if let Some(read) = self.reads.remove(&read) {
                    self.input(read.node, read.life, 0, Input::Words { request: read.request, words: None });
                }
            }
            Event::Query { node, life, request, page } => {
                let content = self.database.page(page);
                let slow = if self.dice.permille(200) { 40 * MILLI } else { 2 * MILLI };
                let delay = self.dice.within(100 * MICRO, slow);
                let lost = !self.calm && self.dice.permille(self.settings.faults.outcome_unknown);
                let content = (!lost).then_some(content);
                self.input(node, life, delay, Input::Page { request, content });
            }
            Event::Commit { request } => self.commit(request),
            Event::Fault => self.fault(),
            Event::Client { write } => self.client(write),
        }
    }

    /// Lets `input` reach a node's process after `delay`.
    pub fn input(&mut self, node: usize, life: u64, delay: u64, input: Input) {
        self.schedule(self.now + delay, Event::At { node, life, input });
    }

    fn at_node(&mut self, node: usize, life: u64, input: Input) {
        let target = &mut self.nodes[node];
        if target.life != life || !target.is_up {
            return;
        }
        let free_at = target.paused_until.max(target.busy_until);
        if free_at > self.now {
            return self.schedule(free_at, Event::At { node, life, input });
        }
        self.take(node, input);
    }

    // The network.

    /// Sends a message from node to node, as badly as the faults say.
    pub fn send(&mut self, from: usize, to: Rank, at: u64, input: Input) {
        let to = to.0 as usize - 1;
        let copies = 1 + u64::from(!self.calm && self.dice.permille(self.settings.faults.doubled));
        for _ in 0..copies {
            let lost = !self.calm && self.dice.permille(self.settings.faults.loss);
            let delay = self.delay();
            if (lost || self.is_cut(from, to)) && from != to {
                continue;
            }
            let life = self.nodes[to].life;
            self.schedule(at + delay, Event::At { node: to, life, input: input.clone() });
        }
    }

    pub fn delay(&mut self) -> u64 {
        let slow = !self.calm && self.dice.permille(self.settings.faults.slow);
        if slow { self.dice.within(MILLI, 80 * MILLI) } else { self.dice.within(20 * MICRO, 500 * MICRO) }
    }

    /// Lets nothing through from one node to another for so long.
    pub fn cut(&mut self, from: usize, to: usize, span: u64) {
        self.cut_until.insert((from, to), self.now + span);
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut_until.get(&(from, to)).is_some_and(|&until| until > self.now)
    }

    // One-sided operations.

    /// Posts a batch of three reads at a home's table.
    pub fn post(&mut self, node: usize, request: RequestId, home: Incarnation, offsets: [u64; 3]) {
        let id = self.next;
        self.next += 1;
        let life = self.nodes[node].life;
        self.reads.insert(id, Read { node, life, request, home, offsets, words: [0; 3] });
        self.schedule(self.now + 60 * MILLI, Event::GiveUp { read: id });
        let lost = !self.calm && self.dice.permille(self.settings.faults.loss);
        if !lost && !self.is_cut(node, home.rank.0 as usize - 1) {
            let delay = self.delay();
            self.schedule(self.now + delay, Event::Sample { read: id, at: 0 });
        }
    }

    fn sample(&mut self, id: u64, at: usize) {
        let Some(read) = self.reads.get(&id) else { return };
        let home = read.home;
        let owner = &self.nodes[home.rank.0 as usize - 1];
        let lives = owner.is_up && owner.incarnations.contains(&home);
        if !lives && !self.settings.faults.memory_outlives {
            return;
        }
        if self.settings.faults.memory_needs_cpu && lives && owner.paused_until > self.now {
            let until = owner.paused_until;
            return self.schedule(until, Event::Sample { read: id, at });
        }
        let Some(word) = self.tables.get(&home).and_then(|table| table.get(&read.offsets[at])).copied() else { return };
        let read = self.reads.get_mut(&id).expect("invariant: looked up above");
        read.words[at] = word;
        let delay = self.dice.within(MICRO, 300 * MICRO);
        if at < 2 {
            return self.schedule(self.now + delay, Event::Sample { read: id, at: at + 1 });
        }
        let read = self.reads.remove(&id).expect("invariant: looked up above");
        if !self.is_cut(home.rank.0 as usize - 1, read.node) {
            self.input(read.node, read.life, delay, Input::Words { request: read.request, words: Some(read.words) });
        } else {
            self.schedule(self.now + 60 * MILLI, Event::GiveUp { read: id });
            self.reads.insert(id, read);
        }
    }

    /// A home writes its word at an updater.
    pub fn write(&mut self, from: usize, at: u64, updater: Incarnation, word: u32, value: u64) {
        let lost = !self.calm && self.dice.permille(self.settings.faults.loss);
        let late = !self.calm && self.dice.permille(self.settings.faults.late_write);
        if lost || self.is_cut(from, updater.rank.0 as usize - 1) {
            return;
        }
        let delay = if late { self.dice.within(MILLI, 400 * MILLI) } else { self.delay() };
        self.schedule(at + delay, Event::Land { updater, word, value });
    }

    fn land(&mut self, updater: Incarnation, word: u32, value: u64) {
        self.acknowledgements.entry(updater).or_default().insert(word, value);
        let node = updater.rank.0 as usize - 1;
        let (life, delay) = (self.nodes[node].life, self.dice.within(MICRO, 100 * MICRO));
        self.input(node, life, delay, Input::LookAtWord { updater, word });
    }

    // Clients and the application.

    fn client(&mut self, write: bool) {
        if self.calm {
            return;
        }
        let every = if write { self.settings.write_every_us } else { self.settings.read_every_us };
        let pause = self.dice.within(every / 2, every * 2);
        self.schedule(self.now + pause * MICRO, Event::Client { write });
        let node = self.dice.within(0, self.nodes.len() as u64) as usize;
        if write {
            let rows = database::rows();
            let count = self.dice.within(1, 3);
            let rows = (0..count).map(|_| rows[self.dice.within(0, rows.len() as u64) as usize]).collect();
            let announces = !self.dice.permille(self.settings.writes_of_everything);
            self.request(node, Kind::Write { rows, announces, commit: None });
        } else {
            let page = self.dice.within(0, PAGES);
            self.request(node, Kind::Read { page });
        }
    }

    /// A client sends a request to a node.
    pub fn request(&mut self, node: usize, kind: Kind) -> RequestId {
        let id = self.next;
        self.next += 1;
        let life = self.nodes[node].life;
        self.requests.insert(id, Request { sent: self.checker.sends(), kind, node, life });
        let delay = self.dice.within(10 * MICRO, 200 * MICRO);
        self.input(node, life, delay, Input::Request(id));
        id
    }

    /// A client has its page.
    pub fn answer(&mut self, request: RequestId, content: &Content, how: &'static str) {
        if let Some(Request { sent, .. }) = self.requests.remove(&request) {
            self.checker.answered(&self.database, sent, content, how, self.now);
            self.outcomes.insert(request, how);
        }
    }

    /// A write ends for its client.
    pub fn write_ends(&mut self, request: RequestId, how: &'static str) {
        let Some(Request { kind: Kind::Write { commit, .. }, .. }) = self.requests.get(&request) else { return };
        if how == "acknowledged" {
            let commit = commit.expect("invariant: what the application answered is committed");
            self.checker.acknowledged(commit);
        }
        self.outcomes.insert(request, how);
    }

    /// The node sent a write to the application.
    pub fn transact(&mut self, request: RequestId) {
        let delay = self.dice.within(200 * MICRO, 15 * MILLI) + self.transaction_takes;
        self.schedule(self.now + delay, Event::Commit { request });
    }

    fn commit(&mut self, request: RequestId) {
        let Some(Request { kind: Kind::Write { rows, commit, .. }, node, life, .. }) = self.requests.get_mut(&request)
        else {
            return;
        };
        *commit = Some(self.database.commit(rows));
        let (node, life) = (*node, *life);
        let lost = !self.calm && self.dice.permille(self.settings.faults.outcome_unknown);
        let delay = self.dice.within(100 * MICRO, 20 * MILLI);
        self.input(node, life, delay, Input::WriteDone { request, lost });
    }

    // Faults.

    fn fault(&mut self) {
        if self.calm {
            return;
        }
        let pause = self.dice.within(5, 60);
        self.schedule(self.now + pause * MILLI, Event::Fault);
        let faults = self.settings.faults;
        let node = self.dice.within(0, self.nodes.len() as u64) as usize;
        if self.dice.permille(faults.pauses) {
            let length = self.dice.within(MILLI, faults.longest_pause_ms * MILLI);
            self.nodes[node].paused_until = self.now + length;
            self.struck += 1;
        }
        if self.dice.permille(faults.crashes) && self.nodes[node].is_up {
            self.nodes[node].die();
            self.struck += 1;
            let down = self.dice.within(MILLI, 400 * MILLI);
            let life = self.nodes[node].life;
            self.schedule(self.now + down, Event::At { node, life, input: Input::Boot });
            self.nodes[node].boots_at = Some(self.now + down);
        }
        if self.dice.permille(faults.cuts) {
            let other = self.dice.within(0, self.nodes.len() as u64) as usize;
            let span = self.dice.within(MILLI, 3 * LEASE_MS * MILLI);
            self.cut(node, other, span);
            if self.dice.permille(500) {
                self.cut(other, node, span);
            }
            self.struck += 1;
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].boots_at.is_some_and(|at| at <= self.now) {
                self.boot(node);
            }
        }
    }

    /// Nothing goes wrong any more, and everybody who died starts again.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.cut_until.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].paused_until = 0;
            if !self.nodes[node].is_up {
                self.boot(node);
            }
        }
    }

    /// A node's own clock: the clocks of two nodes are never compared.
    pub fn clock(&self, node: usize) -> Time {
        Time::from_nanos(self.now + self.nodes[node].clock_offset)
    }
}
