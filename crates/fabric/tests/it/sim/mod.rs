//! What the simulator adds to the contract: that a seed is a run, and that each kind of fault happens.

mod lives;
mod support;

use std::time::Duration;

use support::{MILLISECOND, Pair, add, counters};
use verbena_fabric::sim::{Faults, Log, MANY_SEEDS, Outage, Seed, Step, World, capabilities, check_seeds};
use verbena_fabric::{
    AtomicScope, Batch, BatchTrips, Capabilities, Class, Error, Operation, Ordering, Port, Rights, Settled, Views,
};
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

const VIEW: ViewNumber = ViewNumber(1);

#[test]
fn counters_are_exact() {
    let mut unknown = 0;
    let runs = check_seeds("sim::counters_are_exact", 60, |seed| unknown += counters(seed, capabilities()).unknown);
    assert!(
        u64::from(unknown) > runs * 5 / 2 || runs < MANY_SEEDS,
        "only {unknown} operations ended as unknown: the faults are too tame to show anything"
    );
}

#[test]
fn counters_are_exact_with_other_capabilities() {
    let agent = Capabilities {
        target_cpu_free: false,
        ordering: Ordering::Posted,
        atomic_scope: AtomicScope::Processor,
        batch: BatchTrips::OneAndFences,
        ..capabilities()
    };
    check_seeds("sim::counters_are_exact_with_other_capabilities", 60, |seed| {
        counters(seed, agent.clone());
    });
}

#[test]
fn a_seed_is_one_run() {
    let run = |number| counters(Seed::with_log(number, Log::Whole), capabilities());
    for number in 0..20 {
        let (first, second, other) = (run(number), run(number), run(number + 1000));
        assert!(first.log.len() > 1000, "{} bytes of log", first.log.len());
        assert_eq!(first.log, second.log);
        assert_eq!(first.digest, second.digest);
        assert_ne!(first.digest, other.digest);
        assert_eq!(first.digest, counters(number.into(), capabilities()).digest, "the log changes the run");
    }
}

/// Fails when the simulator draws or orders anything otherwise: then seeds that were written down mean other runs.
#[test]
fn a_seed_is_the_same_run_in_every_process() {
    let digests = [1, 2, 3].map(|seed: u64| counters(seed.into(), capabilities()).digest);
    assert_eq!(digests, [0xacc0_dee3_171e_59e7, 0x8d6e_2bf6_e691_8b8c, 0xfa5c_81c8_4481_06b5], "{digests:#x?}");
}

#[test]
fn what_is_lost_is_unknown_and_settles_as_barred() {
    let world = World::new(1, Faults { request_loss_per_mille: 1000, ..Faults::none() });
    let pair = Pair::new(&world);
    let Err(Error::Unknown { first: Some(operation), .. }) = world.finish(pair.post(add(0))) else { panic!() };
    assert_eq!(pair.region.load(0), Ok(0));
    world.set_faults(Faults::none());
    assert_eq!(world.finish(pair.settle(operation)), Ok(Settled::Barred));
}

#[test]
fn a_lost_answer_is_unknown_and_settles_as_executed() {
    let world = World::new(1, Faults { answer_loss_per_mille: 1000, ..Faults::none() });
    let pair = Pair::new(&world);
    let Err(Error::Unknown { first: Some(operation), .. }) = world.finish(pair.post(add(0))) else { panic!() };
    assert_eq!(pair.region.load(0), Ok(1));
    world.set_faults(Faults::none());
    assert_eq!(world.finish(pair.settle(operation)), Ok(Settled::Executed(0)));
}

#[test]
fn what_is_late_is_executed_after_its_deadline_unless_it_was_settled() {
    let late = Faults { late_per_mille: 1000, late_max: 50 * MILLISECOND, ..Faults::none() };
    let mut executed = [0, 0];
    for seed in 0..50 {
        for settles in [false, true] {
            let world = World::new(seed, late.clone());
            let pair = Pair::new(&world);
            let Err(Error::Unknown { first: Some(operation), .. }) = world.finish(pair.post(add(0))) else { continue };
            assert_eq!(pair.region.load(0), Ok(0), "unknown, and not executed yet");
            world.set_faults(Faults::none());
            if settles {
                assert_eq!(world.finish(pair.settle(operation)), Ok(Settled::Barred));
            }
            world.run_until(world.now() + 100 * MILLISECOND);
            executed[usize::from(settles)] += pair.region.load(0).unwrap();
        }
    }
    assert!(executed[0] > 30 && executed[1] == 0, "{executed:?}");
}

