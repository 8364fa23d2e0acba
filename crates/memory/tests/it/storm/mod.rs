//! A cluster in a storm: nodes that run the product's own driver over the simulated fabric, and clients that get and put, while nodes pause, crash and join
//! again, ways are cut, frames are lost, repeated and late, and views follow one another. What must hold is what each coherence promises, for each segment's
//! history; and when the storm is over everybody can put and get again.

mod clients;
mod cluster;
mod holders;
mod seen;
mod settings;

use verbena_memory::Rules;
use verbena_testkit::assert_enough;
use verbena_testkit::faults::Struck;
use verbena_testkit::seeds::{MANY_MORE, SEEDS, Seed, check_seeds, first_that_finds};
use verbena_testkit::world::Run;

use cluster::Cluster;
use seen::Seen;
use settings::{DELTA, NULL, READ, STORM, STRICT, STRICT_PARTS, Settings, TEMPORAL, WRITE};

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
    (cluster.broken, Counts { seen: cluster.seen, struck }, digest)
}

#[test]
fn segments_hold_in_a_storm() {
    let mut all = Counts::default();
    let seeds = check_seeds("storm::segments_hold_in_a_storm", SEEDS, |seed| {
        let (broken, counts, _) = run(Settings::of(seed));
        assert!(broken.is_empty(), "{broken:#?}");
        all += counts;
    });
    println!("counted: {seeds} seeds, {all:?}");
    let Counts { seen, struck } = all;
    assert_enough!(seeds, seen.gets => 75.0, seen.parts => 30.0, seen.puts => 70.0, seen.conflicts => 1.0);
    assert_enough!(seeds, seen.unknown => 1.0, seen.late => 1.0, seen.allocated => 8.0, seen.released => 1.0);
    assert_enough!(seeds, seen.gone => 1.0, seen.windows => 2.0, seen.looks => 20.0, seen.closed => 1.0);
    assert_enough!(seeds, struck.views => 8.0, struck.crashes => 0.8, struck.pauses => 1.0, struck.cuts => 1.0);
    assert_enough!(seeds, seen.hungers => 0.15, seen.reclaims => 1.0, seen.given => 0.2, seen.relocated => 0.1);
    assert_enough!(seeds, seen.lost => 0.2, seen.copies => 1.0, seen.moved => 1.0);
    if seeds >= MANY_MORE {
        assert_enough!(seeds, seen.gets => 100.0, seen.puts => 100.0, struck.crashes => 1.0, seen.hungers => 0.25);
        // Few seeds have a client that meets a reclaimed segment, and those have it hundreds of times.
        assert_enough!(seeds, seen.reclaimed => 0.25, seen.given => 0.25, seen.relocated => 0.25);
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [3, 4] {
        assert_eq!(run(Settings::of(Seed::from(seed))).2, run(Settings::of(Seed::from(seed))).2);
    }
}

/// Without what is switched off something breaks, in one of so many seeds, and it is this.
fn is_found(what: &str, by: &str, within: u64, off: impl Fn(&mut Settings)) {
    first_that_finds(what, within, |seed| {
        let mut settings = Settings::of(seed);
        off(&mut settings);
        run(settings).0.into_iter().find(|broken| broken.contains(by))
    });
}

#[test]
fn null_memory_that_is_used_again_while_it_is_remembered_is_found() {
    is_found("M2", " null: has ", 300, |settings| {
        settings.focus = NULL;
        settings.rules = Rules { forgotten_before_reuse: false, ..Rules::ALL };
    });
}

#[test]
fn read_without_a_look_at_the_head_is_found() {
    is_found("M1", " read: half a value", 100, |settings| {
        settings.focus = READ;
        settings.rules = Rules { heads_compared: false, ..Rules::ALL };
    });
}

#[test]
fn write_without_a_look_at_the_head_is_found() {
    is_found("M1", " is what part ", 300, |settings| {
        settings.focus = WRITE;
        settings.rules = Rules { heads_compared: false, ..Rules::ALL };
    });
}

#[test]
fn slots_that_are_filled_without_a_claim_are_found() {
    is_found("M1", " was read, and is said not to have been put", 300, |settings| {
        settings.rules = Rules { claims_first: false, ..Rules::ALL };
    });
}

#[test]
fn write_that_changes_an_older_value_is_found() {
    is_found("M1", " write in parts: ", 100, |settings| {
        settings.rules = Rules { base_read_again: false, ..Rules::ALL };
    });
}

#[test]
fn strict_that_changes_an_older_value_in_parts_is_found() {
    is_found("M1", " strict in parts: ", 100, |settings| {
        settings.focus = STRICT_PARTS;
        settings.rules = Rules { base_read_again: false, ..Rules::ALL };
    });
}

#[test]
fn a_part_that_is_put_at_no_copy_when_it_is_read_is_found() {
    is_found("M3", " strict in parts: ", 300, |settings| {
        settings.focus = STRICT_PARTS;
        settings.rules = Rules { copies_first: false, ..Rules::ALL };
    });
}

#[test]
fn strict_that_does_not_read_the_word_is_found() {
    is_found("M4", " strict: ", 100, |settings| settings.rules = Rules { word_read: false, ..Rules::ALL });
}

#[test]
fn version_that_is_not_compared_is_found() {
    is_found("version", " version: ", 100, |settings| {
        settings.rules = Rules { version_compared: false, ..Rules::ALL };
    });
}

#[test]
fn delta_that_is_not_compared_is_found() {
    is_found("delta", " delta(", 100, |settings| {
        settings.focus = DELTA;
        settings.rules = Rules { delta_compared: false, ..Rules::ALL };
    });
}

#[test]
fn temporal_whose_age_counts_from_the_answer_is_found() {
    is_found("temporal", " temporal(", 300, |settings| {
        settings.focus = TEMPORAL;
        settings.rules = Rules { age_from_question: false, ..Rules::ALL };
    });
}

#[test]
fn a_put_that_is_at_no_copy_when_it_is_read_is_found() {
    is_found("M3", " strict: ", 100, |settings| {
        settings.focus = STRICT;
        settings.rules = Rules { copies_first: false, ..Rules::ALL };
    });
}

#[test]
fn copies_that_are_made_when_their_segment_is_served_already_are_found() {
    is_found("M3", " is said to be lost", 300, |settings| {
        settings.rules = Rules { brought_up_first: false, ..Rules::ALL };
    });
}

#[test]
fn a_release_that_is_at_no_copy_is_found() {
    is_found("M2", " was released until ", 300, |settings| {
        settings.rules = Rules { released_everywhere: false, ..Rules::ALL };
    });
}

#[test]
fn copies_of_which_other_holders_do_not_know_are_found() {
    is_found("M3", " is said to be lost, ", 1000, |settings| {
        settings.copies = settings.homes.min(3) as u8;
        settings.rules = Rules { holders_told_first: false, ..Rules::ALL };
    });
}

#[test]
fn answers_that_count_without_a_lease_are_found() {
    is_found("C5", " strict: ", 300, |settings| settings.rules = Rules { lease_looked_at: false, ..Rules::ALL });
}

#[test]
fn memory_that_is_copied_while_somebody_writes_is_found() {
    is_found("C3", " strict: ", 300, |settings| settings.rules = Rules { waits_for_effect: false, ..Rules::ALL });
}

#[test]
fn memory_that_is_reclaimed_without_a_mark_is_found() {
    is_found("M2", " was released until ", 300, |settings| {
        // Nobody else has room, and nothing but that is in its way.
        (settings.reclaims, settings.homes, settings.copies, settings.starves) = (true, 1, 1, false);
        settings.rules = Rules { reclaimed_marked: false, ..Rules::ALL };
    });
}

#[test]
fn a_segment_that_moves_while_somebody_puts_it_is_found() {
    is_found("M3", " strict: ", 300, |settings| {
        settings.reclaims = true;
        settings.rules = Rules { forgotten_before_move: false, ..Rules::ALL };
    });
}

#[test]
fn a_notice_that_is_not_kept_is_found() {
    is_found("notice", " before its time", 100, |settings| {
        (settings.reclaims, settings.homes, settings.copies) = (true, 1, 1);
        settings.rules = Rules { notice_kept: false, ..Rules::ALL };
    });
}

#[test]
fn a_home_that_gives_more_than_it_offers_is_found() {
    is_found("offer", ", and gives ", 100, |settings| {
        settings.reclaims = true;
        settings.rules = Rules { offer_kept: false, ..Rules::ALL };
    });
}

#[test]
fn a_window_that_outlives_its_view_is_found() {
    is_found("C3", " in memory of another view", 100, |settings| {
        settings.rules = Rules { windows_end_with_views: false, ..Rules::ALL };
    });
}

#[test]
fn a_window_that_outlives_its_segment_is_found() {
    is_found("M2", " null: ", 300, |settings| {
        settings.focus = NULL;
        settings.rules = Rules { windows_end_with_segments: false, ..Rules::ALL };
    });
}
