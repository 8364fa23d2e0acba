//! Every order of events in a small world: one page, two proxies that read and update, two homes, and a view change,
//! a lease that runs out or an updater that dies. The machines are those that run in a node; time stands still, and what
//! time would decide (a lease ends, the dead are settled) happens at any moment at which the rules let it.
//!
//! Messages may be delivered in any order, a little late or for ever. A word is read at a moment of its own between the
//! post and the look. `VERBENA_LONG=1` explores the larger bounds.

mod world;

use stateright::{Checker, HasDiscoveries, Model};
use verbena_content::Scope;

use world::{Bounds, Change, ROW, World};

/// In one view.
const ALONE: Bounds = Bounds { updates: 2, reads: 3, both: false };
/// Across a view change: with two updates, one can be of the old view and one of the new.
const ACROSS: Bounds = Bounds { updates: 1, reads: 2, both: false };
const TWICE: Bounds = Bounds { updates: 2, ..ACROSS };

/// Within `usual`, or with `VERBENA_LONG=1` within each of `larger`. Depth first: the breadth of the larger worlds does not fit into memory, and
/// nothing is looked for that a shortest way would show better.
fn explore(name: &str, change: Change, scope: &Scope, usual: Bounds, larger: &[Bounds]) {
    explore_as(name, |bounds| World::new(change, bounds, scope.clone()), usual, larger);
}

fn explore_as(name: &str, world: impl Fn(Bounds) -> World, usual: Bounds, larger: &[Bounds]) {
    let usual = [usual];
    let is_long = std::env::var_os("VERBENA_LONG").is_some_and(|value| value == "1");
    for &bounds in if is_long { larger } else { &usual } {
        let checker = world(bounds).checker().threads(2).spawn_dfs().join();
        println!("{name}, {bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
        checker.assert_properties();
        assert!(checker.unique_state_count() > 1000, "only {} states", checker.unique_state_count());
    }
}

fn row() -> Scope {
    Scope::of([ROW])
}

#[test]
fn two_updates_and_fills_in_one_view() {
    explore("one view", Change::Nothing, &row(), ALONE, &[Bounds { both: true, ..ALONE }]);
}

#[test]
fn a_page_that_depends_on_everything() {
    explore("depends on everything", Change::Nothing, &Scope::Everything, ALONE, &[Bounds { both: true, ..ALONE }]);
}

#[test]
fn the_pages_home_joins() {
    // With both of them and two updates it is beyond an hour.
    explore("home joins", Change::HomeJoins, &row(), ACROSS, &[TWICE, Bounds { both: true, ..ACROSS }]);
}

#[test]
fn the_pages_home_leaves() {
    explore("home leaves", Change::HomeLeaves, &row(), ACROSS, &[Bounds { both: true, ..TWICE }]);
}

#[test]
fn an_updater_leaves() {
    let larger = [Bounds { both: true, ..TWICE }, Bounds { reads: 3, ..TWICE }];
    explore("updater leaves", Change::ProxyLeaves, &row(), ACROSS, &larger);
}

/// Updates of everything, which may be refused, by both proxies or by the second alone; and a page that depends on this.
fn refused(change: Change, bounds: Bounds, page: &Scope, first: Scope) -> World {
    let mut world = World::new(change, bounds, page.clone());
    world.touched = [first, Scope::Everything];
    world
}

const BOTH: Bounds = Bounds { both: true, reads: 2, ..ALONE };

#[test]
fn updates_of_everything_of_which_some_are_refused() {
    for page in [row(), Scope::Everything] {
        let world = |bounds| refused(Change::Nothing, bounds, &page, Scope::Everything);
        explore_as("refused", world, BOTH, &[Bounds { reads: 3, ..BOTH }]);
    }
}

#[test]
fn an_update_of_everything_may_be_refused_beside_one_of_a_row() {
    for page in [row(), Scope::Everything] {
        let world = |bounds| refused(Change::Nothing, bounds, &page, row());
        explore_as("refused beside a row's", world, BOTH, &[Bounds { reads: 3, ..BOTH }]);
    }
}

#[test]
fn an_update_of_everything_may_be_refused_while_the_pages_home_joins() {
    let world = |bounds| refused(Change::HomeJoins, bounds, &row(), Scope::Everything);
    explore_as("refused, home joins", world, ACROSS, &[TWICE]);
}

#[test]
fn an_update_that_is_refused_must_not_hide_another() {
    let mut world = refused(Change::Nothing, BOTH, &row(), Scope::Everything);
    world.rules.voids_alone = false;
    let checker = world.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path =
        checker.discovery("no answer is stale").expect("a word that went back behind an update serves stale pages");
    println!("{} steps to a stale answer", path.into_actions().len());
}

#[test]
fn a_rule_that_is_off_is_found() {
    let mut world = World::new(Change::HomeJoins, ACROSS, row());
    world.rules.new_homes_busy = false;
    let checker = world.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let path = checker.discovery("no answer is stale").expect("a new home that is not busy serves stale pages");
    println!("{} steps to a stale answer", path.into_actions().len());
}
