//! Homes with fewer words than there are names (rule L4).

use std::time::Duration;

use verbena_lock::{Answer, Mode, Refusal, Request, Token};

use crate::nodes::cluster::{Nodes, READ, WRITE};
use crate::nodes::{TO_REFUSE, granted};

fn token(answers: &[(usize, verbena_lock::RequestId, Answer)]) -> Token {
    match answers {
        [(_, _, Answer::Granted(_, token))] => *token,
        others => panic!("{others:?}"),
    }
}

/// Takes a lock and releases it; gives its token. The hand goes round in 20 ms at the fastest.
fn take(nodes: &mut Nodes, at: usize, name: &str, request: Request) -> Token {
    let id = nodes.acquire(at, name, request);
    nodes.run_for(Duration::from_millis(60));
    let token = token(&nodes.answers());
    nodes.release(at, id);
    token
}

#[test]
fn a_home_serves_twenty_times_as_many_names_as_it_has_words() {
    for words in [1, 2, 16] {
        let mut nodes = Nodes::new(3, words);
        for nth in 0..20 * words {
            take(&mut nodes, nth as usize % 3, &format!("lock {nth}"), WRITE);
        }
        let home = nodes.nodes[0].0.home_words();
        println!("counted: {words} words, {} names: {home:?}", 20 * words);
        assert!(home.reused >= u64::from(19 * words) && home.evictions >= home.reused, "{home:?}");
        assert_eq!(home.used + home.free + home.coming, words as usize);
    }
}

#[test]
fn tokens_of_a_name_grow_across_its_evictions() {
    let mut nodes = Nodes::new(2, 1);
    let mut last = Token::default();
    for round in 0..10 {
        for (request, at) in [(WRITE, 0), (READ, 1), (WRITE, 1)] {
            let token = take(&mut nodes, at, "a", request);
            assert!(token > last, "round {round}: {token} after {last}");
            last = token;
        }
        take(&mut nodes, round % 2, "b", WRITE);
    }
    assert!(nodes.nodes[0].0.home_words().evictions >= 19);
}

/// Each of them remembers words that are no lock's any more, or another's by now.
#[test]
fn who_remembers_evicted_words_asks_again() {
    let mut nodes = Nodes::new(4, 2);
    for name in ["a", "b"] {
        for at in 0..4 {
            take(&mut nodes, at, name, WRITE);
        }
    }
    let held = nodes.acquire(0, "c", WRITE);
    nodes.answers();
    for (at, request) in
        [(1, WRITE), (2, READ), (3, Request { is_try: true, ..READ }), (3, Request { is_try: true, ..WRITE })]
    {
        take(&mut nodes, at, "a", request);
        take(&mut nodes, at, "b", request);
    }
    let busy = nodes.acquire(1, "c", Request { is_try: true, ..WRITE });
    assert_eq!(nodes.answers(), [(1, busy, Answer::Refused(Refusal::Busy))]);
    nodes.release(0, held);
}

#[test]
fn a_lock_that_is_used_keeps_its_words_where_others_do_not() {
    let mut nodes = Nodes::new(2, 16);
    let mut last = take(&mut nodes, 1, "busy", WRITE);
    let before = last;
    for nth in 0..40 {
        take(&mut nodes, 0, &format!("idle {nth}"), WRITE);
        last = take(&mut nodes, 1, "busy", WRITE);
    }
    // It was never given the floor, which others' tokens have raised.
    assert_eq!(last.to_bits() - before.to_bits(), 80);
    assert!(nodes.nodes[0].0.home_words().evictions >= 20);
}

#[test]
fn locks_that_are_held_are_not_evicted_and_one_more_is_refused() {
    let mut nodes = Nodes::new(3, 2);
    let (one, other) = (nodes.acquire(1, "a", READ), nodes.acquire(2, "b", WRITE));
    nodes.answers();
    let none = nodes.acquire(0, "c", WRITE);
    nodes.run_for(TO_REFUSE);
    assert_eq!(nodes.answers(), [(0, none, Answer::Refused(Refusal::NoRoom))]);
    nodes.release(1, one);
    let room = nodes.acquire(0, "c", WRITE);
    nodes.run_for(Duration::from_millis(60));
    assert_eq!(nodes.answers(), [(0, room, granted(1, Mode::Exclusive, 2))]);
    assert_eq!(nodes.nodes[0].0.home_words().evictions, 1);
    nodes.release(2, other);
}

#[test]
fn who_stands_for_survivors_is_not_evicted() {
    let mut nodes = Nodes::new(3, 1);
    let held = nodes.acquire(1, "a", WRITE);
    nodes.next_view(&[0, 1, 2]);
    nodes.answers();
    let none = nodes.acquire(0, "b", WRITE);
    nodes.run_for(TO_REFUSE);
    assert_eq!(nodes.answers(), [(0, none, Answer::Refused(Refusal::NoRoom))]);
    nodes.release(1, held);
    let room = nodes.acquire(0, "b", WRITE);
    nodes.run_for(Duration::from_millis(60));
    assert!(matches!(nodes.answers()[..], [(0, id, Answer::Granted(..))] if id == room));
}

/// A request that waits for words is over when its client goes, and others get theirs.
#[test]
fn who_gives_up_while_words_are_awaited_holds_up_nobody() {
    let mut nodes = Nodes::new(2, 1);
    take(&mut nodes, 1, "a", WRITE);
    for nth in 0..10 {
        let name = format!("given up {nth}");
        let id = nodes.acquire_briefly(1, 7, &name, WRITE, Duration::from_micros(200));
        nodes.forget(1, id);
        nodes.answers();
        take(&mut nodes, 0, "a", WRITE);
    }
}
