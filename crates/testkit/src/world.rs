//! One world for the simulations of what stands above the cluster. Its nodes run the product's own driver over the simulated fabric. A [`Keeper`] says
//! which of them are in. Faults strike (`faults.rs`), time is virtual, and a seed decides everything.
//!
//! A simulation says what its driver is, who its clients are, what they do and what must hold ([`Simulation`]). The world calls it, and it asks the world to
//! go on ([`Run`]):
//!
//! ```text
//! begin        every node starts; the first strike comes after 50 ms
//!   run        events in the order of time: turns of drivers, questions to the keeper and its answers, clients, strikes
//! calm_down    faults end; what is down starts again
//!   run        what is stuck now is stuck for ever
//! ```
//!
//! A process that starts is another *run* of its node. A run has *lives*: the keeper expels one whose lease is over, and the process begins the next with
//! the next start number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_fabric::sim::{self, Dice, Step};
use verbena_terms::{Clock, Incarnation, Rank, Time, ViewNumber};

use crate::faults::{self, Struck};
use crate::keeper::{DRIFT, Keeper, LEASE, Reply};

/// Complaints after which a run goes no further.
const MOST_COMPLAINTS: usize = 10;
/// A question to the keeper, or its answer, takes at most so long.
const ON_ITS_WAY: Duration = ms(3);

/// So many milliseconds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// So many microseconds.
pub const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// The rank of a node by its index.
pub fn rank(at: usize) -> Rank {
    Rank(at as u32 + 1)
}

/// What is special to a simulation. Nodes are named by their index.
pub trait Simulation: Sized {
    /// The product's driver at a node, in steps.
    type Service;
    /// A client of a node.
    type Client;
    /// What happens besides what happens to every cluster.
    type Event;

    fn world(&mut self) -> &mut World<Self>;
    /// How many complaints the checkers have.
    fn complaints(&self) -> usize;

    // The driver.

    /// The driver of a process that starts.
    fn service(&mut self, at: usize, clock: Arc<dyn Clock>) -> Self::Service;
    fn life_begins(service: &mut Self::Service, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>);
    fn life_ends(service: &mut Self::Service);
    fn view_learnt(service: &mut Self::Service, view: &Arc<View>);
    /// Lets the driver do what it has to, and gives when it wants its next turn.
    fn turn(service: &mut Self::Service) -> Time;

    // What the simulation does with it.

    /// A process has started, and its first life has begun: its clients come.
    fn started(&mut self, at: usize);
    /// A node's clients hear what became of what they wanted.
    fn hear(&mut self, at: usize);
    /// An event of the simulation's own.
    fn happens(&mut self, event: Self::Event);
    /// A driver had its turn.
    fn turned(&mut self, _at: usize) {}
    /// A node learns a view, which it has not acknowledged yet.
    fn learns(&mut self, at: usize, view: &Arc<View>) {
        self.with(at, |service| Self::view_learnt(service, view));
    }
    /// What must hold after every event.
    fn check(&mut self) {}

    // Faults.

    /// A process is about to crash.
    fn crashes(&mut self, _at: usize) {}
    /// What strikes a node besides, each time that something strikes it.
    fn strikes_too(&mut self, _at: usize, _long: Duration) {}
    /// Lots of the simulation's own faults, beside five of all simulations.
    fn own_faults(&self) -> u64 {
        0
    }
    /// One of them strikes.
    fn own_fault(&mut self, _at: usize, _long: Duration) {}
}

/// A node, and its process if it has one.
pub struct Node<S: Simulation> {
    pub me: Incarnation,
    /// Which of its processes this is, from 1.
    pub run: u64,
    /// None while there is no process.
    pub service: Option<S::Service>,
    pub clients: Vec<S::Client>,
    pub lease: Arc<LeaseWord>,
    pub clock: Arc<dyn Clock>,
    /// It does not reach the keeper.
    pub(crate) is_cut: bool,
    turn_at: Time,
}

pub struct World<S: Simulation> {
    pub fabric: sim::World,
    pub dice: Dice,
    pub keeper: Keeper,
    pub nodes: Vec<Node<S>>,
    /// The storm is over.
    pub is_calm: bool,
    pub(crate) struck: Struck,
    /// One-sided operations are executed after the target's end too.
    leaves_memory: bool,
    events: HashMap<u64, Event<S::Event>>,
    numbered: u64,
}

