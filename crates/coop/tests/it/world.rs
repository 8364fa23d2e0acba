//! Nodes of a pool in virtual time: messages and reads that take their time, nodes that die, pause and come back, a keeper of views and leases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, Member, Role, Roles, View};
use verbena_coop::holder::{Memory, OwnMemory};
use verbena_coop::object::ReadBack;
use verbena_coop::table::Geometry;
use verbena_coop::{
    Action, Clocks, Command, Completion, Coop, Frame, Place, Reply, Rules, SchemeName, Settings, Share, Tally as Moved,
    Tenant,
};
use verbena_memcache::Limits;
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::random::Random;

/// Milliseconds: how long a lease is, how much longer the keeper waits, how often it is renewed.
const LEASE: u64 = 60;
const MARGIN: u64 = 4;
const RENEWAL: u64 = 10;
/// Milliseconds of a second of the wall clock: so that items expire.
pub const SECOND: u64 = 100;
const UNITS: u32 = 26;

enum Event {
    Deliver {
        to: Incarnation,
        from: Incarnation,
        view: ViewNumber,
        frame: Frame,
    },
    ReadTable {
        of: Incarnation,
        id: u64,
        home: Incarnation,
        hash: u64,
        geometry: Geometry,
    },
    /// A read of an object, so many of its three steps done.
    ReadObject {
        of: Incarnation,
        id: u64,
        holder: Option<Incarnation>,
        place: Place,
        step: u8,
        read: ReadBack,
    },
    Completed {
        of: Incarnation,
        id: u64,
        completion: Completion,
    },
    View {
        of: Incarnation,
        view: Arc<View>,
    },
    InEffect {
        of: Incarnation,
        view: ViewNumber,
    },
    Keep,
    Restart(usize),
    Client(usize),
}

struct Node {
    me: Incarnation,
    coop: Option<Coop<OwnMemory>>,
    is_passive: bool,
    paused_until: u64,
    lease_until: u64,
    /// As the keeper counts it.
    granted_until: u64,
    acknowledged: ViewNumber,
    in_effect: ViewNumber,
}

/// What a run did, so that a test can see that it did something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub views: u32,
    pub crashes: u32,
    pub pauses: u32,
    pub expelled: u32,
    pub hits_told: u32,
    pub offered: u32,
    pub chosen: u32,
}

pub struct World {
    pub now: u64,
    pub random: Random,
    pub tally: Tally,
    pub replies: Vec<(usize, u64, Reply)>,
    /// Clients that may ask again.
    pub ready: Vec<usize>,
    /// Programs of nodes that died.
    pub died: Vec<Incarnation>,
    nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    view: Arc<View>,
    is_in_effect: bool,
    departed: Vec<(Incarnation, u64)>,
    rules: Rules,
    loses: bool,
    mirror: bool,
    /// Of nodes that start. The seed chooses it, and now and then another is chosen while they run.
    scheme: SchemeName,
    shares: BTreeMap<Tenant, Share>,
}

impl World {
    pub fn new(seed: u64, nodes: usize, rules: Rules) -> World {
        World::with_tenants(seed, nodes, rules, BTreeMap::new())
    }

    pub fn with_tenants(seed: u64, nodes: usize, rules: Rules, shares: BTreeMap<Tenant, Share>) -> World {
        let random = Random::new(seed);
        let view = Arc::new(View::new(ViewNumber(1), vec![], vec![]).unwrap());
        let mut world = World {
            now: 0,
            random,
            tally: Tally::default(),
            replies: vec![],
            ready: vec![],
            died: vec![],
            nodes: vec![],
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            view,
            is_in_effect: true,
            departed: vec![],
            rules,
            loses: seed % 4 == 3,
            mirror: seed % 2 == 1,
            scheme: SchemeName::ALL[(seed / 12 + seed) as usize % SchemeName::ALL.len()],
            shares,
        };
        for at in 0..nodes {
            let is_passive = at == nodes - 1 && seed.is_multiple_of(3);
            let me = Incarnation::new(at as u32 + 1, 0);
            world.nodes.push(Node {
                me,
                coop: None,
                is_passive,
                paused_until: 0,
                lease_until: 0,
                granted_until: 0,
                acknowledged: ViewNumber(0),
                in_effect: ViewNumber(0),
            });
            world.restart(at);
        }
        world.at(0, Event::Keep);
        world
    }

