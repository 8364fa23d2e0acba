//! `verbena_client::Locks` for who does not just wait: waits in parts, holds of others, looks from other threads.

use std::time::{Duration, Instant};

use verbena_client::wire::LockMode;
use verbena_client::{Error, Locks};
use verbena_testkit::nodes::{Cluster, Node};

use super::{NAMES, acquire, connect, on_shm};

fn three() -> (Cluster, [Node; 3], [Locks; 3]) {
    let cluster = on_shm();
    let nodes = super::three(&cluster);
    let locks = NAMES.map(|node| connect(&cluster, node));
    (cluster, nodes, locks)
}

/// Who asks and looks from time to time keeps the place in the queue; answers to one wish wait while another is waited for.
#[test]
fn what_was_asked_for_is_waited_for_bit_by_bit() {
    let (_cluster, _nodes, [mut locks, mut other, mut later]) = three();
    let bit = Some(Duration::from_millis(5));
    let held = acquire(&mut locks, "x", LockMode::Exclusive);
    let first = other.ask(b"x", LockMode::Exclusive).unwrap();
    let second = other.ask(b"y", LockMode::Exclusive).unwrap();
    for _ in 0..20 {
        assert_eq!(other.wait(&first, bit).unwrap(), None);
    }
    let third = later.ask(b"x", LockMode::Exclusive).unwrap();
    let y = other.wait(&second, Some(Duration::ZERO)).unwrap().expect("it came while the other was waited for");
    assert!(matches!(other.wait(&second, None), Err(Error::NotOurs)), "it is over");
    locks.release(held).unwrap();
    assert_eq!(later.wait(&third, bit).unwrap(), None, "it asked later");
    let x = other.wait(&first, None).unwrap().unwrap();
    assert!(other.is_held(&x) && other.is_held(&y));
    later.give_up(third).unwrap();
    // What is given up is nobody's, also if it had come.
    let came = locks.ask(b"z", LockMode::Exclusive).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    locks.give_up(came).unwrap();
    other.release(x).unwrap();
    // The node of who gave up stands in the queue of x until its turn has come.
    for name in ["x", "z"] {
        let held = acquire(&mut other, name, LockMode::Exclusive);
        other.release(held).unwrap();
    }
}

#[test]
fn what_is_another_connections_is_nobodys() {
    // Each has the same number at its helper, and the same first ticket.
    let (_cluster, _nodes, [mut locks, mut other, _]) = three();
    let mut x = acquire(&mut locks, "x", LockMode::Exclusive);
    let y = acquire(&mut other, "y", LockMode::Exclusive);
    assert!(locks.is_held(&x) && !other.is_held(&x));
    assert!(matches!(other.share(&mut x), Err(Error::NotOurs)));
    assert!(matches!(other.release(x), Err(Error::NotOurs)));
    assert!(other.is_held(&y) && x.mode() == LockMode::Exclusive);
    let wish = locks.ask(b"y", LockMode::Shared).unwrap();
    assert!(matches!(other.wait(&wish, None), Err(Error::NotOurs)));
    let watch = locks.watch().clone();
    assert!(std::thread::spawn(move || watch.is_held(&x)).join().unwrap());
    let watch = locks.watch().clone();
    drop(locks);
    assert!(!watch.is_held(&x), "its connection is over");
    other.release(y).unwrap();
}

/// Who waits for no time takes what is free, and is told at once of what is not.
#[test]
fn a_limit_of_nothing_is_a_try() {
    let (_cluster, _nodes, [mut locks, mut other, _]) = three();
    for nth in 0..50 {
        let name = format!("x{nth}");
        let held = locks.acquire(name.as_bytes(), LockMode::Exclusive, Some(Duration::ZERO)).unwrap();
        let tried = other.acquire(name.as_bytes(), LockMode::Shared, Some(Duration::ZERO));
        assert!(matches!(tried, Err(Error::NotFree)), "{tried:?}");
        locks.release(held).unwrap();
    }
}

#[test]
fn who_waits_for_a_loss_hears_it_when_the_helper_dies() {
    let (_cluster, [_a, b, _c], [_, mut locks, _]) = three();
    let held = acquire(&mut locks, "x", LockMode::Exclusive);
    let (watch, began) = (locks.watch().clone(), Instant::now());
    assert!(!watch.wait_lost(&held, Some(Duration::from_millis(50))) && began.elapsed() >= Duration::from_millis(50));
    let waiting = std::thread::spawn(move || watch.wait_lost(&held, Some(Duration::from_secs(20))));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished() && locks.is_held(&held));
    b.kill();
    assert!(waiting.join().unwrap() && !locks.is_held(&held));
}
