//! Locks with real processes that crash: clients and helpers are killed with -9, stopped, and cut off from each other, while other processes take locks at all
//! nodes. What was asked and answered is written down and checked against a lock whose holds end with the lease.
//!
//! A short run in every test run, with a lease of a second, so that a machine that is busy with other things too keeps leases; where it does not, that is counted
//! ([`pulse`]). VERBENA_LONG=1: over each fabric at least a hundred crashes of clients that hold, and a hundred of helpers, all of which are homes.
//! VERBENA_SEED is the seed of the faults.

mod campaign;
mod checker;
mod client;
mod history;
mod pulse;
mod seen;
mod session;
mod stage;
mod store;

use std::time::Duration;

use rustix::process::Signal;
use verbena_client::wire::LockMode::{Exclusive, Shared};
use verbena_namespaces::{Namespace, or_skipped};
use verbena_testkit::machine;

use crate::common::makes_networks;
use campaign::{Campaign, Fault};
use client::Client;
use seen::Seen;
use stage::{Blow, NAMES, Stage};

const LEASE: Duration = Duration::from_secs(1);

#[test]
#[ignore = "not a test: what the processes do that the others start"]
fn client() {
    client::play();
}

fn is_long() -> bool {
    std::env::var_os("VERBENA_LONG").is_some()
}

fn seed() -> u64 {
    std::env::var("VERBENA_SEED").map_or(1, |seed| seed.parse().expect("VERBENA_SEED is a number"))
}

/// These faults, so many times, and what came of it.
fn campaign(what: &str, stage: Stage, faults: &[Fault], times: usize) -> Seen {
    let (seed, lease) = (seed(), stage.lease);
    println!("{what}: seed {seed}");
    let mut campaign = Campaign::new(stage, seed);
    campaign.run(std::iter::repeat_n(faults, times).flatten().copied());
    let history = campaign.ends();
    let seen = campaign.seen;
    println!(
        "counted: locks over {what}: {seen}; {} grants, {} lost, {} refused, {} in vain; longest wait {:?}, latest answer {:?}",
        history.holds.len(),
        history.lost,
        history.not_free,
        history.not_in_time,
        Duration::from_nanos(history.longest_wait),
        Duration::from_nanos(history.latest.0),
    );
    assert!(history.holds.len() as u64 > 100 * seen.faults, "few grants: {}", history.holds.len());
    assert!(history.lost > 0 && history.not_free > 50 && history.not_in_time > 20, "{history:?}");
    assert!(Duration::from_nanos(history.longest_wait) > lease, "nobody waited for as long as a lease");
    let blows = faults.iter().filter(|fault| matches!(fault, Fault::Node(_))).count();
    seen.is_enough((blows * times) as u64);
    seen
}

const CRASHES: [Fault; 12] = [
    Fault::Holder(Exclusive),
    Fault::Node(Blow::Kill),
    Fault::Holder(Shared),
    Fault::Waiter,
    Fault::Traffic,
    Fault::Node(Blow::Stop),
    Fault::Stopped,
    Fault::Holder(Exclusive),
    Fault::Traffic,
    Fault::Keeper(Blow::Kill),
    Fault::Waiter,
    Fault::Holder(Shared),
];

/// In the long run beside those: ten times both are a hundred clients that held and a hundred helpers.
const MORE: [Fault; 14] = [
    Fault::Node(Blow::Kill),
    Fault::Holder(Exclusive),
    Fault::Node(Blow::Kill),
    Fault::Traffic,
    Fault::Node(Blow::Kill),
    Fault::Holder(Exclusive),
    Fault::Node(Blow::Kill),
    Fault::Keeper(Blow::Stop),
    Fault::Node(Blow::Kill),
    Fault::Holder(Shared),
    Fault::Node(Blow::Kill),
    Fault::Keeper(Blow::Kill),
    Fault::Traffic,
    Fault::Node(Blow::Kill),
];

fn crashes(what: &str, stage: Stage) {
    if !is_long() {
        campaign(what, stage, &CRASHES, 1);
        return;
    }
    let killed = campaign(what, stage, &[&CRASHES[..], &MORE].concat(), 10).killed;
    assert!(killed.holders >= 100 && killed.helpers >= 100, "{killed}");
}

#[test]
fn locks_outlive_crashes_on_shm() {
    crashes("shm", Stage::on_shm(LEASE));
}

