//! The nodes, what befalls them, and time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord};
use verbena_fabric::Capabilities;
use verbena_fabric::sim::{Dice, Faults, Outage, Step, World};
use verbena_memory::service::Stepped;
use verbena_memory::{MemoryOptions, RequestId, Segment, Standing, Wish};
use verbena_terms::{Clock, Incarnation, Rank, Time, ViewNumber};

use crate::common::history::{Histories, MODELS};
use crate::storm::clients::Client;
use crate::storm::holders::Holders;
use crate::storm::seen::Seen;
use crate::storm::settings::{DRIFT, LEASE, STORM, Settings, ms};
use verbena_testkit::keeper::{Keeper, Reply};

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
        turn: u64,
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
    /// A machine has memory again.
    Feed {
        me: Incarnation,
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
    /// The last that it was asked for itself.
    pub reclaim: Option<RequestId>,
    /// Bytes that its segments had when it was looked at last.
    taken: u64,
    /// It does not reach the keeper.
    is_cut: bool,
    turn_at: Time,
}

pub struct Cluster {
    pub settings: Settings,
    pub world: World,
    pub dice: Dice,
    pub keeper: Keeper,
    pub nodes: Vec<Node>,
    pub histories: Histories,
    pub holders: Holders,
    /// When homes were asked to take memory back, and after what notice.
    pub taken_back: HashMap<Incarnation, Vec<(Time, Duration)>>,
    pub broken: Vec<String>,
    pub seen: Seen,
    pub is_calm: bool,
    /// What was listed at the end.
    pub listed: Vec<Segment>,
    /// Puts so far.
    pub numbered: u64,
    events: HashMap<u64, Event>,
    scheduled: u64,
}

fn rank(at: usize) -> Rank {
    Rank(at as u32 + 1)
}

