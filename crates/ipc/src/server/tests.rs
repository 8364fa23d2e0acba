use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::connection::Connection;
use crate::layout::{HELPER_CORE, HELPER_CROWD};
use crate::spin::MOST;

const PATIENCE: Duration = Duration::from_secs(20);

/// Processor time of this thread.
fn used() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap()
}

const CALLS: u32 = 300;

/// Calls of a client on one core, which a helper on the other answers, or on the same. It expects each next one at once. How long the helper ran, and how often it saw one while it
/// spun.
fn answered_on(helper_core: usize, client_core: usize) -> (Duration, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), "node.sock", Options::default()).unwrap();
    let (path, until) = (server.path(), BootClock.now() + PATIENCE);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            verbena_terms::stay_on(client_core).unwrap();
            // The kernel does not give it a core as soon as it is woken, as it else often does.
            rustix::process::setpriority_process(None, 19).unwrap();
            let mut connection = Connection::connect(&path, until).unwrap();
            (0..CALLS).for_each(|_| drop(connection.call(b"", until).unwrap()));
        });
        let helper = scope.spawn(|| {
            verbena_terms::stay_on(helper_core).unwrap();
            let (mut calls, began) = (0, used());
            while calls < CALLS {
                assert!(BootClock.now() < until, "{calls} calls after {PATIENCE:?}");
                server.expect();
                let poll = server.poll(Duration::from_secs(1), &mut |event| {
                    if let Event::Request(request) = event {
                        request.answer(b"").unwrap();
                        calls += 1;
                    }
                });
                poll.unwrap();
            }
            (used() - began, server.counters.spins)
        });
        client.join().unwrap();
        helper.join().unwrap()
    })
}

/// A client that has to run on the helper's core is not kept from it by a helper that looks for what it is to ask; elsewhere it is looked for.
#[test]
fn nobody_is_looked_for_who_cannot_run_meanwhile() {
    let cores = verbena_terms::usable_cores().unwrap();
    let [here, elsewhere, ..] = cores[..] else {
        return println!("skipped: there is one core, and nothing can keep off it");
    };
    let (spent, spins) = answered_on(here, here);
    println!("counted: {CALLS} calls on the helper's core took it {spent:?} and {spins} spins");
    assert!(spent < CALLS * MOST / 2, "the helper spent {spent:?}: it spun");
    let (spent, spins) = answered_on(here, elsewhere);
    println!("counted: {CALLS} calls elsewhere took it {spent:?} and {spins} spins");
    assert!(spins > 0, "it never spun for a client that runs elsewhere");
}

#[test]
fn clients_are_told_where_the_helper_is_and_whether_they_are_a_crowd() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), "node.sock", Options::default()).unwrap();
    server.hints = Hints::new(2);
    let (path, until, are_asking) = (server.path(), BootClock.now() + PATIENCE, AtomicBool::new(true));
    let poll = |server: &mut Server| {
        let answer = &mut |event: Event<'_>| {
            if let Event::Request(request) = event {
                let _ = request.answer(b"");
            }
        };
        server.poll(Duration::from_millis(1), answer).unwrap();
        assert!(BootClock.now() < until, "after {PATIENCE:?}");
    };
    let is_crowded = |server: &Server| server.common.beacon.word(HELPER_CROWD) == 1;
    std::thread::scope(|scope| {
        let ask = || {
            let mut connection = Connection::connect(&path, until).unwrap();
            while are_asking.load(Ordering::Relaxed) {
                connection.call(b"", until).unwrap();
            }
        };
        let clients = [scope.spawn(ask), scope.spawn(ask)];
        while !is_crowded(&server) {
            poll(&mut server);
        }
        are_asking.store(false, Ordering::Relaxed);
        while clients.iter().any(|client| !client.is_finished()) {
            poll(&mut server);
        }
    });
    while is_crowded(&server) {
        poll(&mut server);
    }
    assert_ne!(server.common.beacon.word(HELPER_CORE), 0);
}