#[test]
fn a_copy_is_swallowed() {
    let world = World::new(Seed::with_log(1, Log::Whole), Faults { request_copy_per_mille: 1000, ..Faults::none() });
    let pair = Pair::new(&world);
    for before in 0..50 {
        assert_eq!(world.finish(pair.post(add(0))).unwrap()[0].word(), Some(before));
    }
    world.run_until(world.now() + MILLISECOND);
    assert_eq!(pair.region.load(0), Ok(50));
    assert!(world.log().matches("an answer that nobody waits for").count() > 10);
}

#[test]
fn others_act_between_the_elements_of_a_batch_and_the_halves_of_a_block() {
    let (mut between, mut torn) = (0, 0);
    for seed in 0..100 {
        let world = World::new(seed, Faults { execution_max: Duration::from_micros(5), ..Faults::none() });
        let pair = Pair::new(&world);
        let mut twice = Batch::new();
        twice.push(Operation::FetchAdd { at: 0, addend: 1 }).push(Operation::FetchAdd { at: 0, addend: 1 });
        let mut first = pair.post(twice);
        let _second = pair.post(add(0));
        assert!(world.run_until_true(|| pair.region.load(0) == Ok(3), world.now() + MILLISECOND));
        world.run_until(world.now() + MILLISECOND);
        let first = first.poll_now().unwrap().unwrap();
        between += u32::from(first[1].word().unwrap() - first[0].word().unwrap() == 2);

        let buffer = |byte| pair.caller.pool().copy_of(&[byte; 64]).unwrap();
        let [a, b] = [1, 2].map(|byte| pair.post(Batch::one(Operation::Write { at: 64, from: buffer(byte) })));
        world.finish(a).unwrap();
        world.finish(b).unwrap();
        let mut block = [0; 64];
        pair.region.read(64, &mut block).unwrap();
        torn += u32::from(block.iter().any(|byte| *byte != block[0]));
        for word in block.chunks(8) {
            assert!(word.iter().all(|byte| *byte == word[0]), "a word is torn: {block:?}");
        }
    }
    assert!(between > 5 && torn > 5, "{between} of 100 batches were interleaved, {torn} blocks torn");
}

#[test]
fn batches_overtake_each_other_unless_order_is_promised() {
    let was_overtaken = |seed: u64, ordering| {
        let faults = Faults { request_loss_per_mille: 0, answer_loss_per_mille: 0, ..Faults::swarm(seed, MILLISECOND) };
        let world = World::with_capabilities(seed, faults, Capabilities { ordering, ..capabilities() });
        let pair = Pair::new(&world);
        let deadline = pair.caller.clock().now() + 1000 * MILLISECOND;
        let post = |value| {
            let operation = Operation::CompareSwap { at: 0, expected: value - 1, desired: value };
            pair.remote.post(Batch::one(operation), Class::Control, deadline)
        };
        let pending: Vec<_> = (1..=5).map(post).collect();
        for one in pending {
            world.finish(one).unwrap();
        }
        pair.region.load(0) != Ok(5)
    };
    let overtaken = |ordering| (0..100).filter(|seed| was_overtaken(*seed, ordering)).count();
    assert!(overtaken(Ordering::None) > 50);
    assert_eq!(overtaken(Ordering::Posted), 0);
}

#[test]
fn a_paused_target_answers_only_where_its_processor_is_not_needed() {
    for target_cpu_free in [true, false] {
        let world = World::with_capabilities(1, Faults::none(), Capabilities { target_cpu_free, ..capabilities() });
        let pair = Pair::new(&world);
        world.pause(pair.home.identity(), 20 * MILLISECOND);
        let result = world.finish(pair.post(add(0)));
        assert_eq!(result.is_ok(), target_cpu_free, "{result:?}");
        assert_eq!(pair.region.load(0), Ok(target_cpu_free.into()));
        world.run_until(world.now() + 20 * MILLISECOND);
        assert_eq!(pair.region.load(0), Ok(1), "executed late, when the target went on");
    }
}

