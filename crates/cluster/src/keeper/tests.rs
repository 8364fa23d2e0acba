//! The keeper as a dialogue: what it receives, at which millisecond, and what it answers.

mod appointed;
mod partings;

use super::*;
use crate::testing::member;
use crate::{ClusterConfig, Configured, Departed, MAX_DEPARTED, Parting, Role, Roles};

const MS: u64 = 1_000_000;
/// When a lease that is granted at 0 is over for the keeper: 2000 + 20.
const OVER: u64 = 2020;

struct Desk {
    keeper: Keeper,
    at: u64,
    /// What each member last received about departures. Nothing depends on it: it is no part of the dialogue.
    explained: Vec<(Incarnation, Vec<(Incarnation, Parting)>)>,
}

fn membership(size: u32) -> Membership {
    let configured = |rank| Configured { name: format!("n{rank}"), address: "a".into(), roles: Roles::ALL };
    let members = (1..=size).map(configured).collect();
    Membership::new(&ClusterConfig { members, name: Some("n1".into()), ..ClusterConfig::default() }).unwrap()
}

fn time(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn short(action: &KeeperAction) -> String {
    let list = |who: &[Incarnation]| who.iter().map(Incarnation::to_string).collect::<Vec<_>>().join(",");
    let names = |view: &View| {
        let members: Vec<_> = view.members().iter().map(|member| member.incarnation).collect();
        let departed: Vec<_> = view.unsettled().collect();
        let rest: Vec<_> = view.departed().iter().filter(|gone| gone.at_rest).map(|gone| gone.incarnation).collect();
        let rest = if rest.is_empty() { String::new() } else { format!("; at rest {}", list(&rest)) };
        format!("{}[{}|{}{rest}]", view.number(), list(&members), list(&departed))
    };
    match action {
        KeeperAction::Persist(record) => {
            let view = record.view.as_ref().map(names).unwrap_or_default();
            let out = if record.out.is_empty() { String::new() } else { format!(" out {}", list(&record.out)) };
            format!("persist {view}{out}")
        }
        KeeperAction::Resign => "resign".into(),
        KeeperAction::Send(Message { to, body, .. }) => match body {
            Body::Grant(_) => format!("{to} grant"),
            Body::Propose(view) => format!("{to} {}", names(view)),
            Body::Stand(standing) => {
                let effect = if standing.in_effect { " in effect" } else { "" };
                let out = if standing.out.is_empty() { String::new() } else { format!(" out {}", list(&standing.out)) };
                format!("{to} {}{effect}{out}", standing.view)
            }
            Body::Refuse(refusal) => format!("{to} {refusal:?}"),
            other => panic!("a keeper says {other:?}"),
        },
    }
}

impl Desk {
    fn of(size: u32) -> Self {
        Desk::after(size, None, 0)
    }

    fn after(size: u32, record: Option<KeeperRecord>, at: u64) -> Self {
        let identity = Incarnation::new(1, 1);
        Desk {
            keeper: Keeper::start(membership(size), identity, record, EarlierLife::MayRun, time(at)),
            at,
            explained: vec![],
        }
    }

    fn hears(&mut self, event: KeeperEvent) -> Vec<String> {
        let mut said = self.keeper.handle(time(self.at), event);
        let explained =
            said.extract_if(.., |action| matches!(action, KeeperAction::Send(Message { body: Body::Explain(_), .. })));
        let explained: Vec<_> = explained
            .filter_map(|action| match action {
                KeeperAction::Send(Message { to, body: Body::Explain(dropped), .. }) => Some((to, dropped)),
                _ => None,
            })
            .collect();
        if !explained.is_empty() {
            self.explained = explained;
        }
        said.iter().map(short).collect()
    }

    fn told(&mut self, from: (u32, u32), view: u32, body: Body) -> Vec<String> {
        let from = Incarnation::new(from.0, from.1);
        let to = Incarnation::new(1, 0);
        let message = Message { from, to, view: ViewNumber(view), request: 1, body };
        self.hears(KeeperEvent::Message(message))
    }

    fn join(&mut self, rank: u32, start: u32) -> Vec<String> {
        self.told((rank, start), 0, Body::Join { member: member(rank, start), renewal: renewal(0, 0) })
    }

    /// `who` renews, having acknowledged `view` and heard everything.
    fn renew(&mut self, who: (u32, u32), view: u32) -> Vec<String> {
        self.told(who, view, Body::Renew(renewal(view, self.at + 1)))
    }

    fn acknowledge(&mut self, who: (u32, u32), view: u32) -> Vec<String> {
        self.told(who, view, Body::Acknowledge(ViewNumber(view)))
    }

    fn all_acknowledge(&mut self, all: &[(u32, u32)], view: u32) {
        all.iter().for_each(|who| drop(self.acknowledge(*who, view)));
    }

    fn tick(&mut self, at: u64) -> Vec<String> {
        // In naps, so that the keeper does not take itself for having been stopped.
        while self.at + 250 < at {
            self.at += 250;
            assert_eq!(self.hears(KeeperEvent::Tick), [""; 0], "at {} ms", self.at);
        }
        self.at = at;
        self.hears(KeeperEvent::Tick)
    }

    /// Members 1.1 to `size`.1 are in and view 1 is in effect, at 0 ms.
    fn running(size: u32) -> Self {
        let mut desk = Desk::of(size);
        (1..=size).for_each(|rank| drop(desk.join(rank, 1)));
        desk.hears(KeeperEvent::Persisted);
        (1..=size).for_each(|rank| drop(desk.acknowledge((rank, 1), 1)));
        assert_eq!(desk.keeper.in_effect(), Some(ViewNumber(1)));
        desk
    }
}

fn renewal(acknowledged: u32, heard: u64) -> Renewal {
    Renewal { terms: LeaseTerms::DEFAULT, heard, acknowledged: ViewNumber(acknowledged), settled: vec![] }
}

#[test]
fn who_joins_is_let_in_by_a_durable_view() {
    let mut desk = Desk::of(2);
    assert_eq!(desk.join(1, 1), ["1.1 grant"]);
    assert_eq!(desk.join(2, 1), ["2.1 grant", "persist v1[1.1,2.1|]"]);
    assert_eq!(desk.keeper.view(), None, "a view exists when it is durable (C3)");
    assert_eq!(desk.hears(KeeperEvent::Persisted), ["1.1 v1[1.1,2.1|]", "2.1 v1[1.1,2.1|]"]);
    assert_eq!(desk.acknowledge((1, 1), 1), [""; 0]);
    assert_eq!(desk.acknowledge((2, 1), 1), ["1.1 v1 in effect", "2.1 v1 in effect"]);
}

#[test]
fn ten_that_start_together_make_one_view() {
    let mut desk = Desk::of(10);
    for rank in 2..=10 {
        assert_eq!(desk.join(rank, 1).len(), 1, "a grant and no view yet");
        desk.at += 4;
    }
    let said = desk.join(1, 1);
    assert_eq!(said, ["1.1 grant", "persist v1[1.1,2.1,3.1,4.1,5.1,6.1,7.1,8.1,9.1,10.1|]"]);
}

#[test]
fn some_of_ten_are_waited_for_a_little() {
    let mut desk = Desk::of(10);
    desk.join(3, 1);
    desk.at = 20;
    desk.join(4, 1);
    assert_eq!(desk.keeper.wake_at(), time(50));
    assert_eq!(desk.tick(49), [""; 0]);
    assert_eq!(desk.tick(50), ["persist v1[3.1,4.1|]"]);
}

#[test]
fn c1_strangers_and_used_starts_are_refused() {
    let mut desk = Desk::running(2);
    assert_eq!(desk.join(3, 1), ["3.1 UnknownRank(Rank(3))"]);
    let misnamed = Member { name: "x".into(), ..member(2, 2) };
    let said = desk.told((2, 2), 0, Body::Join { member: misnamed, renewal: renewal(0, 0) });
    assert_eq!(said, ["2.2 Name { rank: Rank(2), expected: \"n2\", found: \"x\" }"]);
    let twin = Member { address: "elsewhere".into(), ..member(2, 1) };
    let said = desk.told((2, 1), 0, Body::Join { member: twin, renewal: renewal(0, 0) });
    assert_eq!(said[0], "2.1 StartUsed { known: 1 }", "two processes with one start number are two lives");
    let terms = LeaseTerms::new(1000, 20).unwrap();
    let said = desk.told((2, 2), 0, Body::Renew(Renewal { terms, ..renewal(1, 1) }));
    assert_eq!(said, [format!("2.2 Terms({:?})", LeaseTerms::DEFAULT)]);
}

#[test]
fn c1_a_start_that_was_a_member_is_never_one_again() {
    let mut desk = Desk::running(2);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(at);
        desk.renew((1, 1), 1);
    }
    desk.tick(OVER + 50);
    desk.tick(OVER + 100);
    assert_eq!(desk.hears(KeeperEvent::Persisted), ["1.1 v2[1.1|2.1]"]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 Expelled"]);
    assert_eq!(desk.join(2, 1), ["2.1 StartUsed { known: 1 }"]);
    assert_eq!(desk.join(2, 2), ["2.2 grant"]);
}

#[test]
fn c1_a_later_life_waits_for_the_lease_of_the_earlier() {
    let mut desk = Desk::running(2);
    desk.tick(600);
    desk.renew((2, 1), 1);
    desk.tick(700);
    assert_eq!(desk.join(2, 2), ["2.2 grant"]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 Superseded(Incarnation { rank: Rank(2), start: 2 })"]);
    for at in [1000, 1500, 2000, 2500, 600 + OVER - 1] {
        desk.tick(at);
        assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
        assert_eq!(desk.told((2, 2), 0, Body::Join { member: member(2, 2), renewal: renewal(0, at) }), ["2.2 grant"]);
    }
    assert_eq!(desk.tick(600 + OVER), ["persist v2[1.1,2.2|2.1]"]);
}

#[test]
fn c2_silence_is_no_end_before_a_full_lease() {
    let mut desk = Desk::running(2);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(at);
        desk.renew((1, 1), 1);
    }
    assert_eq!(desk.tick(OVER - 1), [""; 0]);
    assert_eq!(desk.tick(OVER), [""; 0], "lapsed, and more may come");
    assert_eq!(desk.tick(OVER + 50), ["persist v2[1.1|2.1]"]);
}

#[test]
fn c2_a_renewal_that_comes_before_anybody_was_told_is_in_time() {
    let mut desk = Desk::running(2);
    for at in [500, 1000, 1500, 2000, OVER] {
        desk.tick(at);
        desk.renew((1, 1), 1);
    }
    assert_eq!(desk.renew((2, 1), 1), ["2.1 grant"]);
    assert_eq!(desk.tick(OVER + 100), [""; 0]);
}

#[test]
fn c2_nobody_is_renewed_who_does_not_acknowledge() {
    let mut desk = Desk::of(2);
    desk.join(1, 1);
    desk.join(2, 1);
    desk.at = 10;
    desk.hears(KeeperEvent::Persisted);
    desk.acknowledge((1, 1), 1);
    for at in [500, 1000, 1500, 2009] {
        desk.tick(at);
        assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
        assert_eq!(desk.told((2, 1), 1, Body::Renew(renewal(0, at))), ["2.1 grant"]);
    }
    desk.tick(2010);
    assert_eq!(desk.told((2, 1), 1, Body::Renew(renewal(0, 2010))), ["2.1 Unacknowledged(ViewNumber(1))"]);
    for at in [2500, 3000, 3500, 4000] {
        desk.tick(at);
        assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
    }
    assert_eq!(desk.tick(2009 + OVER), ["persist v1[1.1,2.1|] out 2.1"]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 Expelled"], "from then on it is too late");
    let said = desk.hears(KeeperEvent::Persisted);
    assert_eq!(said[..2], ["1.1 v1 out 2.1", "2.1 v1 out 2.1"], "durable, and then told");
    assert_eq!(said[2..], ["1.1 v1 in effect out 2.1", "2.1 v1 in effect out 2.1"]);
}

#[test]
fn c2_nobody_is_renewed_who_does_not_hear() {
    let mut desk = Desk::running(1);
    for at in (500..OVER).step_by(500) {
        desk.tick(at);
        assert_eq!(desk.told((1, 1), 1, Body::Renew(renewal(1, 0))), ["1.1 grant"]);
    }
    desk.tick(OVER);
    assert_eq!(desk.told((1, 1), 1, Body::Renew(renewal(1, 0))), [""; 0]);
    desk.tick(3500);
    assert_eq!(desk.tick(2000 + OVER), [""; 0]);
    assert_eq!(desk.tick(2000 + OVER + 50), ["persist v2[|1.1]"]);
}

#[test]
fn c3_an_acknowledgement_stands_for_no_other_view() {
    let mut desk = Desk::running(2);
    desk.join(2, 2);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(at);
        desk.renew((1, 1), 1);
        desk.told((2, 2), 0, Body::Join { member: member(2, 2), renewal: renewal(0, at) });
    }
    assert_eq!(desk.tick(OVER), ["persist v2[1.1,2.2|2.1]"]);
    assert_eq!(desk.acknowledge((1, 1), 1), [""; 0], "the view that is on the way to the disc is not there yet");
    desk.hears(KeeperEvent::Persisted);
    desk.acknowledge((2, 2), 2);
    assert_eq!(desk.acknowledge((1, 1), 1), ["1.1 v2[1.1,2.2|2.1]"], "an earlier one");
    assert_eq!(desk.acknowledge((1, 1), 3), ["1.1 KeeperBehind(ViewNumber(2))"], "a later one");
    assert_eq!(desk.renew((1, 1), 1), ["1.1 grant", "1.1 v2[1.1,2.2|2.1]"]);
    assert_eq!(desk.keeper.in_effect(), None);
    assert_eq!(desk.acknowledge((1, 1), 2)[0], "1.1 v2 in effect");
}

#[test]
fn c3_the_departed_stay_on_record_until_every_home_has_settled_them() {
    let mut desk = Desk::running(3);
    let settled = |desk: &mut Desk, who, view, gone: &[Incarnation]| {
        desk.told(who, view, Body::Renew(Renewal { settled: gone.to_vec(), ..renewal(view, desk.at + 1) }))
    };
    desk.told((3, 1), 1, Body::Leave { at_rest: false });
    assert_eq!(desk.tick(50), ["persist v2[1.1,2.1|3.1]"]);
    desk.hears(KeeperEvent::Persisted);
    desk.all_acknowledge(&[(1, 1), (2, 1), (3, 1)], 2);
    let gone = [Incarnation::new(3, 1)];
    settled(&mut desk, (1, 1), 2, &gone);
    desk.join(3, 2);
    let record = desk.keeper.making.as_ref().and_then(|record| record.view.clone()).unwrap();
    assert!(record.has_departed(gone[0]), "one of two homes has not settled it");
    desk.hears(KeeperEvent::Persisted);
    desk.all_acknowledge(&[(1, 1), (2, 1), (3, 2)], 3);
    assert_eq!(desk.keeper.in_effect(), Some(ViewNumber(3)));
    for who in [(1, 1), (2, 1), (3, 2)] {
        settled(&mut desk, who, 3, &gone);
    }
    desk.told((3, 2), 3, Body::Leave { at_rest: false });
    assert_eq!(desk.tick(100), ["persist v4[1.1,2.1|3.2]"]);
}

#[test]
fn c3_who_left_at_rest_is_off_the_record_with_the_next_view() {
    let mut desk = Desk::running(3);
    desk.told((3, 1), 1, Body::Leave { at_rest: true });
    desk.told((2, 1), 1, Body::Leave { at_rest: false });
    assert_eq!(desk.tick(50), ["persist v2[1.1|2.1; at rest 3.1]"]);
    desk.hears(KeeperEvent::Persisted);
    desk.all_acknowledge(&[(1, 1), (2, 1)], 2);
    assert_eq!(desk.keeper.in_effect(), None, "3.1 may hold a lease, at rest or not");
    desk.acknowledge((3, 1), 2);
    assert_eq!(desk.keeper.in_effect(), Some(ViewNumber(2)));
    desk.join(3, 2);
    assert_eq!(desk.tick(100), ["persist v3[1.1,3.2|2.1]"], "no home has said anything of either");
}

#[test]
fn c3_a_keeper_that_restarts_waits_for_the_lease_of_who_left_at_rest() {
    let mut desk = Desk::running(2);
    desk.told((2, 1), 1, Body::Leave { at_rest: true });
    desk.tick(50);
    desk.hears(KeeperEvent::Persisted);
    let mut desk = Desk::after(2, Some(desk.keeper.record), 100);
    desk.acknowledge((1, 1), 2);
    assert_eq!(desk.keeper.in_effect(), None);
    assert_eq!(desk.acknowledge((2, 1), 2), ["1.1 v2 in effect", "2.1 v2 in effect"]);
}

#[test]
fn c3_without_a_home_nobody_is_settled() {
    let mut desk = Desk::of(2);
    let reader = Member { roles: Roles::of(Role::Reader), ..member(2, 1) };
    desk.join(1, 1);
    desk.told((2, 1), 0, Body::Join { member: reader, renewal: renewal(0, 0) });
    desk.hears(KeeperEvent::Persisted);
    desk.all_acknowledge(&[(1, 1), (2, 1)], 1);
    desk.told((1, 1), 1, Body::Leave { at_rest: false });
    desk.tick(50);
    desk.hears(KeeperEvent::Persisted);
    desk.all_acknowledge(&[(1, 1), (2, 1)], 2);
    assert_eq!(desk.join(1, 2), ["1.2 grant", "persist v3[1.2,2.1|1.1]"]);
}

#[test]
fn where_nobody_knows_who_will_come_nobody_is_waited_for() {
    let config = ClusterConfig { name: Some("n1".into()), ..ClusterConfig::default() };
    let membership = Membership::seats(&config, Rank(1), Roles::ALL).unwrap();
    let keeper = Keeper::start(membership, Incarnation::new(1, 1), None, EarlierLife::Ended, time(0));
    let mut desk = Desk { keeper, at: 0, explained: vec![] };
    assert_eq!(desk.join(1, 1), ["1.1 grant", "persist v1[1.1|]"]);
}

#[test]
fn a_leaver_is_waited_for_like_a_member() {
    let leaving = || {
        let mut desk = Desk::running(2);
        desk.told((2, 1), 1, Body::Leave { at_rest: false });
        desk.tick(50);
        assert_eq!(desk.hears(KeeperEvent::Persisted), ["1.1 v2[1.1|2.1]", "2.1 v2[1.1|2.1]"]);
        assert_eq!(desk.acknowledge((1, 1), 2), [""; 0]);
        desk
    };
    assert_eq!(leaving().acknowledge((2, 1), 2), ["1.1 v2 in effect", "2.1 v2 in effect"]);
    let mut desk = leaving();
    for at in [500, 1000, 1500, 2000, OVER - 1] {
        desk.tick(at);
        desk.renew((1, 1), 2);
        assert_eq!(desk.keeper.in_effect(), None);
    }
    assert_eq!(desk.tick(OVER), ["1.1 v2 in effect", "2.1 v2 in effect"]);
}

#[test]
fn c4_a_restart_waits_for_leases_that_it_does_not_know() {
    let record = Desk::running(2).keeper.record;
    let mut desk = Desk::after(2, Some(record.clone()), 10_000);
    assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"], "a member goes on");
    for at in [500, 1000, 1500, 2000, OVER - 1] {
        desk.tick(10_000 + at);
        desk.renew((1, 1), 1);
        assert_eq!(desk.keeper.in_effect(), None);
    }
    assert_eq!(desk.tick(10_000 + OVER), ["persist v1[1.1,2.1|] out 2.1"]);

    let longer = KeeperRecord { terms: LeaseTerms::new(5000, 20).unwrap(), ..record };
    let mut desk = Desk::after(2, Some(longer), 10_000);
    assert_eq!(desk.tick(15_019), [""; 0], "leases were longer once");
    assert_eq!(desk.tick(15_020), ["persist v1[1.1,2.1|] out 1.1,2.1"]);
}

#[test]
fn c4_longer_leases_are_on_record_before_they_are_granted() {
    let mut shorter = Desk::running(2).keeper.record;
    shorter.terms = LeaseTerms::new(1000, 10).unwrap();
    let mut desk = Desk::after(2, Some(shorter), 10_000);
    assert_eq!(desk.renew((1, 1), 1), ["persist v1[1.1,2.1|]"]);
    assert_eq!(desk.renew((1, 1), 1), [""; 0], "no lease yet");
    desk.hears(KeeperEvent::Persisted);
    assert_eq!(desk.keeper.record.terms, LeaseTerms::DEFAULT);
    assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
}

#[test]
fn c4_longer_leases_stay_on_record_while_they_may_run() {
    let longer = LeaseTerms::new(5000, 20).unwrap();
    let record = KeeperRecord { terms: longer, ..Desk::running(2).keeper.record };
    let mut desk = Desk::after(2, Some(record), 10_000);
    desk.renew((1, 1), 1);
    desk.renew((2, 1), 1);
    desk.told((2, 1), 1, Body::Leave { at_rest: false });
    assert_eq!(desk.tick(10_050), ["persist v2[1.1|2.1]"]);
    desk.hears(KeeperEvent::Persisted);
    assert_eq!(desk.keeper.record.terms, longer, "a member may hold one of five seconds");
    desk.all_acknowledge(&[(1, 1), (2, 1)], 2);
    for at in (10_500..15_020).step_by(500) {
        desk.tick(at);
        desk.renew((1, 1), 2);
    }
    desk.tick(15_020);
    assert_eq!(desk.join(2, 2), ["2.2 grant", "persist v3[1.1,2.2|2.1]"]);
    desk.hears(KeeperEvent::Persisted);
    assert_eq!(desk.keeper.record.terms, LeaseTerms::DEFAULT);
}

#[test]
fn a_keeper_that_was_stopped_waits_no_longer_for_who_has_ended() {
    let mut desk = Desk::running(2);
    desk.join(2, 2);
    desk.at = 1500;
    desk.hears(KeeperEvent::Tick);
    desk.told((2, 2), 0, Body::Join { member: member(2, 2), renewal: renewal(0, 1500) });
    assert_eq!(desk.tick(OVER), ["persist v2[1.1,2.2|2.1]"], "1.1 is excused, 2.1 is not");
}

#[test]
fn c4_a_restart_that_everybody_outlives_changes_nothing() {
    let record = Desk::running(2).keeper.record;
    let mut desk = Desk::after(2, Some(record), 10_000);
    assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 grant", "1.1 v1 in effect", "2.1 v1 in effect"]);
    assert_eq!(desk.keeper.in_effect(), Some(ViewNumber(1)));
}

#[test]
fn a_keeper_that_was_stopped_blames_nobody() {
    let mut desk = Desk::running(2);
    desk.at = 60_000;
    assert_eq!(desk.hears(KeeperEvent::Tick), [""; 0]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 grant"]);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(60_000 + at);
        desk.renew((2, 1), 1);
    }
    assert_eq!(desk.tick(60_000 + OVER), [""; 0]);
    assert_eq!(desk.tick(60_000 + OVER + 50), ["persist v2[2.1|1.1]"]);
}

#[test]
fn a_keeper_without_its_record_is_found_out() {
    let mut desk = Desk::of(2);
    assert_eq!(desk.renew((2, 1), 7), ["2.1 KeeperBehind(ViewNumber(0))"]);
}

#[test]
fn tables_have_an_end() {
    let gone = |start| Departed {
        incarnation: Incarnation::new(2, start),
        since: ViewNumber(9),
        at_rest: false,
        is_relay: false,
    };
    let full = |number: u32, departed: u32| KeeperRecord {
        view: View::new(ViewNumber(number), vec![member(1, 1)], (1..=departed).map(gone).collect()).ok(),
        out: vec![],
        starts: [(Rank(1), 1), (Rank(2), departed)].into(),
        terms: LeaseTerms::DEFAULT,
    };
    let departed = MAX_DEPARTED as u32;
    assert_eq!(Desk::after(2, Some(full(9, departed)), 0).join(2, departed + 1), [format!("2.{} Full", departed + 1)]);
    assert_eq!(Desk::after(2, Some(full(u32::MAX, 1)), 0).join(2, 2), ["2.2 ViewsUsedUp"]);
}
