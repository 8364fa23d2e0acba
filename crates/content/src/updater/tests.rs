use verbena_cluster::{Departed, Member, Roles};

use super::*;
use crate::names::Dependency;
use crate::wire::Updates;

const ME: Incarnation = Incarnation::new(1, 1);
const H2: Incarnation = Incarnation::new(2, 1);
const H3: Incarnation = Incarnation::new(3, 1);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn lease(view: u32) -> Lease {
    Lease { until: at(1000), acknowledged: ViewNumber(view), in_effect: ViewNumber(view) }
}

/// A view of `me`, these homes, and who departed in it.
fn view(number: u32, me: Incarnation, homes: &[Incarnation], departed: &[Incarnation]) -> View {
    let number = ViewNumber(number);
    let member = |&incarnation: &Incarnation| {
        let roles = if incarnation == me { Roles::of(Role::Reader).and(Role::Updater) } else { Roles::of(Role::Home) };
        Member { incarnation, name: String::new(), address: String::new(), roles }
    };
    let departed = departed
        .iter()
        .map(|&incarnation| Departed { incarnation, since: number, at_rest: false, is_relay: false })
        .collect();
    View::new(number, std::iter::once(&me).chain(homes).map(member).collect(), departed).unwrap()
}

fn homes(number: u32, homes: &[Incarnation]) -> View {
    view(number, ME, homes, &[])
}

fn word(view: u32, k: u32) -> u64 {
    Acknowledged { view: ViewNumber(view), k }.to_word()
}

fn scope() -> Scope {
    Scope::of([Dependency(7)])
}

struct Bench {
    updater: Updater,
    out: Vec<UpdaterAction>,
}

impl Bench {
    /// In view 1 with homes 2 (word 0) and 3 (word 1), synced and prepared.
    fn new() -> Self {
        let mut bench = Bench { updater: Updater::new(ME, 42, UpdaterLimits::default()), out: Vec::new() };
        bench.updater.view(&homes(1, &[H2, H3]), at(0), &mut bench.out);
        bench.updater.lease(lease(1), at(0), &mut bench.out);
        bench.acknowledge(1, 1);
        assert_eq!(bench.decisions(), [UpdaterAction::Prepared(ViewNumber(1))]);
        bench
    }

    fn acknowledge(&mut self, view: u32, k: u32) {
        self.updater.acknowledged(0, word(view, k), at(1), &mut self.out);
        self.updater.acknowledged(1, word(view, k), at(1), &mut self.out);
    }

    fn begin(&mut self) -> UpdateId {
        self.updater.begin(scope(), at(1), &mut self.out).unwrap()
    }

    fn forwarded(&mut self) -> UpdateId {
        let id = self.begin();
        self.acknowledge(1, 2);
        assert_eq!(self.decisions(), [UpdaterAction::Forward(id)]);
        id
    }

    fn finish(&mut self, id: UpdateId, outcome: Outcome, now: Time) {
        self.updater.finished(id, outcome, now, &mut self.out);
    }

    /// What was said to one home since the last look.
    fn said_to(&self, home: Incarnation) -> Vec<Updates> {
        let to_home = |action: &UpdaterAction| match action {
            UpdaterAction::Send(Message::Updates(updates)) if updates.to == home => Some(updates.clone()),
            _ => None,
        };
        self.out.iter().filter_map(to_home).collect()
    }

    fn decisions(&mut self) -> Vec<UpdaterAction> {
        let is_said = |a: &UpdaterAction| {
            matches!(a, UpdaterAction::Send(_) | UpdaterAction::Opened { .. } | UpdaterAction::Ended(_))
        };
        std::mem::take(&mut self.out).into_iter().filter(|a| !is_said(a)).collect()
    }
}

