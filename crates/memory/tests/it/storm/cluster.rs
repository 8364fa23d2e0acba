//! A cluster whose nodes share memory: what is special to it beside the world of all simulations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::sim::{self, Dice};
use verbena_fabric::{Capabilities, Fabric};
use verbena_memory::service::Stepped;
use verbena_memory::{MemoryOptions, RequestId, Segment, Standing, Wish};
use verbena_terms::{Clock, Incarnation, Time};
use verbena_testkit::keeper::{Keeper, LEASE};
use verbena_testkit::world::{Run, Simulation, World, ms};

use crate::common::history::{Histories, MODELS};
use crate::storm::clients::Client;
use crate::storm::holders::Holders;
use crate::storm::seen::Seen;
use crate::storm::settings::Settings;

#[derive(Clone, Debug)]
pub enum Event {
    Client {
        at: usize,
        nth: usize,
        run: u64,
        turn: u64,
    },
    /// A machine has memory again.
    Feed {
        me: Incarnation,
    },
}

/// What the process of a node was asked for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    /// The last request to take memory back.
    pub reclaim: Option<RequestId>,
    /// Bytes that its segments had when it was looked at last.
    taken: u64,
}

pub struct Cluster {
    pub settings: Settings,
    pub world: World<Cluster>,
    /// By node.
    pub offers: Vec<Offer>,
    pub histories: Histories,
    pub holders: Holders,
    /// When homes were asked to take memory back, and after what notice.
    pub taken_back: HashMap<Incarnation, Vec<(Time, Duration)>>,
    pub broken: Vec<String>,
    pub seen: Seen,
    /// What was listed at the end.
    pub listed: Vec<Segment>,
    /// Puts so far.
    pub numbered: u64,
}

impl Cluster {
    pub fn new(settings: Settings) -> Cluster {
        let capabilities = Capabilities { pins_memory: settings.pins, ..sim::capabilities() };
        let fabric = sim::World::with_capabilities(settings.seed, settings.faults.clone(), capabilities);
        let (dice, keeper) = (Dice::new(settings.seed), Keeper::new(settings.homes, true));
        let mut cluster = Cluster {
            world: World::new(fabric, dice, keeper, settings.nodes, settings.leaves_memory),
            offers: vec![Offer::default(); settings.nodes],
            histories: Histories::default(),
            holders: Holders::default(),
            taken_back: HashMap::new(),
            broken: vec![],
            seen: Seen::default(),
            listed: vec![],
            numbered: 0,
            settings,
        };
        cluster.begin();
        cluster
    }