#[test]
fn a_paused_node_sees_nothing_until_it_goes_on() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    let (caller, started) = (pair.caller.identity(), pair.caller.clock().now());
    let mut pending = pair.post(add(0));
    world.wake_node_at(caller, started + MILLISECOND, 7);
    world.pause(caller, 50 * MILLISECOND);
    let mut seen = Vec::new();
    while let Some(step) = world.step() {
        if step == (Step::Resumed { node: caller }) {
            assert_eq!(pair.caller.clock().now().since(started), 50 * MILLISECOND, "its clock went on");
            assert!(pending.poll_now().is_none());
        }
        seen.extend((step != Step::Inside).then_some(step));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[0], Step::Resumed { node: caller });
    assert!(pending.poll_now().is_some());

    world.pause(caller, Duration::MAX);
    let mut pending = pair.post(add(0));
    assert!(!world.run_until_true(|| pending.poll_now().is_some(), world.now() + 50 * MILLISECOND));
    world.resume(caller);
    assert_eq!(world.step(), Some(Step::Resumed { node: caller }));
    assert!(world.run_until_true(|| pending.poll_now().is_some(), world.now()));
}

#[test]
fn a_partition_can_be_one_way() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.partition_one_way(Rank(1), Rank(2), Outage::Either);
    assert!(matches!(world.finish(pair.post(add(0))), Err(Error::Unknown { .. })));
    assert_eq!(pair.region.load(0), Ok(1), "the request came through, the answer did not");
    world.heal_all();
    world.partition_one_way(Rank(2), Rank(1), Outage::Either);
    assert!(matches!(world.finish(pair.post(add(0))), Err(Error::Unknown { .. })));
    assert_eq!(pair.region.load(0), Ok(1));
    world.heal(Rank(1), Rank(2));
    world.run_until(world.now() + MILLISECOND);
    let held = pair.region.load(0).unwrap() - 1;
    assert_eq!(world.finish(pair.post(add(0))).unwrap()[0].word(), Some(1 + held));
}

#[test]
fn a_cut_link_loses_some_frames_and_holds_the_others() {
    let held = (0..100).map(|seed| {
        let world = World::new(seed, Faults::none());
        let pair = Pair::new(&world);
        world.partition(Rank(1), Rank(2));
        assert!(world.finish(pair.post(add(0))).is_err());
        world.heal_all();
        world.run_until(world.now() + MILLISECOND);
        pair.region.load(0).unwrap()
    });
    let held: u64 = held.sum();
    assert!((20..80).contains(&held), "{held} of 100 were executed after the link had healed");
}

