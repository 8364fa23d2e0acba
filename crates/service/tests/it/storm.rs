//! The sequence of docs/internals/SERVICE.md in the fault simulation: no number is given twice, and a number is greater than all that were given before it was asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_cluster::{LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_fabric::sim::{self, Dice, Faults, Seed};
use verbena_service::driver::Driver;
use verbena_terms::{Clock, Time};
use verbena_testkit::assert_enough;
use verbena_testkit::faults::Struck;
use verbena_testkit::keeper::{Keeper, LEASE};
use verbena_testkit::seeds::{SEEDS, check_seeds, first_that_finds};
use verbena_testkit::world::{Run, Simulation, World, ms};

use crate::sequence::{Node, Rules, Sequence, driver};

const ALL: Rules = Rules { view_in_effect: true, view_in_number: true };
const NODES: usize = 4;

verbena_testkit::counts! {
    struct Counts {
        given: u64,
        struck: Struck,
    }
}

/// A client takes the next number when it has the last.
struct Client;

struct Cluster {
    world: World<Cluster>,
    rules: Rules,
    asked: u64,
    /// The greatest number that was given when a request was made, by the request and the run of its node.
    floor: BTreeMap<u64, (usize, u64, u64)>,
    given: BTreeMap<u64, u64>,
    broken: Vec<String>,
}

impl Cluster {
    fn new(seed: Seed, rules: Rules) -> Cluster {
        let fabric = sim::World::new(seed, Faults::swarm(seed, ms(20)));
        let world = World::new(fabric, Dice::new(seed), Keeper::new(NODES, true), NODES, true);
        let (floor, given, broken) = (BTreeMap::new(), BTreeMap::new(), vec![]);
        let mut cluster = Cluster { world, rules, asked: 0, floor, given, broken };
        cluster.begin();
        cluster
    }

    fn greatest(&self) -> u64 {
        self.given.last_key_value().map_or(0, |(number, _)| *number)
    }
}

impl Simulation for Cluster {
    type Service = Driver<Sequence, Node>;
    type Client = Client;
    /// A node's client takes a number; in which run of the node it is.
    type Event = (usize, u64);

    fn world(&mut self) -> &mut World<Cluster> {
        &mut self.world
    }

    fn complaints(&self) -> usize {
        self.broken.len()
    }

    fn service(&mut self, _: usize, clock: Arc<dyn Clock>) -> Self::Service {
        driver(self.rules, clock)
    }

    fn life_begins(service: &mut Self::Service, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) {
        service.start_incarnation(fabric, lease).unwrap();
    }

    fn life_ends(service: &mut Self::Service) {
        service.end_incarnation();
    }

    fn view_learnt(service: &mut Self::Service, view: &Arc<View>) {
        service.enter_view(view);
    }

    fn turn(service: &mut Self::Service) -> Time {
        service.step()
    }

    fn started(&mut self, at: usize) {
        let run = self.world.nodes[at].run;
        self.floor.retain(|_, (of, ..)| *of != at);
        self.world.later(ms(1), (at, run));
    }

    fn hear(&mut self, at: usize) {
        let Some(service) = &mut self.world.nodes[at].service else { return };
        let answers = std::mem::take(&mut service.host_mut().answers);
        for (id, number) in answers {
            let Some((_, run, floor)) = self.floor.remove(&id) else { continue };
            if number <= floor && floor > 0 {
                self.broken.push(format!("{number:#x} was given after {floor:#x}"));
            }
            if let Some(other) = self.given.insert(number, id) {
                self.broken.push(format!("{number:#x} was given twice, to {other} and to {id}"));
            }
            let pause = self.world.dice.between(ms(0), ms(4));
            self.world.later(pause, (at, run));
        }
    }

    fn happens(&mut self, (at, run): (usize, u64)) {
        let node = &self.world.nodes[at];
        if node.run != run || node.service.is_none() {
            return;
        }
        self.asked += 1;
        let (id, floor) = (self.asked, self.greatest());
        self.floor.insert(id, (at, run, floor));
        self.with(at, |service| service.command(|sequence, _, now, out| sequence.take(id, now, out)));
    }
}

fn run(seed: Seed, rules: Rules) -> (Vec<String>, Counts) {
    let mut cluster = Cluster::new(seed, rules);
    cluster.run(ms(1500));
    cluster.calm_down();
    cluster.run(20 * LEASE);
    let before = cluster.given.len();
    cluster.run(2 * LEASE);
    if cluster.given.len() < before + NODES {
        cluster.broken.push(format!("{} numbers in two leases of calm", cluster.given.len() - before));
    }
    let counts = Counts { given: cluster.given.len() as u64, struck: cluster.world.struck() };
    (cluster.broken, counts)
}

#[test]
fn numbers_grow_and_none_is_given_twice() {
    let mut all = Counts::default();
    let seeds = check_seeds("storm::numbers_grow_and_none_is_given_twice", SEEDS, |seed| {
        let (broken, counts) = run(seed, ALL);
        assert!(broken.is_empty(), "{broken:#?}");
        all += counts;
    });
    println!("counted: {seeds} seeds, {all:?}");
    let Counts { given, struck } = all;
    assert_enough!(seeds, given => 400.0, struck.views => 5.0, struck.crashes => 0.8, struck.pauses => 1.0, struck.cuts => 1.0);
}

#[test]
fn a_number_taken_before_the_view_is_in_effect_is_found() {
    first_that_finds("C3", 200, |seed| run(seed, Rules { view_in_effect: false, ..ALL }).0.into_iter().next());
}

#[test]
fn numbers_without_their_view_are_found() {
    first_that_finds("the view in a number", 20, |seed| {
        run(seed, Rules { view_in_number: false, ..ALL }).0.into_iter().next()
    });
}
