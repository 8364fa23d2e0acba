//! Every order of events in a small world: one lock, some participants that request it a few times each, in any mode, and its home.
//! The machines are those that run in a node.
//!
//! Messages are delivered in any order, a little late or much later; each step of a batch is executed at a moment of its own, and what came of it is
//! heard at another. Larger worlds are *reduced*: of participants that could change places one order is explored, and of orders that nobody can
//! tell apart one (`reduced.rs` says which, `compared.rs` that nobody can, and the same faults are found in both). `VERBENA_LONG=1` explores the larger worlds. `across.rs` does all that
//! where the view ends.

mod across;
mod clients;
mod compared;
mod ends;
mod evicting;
mod reduced;
mod symmetry;
mod view;
mod world;

use std::fmt;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Representative};
use verbena_lock::{Mode, Request, Rules, Scheme};

use world::World;

const WRITE: Request = Request { mode: Mode::Exclusive, is_try: false };
const READ: Request = Request { mode: Mode::Shared, is_try: false };
const TRY_WRITE: Request = Request { is_try: true, ..WRITE };
const TRY_READ: Request = Request { is_try: true, ..READ };

/// So many participants, each with so many requests of any of these.
fn world(participants: usize, each: u8, requests: &[Request]) -> World {
    World {
        scheme: Scheme::Ncosed,
        participants,
        each,
        requests: requests.to_vec(),
        downgrades: false,
        lost_swaps: None,
        settled_at: None,
        rules: Rules::ALL,
        is_reduced: true,
    }
}

fn in_full(world: World) -> World {
    World { is_reduced: false, ..world }
}

/// A world whose orders of events are explored.
trait Explored: Model<State: Seen, Action: Clone + PartialEq + fmt::Debug> + fmt::Display + Send + Sync + 'static {
    /// Of what nobody can tell apart one is taken.
    fn is_reduced(&self) -> bool;

    /// What has to be so where nothing more can happen: everybody has had what they wanted, and nobody has anything to remember.
    fn is_over(&self, state: &Self::State) -> bool;
}

/// What a state has to be able to do for that.
trait Seen: Representative + Clone + PartialEq + Hash + fmt::Debug + Send + Sync + 'static {}
impl<State: Representative + Clone + PartialEq + Hash + fmt::Debug + Send + Sync + 'static> Seen for State {}

/// Depth first: the breadth does not fit into memory, and nothing is looked for that a shortest way would show better.
fn checked<W: Explored>(world: W, finish: HasDiscoveries) -> impl Checker<W> {
    println!("{world}");
    let is_reduced = world.is_reduced();
    let checker = world.checker().threads(2).finish_when(finish);
    if is_reduced { checker.symmetry().spawn_dfs() } else { checker.spawn_dfs() }.join()
}

fn explore(world: impl Explored, at_least: usize) {
    let started = Instant::now();
    let checker = checked(world, HasDiscoveries::All);
    println!(
        "  {} states, {} deep, {} ms",
        checker.unique_state_count(),
        checker.max_depth(),
        started.elapsed().as_millis()
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() >= at_least, "only {} states", checker.unique_state_count());
}

fn is_long() -> bool {
    std::env::var_os("VERBENA_LONG").is_some_and(|value| value == "1")
}

#[test]
fn readers_and_writers() {
    let any = [WRITE, READ];
    explore(in_full(world(3, 1, &any)), 30_000);
    explore(in_full(world(2, 2, &any)), 10_000);
    explore(world(3, 2, &any), 200_000);
    if is_long() {
        explore(in_full(world(2, 3, &any)), 1_000_000);
        explore(in_full(world(4, 1, &any)), 4_000_000);
        explore(world(4, 2, &any), 15_000_000);
    }
}

