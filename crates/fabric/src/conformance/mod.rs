//! The one suite that every provider passes.
//!
//! A provider brings a [`Harness`]: how to make nodes, how to let time pass, and which accidents it can arrange. The checks
//! know nothing else: no provider's name, no thread, no clock but the fabric's. So the same check runs against mapped
//! memory, against sockets and in a simulator's virtual time, where every wait is a loop that polls and lets time pass.
//!
//! What a harness cannot arrange it says ([`Unable`]), and the check that needs it is skipped and counted as skipped: a test of
//! a provider asserts both counts of its [`Report`], so that a check cannot fall out of use unseen.
//!
//! Every check is named after what it holds; the rule that it stands for (docs/internals/RULES.md) is said where it is declared.

mod batches;
mod capability;
mod concurrency;
mod deadlines;
mod exactly_once;
mod harness;
mod messages;
mod processes;
mod revocation;
mod scene;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use batches::*;
pub use capability::*;
pub use concurrency::*;
pub use deadlines::*;
pub use exactly_once::*;
pub use harness::{Able, Fault, Harness, Target, Unable};
pub use messages::*;
pub use processes::{Processes, serve_if_asked};
pub use revocation::*;
pub use scene::{PATIENCE, SLACK};
pub use words::*;

/// One check: panics if the provider breaks the rule, says so if the harness cannot arrange what it needs.
pub type Check = fn(&mut dyn Harness) -> Able<()>;

macro_rules! checks {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name as Check)),*] };
}

/// All checks, in the order in which they run.
pub const CHECKS: &[(&str, Check)] = checks![
    every_word_operation_gives_its_result,
    bytes_come_back_at_every_alignment,
    regions_do_not_mix,
    owner_and_peer_see_the_same_memory,
    what_is_handed_on_shows_the_region,
    an_owner_reaches_its_own_region,
    what_is_outside_or_askew_is_refused,
    what_rights_forbid_is_refused,
    batches_run_in_order,
    a_batch_ends_at_the_first_refusal,
    a_batch_has_a_largest_size,
    batches_keep_their_order_where_promised,
    concurrent_additions_all_count,
    concurrent_swaps_have_one_winner_each,
    the_owners_atomics_are_as_the_scope_says,
    words_are_never_torn,
    repeated_requests_execute_once,
    lost_answers_are_settled_to_their_outcome,
    lost_requests_are_settled_for_ever,
    late_copies_do_not_execute_after_settling,
    identifiers_are_never_reused,
    a_full_window_asks_to_settle_first,
    what_was_never_posted_can_be_barred_or_is_forgotten,
    a_region_made_anew_is_other_memory,
    a_region_given_up_is_revoked,
    a_region_can_be_made_anew_many_times,
    what_was_under_way_never_lands_in_new_memory,
    forged_keys_open_nothing,
    another_incarnation_is_not_reached,
    a_restarted_node_is_not_taken_for_the_former,
    a_closed_fabric_stops_answering,
    a_killed_node_stops_answering,
    messages_arrive_as_they_were_sent,
    messages_of_other_views_are_dropped,
    a_port_has_one_reader_and_can_be_opened_again,
    control_does_not_wait_behind_bulk,
    a_queue_that_nobody_empties_is_full,
    a_passed_deadline_sends_nothing,
    every_operation_ends_at_its_deadline,
    a_stopped_target_answers_if_its_processor_is_free,
    synchronous_means_complete_on_return,
    the_largest_sizes_are_true,
    another_version_is_refused_by_name,
];

/// What a run of the suite did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Checks that ran and held.
    pub ran: usize,
    /// Checks that were skipped, each with what was missing.
    pub skipped: Vec<(&'static str, Unable)>,
}

/// Runs every check, says what it did on standard output, and panics in the end if one of them did not hold.
pub fn run_all(harness: &mut dyn Harness) -> Report {
    let mut report = Report { ran: 0, skipped: Vec::new() };
    let mut broken = Vec::new();
    for &(name, check) in CHECKS {
        // A check keeps nothing in the harness but nodes that the next one does not look at.
        match catch_unwind(AssertUnwindSafe(|| check(harness))) {
            Ok(Ok(())) => {
                println!("{name}: holds");
                report.ran += 1;
            }
            Ok(Err(unable)) => {
                println!("{name}: skipped: {unable}");
                report.skipped.push((name, unable));
            }
            Err(_) => {
                println!("{name}: BROKEN");
                broken.push(name);
            }
        }
    }
    assert!(broken.is_empty(), "{} of {} checks do not hold: {}", broken.len(), CHECKS.len(), broken.join(", "));
    report
}
