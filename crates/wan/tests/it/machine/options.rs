//! Options as they are written.

use std::time::Duration;

use super::arrive;
use proptest::prelude::*;
use verbena_terms::Time;
use verbena_wan::{DEFINITIONS, Machine, Packet, Way};

fn no_files(path: &str) -> Result<String, String> {
    Err(format!("{path}: no such file"))
}

fn said(options: &str) -> String {
    let mut way = Way { delay: Duration::from_millis(7), ..Way::default() };
    let before = way.clone();
    let error = way.change(options, &no_files).unwrap_err().to_string();
    assert_eq!(way, before, "what was refused has changed something");
    error
}

#[test]
fn mistakes_name_the_option_and_what_is_right() {
    for (options, expected) in [
        ("dealy=1ms", "there is no option \"dealy\"; there are delay, km, jitter"),
        ("delay", "\"delay\" is not NAME=VALUE"),
        ("delay=1", "delay: \"1\" is not a time such as"),
        ("loss=200%", "loss: \"200%\" is not a probability"),
        ("drop_rate=0", "drop_rate: \"0\" is not a number of packets from 1 on"),
        ("ooo_rate=1", "ooo_rate: \"1\" is not a number of packets from 2 on"),
        ("km=-1", "km: \"-1\" is not a distance"),
        ("km=1e3", "km: \"1e3\" is not a distance"),
        ("order=any", "order: \"any\" is neither keep nor free"),
        ("jitter=file:x", "jitter: x: no such file"),
        ("trace=x", "trace: x: no such file"),
        ("queue=red", "queue: \"red\" is not tail, codel"),
        ("queue=codel:5ms,5ms", "queue: the interval is longer than the target"),
    ] {
        let problem = said(options);
        assert!(problem.starts_with(expected), "{options}: {problem}");
    }
}

#[test]
fn what_cannot_be_together_is_refused() {
    for (options, expected) in [
        ("jitter=8ms", "jitter: 8ms around a delay of 7ms would have packets arrive before they are sent"),
        ("order=free", "order: without jitter packets arrive in order"),
        ("ooo_rate=5", "ooo_rate: needs ooo_delay"),
        ("ooo_delay=9ms", "ooo_delay: needs ooo_rate"),
        ("ooo_rate=5 ooo_delay=7ms", "ooo_delay: 7ms is not more than the delay of all, which is 7ms"),
        (
            "jitter=2ms ooo_rate=5 ooo_delay=9ms",
            "ooo_delay: 9ms is not more than the delay of all, which is 9ms with its jitter",
        ),
        ("limit=5", "limit: without a rate nothing waits"),
        ("queue=codel", "queue: without a rate nothing waits"),
        ("delay=2h", "delay: 2h is more than 1h"),
    ] {
        assert_eq!(said(options).split(',').next(), expected.split(',').next(), "{options}");
    }
}

#[test]
fn jitter_is_held_against_the_least_delay_of_a_trace() {
    let read = |path: &str| Ok(if path == "short" { "0s 10ms -\n1s 1ms -\n" } else { "0s 50ms -\n" }.to_owned());
    let change = |options| Way::default().change(options, &read).map_err(|error| error.to_string());
    let problem = change("delay=10ms jitter=5ms trace=short").unwrap_err();
    assert_eq!(problem, "jitter: 5ms around a delay of 1ms would have packets arrive before they are sent");
    assert_eq!(change("delay=10ms jitter=1ms trace=short"), Ok(()));
    assert_eq!(change("jitter=5ms trace=long"), Ok(()), "there is delay enough, though none was named");
}

#[test]
fn an_option_is_taken_back_and_dashes_are_underscores() {
    let mut way = Way::default();
    way.change("delay=1ms loss=1% rate=1mbit limit=5 drop-rate=7", &no_files).unwrap();
    assert_eq!(way.to_string(), "delay=1ms loss=0.01 drop_rate=7 rate=1mbit limit=5");
    way.change("loss=none rate=none limit=none", &no_files).unwrap();
    assert_eq!(way.to_string(), "delay=1ms drop_rate=7");
}

