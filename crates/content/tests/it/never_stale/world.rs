//! The nodes, what befalls them, and the loop that lets one thing happen after the other.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use verbena_fabric::Port;
use verbena_fabric::sim::{self, Outage, Step};
use verbena_terms::{Incarnation, Time};

use crate::never_stale::database::{PAGES, rows};
use crate::never_stale::membership::{Disk, PORT, members, rank};
use crate::never_stale::outside::{Event, Kind, Outside, RequestId, Thread};
use crate::never_stale::process::{LONGEST_LEAVE, Process};
use crate::never_stale::settings::{LEASE, Settings, ms, us};

pub struct World {
    pub outside: Rc<Outside>,
    nodes: Vec<Node>,
    /// When each link that is cut works again.
    cuts: Vec<(usize, usize, Time)>,
    pub struck: Struck,
    steps: u64,
}

verbena_testkit::counts! {
    /// How often nature struck.
    pub struct Struck {
        pub pauses: u64,
        pub crashes: u64,
        pub leaves: u64,
        pub cuts: u64,
        pub jumps: u64,
        /// Times that the register was away.
        pub away: u64,
    }
}

#[derive(Default)]
struct Node {
    disk: Rc<RefCell<Disk>>,
    process: Option<Process>,
    /// What came while it stood still.
    deferred: Vec<Event>,
}

