//! The nodes, what befalls them, and time.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord};
use verbena_fabric::sim::{Dice, Faults, Outage, Step, World};
use verbena_lock::service::Stepped;
use verbena_lock::{LocksOptions, Mode, Request, Token};
use verbena_terms::{Clock, Incarnation, Rank, Time, ViewNumber};

use crate::storm::checker::Checker;
use crate::storm::clients::{Client, name};
use crate::storm::settings::{DRIFT, LEASE, MOST_NAMES, STORM, Settings, ms};
use crate::storm::store::{Store, Update};
use verbena_testkit::keeper::{Keeper, Reply};

#[derive(Clone, Copy, Debug, Default)]
pub struct Struck {
    pub views: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub cuts: u64,
    /// Locks that were evicted.
    pub evictions: u64,
    /// Words that were used again.
    pub reused: u64,
}

impl AddAssign for Struck {
    fn add_assign(&mut self, other: Struck) {
        self.views += other.views;
        self.crashes += other.crashes;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.evictions += other.evictions;
        self.reused += other.reused;
    }
}

#[derive(Clone, Debug)]
pub enum Event {
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
    Client {
        at: usize,
        nth: usize,
        run: u64,
    },
    /// A client that has released asks again, or was expected to.
    Again {
        at: usize,
        nth: usize,
        run: u64,
        name: u64,
        comes: bool,
    },
    Store {
        name: u64,
        update: Update,
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
}

pub struct Node {
    pub me: Incarnation,
    /// Which of its processes.
    pub run: u64,
    /// None while there is none.
    pub service: Option<Stepped>,
    pub lease: Arc<LeaseWord>,
    pub clock: Arc<dyn Clock>,
    pub clients: Vec<Client>,
    /// It does not reach the keeper.
    is_cut: bool,
    turn_at: Time,
}

pub struct Cluster {
    pub settings: Settings,
    pub world: World,
    pub dice: Dice,
    keeper: Keeper,
    pub nodes: Vec<Node>,
    pub checker: Checker,
    pub stores: Vec<Store>,
    pub updates: u64,
    /// The token of the last hold that updated a lock's value.
    pub updated: Vec<Token>,
    pub struck: Struck,
    pub is_calm: bool,
    events: HashMap<u64, Event>,
    numbered: u64,
}

fn rank(at: usize) -> Rank {
    Rank(at as u32 + 1)
}

impl Cluster {
    pub fn new(settings: Settings) -> Cluster {
        let world = World::new(settings.seed, settings.faults.clone());
        let nodes = (0..settings.nodes).map(|at| Node {
            me: Incarnation { rank: rank(at), start: 0 },
            run: 0,
            service: None,
            lease: Arc::default(),
            clock: world.clock(rank(at)),
            clients: vec![],
            is_cut: false,
            turn_at: Time::FAR,
        });
        let mut cluster = Cluster {
            nodes: nodes.collect(),
            dice: Dice::new(settings.seed),
            keeper: Keeper::new(settings.homes, settings.waits_for_leases),
            checker: Checker::new(settings.looks_at_lease),
            stores: vec![Store::default(); MOST_NAMES as usize],
            updates: 0,
            updated: vec![Token::default(); MOST_NAMES as usize],
            struck: Struck::default(),
            is_calm: false,
            events: HashMap::new(),
            numbered: 0,
            world,
            settings,
        };
        (0..cluster.nodes.len()).for_each(|at| cluster.start(at));
        cluster.later(ms(50), Event::Strike);
        cluster
    }

    pub fn storm(&mut self) {
        self.run(STORM);
    }

