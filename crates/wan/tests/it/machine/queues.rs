//! Rates, limits of queues, CoDel, traces.

use std::sync::Arc;
use std::time::Duration;

use verbena_terms::Time;
use verbena_wan::{Machine, Trace, Way};

use super::{arrive, at, leaving, machine, packet, run, way};

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn a_rate_transmits_one_after_the_other() {
    // 1000 bytes at 8 Mbit/s take a millisecond; five come at once.
    let (_, left) = run("rate=8mbit delay=3ms", 1, 5, Duration::ZERO);
    let due: Vec<Duration> = left.iter().map(|leaving| leaving.due.since(at(0))).collect();
    assert_eq!(due, [4 * MS, 5 * MS, 6 * MS, 7 * MS, 8 * MS]);
    // A line that had nothing to do owes nothing.
    let (_, left) = run("rate=8mbit", 1, 5, 10 * MS);
    assert!(left.iter().all(|leaving| leaving.due.since(leaving.arrived) == MS));
}

/// Of ten packets of 1000 bytes at once one is transmitted, and the rest waits.
#[test]
fn what_the_queue_does_not_hold_is_dropped_and_is_no_loss() {
    for (limit, dropped) in
        [("4", 5), ("4000B", 5), ("4999B", 5), ("9", 0), ("8", 1), ("4ms", 5), ("1", 8), ("3999us", 6)]
    {
        let (machine, left) = run(&format!("rate=8mbit limit={limit} loss=0"), 1, 10, Duration::ZERO);
        let counts = machine.counts();
        assert_eq!((counts.dropped.queue_limit, counts.dropped.all()), (dropped, dropped), "{limit}");
        // The tail is what does not fit.
        assert_eq!(left.iter().map(|at| at.load).collect::<Vec<_>>(), (0..10 - dropped).collect::<Vec<_>>(), "{limit}");
    }
    let (machine, _) = run("rate=8mbit", 1, 1500, Duration::ZERO);
    assert_eq!(machine.counts().dropped.queue_limit, 499, "1000 wait where nothing else is said");
}

#[test]
fn the_queue_empties_at_its_rate() {
    let mut machine = machine("rate=8mbit", 1);
    (0..11).for_each(|number| arrive(&mut machine, at(0), packet(1000), number));
    assert_eq!(machine.queued(), (10, 10_000));
    assert_eq!(leaving(&mut machine, at(3_500_000)).len(), 3);
    assert_eq!((machine.queued(), machine.under_way()), ((7, 7000), 1));
    leaving(&mut machine, Time::FAR);
    assert_eq!((machine.queued(), machine.under_way()), ((0, 0), 0));
}

#[test]
fn what_the_wire_loses_has_taken_its_time_of_the_line() {
    let (_, left) = run("rate=8mbit drop_rate=10", 3, 1000, Duration::ZERO);
    assert_eq!(left.len(), 900);
    assert!(left.iter().all(|leaving| leaving.due.since(at(0)) == MS * u32::try_from(leaving.load + 1).unwrap()));
}

/// How long packets waited at the end of ten seconds in which as many came as half again the line can carry.
fn overloaded(options: &str) -> (Machine<u64>, Duration) {
    let (machine, left) = run(options, 1, 15_000, MS * 2 / 3);
    let last: Vec<Duration> =
        left.iter().filter(|at| at.load > 14_000).map(|leaving| leaving.due.since(leaving.arrived)).collect();
    (machine, last.iter().sum::<Duration>() / u32::try_from(last.len()).unwrap())
}

#[test]
fn codel_drops_more_and_more_until_packets_wait_no_longer_than_its_target() {
    let (tail, waited_tail) = overloaded("rate=8mbit limit=100000");
    assert!(tail.counts().dropped.all() == 0 && waited_tail > Duration::from_secs(4), "{waited_tail:?}");
    let (codel, waited) = overloaded("rate=8mbit limit=100000 queue=codel");
    let dropped = codel.counts().dropped;
    // Load that answers no loss is brought down slowly (section 5.7); a queue of seconds it is not.
    assert!(dropped.codel > 500 && dropped.queue_limit == 0, "{dropped:?}");
    let (mut codel, memory) = (codel, 256 << 20);
    arrive(&mut codel, Time::FAR, packet(memory), 0);
    assert_eq!(codel.counts().dropped.memory, 0, "what was dropped left no room");
    assert!(waited < waited_tail / 2, "{waited:?}");
}

#[test]
fn the_first_drop_of_codel_comes_an_interval_after_packets_wait_and_the_next_ones_by_its_law() {
    let mut machine = machine("rate=8mbit limit=100000 queue=codel:5ms,100ms", 1);
    // All at once: packet n leaves the queue at n ms and has waited as long.
    (0..1000).for_each(|number| arrive(&mut machine, at(0), packet(1000), number));
    let left: Vec<u64> = leaving(&mut machine, Time::FAR).iter().map(|leaving| leaving.load).collect();
    let dropped: Vec<u64> = (0..1000).filter(|number| left.binary_search(number).is_err()).collect();
    // At 5 ms the first waits too long, so 105 ms is when the first is dropped; the packet behind it takes its place in time, so from then
    // on the nth packet leaves earlier by as many as were dropped before.
    assert_eq!(dropped[0], 105);
    let times: Vec<f64> = dropped.iter().enumerate().map(|(before, number)| (*number as f64) - before as f64).collect();
    let mut expected = 105.0;
    for (count, time) in times.iter().enumerate().take(8) {
        assert!((time - expected).abs() <= 1.0 + 1e-9 * count as f64, "drop {count} at {time} ms, expected {expected}");
        expected += 100.0 / ((count + 1) as f64).sqrt();
    }
}

#[test]
fn codel_leaves_a_queue_alone_that_drains() {
    // Bursts of 50 that are gone before the next one: at most 49 ms, but never for an interval.
    let mut machine = machine("rate=8mbit queue=codel", 1);
    for burst in 0..20u64 {
        let now = at(burst * 80_000_000);
        leaving(&mut machine, now);
        (0..50).for_each(|number| arrive(&mut machine, now, packet(1000), number));
    }
    leaving(&mut machine, Time::FAR);
    assert_eq!(machine.counts().dropped.all(), 0);
}

#[test]
fn codel_at_a_rate_without_overload_drops_nothing() {
    let (machine, _) = run("rate=8mbit queue=codel", 1, 10_000, MS);
    assert_eq!(machine.counts().dropped.all(), 0);
}

#[test]
fn a_trace_changes_delay_and_rate() {
    let trace = Trace::parse("0s 1ms -\n10ms 5ms 8mbit\n20ms - -\n30ms repeat").unwrap();
    let way = Way { trace: Some(("trace".into(), Arc::new(trace))), delay: 2 * MS, ..way("") };
    way.check().unwrap();
    assert!(way.needs_single_packets());
    let mut machine: Machine<u64> = Machine::new(way, 1, 0);
    let mut took = vec![];
    for ms in [0, 9, 10, 19, 20, 29, 30, 40] {
        let now = at(0) + ms * MS;
        arrive(&mut machine, now, packet(1000), u64::from(ms));
        let left = leaving(&mut machine, Time::FAR);
        took.push((ms, left[0].due.since(left[0].arrived)));
    }
    // With a rate a millisecond of transmission comes first, and its end is when the delay is looked up.
    let expected = [(0, MS), (9, MS), (10, 6 * MS), (19, 3 * MS), (20, 2 * MS), (29, 2 * MS), (30, MS), (40, 6 * MS)];
    assert_eq!(took, expected);
    assert!(took.iter().all(|(_, took)| *took >= US));
}