    fn at(&mut self, time: u64, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((time, self.serial)));
        self.events.insert((time, self.serial), event);
    }

    fn soon(&mut self, event: Event) {
        // Most things are fast, some are not.
        let most = if self.random.is_one_of(12) { 30 } else { 4 };
        let delay = self.random.below(most) as u64;
        self.at(self.now + delay, event);
    }

    pub fn wake_client(&mut self, client: usize, delay: u64) {
        self.at(self.now + delay, Event::Client(client));
    }

    fn settings(&self) -> Settings {
        let limits = Limits { value_bytes: 200, ..Limits::default() };
        let patience = Duration::from_millis(40);
        let (scheme, mirror, rules) = (self.scheme, self.mirror, self.rules);
        let shares = self.shares.clone();
        Settings { units: UNITS, buckets: (1, 4), patience, limits, scheme, mirror, shares, rules }
    }

    fn restart(&mut self, at: usize) {
        let settings = self.settings();
        let node = &mut self.nodes[at];
        node.me.start += 1;
        node.coop = Some(Coop::new(node.me, OwnMemory::new(UNITS), settings));
        (node.paused_until, node.lease_until, node.granted_until) = (0, 0, 0);
        (node.acknowledged, node.in_effect) = (ViewNumber(0), ViewNumber(0));
    }

    fn clocks(&self) -> Clocks {
        Clocks { now: Time::from_nanos(self.now * 1_000_000), seconds: self.seconds() }
    }

    pub fn seconds(&self) -> u64 {
        1_000 + self.now / SECOND
    }

    fn find(&self, who: Incarnation) -> Option<usize> {
        self.nodes.iter().position(|node| node.me == who && node.coop.is_some())
    }

    pub fn incarnation(&self, at: usize) -> Option<Incarnation> {
        let node = &self.nodes[at];
        // A node that was expelled does not know it yet.
        (node.coop.is_some() && node.paused_until <= self.now).then_some(node.me)
    }

    pub fn crash(&mut self, at: usize) {
        if self.nodes[at].coop.take().is_some() {
            self.tally.crashes += 1;
            self.died.push(self.nodes[at].me);
            let delay = 20 + self.random.below(200) as u64;
            self.at(self.now + delay, Event::Restart(at));
        }
    }

    /// Another scheme for all nodes, by one of them.
    pub fn choose(&mut self, at: usize, name: SchemeName) {
        if self.nodes[at].coop.is_some() && self.nodes[at].paused_until <= self.now {
            self.tally.chosen += 1;
            self.act(at, |coop, _, _| coop.choose(name));
        }
    }

    /// What the nodes that are there counted.
    pub fn moved(&self) -> Vec<Moved> {
        self.nodes.iter().filter_map(|node| node.coop.as_ref()).map(Coop::tally).collect()
    }

    /// The node does nothing for a while. What lies in its memory is read all the same.
    pub fn pause(&mut self, at: usize) {
        if self.nodes[at].coop.is_some() {
            self.tally.pauses += 1;
            self.nodes[at].paused_until = self.now + self.random.below(2 * LEASE as usize + 40) as u64;
        }
    }

    /// Runs the node's machine.
    fn act(&mut self, at: usize, run: impl FnOnce(&mut Coop<OwnMemory>, Clocks, &mut Vec<Action>)) {
        let clocks = self.clocks();
        let node = &mut self.nodes[at];
        let Some(coop) = &mut node.coop else { return };
        let until = Time::from_nanos(node.lease_until * 1_000_000);
        coop.lease(Lease { until, acknowledged: node.acknowledged, in_effect: node.in_effect }, clocks.now);
        let mut actions = vec![];
        run(coop, clocks, &mut actions);
        let me = node.me;
        for action in actions {
            match action {
                Action::Send { to, view, frame } => {
                    self.tally.hits_told += u32::from(matches!(frame, Frame::Hits(_)));
                    self.tally.offered += u32::from(matches!(frame, Frame::Offer { .. }));
                    let is_lost = self.loses && self.random.is_one_of(60);
                    let comes_twice = self.loses && self.random.is_one_of(60);
                    if comes_twice {
                        let frame = frame.clone();
                        self.at(self.now + 20, Event::Deliver { to, from: me, view, frame });
                    }
                    if !is_lost {
                        self.soon(Event::Deliver { to, from: me, view, frame });
                    }
                }
                Action::ReadTable { id, home, hash, geometry } => {
                    self.soon(Event::ReadTable { of: me, id, home, hash, geometry });
                }
                Action::ReadObject { id, place, holder } => {
                    let read = ReadBack::default();
                    self.soon(Event::ReadObject { of: me, id, holder, place, step: 0, read });
                }
                Action::Answer { id, reply } => self.replies.push((at, id, reply)),
            }
        }
    }

    pub fn command(&mut self, at: usize, id: u64, command: Command) {
        self.act(at, |coop, clocks, out| coop.command(id, command, clocks, out));
    }

    /// One event. False if nothing is left.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(key)) = self.queue.pop() else { return false };
        let Some(event) = self.events.remove(&key) else { return true };
        self.now = self.now.max(key.0);
        let whose = match &event {
            Event::Deliver { to: of, .. }
            | Event::Completed { of, .. }
            | Event::View { of, .. }
            | Event::InEffect { of, .. } => self.find(*of),
            _ => None,
        };
        // A paused node finds all this when it goes on, in the same order.
        if let Some(at) = whose
            && self.nodes[at].paused_until > self.now
        {
            let until = self.nodes[at].paused_until;
            self.queue.push(Reverse((until, key.1)));
            self.events.insert((until, key.1), event);
            return true;
        }
        match event {
            Event::Deliver { from, view, frame, .. } => {
                if let Some(at) = whose {
                    self.act(at, |coop, clocks, out| coop.frame(from, view, frame, clocks, out));
                }
            }
            Event::Completed { id, completion, .. } => {
                if let Some(at) = whose {
                    self.act(at, |coop, clocks, out| coop.completed(id, completion, clocks, out));
                }
            }
            Event::View { view, .. } => {
                if let Some(at) = whose
                    && self.nodes[at].acknowledged < view.number()
                {
                    self.nodes[at].acknowledged = view.number();
                    self.act(at, |coop, _, out| coop.view(&view, out));
                }
            }
            Event::InEffect { view, .. } => {
                if let Some(at) = whose {
                    self.nodes[at].in_effect = self.nodes[at].in_effect.max(view);
                    self.act(at, |_, _, _| {});
                }
            }
            Event::ReadTable { of, id, home, hash, geometry } => {
                let coop = self.find(home).and_then(|at| self.nodes[at].coop.as_ref());
                let look = coop.map(|coop| coop.table().look(hash, geometry));
                self.soon(Event::Completed { of, id, completion: Completion::Table(look) });
            }
            Event::ReadObject { of, id, holder, place, step, read } => self.read(of, id, holder, place, step, read),
            Event::Restart(at) => {
                self.restart(at);
            }
            Event::Client(client) => self.ready.push(client),
            Event::Keep => self.keep(),
        }
        true
    }

    fn read(
        &mut self,
        of: Incarnation,
        id: u64,
        holder: Option<Incarnation>,
        place: Place,
        step: u8,
        mut read: ReadBack,
    ) {
        let coop = holder.and_then(|holder| self.find(holder)).and_then(|at| self.nodes[at].coop.as_ref());
        let Some(coop) = coop else {
            let completion = Completion::Object(place, ReadBack::default());
            return self.soon(Event::Completed { of, id, completion });
        };
        let memory = coop.holder().memory();
        match step {
            0 => read.first = memory.read_word(place.offset),
            1 => read.bytes = memory.read(place.offset, place.units),
            _ => read.last = memory.read_word(place.offset),
        }
        if step == 2 {
            return self.soon(Event::Completed { of, id, completion: Completion::Object(place, read) });
        }
        self.soon(Event::ReadObject { of, id, holder, place, step: step + 1, read });
    }

    /// The keeper: renews leases, makes views, says when they are in effect.
    fn keep(&mut self) {
        self.at(self.now + RENEWAL, Event::Keep);
        for at in 0..self.nodes.len() {
            let is_in = self.view.member(self.nodes[at].me).is_some();
            let node = &mut self.nodes[at];
            if node.coop.is_some() && node.paused_until <= self.now && is_in {
                node.lease_until = self.now + LEASE;
                node.granted_until = self.now + LEASE + MARGIN;
            }
            if node.coop.is_some() && node.paused_until <= self.now {
                self.act(at, |coop, clocks, out| coop.tick(clocks, out));
            }
        }
        // A node that was expelled and goes on starts again.
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let is_expelled = node.granted_until != 0 && self.view.member(node.me).is_none();
            if node.coop.is_some() && is_expelled && node.paused_until + 80 <= self.now {
                self.tally.expelled += 1;
                self.died.push(node.me);
                self.restart(at);
            }
        }
        self.make_view();
        self.look_whether_in_effect();
    }

    fn make_view(&mut self) {
        let in_now: Vec<Incarnation> = self.view.members().iter().map(|member| member.incarnation).collect();
        let over = |world: &World, who: Incarnation| {
            let node = &world.nodes[who.rank.0 as usize - 1];
            node.me != who || node.granted_until <= world.now && node.granted_until != 0
        };
        let gone: Vec<Incarnation> = in_now.iter().copied().filter(|who| over(self, *who)).collect();
        let joins: Vec<Incarnation> = self
            .nodes
            .iter()
            .filter(|node| node.coop.is_some() && node.granted_until == 0 && node.paused_until <= self.now)
            .map(|node| node.me)
            .collect();
        let leaves = self.is_in_effect && self.random.is_one_of(60) && in_now.len() > 2;
        if gone.is_empty() && (joins.is_empty() || !self.is_in_effect) && !leaves {
            return;
        }
        let mut members: Vec<Incarnation> = in_now.into_iter().filter(|who| !gone.contains(who)).collect();
        if leaves {
            // An operator takes a node out: it stays alive for a while.
            let chosen = self.random.below(members.len());
            let who = members.remove(chosen);
            let until = self.nodes[who.rank.0 as usize - 1].granted_until;
            self.departed.push((who, until));
        }
        for who in gone {
            let node = &self.nodes[who.rank.0 as usize - 1];
            // A life that ended without notice may still be read by others, and acts no more.
            let until = if node.me == who { node.granted_until } else { 0 };
            self.departed.push((who, until));
        }
        members.extend(joins.iter().filter(|who| !members.contains(who)).copied().collect::<Vec<_>>());
        members.sort();
        for who in &members {
            let node = &mut self.nodes[who.rank.0 as usize - 1];
            if node.granted_until == 0 {
                (node.lease_until, node.granted_until) = (self.now + LEASE, self.now + LEASE + MARGIN);
            }
        }
        let listed = members.iter().map(|who| Member {
            incarnation: *who,
            name: format!("node{}", who.rank.0),
            address: String::new(),
            roles: if self.nodes[who.rank.0 as usize - 1].is_passive {
                Roles::of(Role::Reader).and(Role::Pool)
            } else {
                Roles::ALL.and(Role::Pool)
            },
        });
        let number = ViewNumber(self.view.number().0 + 1);
        self.view = Arc::new(View::new(number, listed.collect(), vec![]).unwrap());
        self.is_in_effect = false;
        self.tally.views += 1;
        for of in members {
            let view = self.view.clone();
            self.soon(Event::View { of, view });
        }
    }

    fn look_whether_in_effect(&mut self) {
        let number = self.view.number();
        let members: Vec<Incarnation> = self.view.members().iter().map(|member| member.incarnation).collect();
        let all_acknowledged = members.iter().all(|who| {
            let node = &self.nodes[who.rank.0 as usize - 1];
            node.me == *who && node.coop.is_some() && node.acknowledged == number
        });
        let all_over = self.departed.iter().all(|(_, until)| *until <= self.now);
        if !self.is_in_effect && all_acknowledged && all_over {
            self.is_in_effect = true;
            for of in members {
                self.soon(Event::InEffect { of, view: number });
            }
        }
    }
}
