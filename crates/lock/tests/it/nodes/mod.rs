//! Locks among nodes of a simulated network where nothing fails: what it takes to get one, and what is told whom.

pub mod cluster;
mod deadlocks;
mod evicting;

use std::time::Duration;

use verbena_lock::{Answer, Mode, Refusal, Request, RequestId, Scheme, Token};
use verbena_terms::ViewNumber;

use cluster::{Nodes, READ, WRITE};

/// A home looks some times whether a lock has come to rest.
const TO_REFUSE: Duration = Duration::from_millis(100);

fn granted(view: u32, mode: Mode, count: u64) -> Answer {
    Answer::Granted(mode, Token::from_bits(Token::first_of(ViewNumber(view)).to_bits() + count))
}

#[test]
fn a_lock_goes_from_node_to_node() {
    let mut nodes = Nodes::new(3, 10);
    let first = nodes.acquire(1, "a", WRITE);
    assert_eq!(nodes.answers(), [(1, first, granted(1, Mode::Exclusive, 2))]);
    let (second, third) = (nodes.acquire(2, "a", WRITE), nodes.acquire(0, "a", READ));
    assert_eq!(nodes.answers(), []);
    nodes.release(1, first);
    assert_eq!(nodes.answers(), [(2, second, granted(1, Mode::Exclusive, 4))]);
    nodes.release(2, second);
    assert_eq!(nodes.answers(), [(0, third, granted(1, Mode::Shared, 5))]);
    let other = nodes.acquire(1, "b", WRITE);
    assert_eq!(nodes.answers(), [(1, other, granted(1, Mode::Exclusive, 2))]);
    nodes.release(0, third);
    let fourth = nodes.acquire(0, "a", Request { is_try: true, ..WRITE });
    assert_eq!(nodes.answers(), [(0, fourth, granted(1, Mode::Exclusive, 6))]);
    let busy = nodes.acquire(2, "a", Request { is_try: true, ..READ });
    assert_eq!(nodes.answers(), [(2, busy, Answer::Refused(Refusal::Busy))]);
}

#[test]
fn clients_of_a_node_are_one_in_the_queue_and_go_on_with_its_hold() {
    let mut nodes = Nodes::new(2, 10);
    let first = nodes.acquire(1, "a", WRITE);
    let (second, reader, other) =
        (nodes.acquire(1, "a", WRITE), nodes.acquire(1, "a", READ), nodes.acquire(1, "a", READ));
    nodes.answers();
    nodes.release(1, first);
    assert_eq!(nodes.answers(), [(1, second, granted(1, Mode::Exclusive, 4))]);
    nodes.release(1, second);
    let shared = || granted(1, Mode::Shared, 5);
    assert_eq!(nodes.answers(), [(1, reader, shared()), (1, other, shared())]);
    let joins = nodes.acquire(1, "a", READ);
    assert_eq!(nodes.answers(), [(1, joins, shared())]);
    let writer = nodes.acquire(0, "a", WRITE);
    for id in [reader, other, joins] {
        assert_eq!(nodes.answers(), []);
        nodes.release(1, id);
    }
    assert_eq!(nodes.answers(), [(0, writer, granted(1, Mode::Exclusive, 6))]);
}

#[test]
fn readers_of_a_node_join_without_end_unless_a_writer_waits_elsewhere() {
    let mut nodes = Nodes::new(2, 10);
    let mut readers: Vec<RequestId> = (0..40).map(|_| nodes.acquire(1, "a", READ)).collect();
    let shared = || granted(1, Mode::Shared, 1);
    assert_eq!(nodes.answers(), readers.iter().map(|&id| (1, id, shared())).collect::<Vec<_>>());
    let writer = nodes.acquire(0, "a", WRITE);
    let late: Vec<RequestId> = (0..40).map(|_| nodes.acquire(1, "a", READ)).collect();
    let joined: Vec<RequestId> = nodes.answers().iter().map(|(_, id, _)| *id).collect();
    assert!(!joined.is_empty() && joined.len() <= 16, "{joined:?} of {late:?} joined while {writer:?} waited");
    readers.extend(&joined);
    readers.into_iter().for_each(|id| nodes.release(1, id));
    assert_eq!(nodes.answers(), [(0, writer, granted(1, Mode::Exclusive, 2))]);
    nodes.release(0, writer);
    let waited = late.into_iter().filter(|id| !joined.contains(id));
    assert_eq!(nodes.answers(), waited.map(|id| (1, id, granted(1, Mode::Shared, 3))).collect::<Vec<_>>());
}

