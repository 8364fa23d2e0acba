//! A cluster whose nodes serve locks: what is special to it beside the world of all simulations.

use std::sync::Arc;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_fabric::sim::{self, Dice};
use verbena_lock::service::Stepped;
use verbena_lock::{LocksOptions, Mode, Request, Token};
use verbena_terms::{Clock, Time};
use verbena_testkit::keeper::{Keeper, LEASE};
use verbena_testkit::world::{Run, Simulation, World, ms};

use crate::storm::checker::Checker;
use crate::storm::clients::{Client, name};
use crate::storm::settings::{MOST_NAMES, Settings};
use crate::storm::store::{Store, Update};

#[derive(Clone, Debug)]
pub enum Event {
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
}

pub struct Cluster {
    pub settings: Settings,
    pub world: World<Cluster>,
    pub checker: Checker,
    pub stores: Vec<Store>,
    pub updates: u64,
    /// The token of the last hold that updated a lock's value.
    pub updated: Vec<Token>,
}

impl Cluster {
    pub fn new(settings: Settings) -> Cluster {
        let fabric = sim::World::new(settings.seed, settings.faults.clone());
        let keeper = Keeper::new(settings.homes, settings.waits_for_leases);
        let dice = Dice::new(settings.seed);
        let mut cluster = Cluster {
            world: World::new(fabric, dice, keeper, settings.nodes, settings.leaves_memory),
            checker: Checker::new(settings.looks_at_lease),
            stores: vec![Store::default(); MOST_NAMES as usize],
            updates: 0,
            updated: vec![Token::default(); MOST_NAMES as usize],
            settings,
        };
        cluster.begin();
        cluster
    }

    /// Faults end: within some leases everybody has had what they wanted, and every node gets every lock.
    pub fn calm(&mut self) {
        self.calm_down();
        self.run(20 * LEASE);
        for (at, node) in self.world.nodes.iter().enumerate() {
            for client in node.clients.iter().filter(|client| **client != Client::Idle) {
                self.checker.broken.push(format!("stuck: node {at}: {client:?}"));
            }
        }
        // However many have words, the others get those of whom nobody uses.
        let names = self.settings.names;
        for (at, nth) in (0..self.world.nodes.len()).flat_map(|at| (0..names).map(move |nth| (at, nth))) {
            let request = Request { mode: Mode::Exclusive, is_try: false };
            let Some(service) = &mut self.world.nodes[at].service else { continue };
            let id = service.acquire(name(nth), request);
            let (granted, run) = (self.checker.seen.granted, self.world.nodes[at].run);
            self.world.nodes[at].clients[0] = Client::Waits { id, name: nth, is_try: false };
            self.after(at);
            self.world.later(ms(1), Event::Client { at, nth: 0, run });
            self.run(LEASE);
            if self.world.nodes[at].clients[0] != Client::Idle {
                self.run(7 * LEASE);
            }
            if self.world.nodes[at].clients[0] != Client::Idle || self.checker.seen.granted == granted {
                self.checker.broken.push(format!("stuck: node {at} does not get {nth}, or does not let it go"));
            }
        }
        (0..self.world.nodes.len()).for_each(|at| self.end_of(at));
    }

    /// Nobody here broke the protocol.
    fn end_of(&mut self, at: usize) {
        let Some(service) = &self.world.nodes[at].service else { return };
        let (violation, words) = (service.violation(), service.home_words());
        self.checker.seen.evictions += words.evictions;
        self.checker.seen.reused += words.reused;
        if violation > 0 {
            self.checker.broken.push(format!("node {at} found {violation} messages that break the protocol"));
        }
    }
}

impl Simulation for Cluster {
    type Service = Stepped;
    type Client = Client;
    type Event = Event;

    fn world(&mut self) -> &mut World<Self> {
        &mut self.world
    }

    fn complaints(&self) -> usize {
        self.checker.broken.len()
    }

    fn service(&mut self, _at: usize, clock: Arc<dyn Clock>) -> Stepped {
        let Settings { scheme, slots, rules, .. } = self.settings;
        Stepped::new(LocksOptions { scheme, slots, rules }, clock)
    }

    fn life_begins(service: &mut Stepped, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) {
        service.life_begins(fabric, lease).unwrap();
    }

    fn life_ends(service: &mut Stepped) {
        service.life_ends();
    }

    fn view_learnt(service: &mut Stepped, view: &Arc<View>) {
        service.view_learnt(view);
    }

    fn turn(service: &mut Stepped) -> Time {
        service.turn()
    }

    fn started(&mut self, at: usize) {
        let node = &mut self.world.nodes[at];
        node.clients = vec![Client::Idle; self.settings.clients];
        let run = node.run;
        for nth in 0..self.settings.clients {
            self.world.later(ms(10), Event::Client { at, nth, run });
        }
    }

    fn hear(&mut self, at: usize) {
        self.hears(at);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Client { at, nth, run } => self.client(at, nth, run),
            Event::Again { at, nth, run, name, comes } => self.again(at, nth, run, name, comes),
            Event::Store { name, update } => self.stored(name, update),
        }
    }

    fn learns(&mut self, at: usize, view: &Arc<View>) {
        let run = self.world.nodes[at].run;
        let before = self.checker.of(at, run).count();
        self.with(at, |service| service.view_learnt(view));
        let after = self.checker.of(at, run).filter(|held| self.checker.believes(held)).count();
        self.checker.seen.survived += before.min(after) as u64;
    }

    fn check(&mut self) {
        self.checker.check();
    }

    /// The clients of a process that crashes live on, and believe what they held until the lease is over.
    fn crashes(&mut self, at: usize) {
        self.end_of(at);
    }
}
