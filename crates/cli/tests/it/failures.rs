//! Single failures of processes, their clocks and their discs (rule C6): rows of the table in docs/concepts/membership.md that only processes
//! can show. The others, and how long each takes, are dialogues of `verbena-cluster` (`sim::dialogues`).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
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

/// The view stays as it is: what is held is lost all the same, and is not held again when there is the next lease.
#[test]
fn a_lock_that_was_lost_while_the_keeper_was_stopped_stays_lost() {
    let lease = Duration::from_secs(1);
    let cluster = Cluster::on_shm("1s");
    let [a, _b, _c] = three(&cluster);
    let connect = |node| {
        let socket = Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap();
        Locks::connect(&socket, Duration::from_secs(5)).unwrap()
    };
    let acquire = |locks: &mut Locks| locks.acquire(b"x", LockMode::Exclusive, Some(PATIENCE)).unwrap();
    let (mut here, mut there) = (connect("a"), connect("b"));
    for round in 0..2 {
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
fn a_keeper_whose_disc_refuses_says_so_and_makes_a_view_when_it_can() {
    let cluster = Cluster::on_shm("2s");
    let [a, b, c] = three(&cluster);
    // Where the next record is written beside the old one nothing can be written.
    let beside = cluster.path().join("state-a/keeper.new");
    std::fs::create_dir(&beside).unwrap();
    let before = b.status().1["view"].clone();
    c.kill();
    let trouble = a.wait_for("trouble");
    assert!(trouble["what"].as_str().unwrap().contains("no view can be made"), "{trouble}");
    assert_eq!(b.status().1["view"], before);
    std::fs::remove_dir(&beside).unwrap();
    for node in [&a, &b] {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
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
    // So long that a busy machine loses none, and renewed a quarter later.
    const LEASE_MS: u64 = 12_000;
    let cluster = Cluster::on_shm(&format!("{LEASE_MS}ms"));
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
        // Until each has renewed its lease by that clock: what is left of one grows then, and never grows otherwise.
        let (mut left, mut renewed) = ([u64::MAX; 3], [false; 3]);
        while renewed != [true; 3] {
            for (at, node) in nodes.iter().enumerate() {
                let status = node.status().1;
                assert_eq!((&status["state"], &status["view"]), (&json!("member"), &view), "{status:#}");
                let now = status["lease_left_ms"].as_u64().unwrap();
                assert!(now <= LEASE_MS, "{status:#}");
                renewed[at] |= now > left[at];
                left[at] = now;
            }
            assert!(began.elapsed() < 2 * PATIENCE, "no lease is renewed: {left:?}");
        }
    }
    assert_eq!(lives(&nodes[2]), before);
}