#[test]
fn writers_of_a_node_go_on_with_its_hold_sixteen_times_while_another_node_waits() {
    let mut nodes = Nodes::new(2, 10);
    let here: Vec<RequestId> = (0..40).map(|_| nodes.acquire(1, "a", WRITE)).collect();
    let there = nodes.acquire(0, "a", WRITE);
    let next = |nodes: &mut Nodes| match &nodes.answers()[..] {
        [(node, id, Answer::Granted(Mode::Exclusive, _))] => (*node, *id),
        other => panic!("{other:?}"),
    };
    let mut had = vec![];
    let last = loop {
        let (node, id) = next(&mut nodes);
        if node == 0 {
            break id;
        }
        had.push(id);
        nodes.release(1, id);
    };
    assert_eq!((last, &had[..]), (there, &here[..17]), "the first, and sixteen after it");
    nodes.release(0, there);
    assert_eq!(next(&mut nodes), (1, here[17]));
}

const ASKER: u64 = 7;

/// The same client asks for `a` again, at node 1. Gives the request, and what it is told at once.
fn asks_again(nodes: &mut Nodes) -> (RequestId, Vec<(usize, RequestId, Answer)>) {
    let id = nodes.acquire_briefly(1, ASKER, "a", WRITE, Duration::ZERO);
    let said = nodes.nodes[1].0.answers().into_iter().map(|(id, answer)| (1, id, answer));
    (id, said.collect())
}

/// Two nodes, of which the second knows where the words of `a` are.
fn knows_a() -> Nodes {
    let mut nodes = Nodes::new(2, 10);
    let first = nodes.acquire(1, "a", WRITE);
    nodes.release(1, first);
    nodes.answers();
    nodes
}

#[test]
fn who_asks_again_at_once_holds_on_for_half_a_millisecond_while_others_wait() {
    let mut nodes = Nodes::new(2, 10);
    let mut held = nodes.acquire_for(1, ASKER, "a", WRITE);
    // As long as nobody waits.
    for nth in 1..=50 {
        assert!(nodes.release_soon(1, held));
        let (id, said) = asks_again(&mut nodes);
        assert_eq!(said, [(1, id, granted(1, Mode::Exclusive, 2 + 2 * nth))]);
        nodes.run();
        held = id;
    }
    let there = nodes.acquire(0, "a", WRITE);
    nodes.answers();
    // It has had it for longer than that.
    assert!(!nodes.release_soon(1, held));
    let (again, said) = asks_again(&mut nodes);
    nodes.run();
    assert_eq!((said, nodes.answers()), (vec![], vec![(0, there, granted(1, Mode::Exclusive, 104))]));
    nodes.release(0, there);
    assert_eq!(nodes.answers(), [(1, again, granted(1, Mode::Exclusive, 106))]);
    nodes.release(1, again);
    // From its first grant on.
    let mut held = nodes.acquire_briefly(1, ASKER, "a", WRITE, Duration::from_micros(200));
    assert_eq!(nodes.answers(), [(1, held, granted(1, Mode::Exclusive, 108))]);
    let there = nodes.acquire_briefly(0, 1, "a", WRITE, Duration::from_micros(100));
    let mut times = 0;
    while nodes.release_soon(1, held) {
        times += 1;
        let (id, said) = asks_again(&mut nodes);
        assert_eq!(said, [(1, id, granted(1, Mode::Exclusive, 108 + 2 * times))]);
        nodes.run_for(Duration::from_micros(100));
        held = id;
    }
    assert!((1..=5).contains(&times), "{times} times");
    nodes.run();
    assert_eq!(nodes.answers(), [(0, there, granted(1, Mode::Exclusive, 110 + 2 * times))]);
}

