//! Single failures of processes, their clocks and their discs (rule C6): rows of the table in docs/CLUSTER.md that no other test makes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use verbena_client::wire::LockMode;
use verbena_client::{Error, Locks, Socket};
use verbena_testkit::nodes::{Cluster, Node, PATIENCE, are_in, in_effect};

fn three(cluster: &Cluster) -> [Node; 3] {
    let nodes = ["a", "b", "c"].map(|name| cluster.start(name));
    nodes.iter().for_each(all_in);
    nodes
}

fn all_in(node: &Node) {
    node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
}

/// The lives that are in, by rank.
fn lives(node: &Node) -> Vec<(u64, u64)> {
    in_effect(&node.status().1).expect("it has a view in effect")
}

fn views(cluster: &Cluster, name: &str) -> Vec<Value> {
    let (code, views) =
        verbena_testkit::programs::json(&["cluster", "views", "--json", "--cluster-name", name], cluster.path());
    assert_eq!(code, 0);
    views.as_array().unwrap().clone()
}

#[test]
fn who_is_killed_and_starts_again_at_once_comes_in_the_view_in_which_it_goes() {
    let cluster = Cluster::on_shm("1s");
    let [a, b, c] = three(&cluster);
    c.kill();
    let _c = cluster.start("c");
    for node in [&a, &b] {
        node.wait_until("a new life of c in", |status| {
            in_effect(status).is_some_and(|lives| lives == [(1, 1), (2, 1), (3, 2)])
        });
    }
    let last = views(&cluster, "b").pop().unwrap();
    assert_eq!((&last["went"][0]["why"], &last["came"][0]["name"]), (&json!("superseded"), &json!("c")), "{last}");
}

#[test]
fn a_keeper_that_is_back_within_a_lease_costs_nobody_its_life() {
    let cluster = Cluster::on_shm("3s");
    let [a, b, c] = three(&cluster);
    a.kill();
    let a = cluster.start("a");
    for node in [&a, &b, &c] {
        node.wait_until("a new life of a in", |status| {
            in_effect(status).is_some_and(|lives| lives == [(1, 2), (2, 1), (3, 1)])
        });
    }
}

#[test]
fn a_keeper_that_was_stopped_for_longer_than_a_lease_expels_nobody() {
    let cluster = Cluster::on_shm("1s");
    let [a, b, c] = three(&cluster);
    a.signal(Signal::STOP);
    for node in [&b, &c] {
        node.wait_until("without lease", |status| status["state"] == "lapsed");
    }
    a.signal(Signal::CONT);
    for node in [&b, &c] {
        all_in(node);
        assert_eq!(lives(node)[1..], [(2, 1), (3, 1)]);
    }
}

/// The same, and the view stays as it is: what is held is lost all the same, and is not held again when there is the next lease.
#[test]
fn a_lock_that_was_lost_while_the_keeper_was_stopped_stays_lost() {
    let lease = Duration::from_millis(500);
    let cluster = Cluster::on_shm("500ms");
    let [a, _b, _c] = three(&cluster);
    let connect = |node| {
        let socket = Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap();
        Locks::connect(&socket, Duration::from_secs(5)).unwrap()
    };
    let acquire = |locks: &mut Locks| locks.acquire(b"x", LockMode::Exclusive, Some(PATIENCE)).unwrap();
    let (mut here, mut there) = (connect("a"), connect("b"));
    for round in 0..3 {
        let held = acquire(&mut here);
        a.signal(Signal::STOP);
        // Twice as long as the lease can last.
        std::thread::sleep(2 * lease);
        assert!(!here.is_held(&held), "round {round}: held without a lease");
        a.signal(Signal::CONT);
        let back = Instant::now();
        while back.elapsed() < lease / 2 {
            assert!(!here.is_held(&held), "round {round}: held again");
        }
        let next = acquire(&mut there);
        assert!(next.token() > held.token());
        assert!(matches!(here.release(held), Err(Error::Lost)));
        // On a machine that is busy it may be lost too.
        let _ = there.release(next);
    }
}

#[test]
fn a_keeper_whose_disc_refuses_grants_leases_and_makes_no_view() {
    let cluster = Cluster::on_shm("2s");
    let [a, b, c] = three(&cluster);
    // Where the next record is written beside the old one nothing can be written.
    let beside = cluster.path().join("state-a/keeper.new");
    std::fs::create_dir(&beside).unwrap();
    let before = b.status().1["view"].clone();
    c.kill();
    let trouble = a.wait_for("trouble");
    assert!(trouble["what"].as_str().unwrap().contains("no view can be made"), "{trouble}");
    // As long as it takes for a member to be without lease, if it had none.
    std::thread::sleep(Duration::from_millis(2500));
    for node in [&a, &b] {
        let status = node.status().1;
        assert_eq!((&status["state"], &status["view"]), (&json!("member"), &before), "{status:#}");
    }
    std::fs::remove_dir(&beside).unwrap();
    for node in [&a, &b] {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
    }
}

#[test]
fn who_is_stopped_for_less_than_a_lease_goes_on() {
    let cluster = Cluster::on_shm("4s");
    let [a, b, c] = three(&cluster);
    let (before, view) = (lives(&a), a.status().1["view"].clone());
    b.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(700));
    b.signal(Signal::CONT);
    // Longer than its lease would have lasted.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4500) {
        let status = b.status().1;
        assert_eq!((&status["state"], &status["view"]), (&json!("member"), &view), "{status:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
    for node in [&a, &b, &c] {
        assert_eq!((lives(node), &node.status().1["view"]), (before.clone(), &view));
    }
}

/// A library that, preloaded, sets the time of day for one process; nothing if there is no compiler for it.
fn clock(directory: &Path) -> Option<String> {
    let library = directory.join("clock.so").into_os_string().into_string().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/apps/clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, source, "-ldl"]).status();
    built.is_ok_and(|status| status.success()).then_some(library)
}

#[test]
fn the_time_of_day_is_nothing_to_leases_and_views() {
    let cluster = Cluster::on_shm("2s");
    let Some(library) = clock(cluster.path()) else {
        return println!("skipped: no C compiler to build what sets the clock of one process");
    };
    let offset = cluster.path().join("offset");
    std::fs::write(&offset, "0").unwrap();
    let environment = [("LD_PRELOAD", library.as_str()), ("CLOCK_OFFSET", offset.to_str().unwrap())];
    let nodes = ["a", "b", "c"].map(|name| cluster.start_with(name, &environment));
    nodes.iter().for_each(all_in);
    let (before, view) = (lives(&nodes[0]), nodes[0].status().1["view"].clone());
    // Into a year that the log then tells, and back before the epoch of most.
    for (seconds, year) in [(50 * 31_556_952_i64, "207"), (-40 * 31_556_952, "198")] {
        std::fs::write(&offset, seconds.to_string()).unwrap();
        nodes[1].signal(Signal::HUP);
        let began = Instant::now();
        while !nodes[1].log().lines().any(|line| line.starts_with(year)) {
            assert!(began.elapsed() < PATIENCE, "its clock is not set: {}", nodes[1].log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(2500) {
            for node in &nodes {
                let status = node.status().1;
                assert_eq!((&status["state"], &status["view"]), (&json!("member"), &view), "{status:#}");
            }
        }
    }
    assert_eq!(lives(&nodes[2]), before);
}
