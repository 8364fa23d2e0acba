//! A participant as a dialogue: what it receives, at which millisecond, and what it does.

use super::*;
use crate::testing::{member, view};
use crate::{ClusterConfig, Departed};

const MS: u64 = 1_000_000;
/// When a lease whose renewal was sent at 0 is over for the member: 2000 - 20.
const HELD: u64 = 1980;

struct Desk {
    node: Participant,
    at: u64,
}

fn time(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn short(action: &ParticipantAction) -> String {
    let ms = |at: Time| at.nanos() / MS;
    match action {
        ParticipantAction::Persist(record) => format!("persist {}.{}", record.rank, record.start),
        ParticipantAction::Enrol => "enrol".into(),
        ParticipantAction::Publish(lease) => {
            format!("publish {} {}/{}", ms(lease.until), lease.acknowledged, lease.in_effect)
        }
        ParticipantAction::Send(Message { from, body, .. }) => match body {
            Body::Join { .. } => format!("{from} joins"),
            Body::Renew(renewal) => format!("{from} renews in {}", renewal.acknowledged),
            Body::Acknowledge(view) => format!("{from} acknowledges {view}"),
            Body::Leave { at_rest } => format!("{from} leaves{}", if *at_rest { " at rest" } else { "" }),
            other => panic!("a participant says {other:?}"),
        },
        ParticipantAction::Tell(Notice::ViewLearnt(view)) => format!("learnt {}", view.number()),
        ParticipantAction::Tell(Notice::ViewInEffect(view)) => format!("in effect {view}"),
        ParticipantAction::Tell(Notice::LeaseExtended(until)) => format!("lease until {}", ms(*until)),
        ParticipantAction::Tell(Notice::LeaseLost) => "lease lost".into(),
        ParticipantAction::Tell(Notice::Expelled(next)) => match next {
            Some(next) => format!("expelled, next {next}"),
            None => "expelled".into(),
        },
        ParticipantAction::Tell(notice) => format!("{notice:?}"),
    }
}

impl Desk {
    fn start() -> (Self, Vec<String>) {
        let membership = Membership::new(&ClusterConfig::default()).unwrap();
        let record = StartRecord { rank: Rank(1), start: 4 };
        let (node, actions) = Participant::start(&membership, "a".into(), Some(record), time(0)).unwrap();
        (Desk { node, at: 0 }, actions.iter().map(short).collect())
    }

    /// Incarnation 1.5 is in view 1, which is in effect, with a lease from 0 ms.
    fn running() -> Self {
        let (mut desk, _) = Desk::start();
        desk.does(ParticipantEvent::Persisted);
        desk.hears(1, Body::Grant(Standing::default()));
        desk.hears(0, Body::Propose(view(1, &[(1, 5)])));
        desk.does(ParticipantEvent::Prepared(ViewNumber(1)));
        desk.hears(0, Body::Stand(standing(1, true)));
        assert_eq!(desk.node.lease().in_effect_at(time(0)), Some(ViewNumber(1)));
        desk
    }

    fn does(&mut self, event: ParticipantEvent) -> Vec<String> {
        self.node.handle(time(self.at), event).iter().map(short).collect()
    }

    fn hears(&mut self, request: u64, body: Body) -> Vec<String> {
        let to = self.node.incarnation();
        let from = Incarnation::new(1, 1);
        self.does(ParticipantEvent::Message(Message { from, to, view: ViewNumber(0), request, body }))
    }

    fn tick(&mut self, at: u64) -> Vec<String> {
        self.at = at;
        self.does(ParticipantEvent::Tick)
    }
}

fn standing(view: u32, in_effect: bool) -> Standing {
    Standing { view: ViewNumber(view), in_effect, ..Standing::default() }
}

#[test]
fn c1_a_start_number_is_durable_before_it_is_used() {
    let (mut desk, said) = Desk::start();
    assert_eq!(said, ["persist 1.5"]);
    assert_eq!(desk.tick(9999), [""; 0], "however long the disc takes");
    assert_eq!(desk.does(ParticipantEvent::Persisted), ["1.5 joins"]);
}

#[test]
fn c1_a_state_directory_of_another_node_is_refused() {
    let membership = Membership::new(&ClusterConfig::default()).unwrap();
    let start = |rank, start| {
        let record = Some(StartRecord { rank: Rank(rank), start });
        Participant::start(&membership, "a".into(), record, Time::ZERO).map(|_| ()).unwrap_err()
    };
    assert_eq!(start(2, 1), ClusterError::OthersState { expected: Rank(1), found: Rank(2) });
    assert_eq!(start(1, u32::MAX), ClusterError::StartsUsedUp { rank: Rank(1) });
}

#[test]
fn the_way_in() {
    let (mut desk, _) = Desk::start();
    desk.does(ParticipantEvent::Persisted);
    assert_eq!(desk.hears(1, Body::Grant(Standing::default())), ["publish 1980 v0/v0", "lease until 1980"]);
    assert_eq!(desk.node.lease().valid_at(time(0)), None, "a lease without a view allows nothing (C1)");
    assert_eq!(desk.tick(250), ["1.5 joins"]);
    assert_eq!(desk.hears(0, Body::Propose(view(3, &[(1, 5)]))), ["learnt v3"]);
    assert_eq!(desk.tick(500), ["1.5 renews in v0"], "the services prepare");
    let said = desk.does(ParticipantEvent::Prepared(ViewNumber(3)));
    assert_eq!(said, ["publish 1980 v3/v0", "1.5 acknowledges v3"]);
    assert_eq!(desk.node.lease().valid_at(time(500)), Some(ViewNumber(3)), "hits may be served (C3)");
    assert_eq!(desk.node.lease().in_effect_at(time(500)), None, "updates may not (C3)");
    assert_eq!(desk.hears(0, Body::Stand(standing(3, true))), ["publish 1980 v3/v3", "in effect v3"]);
    assert_eq!(desk.hears(0, Body::Stand(standing(3, true))), [""; 0], "said once");
}

#[test]
fn c2_a_lease_counts_from_the_sending() {
    let mut desk = Desk::running();
    assert_eq!(desk.tick(250), ["1.5 renews in v1"]);
    assert_eq!(desk.tick(749), [""; 0]);
    assert_eq!(desk.tick(750), ["1.5 renews in v1"]);
    desk.at = 1900;
    assert_eq!(desk.hears(3, Body::Grant(standing(1, true)))[..2], ["publish 2230 v1/v1", "lease until 2230"]);
    assert_eq!(desk.hears(3, Body::Grant(standing(1, true))), [""; 0], "twice is not longer");
    assert_eq!(desk.hears(1, Body::Grant(standing(1, true))), [""; 0], "an older one is not shorter");
    assert_eq!(desk.hears(77, Body::Grant(standing(1, true))), [""; 0], "nobody asked");
}

#[test]
fn c2_a_grant_that_comes_too_late_gives_nothing() {
    let mut desk = Desk::running();
    desk.tick(250);
    desk.tick(HELD);
    desk.at = 250 + HELD;
    assert_eq!(desk.hears(3, Body::Grant(standing(1, true))), [""; 0]);
    assert_eq!(desk.node.lease().valid_at(time(desk.at)), None);
}

#[test]
fn c5_a_lease_ends_without_any_message() {
    let mut desk = Desk::running();
    let mut said = vec![];
    while desk.at < HELD {
        said = desk.tick(desk.node.wake_at().nanos() / MS);
    }
    assert_eq!((desk.at, said[0].as_str()), (HELD, "lease lost"));
    assert_eq!(desk.node.lease().valid_at(time(HELD)), None);
    let said = desk.tick(2500);
    assert_eq!(said, ["1.5 renews in v1"], "it asks on, as the same");
    let request = desk.node.next_request - 1;
    desk.at = 2510;
    assert_eq!(desk.hears(request, Body::Grant(standing(1, true))), ["publish 4480 v1/v1", "lease until 4480"]);
}

#[test]
fn c3_acting_in_the_old_view_ends_before_the_new_one_is_acknowledged() {
    let mut desk = Desk::running();
    desk.at = 100;
    assert_eq!(desk.hears(0, Body::Propose(view(2, &[(1, 5), (2, 1)]))), ["learnt v2"]);
    assert_eq!(desk.node.lease().valid_at(time(100)), Some(ViewNumber(1)), "until then it goes on in the old one");
    assert_eq!(desk.hears(0, Body::Propose(view(3, &[(1, 5)]))), ["learnt v3"]);
    assert_eq!(desk.does(ParticipantEvent::Prepared(ViewNumber(2))), [""; 0], "ready for a view that is past");
    let said = desk.does(ParticipantEvent::Prepared(ViewNumber(3)));
    assert_eq!(said, ["publish 1980 v3/v1", "1.5 acknowledges v3"], "published first");
    assert_eq!(desk.does(ParticipantEvent::Prepared(ViewNumber(3))), [""; 0]);
    assert_eq!(desk.hears(0, Body::Propose(view(3, &[(1, 5), (2, 1)]))), [""; 0], "a number means one view");
    assert_eq!(desk.hears(0, Body::Stand(standing(1, true))), [""; 0], "of a view that is past");
}

#[test]
fn c1_who_was_expelled_comes_back_as_another() {
    let mut desk = Desk::running();
    let said = desk.hears(2, Body::Refuse(Refusal::Expelled));
    assert_eq!(said, ["publish 0 v0/v0", "lease lost", "expelled, next 1.6", "persist 1.6"]);
    let stray = Message {
        from: Incarnation::new(1, 1),
        to: Incarnation::new(1, 5),
        view: ViewNumber(2),
        request: 1,
        body: Body::Propose(view(2, &[(1, 5)])),
    };
    assert_eq!(desk.does(ParticipantEvent::Message(stray.clone())), [""; 0], "to an earlier life");
    assert_eq!(desk.does(ParticipantEvent::Persisted), ["1.6 joins"]);
    assert_eq!(desk.does(ParticipantEvent::Message(stray)), [""; 0]);
    assert_eq!(desk.hears(1, Body::Refuse(Refusal::StartUsed { known: 40 }))[1..], ["persist 1.41"]);
}

#[test]
fn c1_who_was_replaced_stops_for_good() {
    let mut desk = Desk::running();
    let by = Incarnation::new(1, 9);
    let said = desk.hears(2, Body::Refuse(Refusal::Superseded(by)));
    assert_eq!(said[..2], ["publish 0 v0/v0", "lease lost"]);
    assert!(desk.node.ended() && desk.tick(9999).is_empty() && desk.node.wake_at() == Time::FAR);
}

#[test]
fn what_a_person_must_mend_is_said_once() {
    let (mut desk, _) = Desk::start();
    desk.does(ParticipantEvent::Persisted);
    let refusal = Refusal::UnknownRank(Rank(1));
    assert_eq!(desk.hears(1, Body::Refuse(refusal.clone())), ["Refused(UnknownRank(Rank(1)))"]);
    assert_eq!(desk.hears(1, Body::Refuse(refusal)), [""; 0]);
    assert_eq!(desk.tick(250), ["1.5 joins"], "and tried again");
}

fn leave(at_rest: bool) -> ParticipantEvent {
    ParticipantEvent::Leave { at_rest }
}

#[test]
fn who_leaves_at_rest_says_so_each_time() {
    let mut desk = Desk::running();
    desk.at = 100;
    assert_eq!(desk.does(leave(true)), ["1.5 renews in v1", "1.5 leaves at rest"]);
    assert_eq!(desk.tick(600), ["1.5 renews in v1", "1.5 leaves at rest"], "the first may be lost");
}

#[test]
fn leaving_waits_for_a_view_without_it() {
    let mut desk = Desk::running();
    desk.at = 100;
    assert_eq!(desk.does(leave(false)), ["1.5 renews in v1", "1.5 leaves"]);
    assert_eq!(desk.hears(0, Body::Propose(view(2, &[(2, 1)]))), ["learnt v2"]);
    let said = desk.does(ParticipantEvent::Prepared(ViewNumber(2)));
    assert_eq!(said, ["publish 0 v2/v1", "lease lost", "1.5 acknowledges v2"]);
    assert_eq!(desk.hears(0, Body::Stand(standing(2, true))).last().map(String::as_str), Some("Left"));
    assert!(desk.node.ended());
}

#[test]
fn leaving_waits_no_longer_than_the_lease() {
    let mut desk = Desk::running();
    desk.does(leave(false));
    assert_eq!(desk.tick(HELD)[..1], ["lease lost"]);
    assert!(desk.node.ended());

    let mut desk = Desk::running();
    desk.does(leave(false));
    desk.hears(0, Body::Propose(view(2, &[(2, 1)])));
    desk.does(ParticipantEvent::Prepared(ViewNumber(2)));
    assert!(!desk.node.ended() && desk.node.wake_at() <= time(HELD));
    desk.tick(HELD);
    assert!(desk.node.ended());
}

#[test]
fn what_the_services_settled_is_said_until_it_is_off_the_record() {
    let mut desk = Desk::running();
    let gone = Incarnation::new(2, 1);
    let listing = |number, departed: &[Incarnation]| {
        let departed = departed
            .iter()
            .map(|who| Departed { incarnation: *who, since: ViewNumber(2), at_rest: false, is_relay: false })
            .collect();
        View::new(ViewNumber(number), view(number, &[(1, 5)]).members().to_vec(), departed).unwrap()
    };
    desk.at = 100;
    desk.hears(0, Body::Propose(listing(2, &[gone])));
    desk.does(ParticipantEvent::Settled(Incarnation::new(3, 1)));
    assert_eq!(desk.node.settled.len(), 0, "not of this view");
    assert_eq!(desk.does(ParticipantEvent::Settled(gone)), ["1.5 renews in v1"], "at once");
    assert!(desk.node.settled.contains(&gone));
    let settled = Standing { settled: vec![gone], ..standing(2, false) };
    assert_eq!(desk.hears(0, Body::Stand(settled)), ["DepartedSettled(Incarnation { rank: Rank(2), start: 1 })"]);
    assert_eq!(desk.hears(0, Body::Propose(listing(3, &[]))), ["learnt v3"]);
    assert_eq!(desk.node.settled.len(), 0);
}

#[test]
fn who_is_off_the_record_is_settled() {
    let mut desk = Desk::running();
    let who = Incarnation::new(2, 1);
    let gone = Departed { incarnation: who, since: ViewNumber(2), at_rest: false, is_relay: false };
    desk.hears(0, Body::Propose(View::new(ViewNumber(2), vec![member(1, 5)], vec![gone]).unwrap()));
    let said = desk.hears(0, Body::Propose(view(3, &[(1, 5)])));
    assert_eq!(said, ["DepartedSettled(Incarnation { rank: Rank(2), start: 1 })", "learnt v3"]);
}

#[test]
fn a_clock_that_goes_back_extends_nothing() {
    let mut desk = Desk::running();
    desk.tick(1000);
    desk.at = 0;
    desk.does(ParticipantEvent::Tick);
    desk.at = 100;
    desk.does(ParticipantEvent::Prepared(ViewNumber(9)));
    assert_eq!(desk.tick(HELD - 1), ["1.5 renews in v1"]);
    assert_eq!(desk.tick(HELD)[..1], ["lease lost"]);
}

#[test]
fn services_learn_of_each_member_once_a_view() {
    let mut desk = Desk::running();
    let who = Incarnation::new(2, 1);
    desk.hears(0, Body::Propose(view(2, &[(1, 5), (2, 1)])));
    let acknowledged = Standing { acknowledged: vec![who], ..standing(2, false) };
    assert_eq!(desk.hears(0, Body::Stand(acknowledged.clone())).len(), 1);
    assert_eq!(desk.hears(0, Body::Stand(acknowledged)), [""; 0]);
    let out = Standing { out: vec![who], ..standing(2, false) };
    assert!(desk.hears(0, Body::Stand(out))[0].starts_with("MemberOut"));
}