    /// Faults end: within some leases everybody has had what they wanted, and every node gets every lock.
    pub fn calm(&mut self) {
        self.is_calm = true;
        self.world.set_faults(Faults::none());
        self.world.heal_all();
        for at in 0..self.nodes.len() {
            self.nodes[at].is_cut = false;
            match self.nodes[at].service {
                None => self.start(at),
                Some(_) if self.world.is_paused(self.nodes[at].me) => self.world.resume(self.nodes[at].me),
                Some(_) => {}
            }
        }
        self.run(20 * LEASE);
        for (at, node) in self.nodes.iter().enumerate() {
            for client in node.clients.iter().filter(|client| **client != Client::Idle) {
                self.checker.broken.push(format!("stuck: node {at}: {client:?}"));
            }
        }
        // However many have words, the others get those of whom nobody uses.
        let names = self.settings.names;
        for (at, nth) in (0..self.nodes.len()).flat_map(|at| (0..names).map(move |nth| (at, nth))) {
            let request = Request { mode: Mode::Exclusive, is_try: false };
            let Some(service) = &mut self.nodes[at].service else { continue };
            let id = service.acquire(name(nth), request);
            let (granted, run) = (self.checker.seen.granted, self.nodes[at].run);
            self.nodes[at].clients[0] = Client::Waits { id, name: nth, is_try: false };
            self.after(at);
            self.later(ms(1), Event::Client { at, nth: 0, run });
            self.run(LEASE);
            if self.nodes[at].clients[0] != Client::Idle {
                self.run(7 * LEASE);
            }
            if self.nodes[at].clients[0] != Client::Idle || self.checker.seen.granted == granted {
                self.checker.broken.push(format!("stuck: node {at} does not get {nth}, or does not let it go"));
            }
        }
        (0..self.nodes.len()).for_each(|at| self.end_of(at));
        self.struck.views = self.keeper.view.as_ref().map_or(0, |view| view.number().0.into());
    }

    /// Nobody here broke the protocol.
    fn end_of(&mut self, at: usize) {
        let Some(service) = &self.nodes[at].service else { return };
        let (strange, words) = (service.strange(), service.home_words());
        self.struck.evictions += words.evictions;
        self.struck.reused += words.reused;
        if strange > 0 {
            self.checker.broken.push(format!("node {at} found {strange} letters strange"));
        }
    }

    /// Something happens later, in the world's time.
    pub fn later(&mut self, after: Duration, event: Event) {
        let token = self.number(event);
        self.world.wake_at(self.world.now() + after, token);
    }

    /// Something happens at a node, when it runs.
    fn at_node(&mut self, at: usize, when: Time, event: Event) {
        let token = self.number(event);
        self.world.wake_node_at(self.nodes[at].me, when, token);
    }

    fn number(&mut self, event: Event) -> u64 {
        self.numbered += 1;
        self.events.insert(self.numbered, event);
        self.numbered
    }

    /// A node's service does something.
    pub fn with(&mut self, at: usize, event: impl FnOnce(&mut Stepped)) {
        if let Some(service) = &mut self.nodes[at].service {
            event(service);
            self.after(at);
        }
    }

    /// It did something: its clients hear of it, and it wants its next turn.
    pub fn after(&mut self, at: usize) {
        self.hear(at);
        let Some(service) = &mut self.nodes[at].service else { return };
        let due = service.turn();
        self.hear(at);
        let node = &mut self.nodes[at];
        if due < node.turn_at || node.turn_at <= node.clock.now() {
            node.turn_at = due;
            self.at_node(at, due, Event::Turn { at });
        }
    }