impl World {
    pub fn new(settings: Settings) -> Self {
        let nodes = members().iter().map(|_| Node::default()).collect();
        let outside = Rc::new(Outside::new(settings));
        let mut world = World { outside, nodes, cuts: Vec::new(), struck: Struck::default(), steps: 0 };
        for at in 0..world.nodes.len() {
            world.boot(at);
        }
        world
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Lets everything happen for so long.
    pub fn run(&mut self, length: Duration) {
        let until = self.outside.now() + length;
        while let Some(step) = self.outside.sim.step_before(until) {
            self.steps += 1;
            assert!(self.steps < 20_000_000, "it goes on for ever");
            self.handle(step);
        }
    }

    fn handle(&mut self, step: Step) {
        match step {
            Step::Inside => {}
            Step::Message { node, port: PORT } => self.act(node, Thread::Membership),
            Step::Message { node, port: Port(_) } => self.act(node, Thread::Content),
            Step::Completed { node } => self.act(node, Thread::Requests),
            Step::Wake { node: Some(node), token } => {
                let thread = if token == Thread::Membership as u64 { Thread::Membership } else { Thread::Content };
                if let Some(process) = self.process_that_runs(node) {
                    process.timer(thread);
                }
            }
            Step::Wake { node: None, token } => {
                let event = self.outside.take(token);
                self.happens(event);
            }
            Step::Resumed { node } => self.goes_on(node),
        }
    }

    fn act(&mut self, who: Incarnation, thread: Thread) {
        if let Some(process) = self.process_that_runs(who) {
            process.act(thread);
        }
    }

    /// The process of this incarnation, unless it stands still: then all its threads look when it goes on.
    fn process_that_runs(&mut self, who: Incarnation) -> Option<&mut Process> {
        let at = self.outside.node_of(who.rank)?;
        if self.outside.sim.is_paused(who) {
            return None;
        }
        self.nodes[at].process.as_mut().filter(|process| process.me() == who)
    }

    fn goes_on(&mut self, who: Incarnation) {
        let Some(at) = self.outside.node_of(who.rank) else { return };
        let node = &mut self.nodes[at];
        if let Some(process) = node.process.as_mut().filter(|process| process.me() == who) {
            process.goes_on();
            for event in std::mem::take(&mut node.deferred) {
                self.outside.later(Duration::ZERO, event);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Outside(happen) => happen(),
            Event::Inside { at, run, .. } | Event::Thread { at, run, .. } | Event::Answered { at, run, .. } => {
                let node = &mut self.nodes[at];
                let Some(process) = node.process.as_mut().filter(|process| process.run == run) else { return };
                if self.outside.sim.is_paused(process.me()) {
                    return node.deferred.push(event);
                }
                match event {
                    Event::Inside { arrive, .. } => {
                        arrive();
                        process.act(Thread::Requests);
                    }
                    Event::Thread { thread, .. } => process.told(thread),
                    Event::Answered { number, answer, .. } => process.answered(number, answer),
                    _ => unreachable!("one of the three above"),
                }
            }
            Event::Arrives { at, run, request, kind } => {
                let node = &mut self.nodes[at];
                let Some(process) = node.process.as_mut().filter(|process| process.run == run) else { return };
                if self.outside.sim.is_paused(process.me()) {
                    return node.deferred.push(Event::Arrives { at, run, request, kind });
                }
                process.request(request, kind);
            }
            Event::End { at, run } => {
                if self.nodes[at].process.as_ref().is_some_and(|process| process.run == run) {
                    self.kill(at, false);
                }
            }
            Event::Boot { at } => {
                if self.nodes[at].process.is_none() {
                    self.boot(at);
                }
            }
            Event::Heal { from, to } => self.heal(from, to),
            Event::Nature => self.nature(),
            Event::Client { write } => self.client(write),
        }
    }

    // What befalls nodes and links.

    /// Starts a node's process. The one before is over.
    pub fn boot(&mut self, at: usize) {
        self.kill(at, false);
        let node = &mut self.nodes[at];
        node.deferred.clear();
        node.process = Some(Process::start(at, &self.outside, &node.disk));
    }

    pub fn kill(&mut self, at: usize, leaves_memory: bool) {
        let Some(process) = self.nodes[at].process.take() else { return };
        if leaves_memory {
            self.outside.sim.leave_memory(process.me());
        }
        self.outside.sim.crash(process.me());
        self.outside.lives.borrow_mut().remove(&at);
    }

    /// Whether a process of this node runs, or stands still.
    pub fn runs(&self, at: usize) -> bool {
        self.nodes[at].process.is_some()
    }

    pub fn leave(&mut self, at: usize) {
        if let Some(process) = &mut self.nodes[at].process {
            process.leave();
        }
    }

    pub fn pause(&mut self, at: usize, length: Duration) {
        if let Some(process) = &self.nodes[at].process {
            self.outside.sim.pause(process.me(), length);
        }
    }

    /// Lets nothing through from one node to another for so long.
    pub fn cut(&mut self, from: usize, to: usize, outage: Outage, length: Duration) {
        self.outside.sim.partition_one_way(rank(from), rank(to), outage);
        self.cuts.push((from, to, self.outside.now() + length));
        self.outside.later(length, Event::Heal { from, to });
    }

    /// Both ways heal at once: when the last of their cuts is over.
    fn heal(&mut self, from: usize, to: usize) {
        let now = self.outside.now();
        self.cuts.retain(|(_, _, until)| *until > now);
        if !self.cuts.iter().any(|(a, b, _)| (*a, *b) == (from, to) || (*b, *a) == (from, to)) {
            self.outside.sim.heal(rank(from), rank(to));
        }
    }

    fn nature(&mut self) {
        let outside = self.outside.clone();
        if outside.calm.get() {
            return;
        }
        outside.later(outside.between(ms(5), ms(60)), Event::Nature);
        let faults = outside.settings.faults;
        let count = self.nodes.len() as u64;
        let at = outside.below(count) as usize;
        if outside.strikes(faults.pauses) {
            self.struck.pauses += 1;
            self.pause(at, outside.between(ms(1), faults.longest_pause));
        }
        if outside.strikes(faults.crashes) && self.nodes[at].process.is_some() {
            self.struck.crashes += 1;
            self.kill(at, outside.strikes(faults.memory_outlives));
            if outside.strikes(faults.records_lost) {
                outside.machines[at % outside.machines.len()].loses_all();
            }
            outside.later(outside.between(ms(1), ms(400)), Event::Boot { at });
        }
        if let Some(process) = &mut self.nodes[at].process
            && outside.strikes(faults.leaves)
            && !outside.sim.is_paused(process.me())
        {
            self.struck.leaves += 1;
            process.leave();
            outside.later(LONGEST_LEAVE + outside.between(ms(1), ms(200)), Event::Boot { at });
        }
        if outside.strikes(faults.cuts) {
            self.struck.cuts += 1;
            let (other, length) = (outside.below(count) as usize, outside.between(ms(1), 3 * LEASE));
            let outage = [Outage::Loses, Outage::Holds, Outage::Either][outside.below(3) as usize];
            self.cut(at, other, outage, length);
            if outside.happens(500) {
                self.cut(other, at, outage, length);
            }
        }
        if outside.strikes(faults.register_away) {
            self.struck.away += 1;
            let from = outside.happens(700).then_some(at);
            outside.register_goes_away(from, outside.between(ms(1), 2 * LEASE), self.nodes.len());
        }
        if outside.strikes(faults.jumps) {
            let proxy = self.nodes.len() - 1 - outside.below(2) as usize;
            if let Some(process) = &self.nodes[proxy].process {
                self.struck.jumps += 1;
                outside.sim.jump_clock(process.me(), outside.between(ms(1), 3 * LEASE));
            }
        }
    }

    /// Nothing goes wrong any more, and everybody who died starts again.
    pub fn calm_down(&mut self) {
        let sim = self.outside.sim.clone();
        self.outside.calm.set(true);
        sim.set_faults(sim::Faults { travel_max: us(50), ..sim::Faults::none() });
        sim.heal_all();
        self.cuts.clear();
        for at in 0..self.nodes.len() {
            match &self.nodes[at].process {
                Some(process) => sim.resume(process.me()),
                None => self.boot(at),
            }
        }
    }

    // Clients.

    fn client(&mut self, write: bool) {
        let outside = self.outside.clone();
        if outside.calm.get() {
            return;
        }
        let every = if write { outside.settings.write_every } else { outside.settings.read_every };
        outside.later(outside.between(every / 2, every * 2), Event::Client { write });
        let at = outside.below(self.nodes.len() as u64) as usize;
        let kind = if write {
            let rows = rows();
            let changed = (0..1 + outside.below(2)).map(|_| rows[outside.below(rows.len() as u64) as usize]);
            let (rows, announces) = (changed.collect(), !outside.happens(outside.settings.writes_of_everything));
            Kind::Write { rows, announces }
        } else {
            Kind::Read { page: outside.below(PAGES) }
        };
        self.request(at, kind);
    }

    /// A client sends a request to a node.
    pub fn request(&mut self, at: usize, kind: Kind) -> RequestId {
        let request = self.outside.sends();
        self.outside
            .sim
            .note(format_args!("request {} to n{at}: {kind:?}, sees at least {}", request.id, request.sent));
        if let Some(process) = &self.nodes[at].process {
            let delay = self.outside.between(us(10), us(200));
            self.outside.later(delay, Event::Arrives { at, run: process.run, request, kind });
        }
        request.id
    }
}
