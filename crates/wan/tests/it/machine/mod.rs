//! The machine, with packets of which nothing is looked at but their number.

mod options;
mod queues;
mod rules;

use std::time::Duration;

use verbena_terms::Time;
use verbena_wan::{Leaving, Machine, Packet, Way};

/// A way with these options.
fn way(options: &str) -> Way {
    let mut way = Way::default();
    way.change(options, &|path| Err(format!("{path}: there are no files here"))).unwrap();
    way
}

fn machine(options: &str, seed: u64) -> Machine<u64> {
    Machine::new(way(options), seed, 0)
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(1_000_000_000 + nanos)
}

fn packet(bytes: u32) -> Packet {
    Packet { bytes, segments: 1 }
}

/// Whether there is room for it is seen by what is counted and what leaves.
fn arrive<T: Clone>(machine: &mut Machine<T>, at: Time, packet: Packet, number: T) {
    let _ = machine.arrive(at, packet, number);
}

/// What leaves by `until`, each asked for as soon as it is due.
fn leaving(machine: &mut Machine<u64>, until: Time) -> Vec<Leaving<u64>> {
    let mut left = vec![];
    while let Some(next) = machine.next().filter(|next| *next <= until) {
        left.extend(std::iter::from_fn(|| machine.leave(next)));
    }
    left
}

/// `count` packets of 1000 bytes, one every `apart`, and all that leaves.
fn run(options: &str, seed: u64, count: u64, apart: Duration) -> (Machine<u64>, Vec<Leaving<u64>>) {
    let mut machine = machine(options, seed);
    let mut left = vec![];
    for number in 0..count {
        let now = at(0) + apart * u32::try_from(number).unwrap();
        left.extend(leaving(&mut machine, now));
        arrive(&mut machine, now, packet(1000), number);
    }
    left.extend(leaving(&mut machine, Time::FAR));
    (machine, left)
}