    fn run(&mut self, length: Duration) {
        let end = self.world.now() + length;
        while self.checker.broken.len() < 10 {
            let Some(step) = self.world.step_before(end) else { break };
            let event = match step {
                Step::Wake { token, .. } => self.events.remove(&token),
                Step::Message { node, .. } | Step::Completed { node } | Step::Resumed { node } => {
                    self.nodes.iter().position(|other| other.me == node).map(|at| Event::Turn { at })
                }
                Step::Inside => None,
            };
            if let Some(event) = event {
                self.happens(event);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Turn { at } => self.after(at),
            Event::Renew { at } => self.renew(at),
            Event::Asked { from, at, sent, acknowledged } => {
                let reply = self.keeper.asked(from, acknowledged, self.world.now());
                let on_its_way = self.dice.between(ms(0), ms(3));
                if !self.nodes[at].is_cut && self.nodes[at].me == from {
                    let arrives = self.nodes[at].clock.now() + on_its_way;
                    self.at_node(at, arrives, Event::Replied { to: from, at, sent, reply });
                }
            }
            Event::Replied { to, at, sent, reply } if self.nodes[at].me == to => self.replied(at, sent, &reply),
            Event::Replied { .. } => {}
            Event::Client { at, nth, run } => self.client(at, nth, run),
            Event::Again { at, nth, run, name, comes } => self.again(at, nth, run, name, comes),
            Event::Store { name, update } => self.stored(name, update),
            Event::Strike => self.strike(),
            Event::Restart { at } => {
                if self.nodes[at].service.is_none() {
                    self.start(at);
                }
            }
            Event::Heal { one, other } => self.world.heal(one, other),
            Event::Reconnect { at } => self.nodes[at].is_cut = false,
        }
        self.checker.check();
    }

    // Membership.

    /// A process starts, as the next life of its node.
    fn start(&mut self, at: usize) {
        let options =
            LocksOptions { scheme: self.settings.scheme, slots: self.settings.slots, rules: self.settings.rules };
        let node = &mut self.nodes[at];
        node.run += 1;
        node.lease = Arc::default();
        node.service = Some(Stepped::new(options, node.clock.clone()));
        self.live(at);
        self.nodes[at].clients = vec![Client::Idle; self.settings.clients];
        let run = self.nodes[at].run;
        for nth in 0..self.settings.clients {
            self.later(ms(10), Event::Client { at, nth, run });
        }
    }

    fn live(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.me.start += 1;
        let fabric = if node.me.start == 1 { self.world.node(node.me) } else { self.world.next_life(node.me) };
        if self.settings.leaves_memory {
            self.world.leave_memory(node.me);
        }
        node.lease.store(Lease::NONE);
        node.turn_at = Time::FAR;
        let lease = node.lease.clone();
        self.with(at, |service| service.life_begins(fabric, &lease).unwrap());
        self.renew(at);
    }

    fn renew(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (from, sent, acknowledged) = (node.me, node.clock.now(), node.lease.load().acknowledged);
        if !node.is_cut {
            let on_its_way = self.dice.between(ms(0), ms(3));
            self.later(on_its_way, Event::Asked { from, at, sent, acknowledged });
        }
        // Twice as often while the view is not in effect.
        let lease = self.nodes[at].lease.load();
        let is_settled = lease.acknowledged == lease.in_effect && lease.acknowledged > ViewNumber(0);
        let pause = if is_settled { LEASE / 4 } else { LEASE / 10 };
        self.at_node(at, sent + pause, Event::Renew { at });
    }

    fn replied(&mut self, at: usize, sent: Time, reply: &Reply) {
        let Reply::Told { is_renewed, view, in_effect } = reply else {
            self.with(at, Stepped::life_ends);
            return self.live(at);
        };
        let lease = self.nodes[at].lease.clone();
        let mut now = lease.load();
        if *is_renewed {
            now.until = now.until.max(sent + (LEASE - DRIFT));
        }
        now.in_effect = now.in_effect.max(*in_effect);
        lease.store(now);
        if view.number() > now.acknowledged {
            let run = self.nodes[at].run;
            let before = self.checker.of(at, run).count();
            self.with(at, |service| service.view_learnt(view));
            let after = self.checker.of(at, run).filter(|held| self.checker.believes(held)).count();
            self.checker.seen.survived += before.min(after) as u64;
            // Only when what it did in older views is at an end.
            lease.store(Lease { acknowledged: view.number(), ..now });
            // It is said at once, rather than with the next renewal.
            self.renew_soon(at);
        }
        self.after(at);
    }

    fn renew_soon(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (from, sent, acknowledged) = (node.me, node.clock.now(), node.lease.load().acknowledged);
        if !node.is_cut {
            self.later(ms(1), Event::Asked { from, at, sent, acknowledged });
        }
    }

    // Faults.

    fn strike(&mut self) {
        if self.is_calm {
            return;
        }
        let at = self.dice.below(self.nodes.len() as u64) as usize;
        let long = self.dice.between(ms(1), 3 * LEASE);
        let me = self.nodes[at].me;
        match self.dice.below(5) {
            0 if self.nodes[at].service.is_some() => {
                self.struck.crashes += 1;
                self.end_of(at);
                self.world.crash(me);
                // Its clients live on, and believe what they held until the lease is over.
                self.nodes[at].service = None;
                self.later(long, Event::Restart { at });
            }
            1 | 2 if self.nodes[at].service.is_some() && !self.world.is_paused(me) => {
                self.struck.pauses += 1;
                self.world.pause(me, long);
            }
            3 => {
                self.struck.cuts += 1;
                let other = rank((at + 1 + self.dice.below(self.nodes.len() as u64 - 1) as usize) % self.nodes.len());
                if self.dice.below(2) == 0 {
                    self.world.partition(me.rank, other);
                } else {
                    self.world.partition_one_way(me.rank, other, Outage::Either);
                }
                self.later(long, Event::Heal { one: me.rank, other });
            }
            _ => {
                self.struck.cuts += 1;
                self.nodes[at].is_cut = true;
                self.later(long, Event::Reconnect { at });
            }
        }
        let pause = self.dice.between(ms(10), ms(200));
        self.later(pause, Event::Strike);
    }
}