pub(crate) enum Event<E> {
    /// A node's driver is due.
    Turn {
        at: usize,
    },
    /// A node asks the keeper.
    Renew {
        at: usize,
    },
    /// Its question has arrived.
    Asked {
        from: Incarnation,
        at: usize,
        sent: Time,
        acknowledged: ViewNumber,
    },
    /// The answer has.
    Replied {
        to: Incarnation,
        at: usize,
        sent: Time,
        reply: Reply,
    },
    Strike,
    Restart {
        at: usize,
    },
    Heal {
        one: Rank,
        other: Rank,
    },
    Reconnect {
        at: usize,
    },
    Own(E),
}

impl<S: Simulation> World<S> {
    /// So many nodes, without processes yet.
    pub fn new(fabric: sim::World, dice: Dice, keeper: Keeper, nodes: usize, leaves_memory: bool) -> Self {
        let node = |at| Node {
            me: Incarnation { rank: rank(at), start: 0 },
            run: 0,
            service: None,
            clients: vec![],
            lease: Arc::default(),
            clock: fabric.clock(rank(at)),
            is_cut: false,
            turn_at: Time::FAR,
        };
        World {
            nodes: (0..nodes).map(node).collect(),
            fabric,
            dice,
            keeper,
            is_calm: false,
            struck: Struck::default(),
            leaves_memory,
            events: HashMap::new(),
            numbered: 0,
        }
    }

    /// What has struck so far, with the number of views.
    pub fn struck(&self) -> Struck {
        let views = self.keeper.view.as_ref().map_or(0, |view| view.number().0.into());
        Struck { views, ..self.struck }
    }

    /// An event of the simulation's own happens later, in the world's time.
    pub fn later(&mut self, after: Duration, event: S::Event) {
        self.schedule(after, Event::Own(event));
    }

    pub(crate) fn schedule(&mut self, after: Duration, event: Event<S::Event>) {
        let token = self.number(event);
        self.fabric.wake_at(self.fabric.now() + after, token);
    }

    /// Something happens at a node, when it runs, in its own time.
    fn at_node(&mut self, at: usize, when: Time, event: Event<S::Event>) {
        let token = self.number(event);
        self.fabric.wake_node_at(self.nodes[at].me, when, token);
    }

    fn number(&mut self, event: Event<S::Event>) -> u64 {
        self.numbered += 1;
        self.events.insert(self.numbered, event);
        self.numbered
    }

    /// What a step of the fabric means here.
    fn event_of(&mut self, step: Step) -> Option<Event<S::Event>> {
        match step {
            Step::Wake { token, .. } => self.events.remove(&token),
            Step::Message { node, .. } | Step::Completed { node } | Step::Resumed { node } => {
                self.nodes.iter().position(|other| other.me == node).map(|at| Event::Turn { at })
            }
            Step::Inside => None,
        }
    }

    /// A node asks the keeper to renew its lease, and will again.
    fn renew(&mut self, at: usize) {
        if !self.nodes[at].is_cut {
            let on_its_way = self.dice.between(ms(0), ON_ITS_WAY);
            self.asks(at, on_its_way);
        }
        let (node, lease) = (&self.nodes[at], self.nodes[at].lease.load());
        // More often while the view is not in effect.
        let is_settled = lease.acknowledged == lease.in_effect && lease.acknowledged > ViewNumber(0);
        let pause = if is_settled { LEASE / 4 } else { LEASE / 10 };
        self.at_node(at, node.clock.now() + pause, Event::Renew { at });
    }

    fn asks(&mut self, at: usize, on_its_way: Duration) {
        let node = &self.nodes[at];
        let (from, sent, acknowledged) = (node.me, node.clock.now(), node.lease.load().acknowledged);
        if !node.is_cut {
            self.schedule(on_its_way, Event::Asked { from, at, sent, acknowledged });
        }
    }

    /// A question arrives at the keeper.
    fn asked(&mut self, at: usize, from: Incarnation, sent: Time, acknowledged: ViewNumber) {
        let reply = self.keeper.asked(from, acknowledged, self.fabric.now());
        let on_its_way = self.dice.between(ms(0), ON_ITS_WAY);
        if !self.nodes[at].is_cut && self.nodes[at].me == from {
            let arrives = self.nodes[at].clock.now() + on_its_way;
            self.at_node(at, arrives, Event::Replied { to: from, at, sent, reply });
        }
    }
}