#[test]
fn what_was_held_comes_in_order_and_no_later_than_what_is_sent_now() {
    let world = World::new(1, Faults { travel_max: MILLISECOND, ..Faults::none() });
    let pair = Pair::new(&world);
    let inbox = pair.home.listen(Port(1), Views::Any).unwrap();
    world.partition_one_way(Rank(2), Rank(1), Outage::Holds);
    for number in 0..500 {
        pair.peer.send(Class::Control, VIEW, Port(1), number, b"held").unwrap();
    }
    world.run_until(world.now() + 10 * MILLISECOND);
    assert!(inbox.try_take().is_none());
    world.heal_all();
    world.run_until(world.now() + 2 * MILLISECOND);
    let arrived: Vec<u64> = std::iter::from_fn(|| inbox.try_take()).map(|message| message.number).collect();
    assert_eq!(arrived, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_clogged_link_carries_everything_later() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.clog(Rank(2), Rank(1), MILLISECOND / 2);
    let posted = world.now();
    world.finish(pair.post(add(0))).unwrap();
    let took = world.now().since(posted);
    assert!(took > MILLISECOND / 2 && took < MILLISECOND, "{took:?}");

    let world = World::new(1, Faults { clog_per_mille: 100, clog_max: MILLISECOND / 4, ..Faults::none() });
    let pair = Pair::new(&world);
    let slow = (0..200).filter(|_| {
        let posted = world.now();
        world.finish(pair.post(add(0))).unwrap();
        world.now().since(posted) > MILLISECOND / 50
    });
    let slow = slow.count();
    assert!((15..80).contains(&slow), "{slow} of 200 met a clogged link");
}

#[test]
fn an_adapter_takes_a_round_trip_for_each_fence() {
    let took = |batch_trips| {
        let world = World::with_capabilities(1, Faults::none(), Capabilities { batch: batch_trips, ..capabilities() });
        let pair = Pair::new(&world);
        let mut batch = Batch::read_words(&[0, 8]);
        batch.push(Operation::FetchAdd { at: 16, addend: 1 }).push(Operation::WriteWord { at: 24, value: 1 });
        world.finish(pair.post(batch)).unwrap();
        world.now().since(Time::ZERO)
    };
    let (one, fences) = (took(BatchTrips::One), took(BatchTrips::OneAndFences));
    assert!(
        one < Duration::from_micros(16) && fences > Duration::from_micros(12) && fences > one,
        "{one:?} {fences:?}"
    );
}

#[test]
fn a_region_made_anew_is_out_of_reach() {
    let (mut landed, mut revoked) = (0, 0);
    for seed in 0..100 {
        let world = World::new(seed, Faults { request_copy_per_mille: 500, ..Faults::none() });
        let pair = Pair::new(&world);
        let mut twice = Batch::new();
        twice.push(Operation::FetchAdd { at: 0, addend: 1 }).push(Operation::FetchAdd { at: 0, addend: 1 });
        let pending = pair.post(twice);
        for _ in 0..seed % 5 {
            world.step();
        }
        pair.region.remake(ViewNumber(2)).unwrap();
        match world.finish(pending) {
            Ok(_) => landed += 1,
            Err(Error::Revoked { .. }) => revoked += 1,
            Err(error) => panic!("{error}"),
        }
        world.run_until(world.now() + MILLISECOND);
        assert_eq!(pair.region.load(0), Ok(0), "an operation of view 1 reached memory of view 2");
    }
    assert!(landed > 10 && revoked > 10, "{landed} had begun, {revoked} had not");
}

/// A copy that was executed later must not answer with what its own batch wrote.
#[test]
fn a_read_never_finds_what_stands_behind_it_in_its_batch() {
    let (mut answered, mut unknown) = (0, 0);
    for seed in 0..100 {
        let faults = Faults { request_copy_per_mille: 1000, answer_loss_per_mille: 300, ..Faults::none() };
        let world = World::new(seed, faults);
        let pair = Pair::new(&world);
        for value in 1..10 {
            let mut batch = Batch::read_words(&[0]);
            batch.push(Operation::WriteWord { at: 0, value });
            match world.finish(pair.post(batch)) {
                Ok(done) => {
                    assert_eq!(done[0].word(), Some(value - 1), "seed {seed}");
                    answered += 1;
                }
                Err(error) => {
                    assert!(error.may_have_happened());
                    unknown += 1;
                }
            }
        }
    }
    assert!(answered > 500 && unknown > 50, "{answered} answered, {unknown} unknown");
}

#[test]
#[should_panic = "F3"]
fn a_plain_store_to_a_word_that_atomics_change_is_found() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.finish(pair.post(add(8))).unwrap();
    pair.region.store(0, 1).unwrap();
    pair.region.store(8, 1).unwrap();
}

#[test]
#[should_panic = "F3"]
fn a_plain_write_over_a_word_that_atomics_change_is_found() {
    let world = World::new(1, Faults::none());
    let pair = Pair::new(&world);
    world.finish(pair.post(add(8))).unwrap();
    let from = pair.caller.pool().copy_of(&[0; 9]).unwrap();
    let _ = world.finish(pair.post(Batch::one(Operation::Write { at: 0, from })));
}

#[test]
fn an_owner_posts_its_atomics_where_the_processors_are_not_the_fabrics() {
    for atomic_scope in [AtomicScope::Fabric, AtomicScope::Processor] {
        let world = World::with_capabilities(1, Faults::none(), Capabilities { atomic_scope, ..capabilities() });
        let pair = Pair::new(&world);
        let own = pair.region.fetch_add(0, 1);
        match atomic_scope {
            AtomicScope::Processor => assert_eq!(own, Ok(0)),
            AtomicScope::Fabric => {
                assert_eq!(own, Err(Error::PostInstead));
                assert_eq!(pair.region.compare_swap(0, 0, 1), Err(Error::PostInstead));
                let itself = pair.home.connect(pair.home.identity(), &pair.home.address()).unwrap();
                let remote = itself.open(&pair.region.key(Rights::Change), Time::FAR).unwrap();
                world.finish(remote.post(add(0), Class::Control, pair.home.clock().now() + MILLISECOND)).unwrap();
            }
        }
        assert_eq!(pair.region.load(0), Ok(1));
    }
}

