//! A pair of nodes, and a scenario with all kinds of faults that other tests look at.

use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::sim::{Dice, Faults, Outage, Seed, Step, World};
use verbena_fabric::{
    Batch, Capabilities, Class, Completed, Error, Fabric, Operation, OperationId, Peer, Pending, Region, Rights,
    Settled, SharedRemote,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

pub const MILLISECOND: Duration = Duration::from_millis(1);

/// A home with a region, and a caller that has opened it.
pub struct Pair {
    pub home: Arc<dyn Fabric>,
    pub caller: Arc<dyn Fabric>,
    pub region: Box<dyn Region>,
    pub peer: Arc<dyn Peer>,
    pub remote: SharedRemote,
}

impl Pair {
    pub fn new(world: &World) -> Self {
        let (home, caller) = (world.node(Incarnation::new(1, 1)), world.node(Incarnation::new(2, 1)));
        let region = home.register(4096, ViewNumber(1)).unwrap();
        let peer = caller.connect(home.identity(), &home.address()).unwrap();
        let remote = peer.open(&region.key(Rights::Change), Time::FAR).unwrap();
        Pair { home, caller, region, peer, remote }
    }

    pub fn post(&self, batch: Batch) -> Pending<Completed> {
        self.remote.post(batch, Class::Control, self.caller.clock().now() + MILLISECOND)
    }

    pub fn settle(&self, operation: OperationId) -> Pending<Settled> {
        self.remote.settle(operation, Class::Control, self.caller.clock().now() + MILLISECOND)
    }
}

pub fn add(at: u64) -> Batch {
    Batch::one(Operation::FetchAdd { at, addend: 1 })
}

pub struct Outcome {
    pub digest: u64,
    pub log: String,
    pub unknown: u32,
}

/// What a caller is at.
enum Doing {
    Adding(Pending<Completed>),
    Settling(OperationId, Pending<Settled>),
    Idle,
}

/// Four callers count in a region of a fifth node until each has made forty additions, with everything that a
/// swarm of faults holds, and pauses and partitions on top. The counter is exact, and each saw it grow.
pub fn counters(seed: Seed, capabilities: Capabilities) -> Outcome {
    const CALLERS: u32 = 4;
    const ADDITIONS: u64 = 40;
    let long = 2 * MILLISECOND;
    let world = World::with_capabilities(seed, Faults::swarm(seed, long), capabilities);
    let mut dice = Dice::new(seed);
    let home = world.node(Incarnation::new(1, 1));
    let region = home.register(4096, ViewNumber(1)).unwrap();
    let key = region.key(Rights::Change);
    let callers: Vec<_> = (0..CALLERS).map(|caller| world.node(Incarnation::new(caller + 2, 1))).collect();
    let remotes: Vec<_> = callers
        .iter()
        .map(|caller| caller.connect(home.identity(), &home.address()).unwrap().open(&key, Time::FAR).unwrap())
        .collect();
    let post = |caller: usize| {
        let mut batch = Batch::new();
        // The second word shows that a batch is in order: it is never ahead of the first.
        batch.push(Operation::FetchAdd { at: 0, addend: 1 }).push(Operation::FetchAdd { at: 8, addend: 1 });
        Doing::Adding(remotes[caller].post(batch, Class::Control, callers[caller].clock().now() + MILLISECOND))
    };
    let settle = |caller: usize, operation| {
        let deadline = callers[caller].clock().now() + MILLISECOND;
        Doing::Settling(operation, remotes[caller].settle(operation, Class::Control, deadline))
    };
    let mut doing: Vec<_> = (0..CALLERS as usize).map(post).collect();
    let (mut added, mut halves, mut tries, mut unknown) = (0, [0, 0], [0; CALLERS as usize], 0);
    world.wake_at(world.now() + MILLISECOND, 0);
    let mut steps = 0;
    while let Some(step) = world.step() {
        steps += 1;
        assert!(steps < 200_000, "it does not end");
        assert!(region.load(0).unwrap() >= region.load(8).unwrap(), "a batch was executed out of order");
        if let Step::Wake { node: None, token } = step {
            let rank = Rank(1 + dice.below(u64::from(CALLERS) + 1) as u32);
            let node = Incarnation { rank, start: 1 };
            match dice.below(4) {
                0 => world.pause(node, dice.between(Duration::ZERO, long)),
                1 => world.partition_one_way(rank, home.identity().rank, Outage::Either),
                2 => world.partition_one_way(home.identity().rank, rank, Outage::Either),
                _ => world.heal_all(),
            }
            if token < 40 {
                world.wake_at(world.now() + MILLISECOND, token + 1);
            } else {
                world.heal_all();
            }
        }
        let Step::Completed { node } = step else { continue };
        let caller = node.rank.0 as usize - 2;
        match std::mem::replace(&mut doing[caller], Doing::Idle) {
            Doing::Adding(mut pending) => match pending.poll_now().expect("its step came") {
                Ok(_) => added += 1,
                Err(Error::Unknown { first: Some(first), .. }) => {
                    unknown += 1;
                    world.note(format_args!("{node} settles {first}"));
                    doing[caller] = settle(caller, first);
                    continue;
                }
                Err(error) => panic!("{error}"),
            },
            Doing::Settling(operation, mut pending) => match pending.poll_now().expect("its step came") {
                Ok(settled) => {
                    let second = operation.0 % 2 == 0;
                    halves[usize::from(second)] += u64::from(matches!(settled, Settled::Executed(_)));
                    if !second {
                        doing[caller] = settle(caller, OperationId(operation.0 + 1));
                        continue;
                    }
                }
                Err(Error::Unknown { .. }) => {
                    doing[caller] = settle(caller, operation);
                    continue;
                }
                Err(error) => panic!("{error}"),
            },
            Doing::Idle => panic!("an idle caller has nothing that could end"),
        }
        tries[caller] += 1;
        if tries[caller] < ADDITIONS {
            doing[caller] = post(caller);
        }
    }
    assert_eq!(tries, [ADDITIONS; CALLERS as usize], "everybody got to the end");
    assert_eq!([region.load(0), region.load(8)], [Ok(added + halves[0]), Ok(added + halves[1])]);
    Outcome { digest: world.digest(), log: world.log(), unknown }
}
