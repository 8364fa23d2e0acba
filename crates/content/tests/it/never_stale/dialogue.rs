//! A race written down as a dialogue: who does what, when, in a world where everything takes its shortest time.
//!
//! ```text
//! wait 300ms                      time passes
//! read 3 page@2 : hit             node 3 is asked for the page whose home is node 2; it must be a hit
//! write 4 page@2 takes 60ms       node 4 is asked to change that page's row; its transaction takes that long
//! write 4 part@2 : acknowledged   the part that the page shows at first, waited for
//! stop 4 for 900ms                its process stops
//! write 4 page@2 takes 60ms broken    the connection breaks when it was sent
//! cut 0 4 for 90ms                nothing gets from node 0 to node 4
//! leave 4                         it begins nothing more, and leaves when what is open has ended
//! kill 2 / start 2                it dies / starts again
//! ended 4 within 60ms             its process has left by then
//! ```
//!
//! Nodes are counted from 0: 0 (the keeper), 1 and 2 are homes, 3 and 4 proxies. Without `:` nobody waits for the end;
//! `: any` waits for whatever end, `: hit within 5ms` for no longer than that, `: nothing within 5ms` for an
//! answer that must not come. `#` begins a remark.

use std::time::Duration;

use verbena_cluster::{Member, Role, Roles, View, home_of};
use verbena_fabric::sim::{self, Outage};
use verbena_terms::{Incarnation, ViewNumber};

use crate::never_stale::database::{PAGES, part_named_by};
use crate::never_stale::outside::{Kind, RequestId};
use crate::never_stale::settings::{Faults, Settings, ms, settings, us};
use crate::never_stale::world::World;

/// Plays a dialogue and gives what the checkers complain of.
pub fn play(script: &str, change: impl Fn(&mut Settings)) -> Vec<String> {
    let mut settings = Settings {
        faults: Faults::default(),
        network: sim::Faults::none(),
        capabilities: sim::capabilities(),
        machines: 0,
        shortest: true,
        pages_kept: 100,
        pages_share_ids: false,
        gap: us(0),
        ..settings(0.into())
    };
    change(&mut settings);
    let mut world = World::new(settings);
    for line in script.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            perform(&mut world, line);
        }
    }
    world.outside.checker.take().broken
}

fn perform(world: &mut World, line: &str) {
    let (action, wanted) = match line.split_once(" : ") {
        Some((action, wanted)) => (action, Some(wanted.trim())),
        None => (line, None),
    };
    let words: Vec<&str> = action.split_whitespace().collect();
    let node = |word: &str| word.parse::<usize>().unwrap_or_else(|_| panic!("no node in {line:?}"));
    let request = match words[..] {
        ["wait", span] => return world.run(length(span)),
        ["stop", who, "for", span] => return world.pause(node(who), length(span)),
        ["leave", who] => return world.leave(node(who)),
        ["kill", who] => return world.kill(node(who), true),
        ["start", who] => return world.boot(node(who)),
        ["ended", who, "within", span] => {
            let (who, deadline) = (node(who), world.outside.now() + length(span));
            while world.runs(who) {
                assert!(world.outside.now() < deadline, "{line:?}: it runs");
                world.run(us(100));
            }
            return;
        }
        ["cut", from, to, "for", span] => return world.cut(node(from), node(to), Outage::Loses, length(span)),
        ["read", who, page] => world.request(node(who), Kind::Read { page: page_at(page) }),
        ["write", who, page] => write(world, node(who), page, us(0)),
        ["write", who, page, "takes", span] => write(world, node(who), page, length(span)),
        ["write", who, page, "takes", span, "broken"] => {
            world.outside.connection_breaks.set(true);
            write(world, node(who), page, length(span))
        }
        _ => panic!("not understood: {line:?}"),
    };
    if let Some(wanted) = wanted {
        let (wanted, most) = wanted.split_once(" within ").map_or((wanted, ms(1000)), |(w, span)| (w, length(span)));
        let deadline = world.outside.now() + most;
        while !world.outside.outcomes.borrow().contains_key(&request) && world.outside.now() < deadline {
            world.run(us(100));
        }
        let how = world.outside.outcomes.borrow().get(&request).copied();
        println!("{}  {line}  ->  {how:?}", world.outside.now());
        assert!(wanted == "any" || how.unwrap_or("nothing") == wanted, "{line:?} ended as {how:?}");
    }
}

