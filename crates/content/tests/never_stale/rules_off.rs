//! Each rule off by itself: some seed must find what the rule prevents, or the checkers see nothing. The rules whose race
//! is too rare for chance are in `dialogue.rs`.

use verbena_content::Rules;

use crate::seeds::{run, settings};
use crate::world::Settings;

/// Runs seeds until the checkers complain of what `complaint` says, and gives the complaint; fails after `most`.
fn some_seed_finds(complaint: &str, most: u64, change: impl Fn(&mut Settings)) -> String {
    for seed in 0..most {
        let mut settings = settings(seed);
        change(&mut settings);
        let run = run(settings);
        if let Some(found) = run.broken.into_iter().find(|broken| broken.contains(complaint)) {
            println!("seed {seed}: {found}");
            return found;
        }
    }
    panic!("none of {most} seeds finds anything {complaint:?}");
}

fn without(change: impl Fn(&mut Rules)) -> impl Fn(&mut Settings) {
    move |settings| change(&mut settings.rules)
}

const STALE: &str = "was to be seen";
const STUCK: &str = "stuck";

#[test]
fn p2_fills_that_race_updates_store_stale_pages() {
    some_seed_finds(STALE, 300, without(|rules| rules.fills_compare = false));
}

#[test]
fn p2_a_new_set_without_a_bump_leaves_old_copies() {
    some_seed_finds(STALE, 300, |settings| {
        settings.pages_share_ids = true;
        settings.rules.new_sets_bump = false;
    });
}

#[test]
fn p3_an_update_that_does_not_wait_for_every_home_leaves_stale_pages() {
    some_seed_finds(STALE, 300, without(|rules| rules.updates_wait = false));
}

#[test]
fn p3_messages_with_gaps_lose_begins() {
    some_seed_finds(STALE, 300, |settings| {
        settings.faults.loss = 200;
        settings.rules.without_gaps = false;
    });
}

#[test]
fn p3_ends_that_do_not_move_let_early_reads_be_stored() {
    some_seed_finds(STALE, 300, without(|rules| rules.ends_move = false));
}

#[test]
fn p4_a_page_of_everything_that_does_not_compare_the_clock_is_stale() {
    some_seed_finds(STALE, 300, without(|rules| rules.clock_compared = false));
}

#[test]
fn p5_updates_that_are_not_begun_again_are_missed_by_new_homes() {
    some_seed_finds(STALE, 300, without(|rules| rules.begun_again = false));
}

#[test]
fn p6_the_dead_never_settled_keep_pages_busy() {
    some_seed_finds(STUCK, 300, without(|rules| rules.dead_settled = false));
}

#[test]
fn p7_a_dropped_registration_without_a_bump_leaves_copies_behind() {
    some_seed_finds(STALE, 300, without(|rules| rules.drops_bump = false));
}

#[test]
fn p8_who_joins_after_the_registration_is_served_stale_pages() {
    some_seed_finds(STALE, 300, without(|rules| rules.waiters_early = false));
}
