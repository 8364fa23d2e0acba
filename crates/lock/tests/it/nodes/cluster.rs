//! Nodes of a simulated network where nothing fails.

use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, Member, Role, Roles, View};
use verbena_fabric::sim::{Faults, World};
use verbena_lock::service::Stepped;
use verbena_lock::{Answer, Asker, LocksOptions, Mode, Name, Request, RequestId, Rules, Scheme};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

pub const WRITE: Request = Request { mode: Mode::Exclusive, is_try: false };
pub const READ: Request = Request { mode: Mode::Shared, is_try: false };

/// Nodes of ranks 1.., of which the first is the home of all locks. Their leases are for ever, and their views in effect.
pub struct Nodes {
    pub world: World,
    pub nodes: Vec<(Stepped, Arc<LeaseWord>)>,
    answers: Vec<(usize, RequestId, Answer)>,
    view: u32,
}

pub fn me(at: usize) -> Incarnation {
    Incarnation::new(at as u32 + 1, 1)
}

impl Nodes {
    pub fn new(count: usize, slots: u32) -> Nodes {
        Nodes::of(Scheme::Ncosed, count, slots)
    }

    pub fn of(scheme: Scheme, count: usize, slots: u32) -> Nodes {
        let world = World::new(7, Faults::none());
        let nodes = (0..count).map(|at| {
            let options = LocksOptions { scheme, slots, rules: Rules::ALL };
            let (mut node, lease) = (Stepped::new(options, world.clock(Rank(at as u32 + 1))), Arc::default());
            node.life_begins(world.node(me(at)), &lease).unwrap();
            (node, lease)
        });
        let nodes = nodes.collect();
        let mut nodes = Nodes { world, nodes, answers: vec![], view: 0 };
        nodes.next_view(&(0..count).collect::<Vec<_>>());
        nodes
    }

    /// A view of these, which all of them learn of.
    pub fn next_view(&mut self, members: &[usize]) {
        self.view += 1;
        let member = |&at: &usize| Member {
            incarnation: me(at),
            name: format!("n{at}"),
            address: format!("sim://{}", at + 1),
            roles: if at == members[0] { Roles::ALL } else { Roles::of(Role::Reader) },
        };
        let view = View::new(ViewNumber(self.view), members.iter().map(member).collect(), vec![]).unwrap();
        let view = Arc::new(view);
        for &at in members {
            let (node, lease) = &mut self.nodes[at];
            node.view_learnt(&view);
            lease.store(Lease { until: Time::FAR, acknowledged: view.number(), in_effect: view.number() });
        }
        self.run();
    }

    /// Everybody does what there is to do, for a while.
    pub fn run(&mut self) {
        self.run_for(Duration::from_millis(40));
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            for (at, (node, _)) in self.nodes.iter_mut().enumerate() {
                node.turn();
                self.answers.extend(node.answers().into_iter().map(|(id, answer)| (at, id, answer)));
                assert_eq!(node.violation(), 0);
            }
            self.world.run_until(self.world.now() + Duration::from_micros(100));
        }
    }

    pub fn acquire(&mut self, at: usize, name: &str, request: Request) -> RequestId {
        let id = self.nodes[at].0.acquire(Name::new(name.as_bytes()).unwrap(), request);
        self.run();
        id
    }

    /// A client that perhaps has other locks.
    pub fn acquire_for(&mut self, at: usize, asker: u64, name: &str, request: Request) -> RequestId {
        self.acquire_briefly(at, asker, name, request, Duration::from_millis(40))
    }

    /// For so long it is waited what becomes of it.
    pub fn acquire_briefly(
        &mut self,
        at: usize,
        asker: u64,
        name: &str,
        request: Request,
        time: Duration,
    ) -> RequestId {
        let id = self.nodes[at].0.acquire_for(
            Asker { number: asker, pid: 40 + at as u32 },
            Name::new(name.as_bytes()).unwrap(),
            request,
        );
        self.run_for(time);
        id
    }

    pub fn forget(&mut self, at: usize, id: RequestId) {
        self.nodes[at].0.forget(id);
    }

    pub fn release(&mut self, at: usize, id: RequestId) {
        self.nodes[at].0.release(id).unwrap();
        self.run();
    }

    /// Whether it is kept for its client. At once: nobody does anything meanwhile.
    pub fn release_soon(&mut self, at: usize, id: RequestId) -> bool {
        self.nodes[at].0.release_soon(id).unwrap()
    }

    pub fn answers(&mut self) -> Vec<(usize, RequestId, Answer)> {
        std::mem::take(&mut self.answers)
    }
}