#[test]
fn an_update_waits_for_every_home() {
    let mut bench = Bench::new();
    let id = bench.begin();
    assert_eq!(bench.said_to(H3).len(), 1);
    bench.updater.acknowledged(0, word(1, 2), at(1), &mut bench.out);
    assert_eq!(bench.decisions(), []);
    bench.updater.acknowledged(1, word(1, 2), at(1), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)]);
    bench.finish(id, Outcome::Answered, at(2));
    assert_eq!(bench.said_to(H2)[0].bodies, [Body::End { number: 1 }]);
    assert_eq!(bench.decisions(), [UpdaterAction::Answer(id)]);
    assert_eq!(bench.updater.counts(), UpdaterCounts::default());
}

#[test]
fn nothing_is_forwarded_without_lease_or_before_the_view_is_in_effect() {
    let mut bench = Bench::new();
    bench.updater.lease(Lease { in_effect: ViewNumber(0), ..lease(1) }, at(1), &mut bench.out);
    let id = bench.begin();
    bench.acknowledge(1, 2);
    bench.updater.lease(Lease { until: at(1), ..lease(1) }, at(1), &mut bench.out);
    assert_eq!(bench.decisions(), []);
    bench.updater.lease(lease(1), at(2), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)]);
}

#[test]
fn late_and_repeated_words_are_no_news() {
    let mut bench = Bench::new();
    let id = bench.begin();
    for stale in [word(0, 2), word(2, 2), word(1, 1), word(1, 3), word(1, 0)] {
        bench.updater.acknowledged(0, stale, at(1), &mut bench.out);
        bench.updater.acknowledged(1, stale, at(1), &mut bench.out);
    }
    assert_eq!(bench.decisions(), []);
    bench.acknowledge(1, 2);
    bench.acknowledge(1, 1);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)]);
}

#[test]
fn what_is_not_acknowledged_is_said_again_ends_too() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    bench.finish(id, Outcome::Answered, at(2));
    bench.out.clear();
    assert_eq!(bench.updater.next_deadline(), Some(at(22)));
    bench.updater.tick(at(21), &mut bench.out);
    assert_eq!(bench.said_to(H2), []);
    bench.updater.tick(at(22), &mut bench.out);
    let said = bench.said_to(H2);
    assert_eq!((said[0].first, &said[0].bodies[..]), (3, &[Body::End { number: 1 }][..]));
    bench.acknowledge(1, 3);
    assert_eq!(bench.updater.next_deadline(), None);
}

#[test]
fn an_update_that_cannot_begin_is_aborted_everywhere() {
    let mut bench = Bench::new();
    let id = bench.begin();
    bench.updater.acknowledged(0, word(1, 2), at(1), &mut bench.out);
    bench.updater.tick(at(2001), &mut bench.out);
    let last = |home| bench.said_to(home).last().unwrap().bodies.last().cloned();
    assert_eq!(last(H2), Some(Body::Void { number: 1 }));
    assert_eq!(last(H3), Some(Body::Void { number: 1 }));
    assert_eq!(bench.decisions(), [UpdaterAction::Abort(id)]);
}

#[test]
fn what_was_refused_is_answered_at_once_and_void_everywhere() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    // The lease is lost meanwhile: that matters to what was written alone.
    bench.updater.lease(Lease::NONE, at(1), &mut bench.out);
    bench.finish(id, Outcome::Refused, at(2));
    for home in [H2, H3] {
        assert_eq!(bench.said_to(home).last().unwrap().bodies.last(), Some(&Body::Void { number: 1 }));
    }
    assert_eq!(bench.decisions().last(), Some(&UpdaterAction::Answer(id)));
    assert_eq!(bench.updater.counts(), UpdaterCounts::default());
}

#[test]
fn no_more_are_open_than_may() {
    let mut bench = Bench::new();
    bench.updater.limits.open = 2;
    bench.begin();
    let id = bench.begin();
    assert_eq!(bench.updater.begin(scope(), at(1), &mut bench.out), Err(BeginError::Full { open: 2 }));
    bench.acknowledge(1, 3);
    bench.finish(id, Outcome::NotSent, at(2));
    assert!(bench.updater.begin(scope(), at(2), &mut bench.out).is_ok());
}