    /// Faults end: within some leases everybody has had an answer, and every node gets and puts to every segment.
    pub fn calm(&mut self) {
        let World { fabric, nodes, .. } = &self.world;
        nodes.iter().for_each(|node| fabric.set_short_of_memory(node.me, false));
        self.calm_down();
        self.run(20 * LEASE);
        self.all_is_offered_again();
        for (at, node) in self.world.nodes.iter().enumerate() {
            for client in node.clients.iter().filter(|client| client.doing.is_some()) {
                self.broken.push(format!("stuck: node {at}: {:?}", client.doing));
            }
        }
        for at in 0..self.world.nodes.len() {
            for model in 0..MODELS.len() {
                self.works(at, model);
            }
        }
        self.run(5 * LEASE);
        self.list(0);
        self.run(2 * LEASE);
        let mut names: Vec<_> = self.listed.iter().filter_map(|segment| segment.wanted.name.clone()).collect();
        names.sort();
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            self.broken.push(format!("two segments have the name {}", two[0]));
        }
        for (at, node) in self.world.nodes.iter().enumerate().take(self.settings.homes) {
            let is_there = |segment: &&Segment| segment.places().any(|place| place.home == node.me);
            let its = self.listed.iter().filter(is_there);
            let held: u64 = its.map(|segment| segment.wanted.extent_bytes()).sum();
            let free = node.service.as_ref().map_or(0, |service| service.free().0);
            if held + free != self.settings.bytes {
                let bytes = self.settings.bytes;
                self.broken.push(format!("node {at} has {bytes} bytes: {held} are segments', and {free} are free"));
            }
        }
        for (at, node) in self.world.nodes.iter().enumerate() {
            let strange = node.service.as_ref().map_or(0, Stepped::strange);
            if strange > 0 {
                self.broken.push(format!("node {at} found {strange} frames strange"));
            }
        }
        self.broken.append(&mut self.histories.broken());
    }

    /// What homes had to take back they have. Then all offer all.
    fn all_is_offered_again(&mut self) {
        for at in 0..self.world.nodes.len() {
            let Some(service) = &self.world.nodes[at].service else { continue };
            let standing = service.standing();
            self.seen.given += service.reclaimed()[0];
            if standing.going > 0 || standing.taken > standing.offered {
                self.broken.push(format!("node {at} has not taken back what it had to: {standing:?}"));
            }
            self.take_back(at, self.settings.bytes, Duration::ZERO);
        }
        if self.settings.reclaims && self.settings.pins {
            // Where memory is pinned there is more of it in the next view.
            let last = self.world.nodes.len() - 1;
            self.world.fabric.crash(self.world.nodes[last].me);
            self.world.nodes[last].service = None;
            self.run(5 * LEASE);
            self.start(last);
            self.run(10 * LEASE);
        }
    }

    /// A home is to offer so many bytes.
    fn take_back(&mut self, at: usize, bytes: u64, notice: Duration) {
        let Some(service) = &mut self.world.nodes[at].service else { return };
        self.offers[at].reclaim = Some(service.request(Wish::Reclaim { bytes, notice }, LEASE));
        let (me, now) = (self.world.nodes[at].me, self.world.fabric.now());
        self.holders.takes_back(me);
        self.taken_back.entry(me).or_default().push((now, notice));
        self.seen.reclaims += 1;
        self.after(at);
    }

    /// Whatever it finds, it has put something and got it after some attempts.
    fn works(&mut self, at: usize, model: usize) {
        let (mut puts, mut gets) = (false, false);
        for attempt in 0..16 {
            let before = self.seen;
            self.ask(at, 0, model, if puts { 40 } else { 90 });
            let mut looked = 0;
            while self.world.nodes[at].clients[0].doing.is_some() && looked < 40 {
                self.run(LEASE / 10);
                looked += 1;
            }
            puts |= self.seen.puts > before.puts;
            gets |= self.seen.gets > before.gets;
            if puts && gets {
                return;
            }
            if looked == 40 {
                return self.broken.push(format!("stuck: node {at}, model {model}, attempt {attempt}"));
            }
        }
        self.broken.push(format!("stuck: node {at} does not get to model {model}"));
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
        self.broken.len()
    }

    fn service(&mut self, at: usize, clock: Arc<dyn Clock>) -> Stepped {
        let (bytes, rules) = (self.settings.bytes, self.settings.rules);
        self.offers[at] = Offer::default();
        Stepped::new(MemoryOptions { bytes, segments: 32, owner_bytes: u64::MAX, copies_bytes: 4096, rules }, clock)
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
        self.world.nodes[at].clients = vec![Client::default(); self.settings.clients];
        for nth in 0..self.settings.clients {
            self.next_turn(at, nth, ms(10));
        }
    }

    fn hear(&mut self, at: usize) {
        self.hears(at);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Client { at, nth, run, turn } => self.client(at, nth, run, turn),
            Event::Feed { me } => self.world.fabric.set_short_of_memory(me, false),
        }
    }

    fn turned(&mut self, at: usize) {
        let Some(service) = &self.world.nodes[at].service else { return };
        let Standing { taken, offered, .. } = service.standing();
        let before = std::mem::replace(&mut self.offers[at].taken, taken);
        if taken > offered.max(before) {
            self.broken.push(format!("node {at} offers {offered} bytes, had given {before}, and gives {taken}"));
        }
    }

    fn strikes_too(&mut self, at: usize, long: Duration) {
        if self.settings.starves && self.world.dice.below(3) == 0 {
            let me = self.world.nodes[at].me;
            self.seen.hungers += 1;
            self.world.fabric.set_short_of_memory(me, true);
            self.world.later(long, Event::Feed { me });
        }
    }

    fn own_faults(&self) -> u64 {
        if self.settings.reclaims { 3 } else { 0 }
    }

    fn own_fault(&mut self, at: usize, long: Duration) {
        let all = self.settings.bytes;
        let bytes = [0, 2048, all / 2, all][self.world.dice.below(4) as usize];
        let notice = if self.world.dice.below(2) == 0 { Duration::ZERO } else { long };
        self.take_back(at, bytes, notice);
    }
}