#[test]
fn writers_that_become_readers() {
    let downgrading = |world| World { downgrades: true, ..world };
    explore(downgrading(in_full(world(2, 2, &[WRITE, READ]))), 10_000);
    explore(downgrading(in_full(world(3, 1, &[WRITE, READ]))), 30_000);
    if is_long() {
        explore(downgrading(world(3, 2, &[WRITE, READ])), 200_000);
    }
}

#[test]
fn who_only_tries() {
    let any = [WRITE, READ, TRY_WRITE, TRY_READ];
    explore(in_full(world(2, 2, &any)), 30_000);
    explore(in_full(world(3, 1, &any)), 100_000);
    if is_long() {
        explore(world(3, 2, &any), 500_000);
    }
}

/// Whoever loses a swap asks the home, so that the gate is closed and opened.
#[test]
fn writers_that_lose_their_swaps() {
    let impatient = |world| World { lost_swaps: Some(0), ..world };
    explore(impatient(in_full(world(2, 2, &[WRITE, READ]))), 10_000);
    explore(impatient(world(3, 1, &[WRITE, READ, TRY_WRITE, TRY_READ])), 5_000);
    if is_long() {
        explore(impatient(in_full(world(3, 1, &[WRITE, READ]))), 100_000);
        explore(impatient(world(3, 2, &[WRITE, READ])), 1_000_000);
    }
}

#[test]
fn counts_that_are_settled_while_others_read() {
    let busy = |world| World { settled_at: Some(1), ..world };
    explore(busy(in_full(world(3, 1, &[WRITE, READ]))), 30_000);
    explore(busy(in_full(world(2, 2, &[WRITE, READ]))), 10_000);
    if is_long() {
        explore(busy(world(3, 2, &[WRITE, READ])), 200_000);
    }
}

#[test]
fn the_schemes_that_it_is_compared_with() {
    for (scheme, at_least) in [(Scheme::Dqnl, 5_000), (Scheme::Srsl, 1_000)] {
        let of = |world| World { scheme, ..world };
        let any = [WRITE, READ, TRY_WRITE, TRY_READ];
        explore(of(in_full(world(3, 1, &any))), at_least);
        explore(World { downgrades: true, ..of(in_full(world(2, 2, &[WRITE, READ]))) }, at_least);
        if is_long() {
            explore(of(world(3, 2, &[WRITE, READ])), at_least);
        }
    }
}

/// Without the rule something breaks, and both kinds of exploration see it.
fn is_found(property: &'static str, participants: usize, requests: &[Request], rules: Rules) {
    for is_reduced in [false, true] {
        let world = World { rules, is_reduced, ..world(participants, 1, requests) };
        let checker = checked(world, HasDiscoveries::AnyFailures);
        let found = checker.discovery(property).unwrap_or_else(|| panic!("{property}, although a rule is off"));
        println!("  found in {} steps", found.into_actions().len());
    }
}

#[test]
fn l2_a_token_that_is_not_written_before_the_lock_is_free_is_found() {
    is_found("nothing is wrong", 2, &[WRITE], Rules { token_before_free: false, ..Rules::ALL });
}

#[test]
fn l2_a_writer_that_does_not_wait_for_the_readers_before_it_is_found() {
    let rules = Rules { after_readers_by_home: false, ..Rules::ALL };
    is_found("nothing is wrong", 3, &[WRITE, READ], rules);
}

#[test]
fn l3_a_writer_that_is_answered_while_the_count_is_settled_is_found() {
    let rules = Rules { answer_after_settling: false, ..Rules::ALL };
    is_found("nothing is wrong", 3, &[WRITE, READ], rules);
}

#[test]
fn l3_a_reader_that_is_owed_a_grant_and_not_counted_is_found() {
    is_found("nothing is wrong", 2, &[WRITE, READ], Rules { count_owed: false, ..Rules::ALL });
}

#[test]
fn l3_a_try_that_adds_itself_is_found() {
    is_found("nothing is stuck", 2, &[WRITE, TRY_READ], Rules { try_by_swap: false, ..Rules::ALL });
}