#[test]
fn messages_are_lost_repeated_and_overtaken() {
    let faults = Faults {
        message_loss_per_mille: 100,
        message_copy_per_mille: 100,
        message_overtake_per_mille: 100,
        ..Faults::none()
    };
    let world = World::new(1, faults);
    let pair = Pair::new(&world);
    let inbox = pair.home.listen(Port(1), Views::Any).unwrap();
    let send = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            pair.peer.send(Class::Control, VIEW, Port(1), number, &number.to_le_bytes()).unwrap();
        }
        world.run_until(world.now() + MILLISECOND);
        std::iter::from_fn(|| inbox.try_take()).map(|message| message.number).collect::<Vec<_>>()
    };
    let arrived = send(0..500);
    let late = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let mut distinct = arrived.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!((380..480).contains(&distinct.len()), "{}", distinct.len());
    assert!(arrived.len() > distinct.len() + 20 && late > 20, "{} arrived, {late} late", arrived.len());

    world.set_faults(Faults { tail_per_mille: 300, tail_max: MILLISECOND / 2, ..Faults::none() });
    assert_eq!(send(500..600), (500..600).collect::<Vec<_>>(), "one connection keeps the order");
}

#[test]
fn clocks_differ_and_jump() {
    let faults = Faults { clock_drift_ppm: 100, clock_spread: Duration::from_secs(100), ..Faults::none() };
    let world = World::new(1, faults);
    let pair = Pair::new(&world);
    let now = || [&pair.home, &pair.caller].map(|node| node.clock().now());
    let before = now();
    assert_ne!(before[0], before[1]);
    world.run_until(world.now() + Duration::from_secs(1000));
    let after = now();
    for node in 0..2 {
        let passed = after[node].since(before[node]).as_secs_f64();
        assert!((999.9..=1000.1).contains(&passed) && passed != 1000.0, "{passed}");
    }
    world.pause(pair.home.identity(), Duration::MAX);
    world.partition(Rank(1), Rank(2));
    let pending = pair.remote.post(add(0), Class::Control, pair.caller.clock().now() + Duration::from_secs(10));
    let posted = world.now();
    let caller = pair.caller.identity();
    world.wake_node_at(caller, pair.caller.clock().now() + Duration::from_secs(9), 7);
    world.jump_clock(caller, Duration::from_secs(9));
    assert!((0..2).any(|_| world.step() == Some(Step::Wake { node: Some(caller), token: 7 })), "so was its timer");
    assert_eq!(world.now(), posted);
    assert!(world.finish(pending).is_err());
    assert!(world.now().since(posted) < Duration::from_millis(1100), "its deadline was on its own clock");
}

#[test]
fn a_timer_never_goes_off_before_its_time_on_a_clock_that_drifts_and_jumps() {
    for seed in 0..50 {
        let world = World::new(seed, Faults { clock_drift_ppm: 20_000, ..Faults::none() });
        let node = world.node(Incarnation::new(1, 1));
        let time = node.clock().now() + Duration::from_secs(10);
        world.wake_node_at(node.identity(), time, 7);
        world.run_until(Time::ZERO + Duration::from_secs(1));
        world.jump_clock(node.identity(), Duration::from_secs(5));
        assert_eq!(world.step(), Some(Step::Wake { node: Some(node.identity()), token: 7 }));
        let now = node.clock().now();
        assert!(now >= time && now.since(time) < Duration::from_micros(1), "seed {seed}: {now}");
    }
}

#[test]
fn too_many_unknowns_must_be_settled_first() {
    let world = World::new(1, Faults { request_loss_per_mille: 1000, ..Faults::none() });
    let pair = Pair::new(&world);
    let pending: Vec<_> = (0..verbena_fabric::window::WINDOW).map(|_| pair.post(add(0))).collect();
    assert!(matches!(world.finish(pair.post(add(0))), Err(Error::Full { .. })));
    let mut unknown = Vec::new();
    for one in pending {
        let Err(Error::Unknown { first: Some(operation), .. }) = world.finish(one) else { panic!() };
        unknown.push(operation);
    }
    world.set_faults(Faults::none());
    let target = pair.home.identity();
    let refused = world.finish(pair.post(add(0))).unwrap_err();
    assert_eq!(refused, Error::SettleFirst { target, oldest: unknown[0] });
    assert_eq!(world.finish(pair.settle(unknown[0])), Ok(Settled::Barred));
    assert!(world.finish(pair.post(add(0))).is_ok());
    assert!(matches!(world.finish(pair.settle(unknown[0])), Err(Error::Forgotten { .. })));
}
