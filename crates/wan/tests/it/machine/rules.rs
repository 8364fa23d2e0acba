//! What the wire does: delay, loss, blocks, bursts, duplicates, corruption, order.

use std::collections::BTreeSet;
use std::time::Duration;

use verbena_terms::Time;
use verbena_wan::{Machine, Packet};

use super::{arrive, at, leaving, machine, packet, run, way};

const US: Duration = Duration::from_micros(1);
const MILLION: u64 = 1_000_000;

/// Whether a count of a million is within what 99.99% of all seeds give.
fn is_binomial(count: u64, part: f64) -> bool {
    let (mean, deviation) = (MILLION as f64 * part, (MILLION as f64 * part * (1.0 - part)).sqrt());
    (count as f64 - mean).abs() <= 3.8906 * deviation
}

#[test]
fn every_packet_takes_exactly_the_delay() {
    for (options, delay) in [
        ("", 0),
        ("delay=10us", 10_000),
        ("km=2000", 10_000_000),
        ("delay=1ms km=0.5", 1_002_500),
        ("delay=1h", 3600 * 1_000_000_000),
    ] {
        let (_, left) = run(options, 1, 1000, 3 * US);
        assert_eq!(left.len(), 1000, "{options}");
        for (number, leaving) in left.iter().enumerate() {
            assert_eq!(leaving.load, number as u64);
            assert_eq!(leaving.arrived, at(0) + 3 * US * number as u32);
            assert_eq!(leaving.due, leaving.arrived + Duration::from_nanos(delay), "{options}");
        }
    }
}

#[test]
fn nothing_leaves_before_it_is_due() {
    let mut machine = machine("delay=1ms", 1);
    arrive(&mut machine, at(0), packet(100), 7);
    assert_eq!(machine.next(), Some(at(1_000_000)));
    assert_eq!(machine.leave(at(999_999)), None);
    assert_eq!(machine.leave(at(1_000_000)).unwrap().load, 7);
    assert_eq!((machine.leave(Time::FAR), machine.next()), (None, None));
}

#[test]
fn of_a_million_packets_as_many_are_lost_doubled_and_changed_as_asked() {
    let (machine, left) = run("loss=0.3% duplicate=1% corrupt=0.05%", 42, MILLION, US);
    let counts = machine.counts();
    assert!(is_binomial(counts.dropped.loss, 0.003), "{counts:?}");
    // What is lost is neither doubled nor changed.
    assert!(is_binomial(counts.duplicated, 0.01 * 0.997), "{counts:?}");
    assert!(is_binomial(counts.corrupted, 0.0005 * 0.997), "{counts:?}");
    assert_eq!(counts.packets, MILLION);
    assert_eq!(counts.arrived, MILLION - counts.dropped.all() + counts.duplicated);
    assert_eq!(counts.arrived, left.len() as u64);
    // Copies stand one behind the other, and are due together.
    let copies = left.windows(2).filter(|pair| pair[0].load == pair[1].load && pair[0].due == pair[1].due).count();
    assert_eq!(copies as u64, counts.duplicated);
    let changed: BTreeSet<u64> = left.iter().filter(|leaving| leaving.corrupt.is_some()).map(|at| at.load).collect();
    assert_eq!(changed.len() as u64, counts.corrupted);
}

#[test]
fn a_probability_of_one_is_every_packet_and_of_none_no_packet() {
    let (machine, left) = run("loss=100%", 3, 10_000, US);
    assert_eq!((machine.counts().dropped.loss, left.len()), (10_000, 0));
    let (machine, left) = run("loss=0 duplicate=100%", 3, 10_000, US);
    assert_eq!((machine.counts().dropped.all(), left.len()), (0, 20_000));
}

#[test]
fn of_every_block_exactly_one_is_lost() {
    let (machine, left) = run("drop_rate=100", 9, MILLION, US);
    assert_eq!(machine.counts().dropped.drop_rate, 10_000);
    let mut blocks = vec![0; 10_000];
    left.iter().for_each(|leaving| blocks[leaving.load as usize / 100] += 1);
    assert!(blocks.iter().all(|arrived| *arrived == 99));
}