fn write(world: &mut World, node: usize, page: &str, takes: Duration) -> RequestId {
    let rows = match page.strip_prefix("part@") {
        Some(home) => vec![part_named_by(page_at(&format!("page@{home}")), 0)],
        None => vec![page_at(page)],
    };
    world.outside.transaction_takes.set(takes);
    world.request(node, Kind::Write { rows, announces: true })
}

fn length(span: &str) -> Duration {
    let (number, unit) = span.split_at(span.find(|c: char| !c.is_ascii_digit()).expect("a unit"));
    let number = number.parse().expect("a number");
    if unit == "us" { us(number) } else { ms(number) }
}

/// `page@2`: the first page whose home is node 2 while all three homes are in.
fn page_at(word: &str) -> u64 {
    let home: u32 = word.strip_prefix("page@").and_then(|node| node.parse().ok()).expect("page@NODE");
    let member = |rank| Member {
        incarnation: Incarnation::new(rank, 1),
        name: format!("n{}", rank - 1),
        address: String::new(),
        roles: Roles::of(Role::Home),
    };
    let all = View::new(ViewNumber(1), (1..=3).map(member).collect(), vec![]).expect("a sound view");
    (0..PAGES).find(|&page| home_of(page, &all).expect("three homes").rank.0 == home + 1).expect("a page of that home")
}

/// What every dialogue must come to: nothing with all rules, a stale answer without the one that it is about.
fn shows(script: &str, setting: impl Fn(&mut Settings), off: impl Fn(&mut Settings)) {
    assert_eq!(play(script, &setting), Vec::<String>::new(), "with all rules");
    let broken = play(script, |settings| {
        setting(settings);
        off(settings);
    });
    assert!(broken.iter().any(|broken| broken.contains("was to be seen")), "without the rule: {broken:?}");
}

/// A proxy and a home are cut off together. The words there never move again, for nobody tells that home anything.
#[test]
fn p1_without_a_look_at_the_lease_a_proxy_that_was_cut_off_serves_what_is_gone() {
    let script = "
        wait 600ms
        read 3 page@2 : origin
        read 3 page@2 : hit
        cut 0 2 for 5000ms
        cut 2 0 for 5000ms
        cut 0 3 for 5000ms
        cut 3 0 for 5000ms
        wait 600ms
        write 4 page@2 : acknowledged
        read 3 page@2 : any
    ";
    shows(script, |_| {}, |settings| settings.lease_looked_at = false);
}

/// A home joins while an update is at the database, and the updater does not hear of it in time.
#[test]
fn p5_a_new_home_that_is_not_busy_stores_what_an_open_update_changes() {
    let script = "
        wait 600ms
        kill 2
        wait 1000ms
        write 4 page@2 takes 60ms
        wait 1ms
        cut 0 4 for 70ms            # node 4 does not learn of the view with node 2
        start 2
        wait 25ms
        read 3 page@2 : origin
        read 3 page@2 : any         # a hit, were it stored
        wait 35ms                   # the update is committed and acknowledged
        read 3 page@2 : any
    ";
    shows(script, |_| {}, |settings| settings.rules.new_homes_busy = false);
}

/// An updater dies; its transaction does not.
#[test]
fn p6_a_transaction_outlives_its_updater() {
    let script = "
        wait 600ms
        write 4 part@2 takes 350ms
        wait 1ms
        kill 4
        wait 250ms
        read 3 page@2 : origin
        read 3 page@2 : any
        wait 150ms
        read 1 page@2 : any
        read 3 page@2 : any
    ";
    shows(script, |_| {}, |settings| settings.rules.dead_outlast = false);
}

