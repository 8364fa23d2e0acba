//! The suite on the simulator: on a sound network, and with requests that take long, overtake each other, arrive
//! twice and are executed late; with several capabilities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::conformance::{Able, Fault, Harness, Report, Target, Unable, run_all};
use verbena_fabric::sim::{Faults, Outage, Seed, World, capabilities, check_seeds};
use verbena_fabric::{AtomicScope, BatchTrips, Capabilities, Fabric, Ordering, Region, Rights};
use verbena_terms::Incarnation;

/// What can be skipped: there is no other process, nothing is synchronous, there are no frames of another version.
const NEVER: [&str; 3] = [
    "what_is_handed_on_shows_the_region",
    "synchronous_means_complete_on_return",
    "another_version_is_refused_by_name",
];

#[test]
fn the_suite_holds_on_a_sound_network() {
    check_seeds("conformance_sim::the_suite_holds_on_a_sound_network", 4, |seed| {
        suite(seed, Faults::none(), capabilities())
    });
}

#[test]
fn the_suite_holds_with_faults() {
    check_seeds("conformance_sim::the_suite_holds_with_faults", 20, |seed| suite(seed, faults(seed), capabilities()));
}

#[test]
fn the_suite_holds_with_faults_where_an_agent_executes_in_order() {
    let agent = Capabilities {
        target_cpu_free: false,
        atomic_scope: AtomicScope::Processor,
        ordering: Ordering::Posted,
        ..capabilities()
    };
    check_seeds("conformance_sim::the_suite_holds_with_faults_where_an_agent_executes_in_order", 20, |seed| {
        suite(seed, faults(seed), agent.clone());
    });
}

#[test]
fn the_suite_holds_with_faults_where_an_adapter_needs_fences() {
    let adapter = Capabilities { batch: BatchTrips::OneAndFences, largest_read: 1 << 20, ..capabilities() };
    check_seeds("conformance_sim::the_suite_holds_with_faults_where_an_adapter_needs_fences", 20, |seed| {
        suite(seed, faults(seed), adapter.clone());
    });
}

/// What the seed chooses, but for losses and for what happens to messages: the suite orders those itself, on links
/// that it otherwise takes to be sound.
fn faults(seed: Seed) -> Faults {
    Faults {
        request_loss_per_mille: 0,
        answer_loss_per_mille: 0,
        message_loss_per_mille: 0,
        message_copy_per_mille: 0,
        message_overtake_per_mille: 0,
        ..Faults::swarm(seed, Duration::from_millis(20))
    }
}

fn suite(seed: Seed, faults: Faults, capabilities: Capabilities) {
    let ordered = capabilities.ordering == Ordering::Posted;
    let world = World::with_capabilities(seed, faults.clone(), capabilities);
    let mut harness = Simulated { world, faults, last_rank: 0, targets: BTreeMap::new() };
    let Report { ran, skipped } = run_all(&mut harness);
    let skipped: Vec<&str> = skipped.into_iter().map(|(name, _)| name).collect();
    let mut expected = NEVER.to_vec();
    if !ordered {
        expected.insert(1, "batches_keep_their_order_where_promised");
    }
    assert_eq!((ran + skipped.len(), skipped), (verbena_fabric::conformance::CHECKS.len(), expected));
}

struct Simulated {
    world: World,
    faults: Faults,
    last_rank: u32,
    targets: BTreeMap<Incarnation, Apart>,
}

/// A node that runs apart from the checks.
struct Apart {
    _node: Arc<dyn Fabric>,
    _region: Box<dyn Region>,
}

impl Harness for Simulated {
    fn node(&mut self) -> Arc<dyn Fabric> {
        self.last_rank += 1;
        self.world.node(Incarnation::new(self.last_rank, 1))
    }

    fn advance(&mut self) {
        let _ = self.world.step_before(self.world.now() + Duration::from_millis(10));
    }

    fn threads(&self) -> bool {
        false
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        match fault {
            Fault::Cut => self.world.partition_one_way(from.rank, to.rank, Outage::Loses),
            Fault::Hold => self.world.partition_one_way(from.rank, to.rank, Outage::Holds),
            Fault::LoseAnswers => self.world.partition_one_way(to.rank, from.rank, Outage::Loses),
            Fault::Repeat => self.world.set_faults(Faults { request_copy_per_mille: 1000, ..self.faults.clone() }),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        self.world.heal(from.rank, to.rank);
        self.world.set_faults(self.faults.clone());
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let node = self.node();
        node.set_view(Target::VIEW);
        let region = node.register(bytes, Target::VIEW).map_err(|_| Unable("no memory"))?;
        let (incarnation, address, key) = (node.identity(), node.address(), region.key(Rights::Change));
        self.targets.insert(incarnation, Apart { _node: node, _region: region });
        Ok(Target { incarnation, address, key })
    }

    fn pause(&mut self, target: Incarnation) -> Able<()> {
        self.world.pause(target, Duration::MAX);
        Ok(())
    }

    fn resume(&mut self, target: Incarnation) {
        self.world.resume(target);
    }

    fn kill(&mut self, target: Incarnation) -> Able<()> {
        self.world.crash(target);
        Ok(())
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let Incarnation { rank, start } = former.identity();
        drop(former);
        Ok(self.world.node(Incarnation { rank, start: start + 1 }))
    }
}