/// What another node has to wait for is one series, however many clients of the node take turns in it, and the sixteen that go on with the hold.
#[test]
fn clients_of_a_node_share_what_another_node_has_to_wait_for() {
    const PAUSE: Duration = Duration::from_micros(100);
    let mut nodes = knows_a();
    let ask = |nodes: &mut Nodes, asker| nodes.acquire_briefly(1, asker, "a", WRITE, PAUSE);
    let first = nodes.acquire_briefly(1, ASKER, "a", WRITE, 2 * PAUSE);
    let (mut holds, mut waits) = ((ASKER, first), (8, ask(&mut nodes, 8)));
    let there = nodes.acquire_briefly(0, 1, "a", WRITE, PAUSE);
    nodes.answers();
    let (mut kept, mut passed) = (0, 0);
    loop {
        assert!(kept + passed < 200);
        if nodes.release_soon(1, holds.1) {
            kept += 1;
            holds.1 = ask(&mut nodes, holds.0);
            nodes.answers();
            continue;
        }
        let again = (holds.0, ask(&mut nodes, holds.0));
        (holds, waits) = (waits, again);
        if !nodes.answers().iter().any(|(_, id, _)| *id == holds.1) {
            break;
        }
        passed += 1;
    }
    nodes.run();
    assert!(matches!(nodes.answers()[..], [(0, id, Answer::Granted(..))] if id == there));
    assert!((1..=5).contains(&kept) && passed == 16, "{kept} kept, {passed} passed on");
}

/// Who takes it again before it is done with it has had it all the while.
#[test]
fn holds_that_overlap_are_one_series() {
    let mut nodes = knows_a();
    let pause = Duration::from_micros(50);
    let mut held = nodes.acquire_briefly(1, ASKER, "a", WRITE, 4 * pause);
    let there = nodes.acquire_briefly(0, 1, "a", WRITE, pause);
    nodes.answers();
    let mut times = 0;
    loop {
        let other = nodes.acquire_briefly(1, ASKER, "a", WRITE, pause);
        assert!(!nodes.release_soon(1, held), "the other is held");
        if !nodes.release_soon(1, other) {
            break;
        }
        times += 1;
        assert!(times < 20);
        held = nodes.acquire_briefly(1, ASKER, "a", WRITE, pause);
    }
    nodes.run();
    assert!((1..=3).contains(&times), "{times} times");
    assert!(matches!(nodes.answers().last(), Some((0, id, Answer::Granted(..))) if *id == there));
}

#[test]
fn whoever_comes_while_it_is_kept_gets_it_after_a_long_hold() {
    let mut nodes = Nodes::new(2, 10);
    let held = nodes.acquire_for(1, ASKER, "a", WRITE);
    assert!(nodes.release_soon(1, held), "nobody waits");
    let there = nodes.acquire(0, "a", WRITE);
    nodes.answers();
    let (again, said) = asks_again(&mut nodes);
    nodes.run();
    assert_eq!((said, nodes.answers()), (vec![], vec![(0, there, granted(1, Mode::Exclusive, 4))]));
    nodes.release(0, there);
    assert_eq!(nodes.answers(), [(1, again, granted(1, Mode::Exclusive, 6))]);
}

