//! Every order of events around the end of a view (rule L5): who learns of it when, what is lost on the way, and how holders and waiters are served in
//! the new view beside those who come there first.
//!
//! What is not tried, because something else stands for it:
//!
//! * A participant that stops for ever is one that is left to itself until the new home opens without it; so is one that is paused, which then goes on
//!   in the old view where a world is explored in full.
//! * Nobody takes a message of the old view once it has learnt of the new one: so it is dropped at once, and when everybody has learnt, the old words.
//! * What a batch reads that nobody hears of.

mod events;
mod reduced;
mod symmetry;
mod views;

use stateright::{Checker, HasDiscoveries};
use verbena_lock::{Request, Scheme};

use self::views::{Across, Begins, Rule};
use crate::every_order::compared::look_alike;
use crate::every_order::ends::end_well;
use crate::every_order::world::World;
use crate::every_order::{READ, TRY_READ, TRY_WRITE, WRITE, checked, explore, in_full, is_long, world};

fn ends(world: World) -> Across {
    Across { world, begins: Begins::Old, fails: false, without: None }
}

fn has_ended(world: World) -> Across {
    Across { begins: Begins::NewInherited, ..ends(world) }
}

fn ends_after_another(world: World) -> Across {
    Across { begins: Begins::OldInherited, ..ends(world) }
}

fn and_one_fails(across: Across) -> Across {
    Across { fails: true, ..across }
}

const ANY: [Request; 2] = [WRITE, READ];

/// Whoever had the lock when the view ended, beside those who come in the new one.
#[test]
fn survivors_and_those_who_come_later() {
    explore(has_ended(in_full(world(2, 2, &ANY))), 150_000);
    explore(has_ended(in_full(world(3, 1, &ANY))), 80_000);
    explore(has_ended(world(4, 1, &ANY)), 10_000);
    if is_long() {
        explore(has_ended(world(3, 2, &ANY)), 400_000);
        explore(has_ended(in_full(world(4, 1, &ANY))), 8_000_000);
    }
}

#[test]
fn a_view_that_ends() {
    explore(ends(in_full(world(2, 2, &ANY))), 300_000);
    explore(ends(in_full(world(3, 1, &ANY))), 300_000);
    if is_long() {
        explore(ends(world(3, 2, &ANY)), 3_000_000);
    }
}

#[test]
fn a_view_that_ends_and_one_that_fails() {
    explore(and_one_fails(ends(in_full(world(2, 1, &ANY)))), 15_000);
    explore(and_one_fails(ends(world(3, 1, &ANY))), 40_000);
    if is_long() {
        explore(and_one_fails(ends(in_full(world(2, 2, &ANY)))), 2_000_000);
        explore(and_one_fails(ends(in_full(world(3, 1, &ANY)))), 1_500_000);
        explore(and_one_fails(ends(world(4, 1, &ANY))), 700_000);
        explore(and_one_fails(ends(world(3, 2, &ANY))), 15_000_000);
    }
}

#[test]
fn two_views_that_end() {
    explore(ends_after_another(in_full(world(2, 1, &ANY))), 10_000);
    explore(and_one_fails(ends_after_another(world(3, 1, &ANY))), 100_000);
    if is_long() {
        explore(ends_after_another(in_full(world(2, 2, &ANY))), 1_000_000);
        explore(ends_after_another(in_full(world(3, 1, &ANY))), 500_000);
    }
}

/// Whoever was becoming a reader is one in the new view.
#[test]
fn writers_that_become_readers_while_a_view_ends() {
    let downgrading = |world| World { downgrades: true, ..world };
    explore(and_one_fails(ends(downgrading(world(3, 1, &ANY)))), 100_000);
    explore(ends_after_another(downgrading(in_full(world(2, 1, &ANY)))), 20_000);
    explore(has_ended(downgrading(in_full(world(3, 1, &ANY)))), 150_000);
    if is_long() {
        explore(ends(downgrading(in_full(world(2, 2, &ANY)))), 1_000_000);
        explore(and_one_fails(ends_after_another(downgrading(world(3, 1, &ANY)))), 250_000);
    }
}

#[test]
fn who_only_tries_while_a_view_ends() {
    let any = [WRITE, READ, TRY_WRITE, TRY_READ];
    explore(ends(in_full(world(2, 1, &any))), 8_000);
    explore(and_one_fails(ends(world(3, 1, &any))), 80_000);
    explore(has_ended(in_full(world(3, 1, &any))), 150_000);
}