/// An updater dies with an update open. Its record says so to the homes: what it touches waits, and nothing else.
#[test]
fn p6_a_record_that_lacks_an_open_update_leaves_stale_pages() {
    let script = "
        wait 600ms
        write 4 part@2 takes 290ms
        wait 1ms
        kill 4
        wait 150ms
        read 3 page@2 : origin
        read 3 page@2 : any         # a hit, were it stored
        wait 190ms                  # committed
        read 1 page@2 : any
        read 3 page@2 : any
    ";
    shows(script, |settings| settings.machines = 1, |settings| settings.rules.recorded_first = false);
}

/// All are killed with nothing open: pages are stored again long before the longest transaction is over.
#[test]
fn p6_who_died_with_nothing_open_is_not_waited_for() {
    let script = "
        wait 600ms
        write 4 part@2 : acknowledged
        wait 5ms
        kill 4
        kill 2
        wait 20ms
        start 2
        wait 250ms
        read 3 page@2 : origin
        read 3 page@2 : hit
    ";
    assert_eq!(play(script, |settings| settings.machines = 1), Vec::<String>::new());
    let waits = script.replace("page@2 : hit", "page@2 : origin");
    assert_eq!(play(&waits, |settings| settings.machines = 0), Vec::<String>::new(), "without records they are");
}

/// A node leaves while nobody knows whether its transaction is still at the database: others wait for that as if it had died.
#[test]
fn p6_who_says_that_it_is_at_rest_and_is_not_leaves_stale_pages() {
    let script = "
        wait 600ms
        write 4 part@2 takes 290ms broken
        wait 1ms
        leave 4
        wait 150ms
        read 3 page@2 : origin
        read 3 page@2 : any         # a hit, were it stored
        wait 190ms                  # committed
        read 1 page@2 : any
        read 3 page@2 : any
    ";
    shows(script, |_| {}, |settings| settings.rules.rest_is_true = false);
}

/// A node that is at rest says so, and is asked for another update before it learns of the view without it.
#[test]
fn p6_who_begins_after_it_said_that_it_is_at_rest_leaves_stale_pages() {
    let script = "
        wait 600ms
        leave 4
        write 4 part@2 takes 350ms
        wait 150ms
        read 3 page@2 : origin
        read 3 page@2 : any
        wait 250ms
        read 1 page@2 : any
        read 3 page@2 : any
    ";
    shows(script, |_| {}, |settings| settings.rules.leavers_begin_nothing = false);
}

/// Nothing is open: the pages whose home it was are stored again as soon as the view without it is in effect.
#[test]
fn p6_who_leaves_at_rest_is_not_waited_for() {
    let script = "
        wait 600ms
        write 4 part@2 : acknowledged
        wait 5ms
        leave 4
        leave 2
        wait 20ms
        start 2
        wait 60ms
        read 3 page@2 : origin
        read 3 page@2 : hit
    ";
    assert_eq!(play(script, |_| {}), Vec::<String>::new());
}

/// An updater stops between its check and the first byte, for longer than lease and longest transaction.
#[test]
fn p7_an_answer_given_without_another_look_is_too_early() {
    let script = "
        wait 600ms
        write 4 page@2              # checked after some 100 us, sent 500 us later
        wait 300us
        stop 4 for 1000ms
        cut 0 4 for 3000ms          # and does not hear that it was expelled
        wait 900ms                  # that incarnation is settled
        read 3 page@2 : origin
        read 3 page@2 : hit
        wait 110ms                  # node 4 goes on: it sends, the database commits, the application answers
        read 3 page@2 : any
    ";
    shows(script, |settings| settings.gap = us(500), |settings| settings.rules.checked_again = false);
}