/// How the world goes on.
pub trait Run: Simulation {
    /// Every node starts, and something will strike.
    fn begin(&mut self) {
        (0..self.world().nodes.len()).for_each(|at| self.start(at));
        self.world().schedule(ms(50), Event::Strike);
    }

    /// Everything happens for so long; less, where the checkers have complained of enough.
    fn run(&mut self, length: Duration) {
        let end = self.world().fabric.now() + length;
        while self.complaints() < MOST_COMPLAINTS {
            let world = self.world();
            let Some(step) = world.fabric.step_before(end) else { break };
            if let Some(event) = world.event_of(step) {
                happens(self, event);
                self.check();
            }
        }
    }

    /// Faults end.
    fn calm_down(&mut self) {
        faults::calm_down(self);
    }

    /// A node's driver does something.
    fn with(&mut self, at: usize, event: impl FnOnce(&mut Self::Service)) {
        if let Some(service) = &mut self.world().nodes[at].service {
            event(service);
            self.after(at);
        }
    }

    /// The driver of a node did something, or has to: its clients hear of it, and it says when it wants its next turn.
    fn after(&mut self, at: usize) {
        self.hear(at);
        let Some(service) = &mut self.world().nodes[at].service else { return };
        let due = Self::turn(service);
        self.turned(at);
        self.hear(at);
        let world = self.world();
        let node = &mut world.nodes[at];
        if due < node.turn_at || node.turn_at <= node.clock.now() {
            node.turn_at = due;
            world.at_node(at, due, Event::Turn { at });
        }
    }

    /// A process starts, as the next life of its node.
    fn start(&mut self, at: usize) {
        let clock = self.world().nodes[at].clock.clone();
        let service = self.service(at, clock);
        let node = &mut self.world().nodes[at];
        node.run += 1;
        node.lease = Arc::default();
        node.service = Some(service);
        live(self, at);
        self.started(at);
    }
}

impl<S: Simulation> Run for S {}

fn happens<S: Simulation>(simulation: &mut S, event: Event<S::Event>) {
    let world = simulation.world();
    match event {
        Event::Turn { at } => simulation.after(at),
        Event::Renew { at } => world.renew(at),
        Event::Asked { from, at, sent, acknowledged } => world.asked(at, from, sent, acknowledged),
        Event::Replied { to, at, sent, reply } if world.nodes[at].me == to => replied(simulation, at, sent, &reply),
        Event::Replied { .. } => {}
        Event::Strike => faults::strike(simulation),
        Event::Restart { at } if world.nodes[at].service.is_none() => simulation.start(at),
        Event::Restart { .. } => {}
        Event::Heal { one, other } => world.fabric.heal(one, other),
        Event::Reconnect { at } => world.nodes[at].is_cut = false,
        Event::Own(event) => simulation.happens(event),
    }
}

/// The next life of a node begins.
fn live<S: Simulation>(simulation: &mut S, at: usize) {
    let world = simulation.world();
    let node = &mut world.nodes[at];
    node.me.start += 1;
    let fabric = if node.me.start == 1 { world.fabric.node(node.me) } else { world.fabric.next_life(node.me) };
    if world.leaves_memory {
        world.fabric.leave_memory(node.me);
    }
    node.lease.store(Lease::NONE);
    node.turn_at = Time::FAR;
    let lease = node.lease.clone();
    simulation.with(at, |service| S::life_begins(service, fabric, &lease));
    simulation.world().renew(at);
}

/// The keeper's answer has arrived.
fn replied<S: Simulation>(simulation: &mut S, at: usize, sent: Time, reply: &Reply) {
    let Reply::Told { is_renewed, view, in_effect } = reply else {
        simulation.with(at, S::life_ends);
        return live(simulation, at);
    };
    let lease = simulation.world().nodes[at].lease.clone();
    let mut now = lease.load();
    if *is_renewed {
        now.until = now.until.max(sent + (LEASE - DRIFT));
    }
    now.in_effect = now.in_effect.max(*in_effect);
    lease.store(now);
    if view.number() > now.acknowledged {
        simulation.learns(at, view);
        // Only when what the node did in older views is at an end.
        lease.store(Lease { acknowledged: view.number(), ..now });
        // The node says so at once, rather than with the next renewal.
        simulation.world().asks(at, ms(1));
    }
    simulation.after(at);
}
