//! Lives of the simulator: one after the other on a machine, with its memory, its clock and its links.

use std::time::Duration;

use verbena_fabric::sim::{Faults, Outage, World, capabilities};
use verbena_fabric::{Address, Capabilities, Class, Error, Fabric, Port, Views};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::sim::support::{MILLISECOND, Pair, add};

const VIEW: ViewNumber = ViewNumber(1);

#[test]
fn another_life_is_another_incarnation() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.finish(pair.post(add(0))).unwrap();
    let unknown = pair.post(add(0));
    world.crash(pair.home.identity());
    let Err(Error::Unknown { first: Some(operation), .. }) = world.finish(unknown) else { panic!() };
    assert_eq!(pair.region.load(0), Err(Error::Closed));

    let again = world.node(Incarnation::new(1, 2));
    let region = again.register(4096, VIEW).unwrap();
    assert!(matches!(world.finish(pair.post(add(0))), Err(Error::Revoked { .. })));
    assert!(matches!(world.finish(pair.settle(operation)), Err(Error::Revoked { .. })));
    assert_eq!(region.load(0), Ok(0));
    assert!(matches!(pair.caller.connect(again.identity(), &pair.caller.address()), Err(Error::Unreachable { .. })));
}

#[test]
fn memory_outlives_its_process_where_the_processor_is_not_needed() {
    for target_cpu_free in [true, false] {
        let world = World::with_capabilities(1, Faults::none(), Capabilities { target_cpu_free, ..capabilities() });
        let pair = Pair::new(&world);
        world.finish(pair.post(add(0))).unwrap();
        world.leave_memory(pair.home.identity());
        world.crash(pair.home.identity());
        assert_eq!(world.finish(pair.post(add(0))).is_ok(), target_cpu_free);
        let again = world.node(Incarnation::new(1, 2));
        let region = again.register(4096, VIEW).unwrap();
        let found = world.finish(pair.post(add(0)));
        match target_cpu_free {
            true => assert_eq!(found.unwrap()[0].word(), Some(2), "as it was left, whoever lives there now"),
            false => assert!(matches!(found, Err(Error::Revoked { .. })), "{found:?}"),
        }
        assert_eq!(region.load(0), Ok(0));
    }
}

#[test]
fn who_is_short_of_memory_keeps_what_it_has() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.set_short_of_memory(pair.home.identity(), true);
    let refused = pair.home.register(4096, VIEW).map(|_| ());
    assert!(matches!(refused, Err(Error::System { what: "map memory", .. })), "{refused:?}");
    world.finish(pair.post(add(0))).unwrap();
    world.set_short_of_memory(pair.home.identity(), false);
    assert!(pair.home.register(4096, VIEW).is_ok());
}

#[test]
fn a_process_that_goes_on_keeps_its_clock() {
    let world = World::new(1, Faults { clock_spread: Duration::from_secs(100), ..Faults::none() });
    let clock = world.clock(Rank(1));
    let first = world.node(Incarnation::new(1, 1));
    world.run_until(Time::ZERO + Duration::from_secs(1000));
    let before = first.clock().now();
    let second = world.next_life(Incarnation::new(1, 2));
    assert_eq!((second.clock().now(), clock.now()), (before, before));
    let rebooted = world.node(Incarnation::new(1, 3));
    assert_ne!(rebooted.clock().now(), before);
    assert_eq!(clock.now(), rebooted.clock().now());
}

#[test]
fn lives_with_ranks_of_their_own_share_the_machine_that_they_are_on() {
    let world = World::new(1, Faults { clock_spread: Duration::from_secs(100), ..Faults::none() });
    for (rank, machine) in [(1, 5), (2, 6), (3, 5)] {
        world.settle(Rank(rank), Rank(machine));
    }
    let clock = world.clock(Rank(5));
    let first = world.node(Incarnation::new(1, 1));
    let other = world.node(Incarnation::new(2, 1));
    let before = first.clock().now();
    let second = world.next_life(Incarnation::new(3, 1));
    assert_eq!((second.clock().now(), clock.now()), (before, before));
    assert_eq!((second.address(), first.address()), (Address("sim://5".into()), second.address()));
    assert!(other.connect(second.identity(), &Address("sim://3".into())).is_err());
    let inbox = second.listen(Port(1), Views::Any).unwrap();
    let sends = |to: &dyn Fabric, body: &[u8]| {
        let peer = other.connect(to.identity(), &to.address()).unwrap();
        peer.send(Class::Control, VIEW, Port(1), 1, body).unwrap();
        world.run_until(world.now() + MILLISECOND);
        inbox.try_take().map(|message| message.body)
    };
    assert_eq!(sends(&*second, b"to who lives there"), Some(b"to who lives there".to_vec()));
    assert_eq!(sends(&*first, b"to who lived there"), None);
    world.partition_one_way(Rank(6), Rank(5), Outage::Loses);
    assert_eq!(sends(&*second, b"between machines"), None);
}

/// The first copy was executed and its answer lost; the second finds another incarnation. "Revoked" would mean that
/// nothing was executed.
#[test]
fn another_life_does_not_speak_for_the_former() {
    let mut executed = 0;
    for seed in 0..50 {
        let travel_max = Duration::from_micros(400);
        let copies = Faults { request_copy_per_mille: 1000, answer_loss_per_mille: 1000, travel_max, ..Faults::none() };
        let world = World::new(seed, copies);
        let pair = Pair::new(&world);
        let pending = pair.post(add(0));
        assert!(world.run_until_true(|| pair.region.load(0) == Ok(1), world.now() + MILLISECOND));
        world.run_until(world.now() + Duration::from_micros(1));
        world.set_faults(Faults::none());
        let _again = world.node(Incarnation::new(1, 2));
        let error = world.finish(pending).unwrap_err();
        assert!(error.may_have_happened(), "seed {seed}: {error}");
        executed += 1;
    }
    assert_eq!(executed, 50);
}
