//! What locks take of a helper's memory, with all that it remembers of the programs that hold them.

use verbena_client::wire::LockMode;
use verbena_client::{Hold, Locks};
use verbena_testkit::nodes::{Cluster, Node, are_in};

use super::connect;

const PROGRAMS: usize = 4;
/// Asked for before the first answer is waited for: a connection takes 256.
const AT_ONCE: usize = 100;

/// Bytes of it that are in memory (proc_pid_status(5)).
fn resident(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// A node that is the home of all locks, so that what it takes is all that a lock takes anywhere but in the program; and programs.
fn alone() -> (Cluster, Node, [Locks; PROGRAMS]) {
    let cluster = Cluster::new("2s", &[("a", "shm://a".into())]);
    let node = cluster.start("a");
    node.wait_until("in", |status| are_in(status, &[1]));
    let programs = std::array::from_fn(|_| connect(&cluster, "a"));
    (cluster, node, programs)
}

/// These of the locks, of names that have 13 bytes.
fn hold(locks: &mut Locks, first: usize, count: usize) -> Vec<Hold> {
    let mut held = Vec::with_capacity(count);
    let all: Vec<usize> = (first..first + count).collect();
    for some in all.chunks(AT_ONCE) {
        let ask = |nth| locks.ask(format!("lock/{nth:08}").as_bytes(), LockMode::Exclusive).unwrap();
        let wishes: Vec<_> = some.iter().map(ask).collect();
        held.extend(wishes.iter().map(|wish| locks.wait(wish, None).unwrap().unwrap()));
    }
    assert!(held.iter().all(|hold| locks.is_held(hold)));
    held
}

/// Each of the programs at the same time, with a number.
fn each(programs: &mut [Locks], act: impl Fn(&mut Locks, usize) + Sync) {
    std::thread::scope(|scope| {
        for (nth, locks) in programs.iter_mut().enumerate() {
            let act = &act;
            scope.spawn(move || act(locks, nth));
        }
    });
}

#[test]
fn a_lock_that_is_held_takes_little_of_its_helper() {
    // Of a million, tables have just doubled: seven eighths of 2^20 are fewer.
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let (count, most) = if is_long { (1_000_000, 1440) } else { (100_000, 1280) };
    let (_cluster, node, mut programs) = alone();
    let before = resident(&node);
    each(&mut programs, |locks, nth| drop(hold(locks, nth * count / PROGRAMS, count / PROGRAMS)));
    let bytes = (resident(&node) - before) / count as u64;
    println!("counted: {count} locks held through a helper: {bytes} bytes each");
    assert!(bytes <= most, "{bytes} bytes each");
}

/// The same few locks again and again. At first the helper's memory gets pieces that are free and too small; then it is as large as it gets, or the rest of what is
/// remembered of some who held a lock is what it grows by.
#[test]
fn a_helper_forgets_who_held_a_lock() {
    const LOCKS: usize = 4_000;
    const TURNS: usize = 20;
    let (_cluster, node, mut programs) = alone();
    let mut takes_turns = |turns: usize| {
        each(&mut programs, |locks, nth| {
            for _ in 0..turns {
                let held = hold(locks, nth * LOCKS / PROGRAMS, LOCKS / PROGRAMS);
                held.into_iter().for_each(|hold| locks.release(hold).unwrap());
            }
        });
        resident(&node)
    };
    let [before, after] = [takes_turns(TURNS / 2), takes_turns(TURNS)];
    let bytes = after.saturating_sub(before) / (LOCKS * TURNS) as u64;
    println!("counted: {} times a lock was held, the helper grew by {bytes} bytes each time", LOCKS * TURNS);
    assert!(bytes <= 48, "{bytes} bytes each time");
}
