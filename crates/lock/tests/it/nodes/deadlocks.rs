//! Clients that wait for each other, and clients that wait for themselves.

use std::time::Duration;

use verbena_lock::{Answer, Cycle, Mode, Refusal, Request, RequestId};

use crate::nodes::cluster::{Nodes, READ, WRITE};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn cycle_of(answers: &[(usize, RequestId, Answer)]) -> (usize, RequestId, Cycle) {
    match answers {
        [(at, id, Answer::Deadlock(cycle))] => (*at, *id, cycle.clone()),
        other => panic!("one is told of a deadlock: {other:?}"),
    }
}

fn granted(answers: &[(usize, RequestId, Answer)]) -> Vec<(usize, RequestId)> {
    let all = answers.iter().map(|(at, id, answer)| {
        assert!(matches!(answer, Answer::Granted(..)), "{answer:?}");
        (*at, *id)
    });
    all.collect()
}

/// Over three nodes, through a lock that readers hold: the last that began to wait is told, and only that one. Whoever it is, the others get on.
#[test]
fn the_youngest_of_a_cycle_is_told_and_the_others_get_on() {
    for last in 0..3 {
        let mut nodes = Nodes::new(4, 10);
        let modes = [WRITE, READ, WRITE];
        let names = ["a", "b", "c"];
        let held: Vec<RequestId> = (0..3).map(|at| nodes.acquire_for(at, 7, names[at], modes[at])).collect();
        let other = nodes.acquire_for(3, 7, "b", READ);
        nodes.answers();
        // Each waits for what the next one holds.
        let order = [(last + 1) % 3, (last + 2) % 3, last];
        let waits = order.map(|at| (at, nodes.acquire_for(at, 7, names[(at + 1) % 3], WRITE)));
        nodes.run_for(ms(1000));
        let (at, id, cycle) = cycle_of(&nodes.answers());
        assert_eq!((at, id), waits[2]);
        assert_eq!(cycle.waiters().len(), 3);
        let said = cycle.to_string();
        assert!(said.contains("process 40 on node 1 waits for \"b\", which process 41 on node 2 holds"), "{said}");
        nodes.run_for(ms(2000));
        assert_eq!(nodes.answers(), [], "the others wait for the one that was told, and for nobody else");
        nodes.release(last, held[last]);
        if last != 1 {
            nodes.release(3, other);
        } else {
            // The other reader is still there.
            nodes.run_for(ms(1000));
            nodes.release(3, other);
        }
        let mut done = granted(&nodes.answers());
        for &(at, id) in waits[..2].iter().rev() {
            assert!(done.contains(&(at, id)), "{at} got on: {done:?}");
            nodes.release(at, id);
            nodes.release(at, held[at]);
            done.extend(granted(&nodes.answers()));
        }
    }
}

#[test]
fn clients_of_one_node_are_told_too() {
    let mut nodes = Nodes::new(2, 10);
    let _held = [(1, "a"), (2, "b")].map(|(asker, name)| nodes.acquire_for(1, asker, name, WRITE));
    let [_, second] = [(1, "b"), (2, "a")].map(|(asker, name)| nodes.acquire_for(1, asker, name, WRITE));
    nodes.answers();
    nodes.run_for(ms(500));
    let (at, id, cycle) = cycle_of(&nodes.answers());
    assert_eq!((at, id, cycle.waiters().len()), (1, second, 2));
}

/// At the same moment by any clock, so that each could take itself for the youngest.
#[test]
fn one_of_those_that_began_at_the_same_moment_is_told() {
    let mut nodes = Nodes::new(3, 10);
    let _held = [(1, "a"), (2, "b")].map(|(at, name)| nodes.acquire_for(at, 1, name, WRITE));
    let _waits = [(1, "b"), (2, "a")].map(|(at, name)| nodes.acquire_briefly(at, 1, name, WRITE, ms(0)));
    nodes.answers();
    nodes.run_for(ms(2000));
    cycle_of(&nodes.answers());
}

