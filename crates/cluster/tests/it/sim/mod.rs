//! Seeded simulation of a whole cluster with every fault, and checkers that look after each step.
//!
//! A failing seed prints the command that replays it with its trace.

mod check;
mod counts;
mod dialogues;
mod dice;
mod faults;
mod node;
mod world;

use verbena_cluster::{Provider, Rules};
use verbena_testkit::assert_enough;
use verbena_testkit::seeds::{MANY_MORE, SEEDS, check_seeds, first_that_finds};

use counts::Counts;
use world::{Outcome, World};

/// Seeds in which a rule that is switched off has to be found out.
const PATIENCE: u64 = 1500;

fn run(seed: u64, provider: Provider, rules: Rules, trace: bool) -> Outcome {
    World::new(seed, provider, rules, trace).run()
}

/// What happened in all seeds together, and how many there were.
fn hold(test: &str, provider: Provider) -> (Counts, u64) {
    let mut all = Counts::default();
    let seeds = check_seeds(test, SEEDS, |seed| {
        let outcome = run(seed.number(), provider, Rules::ALL, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}\nwith all that happens: VERBENA_SEED={} cargo test -p verbena-cluster --test it -- \
                 sim::replay_{provider:?} --nocapture",
                seed.number()
            );
        }
        all += outcome.counts;
    });
    println!("counted: {seeds} seeds of {provider:?}: {all:?}");
    // Enough happened for the silence of the checkers to mean something.
    assert_enough!(seeds, all.views => 5.0, all.crashes => 1.0, all.keeper_crashes => 0.3, all.replaced => 0.3);
    assert_enough!(seeds, all.pauses => 1.0, all.cuts => 1.0, all.left => 0.2, all.resumed => 0.2);
    assert_enough!(seeds, all.lost => 10.0, all.doubled => 7.0, all.late => 3.5);
    // Where the keeper itself comes back soon, fewer are out when they are heard again.
    let (expelled, at_rest, many_expelled) =
        if provider == Provider::Static { (0.4, 0.15, 0.85) } else { (0.25, 0.04, 0.5) };
    assert_enough!(seeds, all.expelled => expelled, all.at_rest => at_rest);
    if seeds >= MANY_MORE {
        assert_enough!(seeds, all.doubled => 10.0, all.late => 5.0, all.expelled => many_expelled, all.at_rest => 0.2);
    }
    (all, seeds)
}

#[test]
fn the_rules_hold_in_every_seed() {
    hold("sim::the_rules_hold_in_every_seed", Provider::Static);
}

#[test]
fn the_rules_hold_in_every_seed_where_the_office_moves() {
    let (all, seeds) = hold("sim::the_rules_hold_in_every_seed_where_the_office_moves", Provider::Etcd);
    assert_enough!(seeds, all.terms => 3.0, all.unanswered => 5.0, all.resigned => 0.1, all.overtaken => 1.0);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for provider in [Provider::Static, Provider::Etcd] {
        for seed in 0..20 {
            let [first, second] = [(); 2].map(|()| run(seed, provider, Rules::ALL, false));
            assert_eq!(first.fingerprint, second.fingerprint, "seed {seed}");
            assert!(first.counts.steps > 200, "seed {seed}: {:?}", first.counts);
        }
        let [first, second] = [0, 1].map(|seed| run(seed, provider, Rules::ALL, false));
        assert_ne!(first.fingerprint, second.fingerprint);
    }
}

/// Replays the seed in `VERBENA_SEED` (0 if there is none) and prints what happens.
fn replay(provider: Provider) {
    let seed = std::env::var("VERBENA_SEED").map_or(0, |seed| seed.parse().expect("VERBENA_SEED is a number"));
    let outcome = run(seed, provider, Rules::ALL, true);
    assert_eq!(outcome.violation, None, "seed {seed}");
}

#[test]
#[allow(non_snake_case, reason = "the name as a failing seed prints it")]
fn replay_Static() {
    replay(Provider::Static);
}

#[test]
#[allow(non_snake_case, reason = "the name as a failing seed prints it")]
fn replay_Etcd() {
    replay(Provider::Etcd);
}

/// The first seed in which the checkers see that a rule is off.
fn found(rules: Rules, by: &[&str]) {
    found_with(Provider::Static, rules, by);
}

fn found_with(provider: Provider, rules: Rules, by: &[&str]) {
    let is_meant = |violation: &String| by.iter().any(|by| violation.starts_with(by));
    first_that_finds(&format!("any of {by:?}"), PATIENCE, |seed| {
        run(seed.number(), provider, rules, false).violation.filter(is_meant)
    });
}

#[test]
fn c1_a_start_number_that_is_not_durable_is_found() {
    found(Rules { durable_start: false, ..Rules::ALL }, &["incarnation"]);
}

#[test]
fn c1_coming_back_after_being_out_is_found() {
    found(Rules { out_is_final: false, ..Rules::ALL }, &["out"]);
}

#[test]
fn c2_a_lease_that_counts_from_the_grant_is_found() {
    found(Rules { count_from_sending: false, ..Rules::ALL }, &["acting"]);
}

#[test]
fn c2_not_waiting_a_full_lease_is_found() {
    found(Rules { wait_a_full_lease: false, ..Rules::ALL }, &["acting"]);
}

#[test]
fn c2_renewing_who_does_not_acknowledge_is_found() {
    found(Rules { refuse_unacknowledged: false, ..Rules::ALL }, &["blocked"]);
}

#[test]
fn c2_renewing_who_does_not_hear_is_found() {
    found(Rules { refuse_deaf: false, ..Rules::ALL }, &["held"]);
}

#[test]
fn c3_a_view_that_is_not_durable_is_found() {
    found(Rules { durable_view: false, ..Rules::ALL }, &["view"]);
}

#[test]
fn c3_an_acknowledgement_of_another_view_is_found() {
    found(Rules { exact_acknowledgement: false, ..Rules::ALL }, &["acting"]);
}

#[test]
fn c3_acting_on_after_acknowledging_is_found() {
    found(Rules { stop_before_acknowledging: false, ..Rules::ALL }, &["acting"]);
}

#[test]
fn c3_forgetting_at_once_who_left_at_rest_is_found() {
    found(Rules { rest_on_record: false, ..Rules::ALL }, &["acting"]);
}

#[test]
fn c4_a_keeper_that_forgets_earlier_leases_is_found() {
    found(Rules { wait_after_restart: false, ..Rules::ALL }, &["acting", "out"]);
}

#[test]
fn c2_a_keeper_that_speaks_without_authority_is_found() {
    found_with(Provider::Etcd, Rules { silent_without_authority: false, ..Rules::ALL }, &["acting", "out", "early"]);
}

#[test]
fn c2_taking_the_office_before_its_holders_authority_is_over_is_found() {
    found_with(Provider::Etcd, Rules { wait_for_authority: false, ..Rules::ALL }, &["acting", "out", "early", "view"]);
}

#[test]
fn c4_a_new_holder_that_forgets_earlier_leases_is_found() {
    found_with(Provider::Etcd, Rules { wait_after_restart: false, ..Rules::ALL }, &["acting", "out"]);
}
