//! A cluster in a storm: nodes that run the product's own driver over the simulated fabric, and clients that want locks, while nodes pause, crash and join
//! again, ways are cut, frames are lost, repeated and late, and views follow one another. What must hold: writers are alone, also where a holder's node
//! is stopped or dead; tokens grow; and when the storm is over everybody has had what they wanted.

mod checker;
mod clients;
mod cluster;
mod settings;
mod store;

use verbena_lock::Rules;
use verbena_testkit::assert_enough;
use verbena_testkit::faults::Struck;
use verbena_testkit::seeds::{MANY_MORE, SEEDS, Seed, check_seeds, first_that_finds};
use verbena_testkit::world::Run;

use checker::Seen;
use cluster::Cluster;
use settings::{STORM, Settings};

verbena_testkit::counts! {
    struct Counts {
        seen: Seen,
        struck: Struck,
    }
}

/// One run: what was wrong in it, and what happened.
fn run(settings: Settings) -> (Vec<String>, Counts, u64) {
    let mut cluster = Cluster::new(settings);
    cluster.run(STORM);
    cluster.calm();
    let (struck, digest) = (cluster.world.struck(), cluster.world.fabric.digest());
    let checker = cluster.checker;
    (checker.broken, Counts { seen: checker.seen, struck }, digest)
}

/// Nothing is wrong in any seed. How many there were, and what happened in them.
fn hold(test: &str, settings: fn(Seed) -> Settings) -> (u64, Counts) {
    let mut counts = Counts::default();
    let seeds = check_seeds(test, SEEDS, |seed| {
        let (broken, counted, _) = run(settings(seed));
        assert!(broken.is_empty(), "{broken:#?}");
        counts += counted;
    });
    println!("counted: {seeds} seeds, {counts:?}");
    (seeds, counts)
}

#[test]
fn locks_hold_in_a_storm() {
    let (seeds, Counts { seen, struck }) = hold("storm::locks_hold_in_a_storm", Settings::of);
    assert_enough!(seeds, seen.granted => 30.0, seen.shared => 10.0, seen.waited => 10.0, seen.survived => 2.0);
    assert_enough!(seeds, seen.lost => 0.5, seen.cancelled => 2.0, seen.held_on => 0.4);
    assert_enough!(seeds, struck.views => 8.0, struck.crashes => 1.0, struck.pauses => 1.0, struck.cuts => 1.0);
    if seeds >= MANY_MORE {
        assert_enough!(seeds, seen.lost => 1.0, seen.held_on => 1.0, seen.deadlocks => 0.001);
    }
}

/// Homes with one to three words each, and six locks.
#[test]
fn locks_hold_in_a_storm_where_words_are_few() {
    let (seeds, Counts { seen, struck }) =
        hold("storm::locks_hold_in_a_storm_where_words_are_few", Settings::with_few_words);
    assert_enough!(seeds, seen.granted => 20.0, seen.survived => 1.0, seen.lost => 0.8, struck.crashes => 1.0);
    assert_enough!(seeds, seen.evictions => 10.0, seen.reused => 8.0);
    if seeds >= MANY_MORE {
        assert_enough!(seeds, seen.lost => 1.0);
    }
}

#[test]
fn locks_hold_in_a_storm_by_the_other_schemes() {
    let (seeds, Counts { seen, struck }) =
        hold("storm::locks_hold_in_a_storm_by_the_other_schemes", Settings::by_other_schemes);
    assert_enough!(seeds, seen.granted => 20.0, seen.shared => 5.0, seen.survived => 1.0, seen.lost => 0.6);
    assert_enough!(seeds, struck.views => 8.0, struck.crashes => 1.0);
    if seeds >= MANY_MORE {
        assert_enough!(seeds, seen.lost => 1.0);
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [3, 4] {
        assert_eq!(run(Settings::of(Seed::from(seed))).2, run(Settings::of(Seed::from(seed))).2);
    }
}

/// Without what is switched off something breaks, in one of so many seeds.
fn is_found(what: &str, within: u64, off: impl Fn(&mut Settings)) {
    first_that_finds(what, within, |seed| {
        let mut settings = Settings::of(seed);
        off(&mut settings);
        run(settings).0.into_iter().next()
    });
}

#[test]
fn a_token_that_is_not_written_before_the_lock_is_free_is_found() {
    is_found("L2", 20, |settings| settings.rules = Rules { token_before_free: false, ..Rules::ALL });
}

#[test]
fn a_writer_that_does_not_wait_for_the_readers_before_it_is_found() {
    is_found("L2", 50, |settings| settings.rules = Rules { after_readers_by_home: false, ..Rules::ALL });
}

#[test]
fn tokens_that_begin_below_those_of_evicted_locks_are_found() {
    is_found("L2", 50, |settings| {
        let rules = Rules { begin_at_floor: false, ..Rules::ALL };
        *settings = Settings { rules, ..Settings::with_few_words(settings.seed) };
    });
}

#[test]
fn words_that_are_used_again_while_they_are_remembered_are_found() {
    is_found("L4", 50, |settings| {
        let rules = Rules { forgotten_before_reuse: false, ..Rules::ALL };
        *settings = Settings { rules, ..Settings::with_few_words(settings.seed) };
    });
}

#[test]
fn a_view_that_is_in_effect_before_leases_are_over_is_found() {
    is_found("C3", 100, |settings| settings.waits_for_leases = false);
}

#[test]
fn a_client_that_believes_beyond_the_lease_is_found() {
    is_found("L6", 50, |settings| settings.looks_at_lease = false);
}

/// Rule L7: what a paused holder writes late does harm where the store does not compare tokens, and none where it does.
#[test]
fn a_store_that_compares_tokens_loses_nothing() {
    let (mut refused, mut overwritten) = (0, 0);
    for seed in 0..60 {
        for is_guarded in [true, false] {
            let settings = Settings { is_guarded, ..Settings::of(Seed::from(seed)) };
            let (broken, Counts { seen, .. }, _) = run(settings);
            assert!(broken.is_empty(), "{broken:#?}");
            if is_guarded {
                assert_eq!(seen.overwritten, 0, "seed {seed}");
                refused += seen.refused;
            } else {
                overwritten += seen.overwritten;
            }
        }
    }
    println!("counted: {refused} late writes refused; without the guard {overwritten} updates lost");
    assert!(refused > 0 && overwritten > 0, "{refused} refused, {overwritten} lost");
}