/// A client that waits for two locks at once, by two requests: only the one that is in the cycle is refused.
#[test]
fn what_is_not_in_the_cycle_is_not_refused() {
    let mut nodes = Nodes::new(3, 10);
    let (a, other) = (nodes.acquire_for(1, 1, "a", WRITE), nodes.acquire_for(2, 2, "other", WRITE));
    let b = nodes.acquire_for(2, 1, "b", WRITE);
    let waits = nodes.acquire_for(2, 1, "a", WRITE);
    let patient = nodes.acquire_for(1, 1, "other", READ);
    let youngest = nodes.acquire_for(1, 1, "b", WRITE);
    nodes.answers();
    nodes.run_for(ms(1000));
    let (at, id, _) = cycle_of(&nodes.answers());
    assert_eq!((at, id), (1, youngest));
    nodes.release(2, other);
    nodes.release(1, a);
    assert_eq!(granted(&nodes.answers()), [(1, patient), (2, waits)]);
    nodes.release(2, b);
}

/// A chain is no cycle; and whoever holds nothing asks nobody anything while it waits (rule L3).
#[test]
fn who_waits_for_somebody_that_works_is_left_alone() {
    let mut nodes = Nodes::new(3, 10);
    let a = nodes.acquire_for(0, 1, "a", WRITE);
    let _b = nodes.acquire_for(1, 1, "b", WRITE);
    let waits = nodes.acquire_for(1, 1, "a", WRITE);
    let _last = nodes.acquire_for(2, 1, "b", WRITE);
    nodes.answers();
    nodes.run_for(ms(5000));
    assert_eq!(nodes.answers(), []);
    nodes.release(0, a);
    assert_eq!(granted(&nodes.answers()), [(1, waits)]);
}

/// A cycle that is not there for as long as it takes to see it twice is none: one of them gives up again and again, and asks anew.
#[test]
fn who_gives_up_by_itself_makes_no_deadlock() {
    let mut nodes = Nodes::new(2, 10);
    let _held = [(0, "a"), (1, "b")].map(|(at, name)| nodes.acquire_for(at, 1, name, WRITE));
    let _waits = nodes.acquire_for(0, 1, "b", WRITE);
    nodes.answers();
    for _ in 0..200 {
        let id = nodes.acquire_briefly(1, 1, "a", WRITE, ms(15));
        assert_eq!(nodes.answers(), []);
        nodes.forget(1, id);
    }
}

#[test]
fn a_client_has_what_it_has_once_more() {
    let mut nodes = Nodes::new(2, 10);
    let first = nodes.acquire_for(0, 1, "a", WRITE);
    let waits = nodes.acquire_for(1, 1, "a", WRITE);
    let first_answer = nodes.answers().remove(0).2;
    let (again, read) = (nodes.acquire_for(0, 1, "a", WRITE), nodes.acquire_for(0, 1, "a", READ));
    let tried = nodes.acquire_for(0, 1, "a", Request { is_try: true, ..WRITE });
    let said = nodes.answers();
    assert_eq!(granted(&said), [(0, again), (0, read), (0, tried)]);
    assert!(said.iter().all(|(_, _, answer)| *answer == first_answer), "{said:?}");
    assert!(nodes.nodes[0].0.downgrade(first).is_err(), "not while it has it more than once");
    for id in [first, read, again] {
        nodes.release(0, id);
        assert_eq!(nodes.answers(), []);
    }
    nodes.release(0, tried);
    assert_eq!(granted(&nodes.answers()), [(1, waits)]);
    nodes.release(1, waits);

    let reader = nodes.acquire_for(0, 1, "a", READ);
    let writer = nodes.acquire_for(1, 1, "a", WRITE);
    nodes.answers();
    let again = nodes.acquire_for(0, 1, "a", READ);
    assert_eq!(granted(&nodes.answers()), [(0, again)], "before the writer that waits");
    let alone = nodes.acquire_for(0, 1, "a", WRITE);
    assert_eq!(nodes.answers(), [(0, alone, Answer::Refused(Refusal::Upgrade))]);
    nodes.release(0, reader);
    nodes.release(0, again);
    assert_eq!(granted(&nodes.answers()), [(1, writer)]);

    nodes.release(1, writer);
    let writer = nodes.acquire_for(0, 1, "a", WRITE);
    nodes.nodes[0].0.downgrade(writer).unwrap();
    let reader = nodes.acquire_for(0, 1, "a", READ);
    let said = nodes.answers();
    assert!(matches!(said.last(), Some((0, id, Answer::Granted(Mode::Shared, _))) if *id == reader), "{said:?}");
}