#[test]
fn an_unknown_outcome_stays_open_for_the_longest_transaction() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    bench.finish(id, Outcome::Unknown, at(2));
    bench.updater.tick(at(30_001), &mut bench.out);
    assert_eq!(bench.updater.counts().unknown, 1);
    bench.out.clear();
    bench.updater.tick(at(30_002), &mut bench.out);
    assert!(bench.said_to(H2)[0].bodies.contains(&Body::End { number: 1 }));
    assert_eq!(bench.updater.counts().unknown, 0);
}

#[test]
fn p6_who_is_closed_begins_nothing_and_is_at_rest_when_every_home_has_the_last_end() {
    let mut bench = Bench::new();
    let rest = |bench: &Bench| (bench.updater.is_drained(), bench.updater.is_at_rest());
    let id = bench.begin();
    bench.updater.close();
    assert_eq!(bench.updater.begin(scope(), at(1), &mut bench.out), Err(BeginError::Leaving));
    assert_eq!(rest(&bench), (false, false), "it waits for homes");
    bench.acknowledge(1, 2);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)], "what had begun goes on");
    assert_eq!(rest(&bench), (false, false), "it is at the application");
    bench.finish(id, Outcome::Answered, at(2));
    bench.updater.acknowledged(0, word(1, 3), at(2), &mut bench.out);
    assert_eq!(rest(&bench), (false, false), "one of two homes has not heard of its end");
    bench.acknowledge(1, 3);
    assert_eq!(rest(&bench), (true, true));
    bench.updater.rejoined(Incarnation { start: ME.start + 1, ..ME });
    assert_eq!(bench.updater.begin(scope(), at(3), &mut bench.out), Err(BeginError::Leaving), "in no incarnation");
    assert_eq!(rest(&bench), (true, true));
}

#[test]
fn p6_an_unknown_outcome_is_not_waited_for_and_is_no_rest() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    assert!(!bench.updater.is_drained(), "not closed");
    bench.updater.close();
    bench.finish(id, Outcome::Unknown, at(2));
    assert_eq!((bench.updater.is_drained(), bench.updater.is_at_rest()), (true, false));
    bench.updater.tick(at(30_002), &mut bench.out);
    assert!(!bench.updater.is_at_rest(), "the homes hold it");
    bench.acknowledge(1, 3);
    assert!(bench.updater.is_at_rest());
}

#[test]
fn a_new_view_is_prepared_when_its_homes_know_what_is_open() {
    let mut bench = Bench::new();
    let open = bench.forwarded();
    let waiting = bench.begin();
    bench.out.clear();
    let h4 = Incarnation::new(4, 1);
    bench.updater.view(&homes(2, &[H2, h4]), at(3), &mut bench.out);
    let begins = [1, 2].map(|number| Body::Begin { number, change: Change::Write, scope: scope() });
    let sync = Body::Sync { open: vec![1, 2], through: 3 };
    assert_eq!(bench.said_to(h4)[0].bodies, [vec![sync], begins.to_vec()].concat());
    assert_eq!(bench.said_to(h4)[0].word, 1, "the word of the home that left");
    bench.acknowledge(1, 9);
    bench.acknowledge(2, 2);
    assert_eq!(bench.decisions(), [], "words of another view, and not all of the open set");
    bench.acknowledge(2, 3);
    assert_eq!(bench.decisions(), [UpdaterAction::Prepared(ViewNumber(2))]);
    bench.updater.lease(lease(2), at(4), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(waiting)]);
    assert_eq!(bench.updater.counts().forwarded, 2);
    let _ = open;
}

