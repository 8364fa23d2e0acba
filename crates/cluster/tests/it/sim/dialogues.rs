//! What single failures cost, written down as dialogues in virtual time: rows of the table in docs/concepts/membership.md. A lease is 2 s.
//!
//! ```text
//! start 2                             the process of node 2 starts, and knows that the one before has ended
//! start 1 unsure                      the same, but the one before may still run
//! kill 3 / leave 3                    it dies / leaves with nothing open
//! stop 2 / continue 2                 it stands still / goes on
//! cut 2 1 / mend 2 1                 what node 2 sends to node 1 is lost / arrives again
//! disc 1 refuses / disc 1 writes      node 1's disc stores no record of the keeper / stores again
//! never 1.1 2.1                       from here on no node may see these members alone
//! wait 300ms                          time passes
//! for 900ms : 1 2 leased              all that time nodes 1 and 2 have a lease
//! after 0ms to 99ms : 1 see 1.1 2.1   so long after the last deed, no sooner and no later, node 1 may act in a view that is in
//!                                     effect, and these lives are its members; `idle`: it may not act
//! ```
//!
//! Node 1 is the keeper. Beside what the lines expect, the checkers of the simulation look after each step.

use verbena_cluster::Rules;

use crate::sim::world::script::play;

/// In how many orders of what happens in the same millisecond each dialogue is played.
const SEEDS: u64 = 20;

/// All three are in. A member renews four times a lease; the keeper counts it as out 20 ms after its lease (drift), waits 50 ms for more to
/// happen, and the others have prepared for the view within 30 ms.
const THREE: &str = "
    start 1
    start 2
    start 3
    after 0ms to 1000ms : 1 2 3 see 1.1 2.1 3.1
";

/// Comes true in every order.
fn comes_true(script: &str) {
    for seed in 0..SEEDS {
        play(seed, 3, Rules::ALL, &format!("{THREE}{script}")).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// Comes true in every order with all rules, and in some order not without one.
fn shows(script: &str, off: impl Fn(&mut Rules)) {
    comes_true(script);
    let mut without = Rules::ALL;
    off(&mut without);
    let found = (0..SEEDS).find_map(|seed| play(seed, 3, without, &format!("{THREE}{script}")).err());
    println!("without the rule: {}", found.expect("the rule makes no difference"));
}

#[test]
fn c2_a_member_that_dies_is_out_when_its_lease_is_over_and_comes_back_as_another() {
    comes_true(
        "
        kill 3
        after 1500ms to 2200ms : 1 2 see 1.1 2.1
        start 3
        after 0ms to 500ms : 1 2 3 see 1.1 2.1 3.2
    ",
    );
}

#[test]
fn c2_members_stop_within_a_lease_after_the_keepers_end_and_go_on_with_its_next_life() {
    comes_true(
        "
        kill 1
        after 1450ms to 1980ms : 2 3 idle
        start 1
        after 0ms to 500ms : 1 2 3 see 1.2 2.1 3.1
    ",
    );
}

#[test]
fn c1_a_member_that_stands_still_longer_than_its_lease_comes_back_as_another() {
    comes_true(
        "
        stop 2
        after 1500ms to 2200ms : 1 3 see 1.1 3.1
        wait 500ms
        continue 2
        after 0ms to 500ms : 1 2 3 see 1.1 2.2 3.1
    ",
    );
}

#[test]
fn c4_a_keeper_that_is_back_within_a_lease_costs_no_other_node_its_life() {
    let script = "
        kill 1
        wait 400ms
        start 1 unsure
        after 0ms to 2500ms : 1 2 3 see 1.2 2.1 3.1
    ";
    shows(script, |rules| rules.wait_after_restart = false);
}

#[test]
fn c4_a_keeper_that_stood_still_longer_than_a_lease_expels_no_member() {
    comes_true(
        "
        stop 1
        cut 2 1                     # what came meanwhile is lost, and the keeper hears no renewal for a while
        cut 3 1
        after 1400ms to 1980ms : 2 3 idle
        wait 3000ms
        continue 1
        wait 200ms
        mend 2 1
        mend 3 1
        after 0ms to 500ms : 1 2 3 see 1.1 2.1 3.1
        for 5000ms : 1 2 3 see 1.1 2.1 3.1
    ",
    );
}

#[test]
fn c3_a_keeper_whose_disc_refuses_grants_leases_and_makes_no_view() {
    let script = "
        disc 1 refuses
        kill 3
        never 1.1 2.1
        for 5000ms : 1 2 see 1.1 2.1 3.1
    ";
    shows(script, |rules| rules.durable_view = false);
    let script = "
        disc 1 refuses
        kill 3
        for 5000ms : 1 2 leased
        disc 1 writes
        after 0ms to 500ms : 1 2 see 1.1 2.1
    ";
    comes_true(script);
}

#[test]
fn c2_a_member_that_stands_still_for_less_than_its_lease_goes_on() {
    comes_true(
        "
        stop 2
        wait 1200ms
        continue 2
        for 5000ms : 1 2 3 see 1.1 2.1 3.1
    ",
    );
}

/// No view is made in which it is not: the same view says that the former life went and the next one came.
#[test]
fn c1_a_member_that_dies_and_starts_at_once_comes_in_the_view_in_which_it_goes() {
    comes_true(
        "
        never 1.1 2.1
        kill 3
        start 3
        after 0ms to 2500ms : 1 2 3 see 1.1 2.1 3.2
    ",
    );
}

/// No lease is waited for: what it held is at rest.
#[test]
fn c3_a_member_that_leaves_at_rest_is_out_at_once() {
    comes_true(
        "
        leave 3
        after 0ms to 150ms : 1 2 see 1.1 2.1
        after 0ms to 2500ms : 1 2 3 see 1.1 2.1 3.2
    ",
    );
}
