//! Each rule off by itself: some seed must find what the rule prevents, or the checkers see nothing. The rules whose race
//! is too rare for chance are in `dialogue.rs`.

use verbena_content::Rules;
use verbena_fabric::sim;
use verbena_testkit::seeds::first_that_finds;

use crate::never_stale::seeds::run;
use crate::never_stale::settings::{Settings, ms, settings, us, with_office};

/// Some seed makes the checkers complain of what `complaint` says, and the same seed with all rules is clean.
fn some_seed_finds(complaint: &str, most: u64, change: impl Fn(&mut Settings)) {
    first_that_finds(complaint, most, |seed| {
        let mut settings = settings(seed);
        change(&mut settings);
        let cluster_rules = verbena_cluster::Rules::ALL;
        let all = Settings { rules: Rules::ALL, cluster_rules, lease_looked_at: true, ..settings.clone() };
        let found = run(settings).broken.into_iter().find(|broken| broken.contains(complaint))?;
        assert_eq!(run(all).broken, Vec::<String>::new(), "seed {} with all rules", seed.number());
        Some(found)
    });
}

fn without(change: impl Fn(&mut Rules)) -> impl Fn(&mut Settings) {
    move |settings| change(&mut settings.rules)
}

fn on_standard_pages(change: impl Fn(&mut Rules)) -> impl Fn(&mut Settings) {
    move |settings| {
        settings.standard_pages = true;
        change(&mut settings.rules);
    }
}

const STALE: &str = "was to be seen";
const STUCK: &str = "stuck";

#[test]
fn p2_fills_that_race_updates_store_stale_pages() {
    some_seed_finds(STALE, 300, without(|rules| rules.fills_compare = false));
}

#[test]
fn p2_another_set_without_a_bump_leaves_old_copies() {
    some_seed_finds(STALE, 300, |settings| {
        settings.pages_share_ids = true;
        settings.rules.other_sets_bump = false;
    });
}

#[test]
fn p3_an_update_that_does_not_wait_for_every_home_leaves_stale_pages() {
    some_seed_finds(STALE, 300, without(|rules| rules.updates_wait = false));
}

#[test]
fn p3_messages_with_gaps_lose_begins() {
    some_seed_finds(STALE, 300, |settings| {
        // Several messages of one stream have to be under way.
        settings.network = sim::Faults { message_loss_per_mille: 300, ..sim::Faults::none() };
        (settings.writes_of_everything, settings.write_every, settings.in_flight) = (0, ms(5), 60);
        settings.rules.without_gaps = false;
    });
}

#[test]
fn p3_ends_that_do_not_move_let_early_reads_be_stored() {
    some_seed_finds(STALE, 300, without(|rules| rules.ends_move = false));
}

#[test]
fn p3_what_nothing_came_of_must_not_hide_what_came_of_another() {
    some_seed_finds(STALE, 300, |settings| {
        // Two of them have to be open at once.
        (settings.standard_pages, settings.writes_of_everything, settings.write_every) = (false, 800, ms(5));
        settings.rules.voids_alone = false;
    });
}

#[test]
fn p4_a_page_of_everything_that_does_not_compare_the_clock_is_stale() {
    some_seed_finds(STALE, 300, without(|rules| rules.clock_compared = false));
}

#[test]
fn h1_a_purge_of_all_that_moves_no_purge_word_leaves_standard_pages() {
    some_seed_finds(STALE, 300, on_standard_pages(|rules| rules.purges_move = false));
}

#[test]
fn h3_a_hard_purge_that_is_not_noted_lets_a_304_bring_back_what_it_took() {
    some_seed_finds(STALE, 300, on_standard_pages(|rules| rules.hard_words = false));
}

#[test]
fn h3_a_write_that_is_not_noted_is_taken_for_a_soft_purge() {
    some_seed_finds(STALE, 300, on_standard_pages(|rules| rules.change_words = false));
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
    some_seed_finds("a collapsed shows", 300, |settings| {
        // The home's answer has to be on its way for as long as a whole update takes, and the look of a later request not.
        settings.network = sim::Faults { tail_per_mille: 100, tail_max: ms(35), ..sim::Faults::none() };
        (settings.read_every, settings.write_every) = (us(100), ms(30));
        (settings.writes_of_everything, settings.pages_of_everything) = (0, 0);
        settings.rules.waiters_early = false;
    });
}

// Each of these by itself is found by the simulation of the cluster. What pages suffer takes two keepers that both make views.
#[test]
fn c4_two_keepers_at_once_leave_stale_pages() {
    some_seed_finds(STALE, 1000, |settings| {
        *settings = with_office(settings.seed);
        settings.cluster_rules.wait_for_authority = false;
        settings.cluster_rules.silent_without_authority = false;
        settings.cluster_rules.wait_after_restart = false;
    });
}
