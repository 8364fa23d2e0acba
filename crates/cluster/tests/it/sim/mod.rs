//! Seeded simulation of a whole cluster with every fault, and checkers that look after each step.
//!
//! A failing seed prints the command that replays it with its trace.

mod check;
mod counts;
mod dice;
mod faults;
mod node;
mod world;

use verbena_cluster::{Provider, Rules};
use verbena_testkit::check_seeds;
use world::{Outcome, World};

/// How many seeds there are by default; `VERBENA_SEEDS=10000` takes so many.
const SEEDS: u64 = 60;
/// Seeds in which a rule that is switched off has to be found out.
const PATIENCE: u64 = 1500;

fn run(seed: u64, provider: Provider, rules: Rules, trace: bool) -> Outcome {
    World::new(seed, provider, rules, trace).run()
}

/// What happened in all seeds together, and how many there were.
fn hold(test: &str, provider: Provider) -> (counts::Counts, u64) {
    let mut total = counts::Counts::default();
    let seeds = check_seeds(test, SEEDS, |seed| {
        let outcome = run(seed.number(), provider, Rules::ALL, false);
        if let Some(violation) = outcome.violation {
            panic!(
                "{violation}\nwith all that happens: VERBENA_SEED={} cargo test -p verbena-cluster --test it -- \
                 sim::replay_{provider:?} --nocapture",
                seed.number()
            );
        }
        total.add(&outcome.counts);
    });
    println!("counted: {seeds} seeds of {provider:?}: {total:?}");
    // Enough happened for the silence of the checkers to mean something.
    let per_seed = |count: u64, least: u64| count >= seeds * least / 10;
    assert!(per_seed(total.views, 50), "{total:?}");
    assert!(per_seed(total.crashes, 10) && per_seed(total.keeper_crashes, 3), "{total:?}");
    assert!(per_seed(total.pauses, 10) && per_seed(total.cuts, 10) && per_seed(total.replaced, 3), "{total:?}");
    // Where the keeper itself comes back soon, fewer are out when they are heard again.
    let expelled = if provider == Provider::Static { 10 } else { 5 };
    assert!(per_seed(total.expelled, expelled) && per_seed(total.left, 2) && per_seed(total.resumed, 2), "{total:?}");
    assert!(per_seed(total.at_rest, 2), "{total:?}");
    assert!(per_seed(total.lost, 100) && per_seed(total.doubled, 100) && per_seed(total.late, 50), "{total:?}");
    (total, seeds)
}

#[test]
fn the_rules_hold_in_every_seed() {
    hold("sim::the_rules_hold_in_every_seed", Provider::Static);
}

#[test]
fn the_rules_hold_in_every_seed_where_the_office_moves() {
    let (total, seeds) = hold("sim::the_rules_hold_in_every_seed_where_the_office_moves", Provider::Etcd);
    assert!(total.terms >= 3 * seeds && total.unanswered >= 5 * seeds, "{total:?}");
    assert!(total.resigned >= seeds / 10 && total.overtaken >= seeds, "{total:?}");
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
    for seed in 0..PATIENCE {
        if let Some(violation) = run(seed, provider, rules, false).violation
            && by.iter().any(|by| violation.starts_with(by))
        {
            println!("seed {seed}: {violation}");
            return;
        }
    }
    panic!("{PATIENCE} seeds without any of {by:?}");
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
