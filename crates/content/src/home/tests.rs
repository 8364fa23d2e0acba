use verbena_cluster::{Departed, Member, Roles};

use super::*;
use crate::hit::Kind;
use crate::names::PageId;
use crate::table::Word;
use crate::wire::{Refusal, Register};

const ME: Incarnation = Incarnation::new(1, 1);
const UPDATER: Incarnation = Incarnation::new(2, 1);
const OTHER: Incarnation = Incarnation::new(3, 1);
const PAGE: PageId = PageId(5);
const NAMES: u64 = 42;
const VIEW: ViewNumber = ViewNumber(1);

fn on(dependencies: &[u64]) -> Scope {
    Scope::of(dependencies.iter().copied().map(Dependency))
}

fn limits() -> HomeLimits {
    HomeLimits { slots: 8, stamps: 16, pages: 4, ..HomeLimits::default() }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn lease(view: u32) -> Lease {
    Lease { until: Time::FAR, acknowledged: ViewNumber(view), in_effect: ViewNumber(view) }
}

/// A view of these members, this home among them, and of who departed in it.
fn view(number: u32, members: &[Incarnation], departed: &[Incarnation]) -> Arc<View> {
    let number = ViewNumber(number);
    let member = |&incarnation: &Incarnation| {
        let roles = if incarnation == ME { Roles::ALL } else { Roles::of(Role::Reader).and(Role::Updater) };
        Member { incarnation, name: String::new(), address: String::new(), roles }
    };
    let departed = departed
        .iter()
        .map(|&incarnation| Departed { incarnation, since: number, at_rest: false, is_relay: false })
        .collect();
    Arc::new(View::new(number, members.iter().map(member).collect(), departed).unwrap())
}

fn frame(view: u32, from: Incarnation, first: u32, bodies: Vec<Body>) -> Message {
    Message::Updates(Updates { view: ViewNumber(view), from, to: ME, word: 3, names: NAMES, first, bodies })
}

fn sync(open: &[u64]) -> Body {
    Body::Sync { open: open.to_vec(), through: 1 }
}

fn begin(number: u64, scope: Scope) -> Body {
    Body::Begin { number, change: Change::Write, scope }
}

/// A home in view 1 that knows that nobody has anything open.
fn home() -> Home {
    home_with(limits())
}

fn home_with(limits: HomeLimits) -> Home {
    let mut home = Home::new(ME, NAMES, limits);
    let mut out = Vec::new();
    home.view(&view(1, &[ME, UPDATER, OTHER], &[]), at(0), &mut out);
    home.lease(lease(1));
    for updater in [ME, UPDATER, OTHER] {
        home.receive(frame(1, updater, 1, vec![sync(&[])]), at(0), &mut out);
    }
    assert_eq!(home.counts().awaiting, 0);
    home
}

fn say(home: &mut Home, first: u32, body: Body) -> u32 {
    let mut out = Vec::new();
    home.receive(frame(1, UPDATER, first, vec![body]), at(0), &mut out);
    let Some(HomeAction::Acknowledge { to: UPDATER, word: 3, value }) = out.last() else {
        panic!("no acknowledgement at the end of {out:?}")
    };
    assert_eq!(Acknowledged::from_word(*value).view, VIEW);
    Acknowledged::from_word(*value).k
}

fn fill(home: &Home) -> Register {
    Register {
        view: VIEW,
        from: OTHER,
        to: ME,
        request: 1,
        page: PAGE,
        kind: Kind::Coherent,
        scope: on(&[10]),
        clock: home.board.clock(),
        word: home.board.page(PAGE),
        common: home.board.common(Kind::Coherent),
    }
}

fn register(home: &mut Home, register: Register) -> Result<Word, Refusal> {
    let mut out = Vec::new();
    home.receive(Message::Register(register), at(0), &mut out);
    match out.pop() {
        Some(HomeAction::Send(Message::Registered(registered))) => registered.outcome,
        other => panic!("no answer to a registration but {other:?}"),
    }
}

#[test]
fn an_update_makes_the_pages_that_depend_on_it_busy_until_it_ends() {
    let mut home = home();
    let stored = fill(&home);
    let word = register(&mut home, stored).unwrap();
    assert_eq!(say(&mut home, 2, begin(1, on(&[10, 11]))), 2);
    let busy = home.board.page(PAGE);
    assert!(busy.is_busy() && busy.generation() > word.generation());
    assert_eq!(say(&mut home, 3, begin(2, on(&[10]))), 3);
    assert_eq!(say(&mut home, 4, Body::End { number: 1 }), 4);
    assert!(home.board.page(PAGE).is_busy(), "the second update is still open");
    assert_eq!(say(&mut home, 5, Body::End { number: 2 }), 5);
    let free = home.board.page(PAGE);
    assert!(!free.is_busy() && free.generation() > busy.generation());
    assert_eq!(home.counts().open, 0);
}

#[test]
fn words_are_stored_before_anything_is_acknowledged() {
    let mut home = home();
    let stored = fill(&home);
    register(&mut home, stored).unwrap();
    let mut out = Vec::new();
    home.receive(frame(1, UPDATER, 2, vec![begin(1, on(&[10])), begin(2, Scope::Everything)]), at(0), &mut out);
    assert!(matches!(out.last(), Some(HomeAction::Acknowledge { .. })));
    let stored: BTreeMap<u64, u64> = out
        .iter()
        .filter_map(|action| match action {
            HomeAction::Store { offset, word } => Some((*offset, *word)),
            _ => None,
        })
        .collect();
    assert_eq!((stored.len(), out.len()), (4, 5), "page and its change word, everything, and the clock");
    assert_eq!(stored[&home.table().page_offset(PAGE)], home.board.page(PAGE).0);
    assert_eq!(stored[&PageTable::everything_offset()], home.board.common(Kind::Coherent).0);
    assert_eq!(stored[&PageTable::clock_offset()], home.board.clock());
    let image: BTreeMap<u64, u64> = home.words().collect();
    assert!(stored.iter().all(|(offset, word)| image[offset] == *word));
}

#[test]
fn messages_are_handled_once_and_without_gaps() {
    let mut home = home();
    assert_eq!(say(&mut home, 3, Body::End { number: 1 }), 1, "2 is missing");
    assert_eq!(say(&mut home, 2, begin(1, on(&[10]))), 2);
    let clock = home.counts().clock;
    assert_eq!(say(&mut home, 2, begin(1, on(&[10]))), 2);
    assert_eq!(home.counts().clock, clock, "said twice, done once");
    assert_eq!(say(&mut home, 3, Body::End { number: 1 }), 3);
    assert_eq!(say(&mut home, 2, begin(1, on(&[10]))), 3, "a late begin of what has ended");
    assert_eq!(home.counts().open, 0);
    let mut out = Vec::new();
    home.receive(
        frame(1, UPDATER, 3, vec![Body::End { number: 1 }, begin(2, on(&[1])), begin(3, on(&[1]))]),
        at(0),
        &mut out,
    );
    assert_eq!(home.counts().open, 2, "the known part of a frame is passed over");
}

#[test]
fn numbers_go_on_past_their_largest() {
    let mut home = home();
    assert_eq!(say(&mut home, u32::MAX / 2, sync(&[])), u32::MAX / 2);
    assert_eq!(say(&mut home, u32::MAX - 1, sync(&[])), u32::MAX - 1);
    assert_eq!(say(&mut home, u32::MAX, begin(1, on(&[10]))), u32::MAX);
    assert_eq!(say(&mut home, 0, begin(2, on(&[10]))), 0);
    assert_eq!(say(&mut home, u32::MAX, begin(3, on(&[10]))), 0);
    assert_eq!(home.counts().open, 2);
}

#[test]
fn a_sync_is_the_whole_truth_and_may_follow_a_gap() {
    let mut home = home();
    say(&mut home, 2, begin(1, Scope::Everything));
    say(&mut home, 3, begin(2, on(&[10])));
    let before = home.board.common(Kind::Coherent);
    assert_eq!(say(&mut home, 9, sync(&[2])), 9);
    let after = home.board.common(Kind::Coherent);
    assert!(!after.is_busy() && after.generation() > before.generation());
    assert_eq!(home.counts().open, 1);
}

#[test]
fn a_fill_that_raced_an_update_is_refused() {
    let mut home = home();
    let early = fill(&home);
    let stranger = Register { page: PageId(6), ..early.clone() };
    say(&mut home, 2, begin(1, on(&[10])));
    let during = fill(&home);
    assert_eq!(register(&mut home, stranger.clone()), Err(Refusal::DependencyBusy));
    say(&mut home, 3, Body::End { number: 1 });
    assert_eq!(register(&mut home, early), Err(Refusal::DependencyMoved));
    assert_eq!(register(&mut home, during), Err(Refusal::DependencyMoved), "it may have read before the commit");
    let late = fill(&home);
    assert!(register(&mut home, late).is_ok());
    assert_eq!(register(&mut home, stranger), Err(Refusal::DependencyMoved));
}

#[test]
fn a_page_without_dependencies_is_moved_by_any_update() {
    let mut home = home();
    let of_all = |home: &Home| Register { scope: Scope::Everything, ..fill(home) };
    let early = of_all(&home);
    assert_eq!(register(&mut home, early.clone()), Ok(early.word));
    say(&mut home, 2, begin(1, on(&[77])));
    assert_eq!(register(&mut home, early), Err(Refusal::DependencyBusy));
    let during = of_all(&home);
    say(&mut home, 3, Body::End { number: 1 });
    assert_eq!(register(&mut home, during), Err(Refusal::DependencyMoved));
}

#[test]
fn another_set_bumps_and_the_first_and_the_same_one_do_not() {
    let mut home = home();
    let first = fill(&home);
    let word = register(&mut home, first.clone()).unwrap();
    assert_eq!(word, first.word, "pages that share the word would be lost with it");
    let again = fill(&home);
    assert_eq!(register(&mut home, again), Ok(word));
    let other = Register { scope: on(&[10, 12]), ..fill(&home) };
    assert!(register(&mut home, other).unwrap().generation() > word.generation());
}

#[test]
fn one_page_is_purged_by_its_own_name() {
    let mut home = home();
    let stored = fill(&home);
    let word = register(&mut home, stored.clone()).unwrap();
    say(&mut home, 2, begin(1, Scope::of([PAGE.into()])));
    say(&mut home, 3, Body::End { number: 1 });
    assert_ne!(home.board.page(PAGE), word);
    let late = Register { word: home.board.page(PAGE), ..stored };
    assert_eq!(register(&mut home, late), Err(Refusal::DependencyMoved));
}

#[test]
fn a_page_that_is_dropped_is_bumped() {
    let mut home = home();
    let words: Vec<Word> = (0..5)
        .map(|page| {
            let mut page = Register { page: PageId(page), ..fill(&home) };
            page.word = home.board.page(page.page);
            register(&mut home, page).unwrap()
        })
        .collect();
    assert_eq!(home.counts().pages, 4);
    assert_ne!(home.board.page(PageId(0)), words[0]);
    assert_eq!(home.board.page(PageId(1)), words[1]);
}

#[test]
fn registrations_of_another_view_and_without_a_lease_are_refused() {
    let mut home = home();
    let stored = fill(&home);
    assert_eq!(register(&mut home, Register { view: ViewNumber(2), ..stored.clone() }), Err(Refusal::OtherView));
    let nobody = Incarnation::new(9, 9);
    assert_eq!(register(&mut home, Register { from: nobody, ..stored.clone() }), Err(Refusal::OtherView));
    home.lease(Lease { until: Time::ZERO, ..lease(1) });
    assert_eq!(register(&mut home, stored), Err(Refusal::NoLease));
}

#[test]
fn a_new_home_is_busy_until_everybody_has_spoken() {
    let mut home = Home::new(ME, NAMES, limits());
    let mut out = Vec::new();
    let dead = Incarnation::new(4, 1);
    home.view(&view(1, &[ME, UPDATER], &[dead]), at(0), &mut out);
    home.lease(lease(1));
    home.receive(frame(1, ME, 1, vec![sync(&[])]), at(0), &mut out);
    let through_two = Body::Sync { open: vec![1], through: 2 };
    home.receive(frame(1, UPDATER, 1, vec![through_two]), at(0), &mut out);
    assert_eq!(home.counts().awaiting, 2, "the sync's begin is still to come");
    home.receive(frame(1, UPDATER, 2, vec![begin(1, on(&[10]))]), at(0), &mut out);
    assert_eq!(home.counts().awaiting, 1);
    assert_eq!(home.next_deadline(), Some(at(2)), "the lease of the dead ends: its record counts");
    home.tick(at(2), &mut out);
    assert_eq!(out.last(), Some(&HomeAction::ReadRecord { of: dead, lease_is_over: true }));
    let due = home.next_deadline().unwrap();
    assert_eq!(due, at(32), "lease and longest transaction");
    home.tick(at(31), &mut out);
    assert!(home.board.common(Kind::Coherent).is_busy());
    home.tick(due, &mut out);
    assert!(!home.board.common(Kind::Coherent).is_busy());
    let stored = Register { from: UPDATER, ..fill(&home) };
    assert_eq!(register(&mut home, stored), Err(Refusal::DependencyBusy), "what is open is known");
}

#[test]
fn a_home_that_begins_with_nobody_who_updates_is_ready_at_once() {
    let mut home = Home::new(ME, NAMES, limits());
    let home_alone = Member { roles: Roles::of(Role::Home), ..view(1, &[ME], &[]).members()[0].clone() };
    let mut out = Vec::new();
    home.view(&Arc::new(View::new(ViewNumber(1), vec![home_alone], vec![]).unwrap()), at(0), &mut out);
    home.lease(lease(1));
    assert!(!home.board.common(Kind::Coherent).is_busy(), "nobody is there who could say the last word");
    home.view(&view(2, &[ME, UPDATER], &[]), at(1), &mut out);
    assert!(!home.board.common(Kind::Coherent).is_busy(), "an updater that joins later begins at this home too");
}

#[test]
fn the_dead_are_settled_in_time_and_not_before() {
    let mut home = home();
    let mut out = Vec::new();
    say(&mut home, 2, begin(1, Scope::Everything));
    let next = view(2, &[ME, OTHER], &[UPDATER]);
    home.view(&next, at(10), &mut out);
    home.receive(frame(1, UPDATER, 3, vec![Body::End { number: 1 }]), at(11), &mut out);
    assert!(home.board.common(Kind::Coherent).is_busy(), "the departed are not heard");
    home.tick(at(41), &mut out);
    assert!(home.board.common(Kind::Coherent).is_busy());
    let before = home.board.common(Kind::Coherent);
    home.tick(at(42), &mut out);
    let after = home.board.common(Kind::Coherent);
    assert!(!after.is_busy() && after.generation() > before.generation());
    assert_eq!(home.next_deadline(), None);
    assert_eq!(out.last(), Some(&HomeAction::Settled(UPDATER)));
    out.clear();
    home.view(&view(3, &[ME, OTHER], &[UPDATER]), at(50), &mut out);
    home.tick(at(500), &mut out);
    assert_eq!(out, [], "settled once");
}

#[test]
fn p6_who_left_at_rest_is_settled_at_once_and_the_others_in_time() {
    let mut home = Home::new(ME, NAMES, limits());
    let mut out = Vec::new();
    let [quiet, dead] = [2, 3].map(|start| Incarnation::new(4, start));
    let departed =
        |who: &Incarnation| Departed { incarnation: *who, since: VIEW, at_rest: *who == quiet, is_relay: false };
    let view = View::new(VIEW, view(1, &[ME], &[]).members().to_vec(), [quiet, dead].iter().map(departed).collect());
    home.view(&Arc::new(view.unwrap()), at(0), &mut out);
    home.lease(lease(1));
    let read = |lease_is_over| HomeAction::ReadRecord { of: dead, lease_is_over };
    assert_eq!(out, [read(false), HomeAction::Settled(quiet)]);
    home.receive(frame(1, ME, 1, vec![sync(&[])]), at(0), &mut out);
    assert!(home.board.common(Kind::Coherent).is_busy(), "the other is not settled");
    home.tick(at(31), &mut out);
    assert!(home.board.common(Kind::Coherent).is_busy());
    home.tick(at(32), &mut out);
    assert!(!home.board.common(Kind::Coherent).is_busy());
}

/// A home of view 2, which the updater has left with updates 1 and 2 open here.
fn left_with_two_open(out: &mut Vec<HomeAction>) -> Home {
    let mut home = home();
    say(&mut home, 2, begin(1, on(&[10])));
    say(&mut home, 3, begin(2, on(&[11])));
    home.view(&view(2, &[ME, OTHER], &[UPDATER]), at(10), out);
    home.lease(lease(2));
    assert_eq!(out.last(), Some(&HomeAction::ReadRecord { of: UPDATER, lease_is_over: false }));
    home
}

#[test]
fn p6_a_record_with_nothing_open_settles_the_dead() {
    let mut out = Vec::new();
    let mut home = left_with_two_open(&mut out);
    home.recorded(UPDATER, &[], &mut out);
    assert_eq!((home.counts().open, home.counts().leaving, home.next_deadline()), (0, 0, None));
    assert_eq!(out.last(), Some(&HomeAction::Settled(UPDATER)));
    out.clear();
    home.recorded(UPDATER, &[(1, on(&[10]))], &mut out);
    home.tick(at(500), &mut out);
    assert_eq!(out, [], "settled once");
}

#[test]
fn p6_what_the_record_of_the_dead_names_waits_and_nothing_else() {
    let mut out = Vec::new();
    let mut home = left_with_two_open(&mut out);
    home.recorded(UPDATER, &[(2, on(&[11])), (3, on(&[12]))], &mut out);
    let open: Vec<u64> = home.numbers_of(UPDATER).collect();
    assert_eq!(open, [2, 3], "1 is over, and of 3 this home had not heard");
    assert_eq!(home.next_deadline(), Some(at(42)), "as long as ever");
    assert!(!out.contains(&HomeAction::Settled(UPDATER)));
    home.tick(at(42), &mut out);
    assert_eq!((home.counts().open, home.counts().leaving), (0, 0));
}

#[test]
fn p6_a_new_home_knows_from_the_record_what_the_dead_have_open() {
    let mut home = Home::new(ME, NAMES, limits());
    let mut out = Vec::new();
    home.view(&view(1, &[ME, OTHER], &[UPDATER]), at(0), &mut out);
    home.lease(lease(1));
    for who in [ME, OTHER] {
        home.receive(frame(1, who, 1, vec![sync(&[])]), at(0), &mut out);
    }
    assert!(home.board.common(Kind::Coherent).is_busy());
    home.recorded(UPDATER, &[(1, on(&[10]))], &mut out);
    assert!(!home.board.common(Kind::Coherent).is_busy(), "the rest is cached again");
    let touched = fill(&home);
    assert_eq!(register(&mut home, touched), Err(Refusal::DependencyBusy));
    let other = Register { scope: on(&[50]), ..fill(&home) };
    assert!(register(&mut home, other).is_ok());
}

#[test]
fn p5_a_home_that_begins_after_a_departure_at_rest_is_ready_when_it_has_heard_the_members() {
    let mut home = Home::new(ME, NAMES, limits());
    let mut out = Vec::new();
    let quiet = Departed { incarnation: Incarnation::new(5, 7), since: VIEW, at_rest: true, is_relay: false };
    let view = View::new(VIEW, view(1, &[ME], &[]).members().to_vec(), vec![quiet]).unwrap();
    home.view(&Arc::new(view), at(0), &mut out);
    home.lease(lease(1));
    let before = home.board.common(Kind::Coherent);
    home.receive(frame(1, ME, 1, vec![sync(&[])]), at(0), &mut out);
    let after = home.board.common(Kind::Coherent);
    assert!(before.is_busy() && !after.is_busy() && after.generation() > before.generation(), "with a bump");
}

#[test]
fn a_view_is_heard_before_it_is_acknowledged_and_ends_the_older_stream() {
    let mut home = home();
    let mut out = Vec::new();
    say(&mut home, 2, begin(1, on(&[10])));
    home.receive(frame(2, UPDATER, 1, vec![sync(&[])]), at(0), &mut out);
    assert_eq!(home.counts().open, 1, "a view not learnt of");
    home.view(&view(2, &[ME, UPDATER, OTHER], &[]), at(0), &mut out);
    home.receive(frame(2, UPDATER, 1, vec![sync(&[1]), begin(1, on(&[10])), begin(2, on(&[11]))]), at(0), &mut out);
    assert_eq!(home.counts().open, 2);
    out.clear();
    home.receive(frame(1, UPDATER, 3, vec![Body::End { number: 1 }]), at(0), &mut out);
    assert_eq!((home.counts().open, out.len()), (2, 0));
}

#[test]
fn frames_under_another_key_are_not_heard() {
    let mut home = home();
    let mut out = Vec::new();
    let Message::Updates(mut updates) = frame(1, UPDATER, 2, vec![begin(1, on(&[1]))]) else {
        unreachable!("made above")
    };
    updates.names = NAMES + 1;
    home.receive(Message::Updates(updates), at(0), &mut out);
    assert!(out.is_empty());
}

#[test]
fn a_flood_of_dependencies_keeps_the_newest_sets_and_bumps_the_others() {
    const MOST: usize = 1000;
    let limits = HomeLimits { slots: 64, pages: 64, dependencies: MOST, ..limits() };
    let mut home = home_with(limits);
    let mut words = Vec::new();
    for page in 0..50 {
        let scope = Scope::of((0..100).map(|nth| Dependency(page * 100 + nth)));
        let filled = Register { page: PageId(page), scope, word: home.board.page(PageId(page)), ..fill(&home) };
        words.push(register(&mut home, filled).unwrap());
        assert!(home.counts().dependencies <= MOST, "{:?}", home.counts());
    }
    assert_eq!((home.counts().pages, home.counts().dependencies), (10, MOST));
    let stands = |page: usize| home.board.page(PageId(page as u64)) == words[page];
    assert!((0..40).all(|page| !stands(page)), "nobody would tell a dropped page's copies of an update");
    assert!((40..50).all(stands));
}

#[test]
fn too_many_dependencies_in_flight_are_everything() {
    let mut home = Home::new(ME, NAMES, HomeLimits { in_flight: 3, ..limits() });
    let mut out = Vec::new();
    home.view(&view(1, &[ME, UPDATER], &[]), at(0), &mut out);
    home.lease(lease(1));
    home.receive(frame(1, UPDATER, 1, vec![sync(&[]), begin(1, on(&[1, 2])), begin(2, on(&[3, 4]))]), at(0), &mut out);
    assert_eq!(home.counts().open_everything, 1);
    home.receive(frame(1, UPDATER, 4, vec![Body::End { number: 1 }, Body::End { number: 2 }]), at(0), &mut out);
    assert_eq!((home.counts().open, home.in_flight.len()), (0, 0));
}

fn register_on(home: &mut Home, page: PageId, dependency: u64) {
    let register = Register { page, word: home.board.page(page), scope: on(&[dependency]), ..fill(home) };
    self::register(home, register).unwrap();
}

/// The hard word and the change word of the first page word, and those of all, in the order in which they are read.
fn last_changes(home: &Home, page: PageId) -> [u64; 4] {
    let words: std::collections::BTreeMap<u64, u64> = home.words().collect();
    home.table().last_change_offsets(page).map(|offset| words[&offset])
}

fn changed(home: &mut Home, k: u32, number: u64, change: Change, scope: Scope) -> Vec<HomeAction> {
    let mut out = Vec::new();
    let bodies = vec![Body::Begin { number, change, scope }, Body::End { number }];
    home.receive(frame(1, UPDATER, k, bodies), at(0), &mut out);
    out
}

#[test]
fn h3_an_update_leaves_its_generation_before_it_is_acknowledged() {
    let mut home = home();
    let a = 7;
    register_on(&mut home, PAGE, a);
    let word = |home: &Home| home.board.page(PAGE).generation();
    let [hard, before, ..] = last_changes(&home, PAGE);
    changed(&mut home, 2, 1, Change::Soft, on(&[a]));
    assert_eq!(last_changes(&home, PAGE)[..2], [hard, before], "a soft purge leaves nothing");
    let next = word(&home) + 1;
    changed(&mut home, 4, 2, Change::Write, on(&[a]));
    assert_eq!(last_changes(&home, PAGE)[..2], [hard, next]);
    let next = word(&home) + 1;
    let out = changed(&mut home, 6, 3, Change::Hard, on(&[a]));
    assert_eq!(last_changes(&home, PAGE)[..2], [next, next]);
    let stored = home.table().last_change_offsets(PAGE)[0];
    let stored = out.iter().position(|action| *action == HomeAction::Store { offset: stored, word: next });
    let told = out.iter().position(|action| matches!(action, HomeAction::Acknowledge { .. }));
    assert!(stored.is_some() && stored < told, "{out:?}");
    let all = home.board.common(Kind::Standard).generation() + 1;
    changed(&mut home, 8, 4, Change::Hard, Scope::All);
    assert_eq!(last_changes(&home, PAGE), [next, next, all, all]);
}

#[test]
fn h3_another_set_and_a_set_that_is_dropped_count_as_hard_purges() {
    let mut home = home_with(HomeLimits { pages: 1, ..limits() });
    register_on(&mut home, PAGE, 7);
    register_on(&mut home, PAGE, 8);
    let word = home.board.page(PAGE).generation();
    assert_eq!(last_changes(&home, PAGE)[..2], [word, word], "a purge of 7 would not reach the copies of before");
    register_on(&mut home, PageId(PAGE.0 + 1), 8);
    let word = home.board.page(PAGE).generation();
    assert_eq!(last_changes(&home, PAGE)[..2], [word, word], "nor a purge of 8");
}