#[test]
fn what_is_kept_is_free_for_whoever_asks_first() {
    let mut nodes = Nodes::new(2, 10);
    let keep = |nodes: &mut Nodes| {
        let held = nodes.acquire_for(1, ASKER, "a", WRITE);
        assert!(matches!(nodes.answers()[..], [(1, id, Answer::Granted(..))] if id == held));
        assert!(nodes.release_soon(1, held));
    };
    // Another client of the node, also if it does not wait; the same client as a reader; and another node, when what was kept is settled.
    keep(&mut nodes);
    let id = nodes.acquire_for(1, 8, "a", Request { is_try: true, ..WRITE });
    assert_eq!(nodes.answers(), [(1, id, granted(1, Mode::Exclusive, 4))]);
    nodes.release(1, id);
    keep(&mut nodes);
    let id = nodes.acquire_for(1, ASKER, "a", READ);
    assert_eq!(nodes.answers(), [(1, id, granted(1, Mode::Shared, 7))]);
    nodes.release(1, id);
    keep(&mut nodes);
    let there = nodes.acquire(0, "a", WRITE);
    assert_eq!(nodes.answers(), []);
    nodes.nodes[1].0.settle();
    nodes.run();
    assert_eq!(nodes.answers(), [(0, there, granted(1, Mode::Exclusive, 10))]);
    nodes.release(0, there);
    // A client that wants another lock does not want this one.
    keep(&mut nodes);
    let other = nodes.acquire_for(1, ASKER, "b", WRITE);
    let there = nodes.acquire(0, "a", WRITE);
    assert_eq!(nodes.answers().iter().map(|(_, id, _)| *id).collect::<Vec<_>>(), [other, there]);
    nodes.release(0, there);
    // Who holds it twice, or as a reader, has nothing to be kept; nor has who holds nothing.
    let first = nodes.acquire_for(1, ASKER, "a", WRITE);
    let second = nodes.acquire_for(1, ASKER, "a", WRITE);
    assert!(!nodes.release_soon(1, first));
    assert!(nodes.release_soon(1, second));
    assert!(nodes.nodes[1].0.release_soon(second).is_err());
    let reader = nodes.acquire_for(1, ASKER, "a", READ);
    assert!(!nodes.release_soon(1, reader));
}

#[test]
fn holders_and_waiters_outlive_a_view_and_those_that_went_are_passed_over() {
    let mut nodes = Nodes::new(4, 10);
    let held = nodes.acquire(1, "a", WRITE);
    let (gone, second, third) =
        (nodes.acquire(2, "a", WRITE), nodes.acquire(3, "a", READ), nodes.acquire(0, "a", WRITE));
    assert_eq!(nodes.answers(), [(1, held, granted(1, Mode::Exclusive, 2))]);
    nodes.next_view(&[0, 1, 3]);
    let late = nodes.acquire(3, "b", WRITE);
    assert_eq!(nodes.answers(), [(3, late, granted(2, Mode::Exclusive, 2))]);
    nodes.release(1, held);
    assert_eq!(nodes.answers(), [(3, second, granted(2, Mode::Shared, 1))]);
    let newcomer = nodes.acquire(1, "a", READ);
    nodes.release(3, second);
    assert_eq!(nodes.answers(), [(0, third, granted(2, Mode::Exclusive, 2))]);
    nodes.release(0, third);
    assert_eq!(nodes.answers(), [(1, newcomer, granted(2, Mode::Shared, 3))]);
    nodes.nodes[2].0.life_ends();
    assert_eq!(nodes.nodes[2].0.answers(), [], "{gone:?} waits on");
    nodes.release(1, newcomer);
    let last = nodes.acquire(0, "a", WRITE);
    assert_eq!(nodes.answers(), [(0, last, granted(2, Mode::Exclusive, 4))]);
}

#[test]
fn who_was_becoming_a_reader_when_a_view_ends_is_one() {
    let mut nodes = Nodes::new(3, 10);
    let (held, waits) = (nodes.acquire(1, "a", WRITE), nodes.acquire(2, "a", READ));
    assert_eq!(nodes.answers(), [(1, held, granted(1, Mode::Exclusive, 2))]);
    nodes.nodes[1].0.downgrade(held).unwrap();
    nodes.next_view(&[0, 1, 2]);
    assert_eq!(nodes.answers(), [(1, held, granted(1, Mode::Shared, 3)), (2, waits, granted(2, Mode::Shared, 1))]);
    let writer = nodes.acquire(0, "a", WRITE);
    nodes.release(1, held);
    assert_eq!(nodes.answers(), []);
    nodes.release(2, waits);
    assert_eq!(nodes.answers(), [(0, writer, granted(2, Mode::Exclusive, 2))]);
}