impl Cluster {
    pub fn new(settings: Settings) -> Cluster {
        let capabilities = Capabilities { pins_memory: settings.pins, ..verbena_fabric::sim::capabilities() };
        let world = World::with_capabilities(settings.seed, settings.faults.clone(), capabilities);
        let nodes = (0..settings.nodes).map(|at| Node {
            me: Incarnation { rank: rank(at), start: 0 },
            run: 0,
            service: None,
            lease: Arc::default(),
            clock: world.clock(rank(at)),
            clients: vec![],
            reclaim: None,
            taken: 0,
            is_cut: false,
            turn_at: Time::FAR,
        });
        let mut cluster = Cluster {
            nodes: nodes.collect(),
            dice: Dice::new(settings.seed),
            keeper: Keeper::new(settings.homes, true),
            histories: Histories::default(),
            holders: Holders::default(),
            taken_back: HashMap::new(),
            broken: vec![],
            seen: Seen::default(),
            is_calm: false,
            listed: vec![],
            numbered: 0,
            events: HashMap::new(),
            scheduled: 0,
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

    /// Faults end: within some leases everybody has had an answer, and every node gets and puts to every segment.
    pub fn calm(&mut self) {
        self.is_calm = true;
        self.world.set_faults(Faults::none());
        self.world.heal_all();
        for at in 0..self.nodes.len() {
            self.nodes[at].is_cut = false;
            self.world.set_short_of_memory(self.nodes[at].me, false);
            match self.nodes[at].service {
                None => self.start(at),
                Some(_) if self.world.is_paused(self.nodes[at].me) => self.world.resume(self.nodes[at].me),
                Some(_) => {}
            }
        }
        self.run(20 * LEASE);
        self.all_is_offered_again();
        for (at, node) in self.nodes.iter().enumerate() {
            for client in node.clients.iter().filter(|client| client.doing.is_some()) {
                self.broken.push(format!("stuck: node {at}: {:?}", client.doing));
            }
        }
        for at in 0..self.nodes.len() {
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
        for (at, node) in self.nodes.iter().enumerate().take(self.settings.homes) {
            let is_there = |segment: &&Segment| segment.places().any(|place| place.home == node.me);
            let its = self.listed.iter().filter(is_there);
            let held: u64 = its.map(|segment| segment.wanted.extent_bytes()).sum();
            let free = node.service.as_ref().map_or(0, |service| service.free().0);
            if held + free != self.settings.bytes {
                let bytes = self.settings.bytes;
                self.broken.push(format!("node {at} has {bytes} bytes: {held} are segments', and {free} are free"));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let strange = node.service.as_ref().map_or(0, Stepped::strange);
            if strange > 0 {
                self.broken.push(format!("node {at} found {strange} frames strange"));
            }
        }
        self.seen.views = self.keeper.view.as_ref().map_or(0, |view| view.number().0.into());
        self.broken.append(&mut self.histories.broken());
    }

    /// What homes had to take back they have. Then all offer all.
    fn all_is_offered_again(&mut self) {
        for at in 0..self.nodes.len() {
            let Some(service) = &self.nodes[at].service else { continue };
            let standing = service.standing();
            self.seen.given += service.reclaimed()[0];
            if standing.going > 0 || standing.taken > standing.offered {
                self.broken.push(format!("node {at} has not taken back what it had to: {standing:?}"));
            }
            self.take_back(at, self.settings.bytes, Duration::ZERO);
        }
        if self.settings.reclaims && self.settings.pins {
            // Where memory is pinned there is more of it in the next view.
            let last = self.nodes.len() - 1;
            self.world.crash(self.nodes[last].me);
            self.nodes[last].service = None;
            self.run(5 * LEASE);
            self.start(last);
            self.run(10 * LEASE);
        }
    }

    /// A home is to offer so many bytes.
    fn take_back(&mut self, at: usize, bytes: u64, notice: Duration) {
        let Some(service) = &mut self.nodes[at].service else { return };
        self.nodes[at].reclaim = Some(service.request(Wish::Reclaim { bytes, notice }, LEASE));
        let (me, now) = (self.nodes[at].me, self.world.now());
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
            while self.nodes[at].clients[0].doing.is_some() && looked < 40 {
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
        self.scheduled += 1;
        self.events.insert(self.scheduled, event);
        self.scheduled
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
        let Standing { taken, offered, .. } = service.standing();
        if taken > offered.max(self.nodes[at].taken) {
            let before = self.nodes[at].taken;
            self.broken.push(format!("node {at} offers {offered} bytes, had given {before}, and gives {taken}"));
        }
        self.nodes[at].taken = taken;
        self.hear(at);
        let node = &mut self.nodes[at];
        if due < node.turn_at || node.turn_at <= node.clock.now() {
            node.turn_at = due;
            self.at_node(at, due, Event::Turn { at });
        }
    }

    fn run(&mut self, length: Duration) {
        let end = self.world.now() + length;
        while self.broken.len() < 10 {
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
            Event::Client { at, nth, run, turn } => self.client(at, nth, run, turn),
            Event::Strike => self.strike(),
            Event::Restart { at } => {
                if self.nodes[at].service.is_none() {
                    self.start(at);
                }
            }
            Event::Heal { one, other } => self.world.heal(one, other),
            Event::Reconnect { at } => self.nodes[at].is_cut = false,
            Event::Feed { me } => self.world.set_short_of_memory(me, false),
        }
    }

    // Membership.

    /// A process starts, as the next life of its node.
    fn start(&mut self, at: usize) {
        let (bytes, rules) = (self.settings.bytes, self.settings.rules);
        let options = MemoryOptions { bytes, segments: 32, owner_bytes: u64::MAX, copies_bytes: 4096, rules };
        let node = &mut self.nodes[at];
        node.run += 1;
        node.lease = Arc::default();
        (node.taken, node.reclaim) = (0, None);
        node.service = Some(Stepped::new(options, node.clock.clone()));
        self.live(at);
        self.nodes[at].clients = vec![Client::default(); self.settings.clients];
        for nth in 0..self.settings.clients {
            self.next_turn(at, nth, ms(10));
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
            self.with(at, |service| service.view_learnt(view));
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
        if self.settings.starves && self.dice.below(3) == 0 {
            self.seen.hungers += 1;
            self.world.set_short_of_memory(me, true);
            self.later(long, Event::Feed { me });
        }
        match self.dice.below(if self.settings.reclaims { 8 } else { 5 }) {
            5..=7 => {
                let all = self.settings.bytes;
                let bytes = [0, 2048, all / 2, all][self.dice.below(4) as usize];
                let notice = if self.dice.below(2) == 0 { Duration::ZERO } else { long };
                self.take_back(at, bytes, notice);
            }
            0 if self.nodes[at].service.is_some() => {
                self.seen.crashes += 1;
                self.world.crash(me);
                // Nobody will hear what became of what its clients did.
                self.nodes[at].service = None;
                self.later(long, Event::Restart { at });
            }
            1 | 2 if self.nodes[at].service.is_some() && !self.world.is_paused(me) => {
                self.seen.pauses += 1;
                self.world.pause(me, long);
            }
            3 => {
                self.seen.cuts += 1;
                let other = rank((at + 1 + self.dice.below(self.nodes.len() as u64 - 1) as usize) % self.nodes.len());
                if self.dice.below(2) == 0 {
                    self.world.partition(me.rank, other);
                } else {
                    self.world.partition_one_way(me.rank, other, Outage::Either);
                }
                self.later(long, Event::Heal { one: me.rank, other });
            }
            _ => {
                self.seen.cuts += 1;
                self.nodes[at].is_cut = true;
                self.later(long, Event::Reconnect { at });
            }
        }
        let pause = self.dice.between(ms(10), ms(200));
        self.later(pause, Event::Strike);
    }
}