#[test]
fn a_home_out_of_lease_does_not_hold_up_a_view() {
    let mut bench = Bench::new();
    bench.updater.view(&homes(2, &[H2, H3]), at(3), &mut bench.out);
    bench.updater.acknowledged(0, word(2, 1), at(3), &mut bench.out);
    assert_eq!(bench.decisions(), []);
    bench.updater.gone(H3, at(3), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Prepared(ViewNumber(2))]);
    let id = bench.begin();
    bench.updater.lease(lease(2), at(4), &mut bench.out);
    bench.updater.acknowledged(0, word(2, 2), at(4), &mut bench.out);
    assert_eq!(bench.decisions(), [], "an update waits for it all the same");
    bench.updater.acknowledged(1, word(2, 2), at(4), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)]);
}

#[test]
fn a_changed_view_is_confirmed_before_the_client_is_answered() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    bench.updater.view(&homes(2, &[H2, H3]), at(3), &mut bench.out);
    bench.acknowledge(2, 2);
    bench.updater.lease(lease(2), at(4), &mut bench.out);
    bench.decisions();
    bench.finish(id, Outcome::Answered, at(5));
    let said: Vec<Body> = bench.said_to(H2).into_iter().flat_map(|frame| frame.bodies).collect();
    assert_eq!(said, [Body::Begin { number: 2, change: Change::Write, scope: scope() }, Body::End { number: 1 }]);
    assert_eq!(bench.decisions(), []);
    bench.acknowledge(2, 3);
    assert_eq!(bench.decisions(), [UpdaterAction::Answer(id)]);
}

#[test]
fn a_lease_that_ran_out_in_between_is_confirmed_and_a_client_not_kept_for_ever() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    bench.updater.lease(Lease { until: at(3000), ..lease(1) }, at(1000), &mut bench.out);
    bench.finish(id, Outcome::Answered, at(1001));
    assert_eq!(bench.decisions(), []);
    bench.updater.tick(at(3001), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Close(id)]);
    assert_eq!(bench.updater.counts().confirming, 1, "homes must hear of it all the same");
    bench.updater.lease(Lease { until: at(9000), ..lease(1) }, at(3002), &mut bench.out);
    bench.updater.acknowledged(0, word(1, 4), at(3003), &mut bench.out);
    bench.updater.acknowledged(1, word(1, 4), at(3003), &mut bench.out);
    assert_eq!(bench.decisions(), [], "its client is gone");
    assert_eq!(bench.updater.counts(), UpdaterCounts::default());
}

#[test]
fn what_was_forwarded_stays_open_in_the_next_life() {
    let mut bench = Bench::new();
    let id = bench.forwarded();
    let me = Incarnation::new(1, 2);
    bench.updater.rejoined(me);
    bench.finish(id, Outcome::Answered, at(5));
    assert_eq!(bench.decisions(), []);
    bench.updater.view(&view(3, me, &[H2], &[ME]), at(6), &mut bench.out);
    let said = bench.said_to(H2);
    assert_eq!((said[0].from, said[0].bodies.len()), (me, 2));
    bench.updater.lease(lease(3), at(7), &mut bench.out);
    bench.updater.acknowledged(0, word(3, 2), at(7), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Prepared(ViewNumber(3)), UpdaterAction::Answer(id)]);
}

#[test]
fn a_home_that_never_answers_costs_a_bounded_queue() {
    let mut bench = Bench::new();
    for _ in 0..5000 {
        let id = bench.begin();
        bench.updater.acknowledged(0, word(1, 2), at(1), &mut bench.out);
        bench.updater.tick(at(2001), &mut bench.out);
        assert!(bench.updater.counts().beginning <= 1, "{id:?}");
        bench.out.clear();
    }
    bench.updater.tick(at(9000), &mut bench.out);
    let bodies: usize = bench.said_to(H3).iter().map(|frame| frame.bodies.len()).sum();
    assert!(bodies <= 4100, "{bodies} messages wait");
    let first = &bench.said_to(H3)[0];
    assert!(matches!(first.bodies[0], Body::Sync { .. }) && first.first > 2);
    assert!(bench.said_to(H3).iter().all(|frame| Message::Updates(frame.clone()).encode().len() <= 16 * 1024 + 100));
}

