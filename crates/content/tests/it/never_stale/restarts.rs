//! How long pages come from the application, and updates wait, when a node ends, leaves or starts again (rules C3, P5, P6): dialogues of
//! `dialogue`, in virtual time. A lease is 100 ms, the longest transaction 300 ms.

use crate::never_stale::dialogue::play;

/// Comes true, and nobody sees what is stale.
fn comes_true(script: &str) {
    assert_eq!(play(script, |_| {}), Vec::<String>::new());
}

#[test]
fn p6_after_a_clean_stop_pages_are_stored_at_once() {
    comes_true(
        "
        wait 600ms
        write 2 part@2 : acknowledged
        read 3 page@2 : origin
        read 3 page@2 : hit
        wait 5ms
        leave 2
        ended 2 within 30ms
        start 2
        wait 60ms
        write 4 part@2 : acknowledged within 5ms
        wait 5ms
        read 3 page@2 : origin
        read 3 page@2 : hit within 1ms
    ",
    );
}

/// Nobody knows which updates the home had heard of, its own among them.
#[test]
fn p6_after_a_home_was_killed_its_pages_are_stored_when_the_longest_transaction_is_over() {
    comes_true(
        "
        wait 600ms
        kill 2
        start 2
        wait 150ms                  # the view with the next life is in effect
        read 3 page@2 : origin
        read 3 page@2 : origin
        wait 140ms
        read 3 page@2 : origin
        read 3 page@2 : origin
        wait 260ms
        read 3 page@2 : origin
        read 3 page@2 : hit
    ",
    );
}

/// Two departures, one with an update whose outcome nobody knows and one with nothing open. Nobody waits for the transaction while leaving; the
/// homes wait for it afterwards, also through the second departure.
#[test]
fn p6_an_update_of_unknown_outcome_is_waited_for_through_restarts_in_order() {
    comes_true(
        "
        wait 600ms
        write 4 part@2 takes 250ms broken
        wait 1ms
        leave 4
        ended 4 within 150ms
        start 4
        wait 20ms
        leave 4
        ended 4 within 50ms
        start 4
        wait 20ms
        read 3 page@2 : origin
        read 3 page@2 : origin
        wait 60ms                   # committed by now
        read 3 page@2 : origin
        wait 330ms
        read 3 page@2 : origin
        read 3 page@2 : hit
    ",
    );
}

/// A home goes in good order: the others serve as before at once.
#[test]
fn p5_when_a_home_has_left_updates_and_pages_are_as_before_at_once() {
    comes_true(
        "
        wait 600ms
        leave 2
        ended 2 within 30ms
        write 4 page@1 : acknowledged within 5ms
        wait 1ms
        read 3 page@1 : origin
        read 3 page@1 : hit within 1ms
        write 3 page@2 : acknowledged within 5ms        # another home has its pages
        wait 1ms
        read 4 page@2 : origin
        read 4 page@2 : hit within 1ms
    ",
    );
}

/// A home dies: an update waits for its lease and no longer, and nothing is stored until the longest transaction is over.
#[test]
fn p3_when_a_home_dies_updates_wait_for_its_lease_and_no_longer() {
    comes_true(
        "
        wait 600ms
        kill 2
        wait 1ms
        write 4 page@2 : nothing within 60ms
        write 4 page@2 : acknowledged within 100ms
        wait 450ms
        write 4 page@2 : acknowledged within 5ms
        wait 1ms
        read 3 page@2 : origin
        read 3 page@2 : hit within 1ms
    ",
    );
}

/// A home that stands still lets updates wait, and they go on when it does; reads of pages with other homes are hits meanwhile.
#[test]
fn p3_a_home_that_stands_still_lets_updates_wait_until_it_goes_on() {
    comes_true(
        "
        wait 600ms
        read 3 page@1 : origin
        read 3 page@1 : hit
        stop 2 for 50ms
        write 4 page@2 : nothing within 45ms
        read 3 page@1 : hit within 1ms
        wait 10ms
        write 4 page@2 : acknowledged within 5ms
    ",
    );
}