#[test]
fn locks_outlive_crashes_on_tcp() {
    crashes("tcp", Stage::on_tcp(LEASE));
}

#[test]
fn locks_outlive_crashes_on_xdp() {
    let _networks = makes_networks();
    let Some(middle) = or_skipped(Namespace::new()).unwrap() else { return };
    crashes("xdp", Stage::on_xdp(LEASE, middle));
}

/// An emulated processor takes so much longer for all of it.
const EMULATED_LEASE: Duration = Duration::from_secs(5);

#[test]
fn locks_outlive_crashes_on_soft_roce() {
    machine::in_machine_at_length("rxe", "lock_crashes::inside_rxe");
}

#[test]
fn locks_outlive_crashes_on_soft_iwarp() {
    machine::in_machine_at_length("siw", "lock_crashes::inside_siw");
}

#[test]
fn inside_rxe() {
    crashes_in_a_machine("soft-RoCE");
}

#[test]
fn inside_siw() {
    crashes_in_a_machine("soft-iWARP");
}

fn crashes_in_a_machine(devices: &str) {
    if machine::is_inside() {
        campaign(devices, Stage::on_adapters(EMULATED_LEASE), &CRASHES, 1);
    }
}

fn cuts(what: &str, stage: Stage) {
    let cuts = [Fault::Node(Blow::CutOff), Fault::Node(Blow::Deaf), Fault::Node(Blow::Mute)];
    if !is_long() {
        campaign(what, stage, &cuts, 1);
        return;
    }
    let more = [Fault::Node(Blow::Kill), Fault::Traffic, Fault::Holder(Exclusive)];
    campaign(what, stage, &[&cuts[..], &more].concat(), 6);
}

#[test]
fn locks_outlive_a_network_that_is_cut() {
    let _networks = makes_networks();
    let Some(middle) = or_skipped(Namespace::new()).unwrap() else { return };
    cuts("tcp that is cut", Stage::on_networks(LEASE, middle));
}

#[test]
fn locks_outlive_a_network_that_is_cut_over_xdp() {
    let _networks = makes_networks();
    let Some(middle) = or_skipped(Namespace::new()).unwrap() else { return };
    cuts("xdp that is cut", Stage::on_xdp(LEASE, middle));
}

/// Rule L7. A holder is stopped between its look at the lock and its write, and its helper is too, for longer than a lease: somebody else takes the lock and writes. A store that
/// compares tokens refuses what comes late; one that does not loses what was written meanwhile.
#[test]
fn a_store_that_compares_tokens_loses_no_update() {
    let mut stage = Stage::on_shm(LEASE);
    let directory = stage.cluster.path().to_owned();
    store::make(&directory);
    let (mut plain, mut guarded) = (0, 0);
    let mut writes = |client: &mut Client| {
        client.tell("go on");
        let said = client.hear();
        plain += 1;
        guarded += i64::from(said.starts_with("wrote"));
        said
    };
    let [mut paused, mut other] = [1, 2].map(|node| Client::writer(&directory, node));
    let rounds = if is_long() { 10 } else { 2 };
    for round in 0..rounds {
        paused.tell("begin");
        assert_eq!(paused.hear(), "checked");
        paused.signal(Signal::STOP);
        stage.strike(1, Blow::Stop);
        for _ in 0..2 {
            other.tell("begin");
            assert_eq!(other.hear(), "checked");
            assert_eq!(writes(&mut other), "wrote held");
        }
        paused.signal(Signal::CONT);
        assert_eq!(writes(&mut paused), "refused lost");
        stage.heal(1, Blow::Stop);
        stage.wait_until_all_in();
        // Nobody is in the way of who is not stopped.
        paused.tell("begin");
        assert_eq!(paused.hear(), "checked");
        assert_eq!(writes(&mut paused), "wrote held", "round {round}");
    }
    [paused, other].into_iter().for_each(Client::ended);
    let numbers = store::numbers(&directory);
    println!(
        "counted: {guarded} updates that a guarded store took and {} that it has; {plain} and {} without the guard, at {}",
        numbers.0, numbers.1, NAMES[1]
    );
    assert_eq!(numbers.0, guarded, "the guarded store lost updates");
    assert!(numbers.1 < plain, "the store without a guard lost none: then this shows nothing");
}