#[test]
fn gates_and_counts_while_a_view_ends() {
    let impatient = |world| World { lost_swaps: Some(0), ..world };
    explore(and_one_fails(ends(impatient(world(3, 1, &ANY)))), 200_000);
    explore(has_ended(impatient(in_full(world(3, 1, &ANY)))), 150_000);
    let busy = |world| World { settled_at: Some(1), ..world };
    explore(and_one_fails(ends(busy(world(3, 1, &ANY)))), 40_000);
    explore(has_ended(busy(in_full(world(3, 1, &ANY)))), 80_000);
    if is_long() {
        explore(ends(impatient(in_full(world(2, 2, &ANY)))), 500_000);
        explore(ends(busy(in_full(world(2, 2, &ANY)))), 400_000);
    }
}

#[test]
fn a_view_that_ends_where_readers_do_not_share() {
    let alone = |world| World { scheme: Scheme::Dqnl, ..world };
    explore(ends(alone(in_full(world(2, 2, &ANY)))), 200_000);
    explore(and_one_fails(ends(alone(world(3, 1, &ANY)))), 50_000);
    explore(has_ended(alone(in_full(world(3, 1, &ANY)))), 100_000);
}

#[test]
fn every_order_in_which_a_view_ends_ends_well() {
    end_well(ends(in_full(world(2, 1, &ANY))), 3_000);
    end_well(has_ended(in_full(world(3, 1, &ANY))), 80_000);
    end_well(ends_after_another(in_full(world(2, 1, &ANY))), 10_000);
    end_well(and_one_fails(ends(world(3, 1, &ANY))), 40_000);
    let impatient = |world| World { lost_swaps: Some(0), ..world };
    end_well(and_one_fails(ends(impatient(in_full(world(2, 1, &ANY))))), 10_000);
    if is_long() {
        end_well(ends(in_full(world(2, 2, &ANY))), 300_000);
        end_well(ends(in_full(world(3, 1, &ANY))), 300_000);
        end_well(and_one_fails(ends(impatient(world(3, 1, &ANY)))), 200_000);
        end_well(and_one_fails(ends(in_full(world(2, 2, &ANY)))), 2_000_000);
    }
}

#[test]
fn reduced_worlds_in_which_a_view_ends_look_like_full_ones() {
    let either = |across: Across| {
        look_alike(|is_reduced| {
            let world = World { is_reduced, requests: across.world.requests.clone(), ..across.world };
            Across { world, ..across }
        });
    };
    either(ends(world(2, 1, &[WRITE, READ, TRY_WRITE, TRY_READ])));
    either(has_ended(world(3, 1, &ANY)));
    either(and_one_fails(ends(world(2, 1, &ANY))));
    either(ends_after_another(world(2, 1, &ANY)));
    either(and_one_fails(ends_after_another(World { downgrades: true, ..world(2, 1, &ANY) })));
    if is_long() {
        either(ends(world(2, 2, &ANY)));
        either(ends(world(3, 1, &ANY)));
        either(has_ended(world(2, 2, &ANY)));
    }
}

/// Without the rule something breaks, and both kinds of exploration see it.
fn is_found(property: &'static str, world: World, rule: Rule) {
    for is_reduced in [false, true] {
        let world = World { is_reduced, requests: world.requests.clone(), ..world };
        let checker = checked(Across { without: Some(rule), ..ends(world) }, HasDiscoveries::AnyFailures);
        let found = checker.discovery(property).unwrap_or_else(|| panic!("{property}, although a rule is off"));
        println!("  found in {} steps", found.into_actions().len());
    }
}

#[test]
fn l5_a_home_that_opens_before_all_have_reported_is_found() {
    is_found("writers are alone", world(2, 1, &[WRITE]), Rule::AllReport);
}

#[test]
fn l5_a_message_of_the_old_view_that_is_taken_is_found() {
    is_found("nothing is wrong", world(2, 1, &[WRITE]), Rule::OldIsDropped);
}

#[test]
fn l2_tokens_that_begin_where_those_of_the_old_view_began_are_found() {
    is_found("nothing is wrong", world(2, 1, &[WRITE]), Rule::TokensOfTheView);
}

#[test]
fn l5_words_that_are_known_before_the_recovery_holder_stands_in_them_are_found() {
    is_found("writers are alone", world(2, 1, &[WRITE]), Rule::RecoveryHolderIsFirst);
}

#[test]
fn l5_a_survivor_that_is_taken_for_who_came_later_is_found() {
    is_found("nothing is stuck", world(2, 1, &[READ]), Rule::ServerHasItsAddress);
}

#[test]
fn l5_who_is_becoming_a_reader_and_is_taken_for_a_writer_is_found() {
    let world = World { downgrades: true, ..world(2, 1, &ANY) };
    is_found("writers are alone", world, Rule::SharingIsReading);
}
