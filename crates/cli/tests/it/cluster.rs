//! Three helpers, three processes: killed, stopped, started again (rules C1 to C4), on each provider. How long what takes is in the
//! dialogues of `verbena-cluster` (`sim::dialogues`).

use std::cell::Cell;

use rustix::process::Signal;
use serde_json::Value;
use verbena_testkit::nodes::{Cluster, Node, are_in, in_effect};

/// Waits until a life of this rank with a higher start number than `before` is in, as `node` sees it; gives that number.
fn another_start(node: &Node, rank: u64, before: u64) -> u64 {
    let start_of = |status: &Value| {
        let members = in_effect(status)?;
        members.iter().find(|(other, start)| *other == rank && *start > before).map(|(_, start)| *start)
    };
    let found = Cell::new(0);
    node.wait_until("another life in", |status| start_of(status).inspect(|start| found.set(*start)).is_some());
    found.get()
}

#[test]
fn over_tcp() {
    live_and_die("tcp", &Cluster::on_tcp("1s"));
}

#[test]
fn over_shared_memory() {
    live_and_die("shm", &Cluster::on_shm("1s"));
}

fn live_and_die(provider: &str, cluster: &Cluster) {
    // The keeper comes last: members wait for it.
    let b = cluster.start("b");
    let c = cluster.start("c");
    assert_eq!(b.status().0, 1, "no member yet, and the exit code says so");
    assert_eq!(b.status().1["state"], "joining");
    let a = cluster.start("a");
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
        node.wait_until("on its provider", |status| status["fabric"]["provider"] == provider);
    }

    a_member_dies(&a, &b, c);
    let c = cluster.start("c");
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    another_start(&b, 3, 1);

    the_keeper_dies(&b, a);
    let a = cluster.start("a");
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    another_start(&b, 1, 1);

    a_member_sleeps(&a, &b);

    for node in [b, c, a] {
        node.signal(Signal::TERM);
        assert_eq!(node.ended().code(), Some(0));
    }
    assert_eq!(cluster.left(), Vec::<String>::new(), "something was left behind");
}

fn a_member_dies(a: &Node, b: &Node, c: Node) {
    c.kill();
    for node in [a, b] {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
    }
}

/// Without it leases run out, and a member says that it serves nothing.
fn the_keeper_dies(b: &Node, a: Node) {
    a.kill();
    b.wait_until("without lease", |status| status["state"] == "lapsed" && status["lease_left_ms"] == 0);
    assert_eq!(b.status().0, 1);
}

/// A member that sleeps longer than its lease comes back as another.
fn a_member_sleeps(a: &Node, b: &Node) {
    let before = another_start(a, 2, 0);
    b.signal(Signal::STOP);
    a.wait_until("two in", |status| are_in(status, &[1, 3]));
    b.signal(Signal::CONT);
    another_start(a, 2, before);
    for node in [a, b] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    let next = b.wait_for("expelled")["next"].clone();
    assert!(next["start"].as_u64().unwrap() > 1, "{next}");
}