#[test]
fn every_option_is_shown_as_it_is_read() {
    let read = |path: &str| match path {
        "times" => Ok("1ms\n".to_owned()),
        _ => Ok("0s 1ms 1mbit\n".to_owned()),
    };
    let values = [
        "3ms",
        "12.5",
        "file:times",
        "free",
        "0.25",
        "9",
        "0.1,0.2,0.5,0",
        "0.5",
        "1",
        "4",
        "2s",
        "3mbit",
        "64KiB",
        "codel:1ms,20ms",
        "changes",
        "1MiB",
    ];
    let mut way = Way::default();
    for (definition, value) in DEFINITIONS.iter().zip(values) {
        way.set(definition.name, value, &read).unwrap();
    }
    way.check().unwrap();
    let shown: Vec<_> = way.options().collect();
    assert_eq!(shown.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), values);
    let mut again = Way::default();
    again.change(&way.to_string(), &read).unwrap();
    assert_eq!(again, way);
    DEFINITIONS.iter().for_each(|definition| way.set(definition.name, "none", &read).unwrap());
    assert_eq!(way, Way::default());
}

proptest! {
    /// Whatever is written, it is either refused, or runs: every packet leaves or is counted as dropped, none before it was sent, and all
    /// in order where that is promised.
    #[test]
    fn nothing_is_lost_without_a_count(
        words in prop::collection::vec(("(delay|km|jitter|order|loss|drop_rate|burst|duplicate|corrupt|ooo_rate|ooo_delay|rate|limit|queue|memory)",
            "([0-9]{1,3}(us|ms|%|mbit|KiB)?|normal:1ms|pareto:1ms|free|codel|1%,50%)"), 0..6),
        gaps in prop::collection::vec((0u64..200_000, 20u32..3000), 1..200),
        seed in any::<u64>(),
    ) {
        let mut way = Way::default();
        for (name, value) in &words {
            let _ = way.set(name, value, &no_files);
        }
        prop_assume!(way.check().is_ok());
        let mut again = Way::default();
        again.change(&way.to_string(), &no_files).unwrap();
        prop_assert_eq!(&again, &way);
        let is_ordered = !way.may_overtake && way.ooo_rate.is_none();
        let mut machine: Machine<usize> = Machine::new(way, seed, 0);
        let (mut now, mut left) = (Time::from_nanos(5), vec![]);
        for (number, (gap, bytes)) in gaps.iter().enumerate() {
            now = now + Duration::from_nanos(*gap);
            left.extend(std::iter::from_fn(|| machine.leave(now)));
            arrive(&mut machine, now, Packet { bytes: *bytes, segments: 1 }, number);
        }
        left.extend(std::iter::from_fn(|| machine.leave(Time::FAR)));
        let counts = *machine.counts();
        prop_assert_eq!(counts.packets, gaps.len() as u64);
        prop_assert_eq!(counts.arrived, left.len() as u64);
        prop_assert_eq!(counts.packets + counts.duplicated, counts.arrived + counts.dropped.all());
        prop_assert!(left.iter().all(|leaving| leaving.due >= leaving.arrived));
        prop_assert!(!is_ordered || left.windows(2).all(|pair| pair[0].load <= pair[1].load));
        prop_assert_eq!((machine.queued(), machine.under_way()), ((0, 0), 0));
        // However packets went, they left their room to others.
        let (bytes, before) = (machine.way().memory.0 as u32, counts.dropped.memory);
        arrive(&mut machine, now, Packet { bytes, segments: 1 }, 0);
        prop_assert_eq!(machine.counts().dropped.memory, before);
    }

    /// No text is a reason to fall over.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        let _ = Way::default().change(&text, &no_files);
        for definition in &DEFINITIONS {
            let _ = Way::default().set(definition.name, &text, &no_files);
        }
    }
}