#[test]
fn of_every_block_exactly_one_is_overtaken() {
    let (machine, left) = run("delay=1ms ooo_rate=50 ooo_delay=1010us", 9, 100_000, 3 * US);
    assert_eq!(machine.counts().out_of_order, 2000);
    assert!(left.iter().all(|leaving| {
        let took = leaving.due.since(leaving.arrived);
        took == 1000 * US || took == 1010 * US
    }));
    let mut blocks = vec![0; 2000];
    for leaving in left.iter().filter(|leaving| leaving.due.since(leaving.arrived) > 1000 * US) {
        blocks[leaving.load as usize / 50] += 1;
        // 10 us later, with one packet every 3 us: three come first.
        let place = left.iter().position(|at| at.load == leaving.load).unwrap();
        if left.len() - place > 4 {
            let expected = left.iter().take(place).filter(|before| before.load > leaving.load).count();
            assert!((2..=4).contains(&expected), "{} was overtaken by {expected}", leaving.load);
        }
    }
    assert!(blocks.iter().all(|chosen| *chosen == 1));
}

#[test]
fn bursts_are_counted_apart_from_other_loss() {
    let (machine, _) = run("burst=1%,25%", 5, MILLION, US);
    // One packet in 26 is in a burst. Neighbours are alike (correlation 0.74), so the deviation is 2.6 times that of as many single draws.
    let burst = machine.counts().dropped.burst;
    assert!(burst.abs_diff(MILLION / 26) < 1940, "{burst}");
    let (machine, _) = run("burst=1%,25% loss=1%", 5, MILLION, US);
    let dropped = machine.counts().dropped;
    assert!(is_binomial(dropped.loss, 0.01), "{dropped:?}");
    assert!(
        dropped.burst < burst && dropped.burst > burst * 97 / 100,
        "{dropped:?}: of {burst} one in a hundred is lost twice"
    );
}

#[test]
fn jitter_keeps_the_order_unless_asked_otherwise() {
    let order = |options: &str| {
        let (_, left) = run(options, 6, 100_000, 100 * US);
        assert_eq!(left.len(), 100_000);
        (left.windows(2).filter(|pair| pair[0].load > pair[1].load).count(), left)
    };
    let (overtaken, left) = order("delay=5ms jitter=normal:1ms");
    assert_eq!(overtaken, 0);
    assert!(left.windows(2).all(|pair| pair[0].due <= pair[1].due));
    let (overtaken, left) = order("delay=5ms jitter=normal:1ms order=free");
    assert!(overtaken > 10_000, "{overtaken}");
    let mean = left.iter().map(|leaving| leaving.due.since(leaving.arrived).as_secs_f64()).sum::<f64>() / 1e5;
    assert!((mean - 5e-3).abs() < 3.8906 * 1e-3 / 1e5f64.sqrt(), "{mean}");
    // Packets that are farther apart than the jitter is wide have its law either way.
    let (_, left) = run("delay=5ms jitter=1ms", 6, 10_000, 3000 * US);
    let took: Vec<Duration> = left.iter().map(|leaving| leaving.due.since(leaving.arrived)).collect();
    assert!(took.iter().all(|took| (4000 * US..=6000 * US).contains(took)));
    assert!(took.iter().min() < Some(&(4010 * US)) && took.iter().max() > Some(&(5990 * US)));
}

