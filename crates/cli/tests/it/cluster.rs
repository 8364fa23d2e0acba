//! Three helpers, three processes: killed, stopped, started again (rules C1 to C4), on each provider.

use std::time::Duration;

use rustix::process::Signal;
use verbena_testkit::nodes::{Cluster, Node, are_in, in_effect};

const LEASE: Duration = Duration::from_secs(1);

fn start_of(node: &Node, rank: u64) -> u64 {
    let members = in_effect(&node.status().1).expect("it has a view in effect");
    members.iter().find(|(other, _)| *other == rank).expect("the rank is in the view").1
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
        let (code, status) = node.status();
        assert_eq!((code, &status["fabric"]["provider"]), (0, &provider.into()));
    }

    a_member_dies(&a, &b, c);
    let c = cluster.start("c");
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    assert!(start_of(&b, 3) > 1, "a new life of c");

    the_keeper_dies(&b, a);
    let a = cluster.start("a");
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    assert!(start_of(&b, 1) > 1, "a new life of a");

    a_member_sleeps(&a, &b);

    for node in [b, c, a] {
        node.signal(Signal::TERM);
        assert_eq!(node.ended().code(), Some(0));
    }
    assert_eq!(cluster.left(), Vec::<String>::new(), "something was left behind");
}

/// The others learn of it by its lease, and within three of them; not before one could have run out.
fn a_member_dies(a: &Node, b: &Node, c: Node) {
    c.kill();
    let took = b.wait_until("two in", |status| are_in(status, &[1, 2]));
    a.wait_until("two in", |status| are_in(status, &[1, 2]));
    assert!(took < 3 * LEASE, "{took:?} until the dead member was out");
    assert!(took > LEASE / 2, "{took:?}: its lease cannot have run out");
}

/// Without it leases run out, and a member says that it serves nothing.
fn the_keeper_dies(b: &Node, a: Node) {
    a.kill();
    let took = b.wait_until("without lease", |status| status["state"] == "lapsed" && status["lease_left_ms"] == 0);
    assert!(took <= LEASE + LEASE / 2, "{took:?} until the lease was over");
    assert_eq!(b.status().0, 1);
}

/// Whoever sleeps longer than its lease comes back as another.
fn a_member_sleeps(a: &Node, b: &Node) {
    let before = start_of(a, 2);
    b.signal(Signal::STOP);
    a.wait_until("two in", |status| are_in(status, &[1, 3]));
    b.signal(Signal::CONT);
    a.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    b.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    assert!(start_of(a, 2) > before, "the same life came back");
    let next = b.wait_for("expelled")["next"].clone();
    assert!(next["start"].as_u64().unwrap() > before, "{next}");
}