#[test]
fn readers_and_a_writer_that_come_behind_survivors_get_their_turn() {
    let mut nodes = Nodes::new(4, 10);
    let held = nodes.acquire(1, "a", WRITE);
    nodes.next_view(&[0, 1, 2, 3]);
    let (reader, other, writer) =
        (nodes.acquire(0, "a", READ), nodes.acquire(2, "a", READ), nodes.acquire(3, "a", WRITE));
    nodes.answers();
    nodes.release(1, held);
    let shared = || granted(2, Mode::Shared, 1);
    assert_eq!(nodes.answers(), [(0, reader, shared()), (2, other, shared())]);
    nodes.release(0, reader);
    nodes.release(2, other);
    assert_eq!(nodes.answers(), [(3, writer, granted(2, Mode::Exclusive, 2))]);
}

#[test]
fn a_home_without_room_says_so() {
    let mut nodes = Nodes::new(2, 1);
    let first = nodes.acquire(1, "a", WRITE);
    let none = nodes.acquire(1, "b", WRITE);
    nodes.run_for(TO_REFUSE);
    let answers = [(1, first, granted(1, Mode::Exclusive, 2)), (1, none, Answer::Refused(Refusal::NoRoom))];
    assert_eq!(nodes.answers(), answers);
    nodes.next_view(&[0, 1]);
    let again = nodes.acquire(1, "b", WRITE);
    nodes.run_for(TO_REFUSE);
    assert_eq!(nodes.answers(), [(1, again, Answer::Refused(Refusal::NoRoom))]);
    nodes.release(1, first);
    nodes.next_view(&[0, 1]);
    let at_last = nodes.acquire(1, "b", WRITE);
    assert_eq!(nodes.answers(), [(1, at_last, granted(3, Mode::Exclusive, 2))]);
}

#[test]
fn what_is_not_held_cannot_be_released_or_shared() {
    let mut nodes = Nodes::new(2, 10);
    let (held, waits) = (nodes.acquire(0, "a", READ), nodes.acquire(1, "a", WRITE));
    let node = &mut nodes.nodes[1].0;
    let said = "a release of what is not held";
    assert_eq!(node.release(waits).unwrap_err().to_string(), said);
    assert!(node.release(RequestId(77)).is_err() && node.downgrade(waits).is_err());
    assert!(nodes.nodes[0].0.downgrade(held).is_err());
    nodes.nodes[1].0.forget(waits);
    nodes.release(0, held);
    assert_eq!(nodes.nodes[0].0.release(held).unwrap_err().to_string(), "a lock that is not held, or not any more");
    assert_eq!(nodes.answers().len(), 1);
    let free = nodes.acquire(0, "a", WRITE);
    // Who gave up had its turn, and a token with it.
    assert_eq!(nodes.answers(), [(0, free, granted(1, Mode::Exclusive, 4))]);
}

/// Whoever held a lock when a view ended holds it in the next one, and those who come then stand behind, in every scheme.
#[test]
fn who_comes_in_a_later_view_stands_behind_those_of_the_one_before() {
    for scheme in [Scheme::Ncosed, Scheme::Dqnl, Scheme::Srsl] {
        let mut nodes = Nodes::of(scheme, 3, 10);
        let (held, waits) = (nodes.acquire(1, "a", WRITE), nodes.acquire(2, "a", WRITE));
        assert_eq!(nodes.answers(), [(1, held, granted(1, Mode::Exclusive, 2))], "{scheme:?}");
        nodes.next_view(&[0, 1, 2]);
        let late = nodes.acquire(0, "a", WRITE);
        let tries = nodes.acquire(0, "a", Request { is_try: true, ..WRITE });
        assert_eq!(nodes.answers(), [(0, tries, Answer::Refused(Refusal::Busy))], "{scheme:?}");
        nodes.release(1, held);
        assert_eq!(nodes.answers(), [(2, waits, granted(2, Mode::Exclusive, 2))], "{scheme:?}");
        nodes.release(2, waits);
        assert_eq!(nodes.answers(), [(0, late, granted(2, Mode::Exclusive, 4))], "{scheme:?}");
        nodes.release(0, late);
        let last = nodes.acquire(1, "a", Request { is_try: true, ..WRITE });
        assert_eq!(nodes.answers(), [(1, last, granted(2, Mode::Exclusive, 6))], "{scheme:?}");
    }
}