#[test]
fn a_seed_gives_the_same_run_and_another_one_another() {
    let all = "delay=1ms jitter=pareto:100us order=free loss=1% drop_rate=77 burst=1%,30% duplicate=1% corrupt=1% ooo_rate=30 \
               ooo_delay=3ms rate=1gbit";
    let run = |seed| {
        let (machine, left) = run(all, seed, 20_000, 5 * US);
        (*machine.counts(), left)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let other = {
        let mut machine = Machine::new(way(all), 1, 1);
        (0..20_000).for_each(|number| arrive(&mut machine, at(number * 5000), packet(1000), number));
        leaving(&mut machine, Time::FAR).len()
    };
    assert_ne!(other, run(1).1.len(), "the ways of a seed draw alike");
}

#[test]
fn what_a_rule_draws_does_not_depend_on_the_others() {
    let lost = |options: &str| {
        let (_, left) = run(options, 4, 10_000, US);
        left.iter().map(|leaving| leaving.load).collect::<BTreeSet<_>>()
    };
    assert_eq!(lost("loss=5%"), lost("loss=5% delay=1ms jitter=normal:100us corrupt=10% duplicate=10%"));
}

#[test]
fn housekeeping_takes_the_delay_and_no_rule_counts_it() {
    let mut machine = machine("delay=1ms drop_rate=1 duplicate=100%", 1);
    machine.pass(at(0), packet(60), 1).unwrap();
    arrive(&mut machine, at(5), packet(60), 2);
    let left = leaving(&mut machine, Time::FAR);
    assert_eq!((left.len(), left[0].load, left[0].due), (1, 1, at(1_000_000)));
    let counts = machine.counts();
    assert_eq!((counts.housekeeping, counts.packets, counts.dropped.drop_rate, counts.arrived), (1, 1, 1, 0));
}

#[test]
fn a_change_holds_from_then_on_and_overtakes_nothing() {
    let mut machine = machine("delay=10ms", 1);
    arrive(&mut machine, at(0), packet(100), 1);
    machine.change(way("delay=1ms"));
    arrive(&mut machine, at(1000), packet(100), 2);
    arrive(&mut machine, at(20_000_000), packet(100), 3);
    let left: Vec<_> = leaving(&mut machine, Time::FAR).iter().map(|leaving| (leaving.load, leaving.due)).collect();
    assert_eq!(left, [(1, at(10_000_000)), (2, at(10_000_000)), (3, at(21_000_000))]);
}

#[test]
fn what_does_not_fit_into_memory_is_dropped_and_counted_apart() {
    let mut machine = machine("delay=1s memory=3000B loss=0", 1);
    (0..5).for_each(|number| arrive(&mut machine, at(number), packet(1000), number));
    assert_eq!((machine.counts().dropped.memory, machine.counts().dropped.all()), (2, 2));
    assert_eq!(leaving(&mut machine, Time::FAR).len(), 3);
    arrive(&mut machine, at(2_000_000_000), packet(3000), 9);
    assert_eq!(leaving(&mut machine, Time::FAR).len(), 1, "what left makes room");
}

#[test]
fn frames_of_several_packets_pass_whole_where_no_rule_counts() {
    let large = Packet { bytes: 60_000, segments: 41 };
    for (options, unsplit) in [("delay=1ms", 0), ("loss=1%", 41), ("rate=1gbit", 41), ("delay=1ms jitter=1ms", 41)] {
        let mut machine = machine(options, 1);
        arrive(&mut machine, at(0), large, 1);
        assert_eq!(machine.counts().unsplit, unsplit, "{options}");
        assert_eq!(machine.counts().packets, 41);
        assert_eq!(machine.way().needs_single_packets(), unsplit > 0);
    }
}

#[test]
fn what_was_overtaken_on_the_way_here_is_put_back_into_its_place_where_there_is_delay_alone() {
    let order = |options: &str, before: &str| {
        let mut machine = machine(before, 1);
        machine.arrive(at(0), packet(100), 1).unwrap();
        machine.change(way(options));
        for (number, sent) in [(2, 300), (3, 100), (4, 200), (5, 400)] {
            machine.arrive(at(sent), packet(100), number).unwrap();
        }
        let left = leaving(&mut machine, Time::FAR);
        left.iter().map(|one| (one.load, one.due.since(at(0)).as_nanos() as u64)).collect::<Vec<_>>()
    };
    let ms = |nanos: u64| 1_000_000 + nanos;
    let sorted = [(1, ms(0)), (3, ms(100)), (4, ms(200)), (2, ms(300)), (5, ms(400))];
    assert_eq!(order("delay=1ms", "delay=1ms"), sorted);
    // A rule counts packets as they come.
    let as_they_came = [(1, ms(0)), (2, ms(300)), (3, ms(300)), (4, ms(300)), (5, ms(400))];
    assert_eq!(order("delay=1ms drop_rate=1000000", "delay=1ms"), as_they_came);
    // A way that has become shorter does not have them overtake who was on it before.
    let behind = [(1, ms(1_000_000)), (2, ms(1_000_000)), (3, ms(1_000_000)), (4, ms(1_000_000)), (5, ms(1_000_000))];
    assert_eq!(order("delay=1ms", "delay=2ms"), behind);
}

#[test]
fn what_there_is_no_room_for_is_given_back() {
    let mut machine = machine("delay=1ms memory=150B", 1);
    assert_eq!(machine.arrive(at(0), packet(100), 1), Ok(()));
    assert_eq!(machine.arrive(at(1), packet(100), 2), Err(2));
    assert_eq!(machine.pass(at(2), packet(60), 3), Err(3));
    assert_eq!(machine.counts().dropped.memory, 1);
    let mut limited = self::machine("rate=1mbit limit=1", 1);
    let taken: Vec<_> = (0..4).map(|number| limited.arrive(at(number), packet(1000), number)).collect();
    assert_eq!(taken, [Ok(()), Ok(()), Err(2), Err(3)]);
}