#[test]
fn a_reconnected_home_is_told_the_whole_open_set() {
    let mut bench = Bench::new();
    let id = bench.begin();
    bench.out.clear();
    bench.updater.reconnected(H2, at(2), &mut bench.out);
    assert_eq!(bench.said_to(H2)[0].first, 3);
    assert_eq!(bench.said_to(H2)[0].bodies[0], Body::Sync { open: vec![1], through: 4 });
    bench.updater.acknowledged(1, word(1, 2), at(2), &mut bench.out);
    bench.updater.acknowledged(0, word(1, 2), at(2), &mut bench.out);
    assert_eq!(bench.decisions(), [], "the begin that counts is the sync's");
    bench.updater.acknowledged(0, word(1, 4), at(2), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Forward(id)]);
}

#[test]
fn a_node_that_leaves_has_nothing_to_prepare_and_forwards_nothing_more() {
    let mut bench = Bench::new();
    let id = bench.begin();
    bench.updater.view(&view(2, Incarnation::new(1, 2), &[H2, H3], &[ME]), at(3), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Prepared(ViewNumber(2))]);
    bench.acknowledge(1, 2);
    bench.acknowledge(2, 2);
    bench.updater.tick(at(2001), &mut bench.out);
    assert_eq!(bench.decisions(), [UpdaterAction::Abort(id)]);
}

#[test]
fn what_is_lost_is_said_again_however_much_is_said_after_it() {
    let mut bench = Bench::new();
    for millis in 2..40 {
        bench.updater.begin(scope(), at(millis), &mut bench.out).unwrap();
        bench.updater.tick(at(millis), &mut bench.out);
    }
    let firsts = |bench: &Bench| bench.said_to(H2).iter().filter(|updates| updates.first == 2).count();
    assert_eq!(firsts(&bench), 2, "once, and once more after 20 ms");
    // While the home goes on nothing is lost.
    for millis in 40..80 {
        bench.updater.acknowledged(0, word(1, millis as u32 - 35), at(millis), &mut bench.out);
        bench.updater.begin(scope(), at(millis), &mut bench.out).unwrap();
        bench.updater.tick(at(millis), &mut bench.out);
    }
    assert!(bench.said_to(H2).iter().skip(40).all(|updates| updates.bodies.len() == 1));
}

#[test]
fn homes_that_let_updates_wait_are_known() {
    let mut bench = Bench::new();
    let long = Duration::from_secs(1);
    let late = |bench: &Bench, millis| bench.updater.late_homes(long, at(millis));
    let id = bench.begin();
    bench.begin();
    assert_eq!(late(&bench, 1000), []);
    assert_eq!(late(&bench, 1001), [(H2, 2), (H3, 2)]);
    bench.updater.acknowledged(0, word(1, 3), at(2), &mut bench.out);
    bench.updater.acknowledged(1, word(1, 2), at(2), &mut bench.out);
    assert_eq!(late(&bench, 1001), [(H3, 1)], "the first is forwarded, and waits for nobody");
    bench.acknowledge(1, 3);
    assert_eq!(late(&bench, 1001), []);
    // Confirmed in the next view, and still so when its client waits no longer.
    bench.updater.view(&homes(2, &[H2]), at(100), &mut bench.out);
    bench.updater.lease(lease(2), at(100), &mut bench.out);
    bench.finish(id, Outcome::Answered, at(101));
    assert_eq!(late(&bench, 1100), []);
    assert_eq!(late(&bench, 1101), [(H2, 1)]);
    bench.updater.tick(at(5000), &mut bench.out);
    assert_eq!(late(&bench, 5000), [(H2, 1)]);
}
