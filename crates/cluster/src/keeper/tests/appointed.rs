//! Tests of a keeper that was appointed for a term, where each incarnation has a rank of its own.

use super::*;

/// A keeper that was appointed to `size` members, all on its record, with authority until `until`.
fn appointed(size: u32, until: u64, after_unheard: bool) -> Desk {
    let mut earlier = Desk::running(size);
    let record = earlier.keeper.record.clone();
    earlier.at = 0;
    let identity = Incarnation::new(1, 1);
    let term = Term { until: time(until), after_unheard };
    let keeper = Keeper::appointed(membership(size), identity, Some(record), term, time(0), Rules::ALL);
    Desk { keeper, at: 0, explained: vec![] }
}

#[test]
fn without_authority_a_keeper_is_silent_and_nobody_is_blamed_for_it() {
    let mut desk = appointed(2, 980, false);
    assert_eq!(desk.renew((2, 1), 1).first().unwrap(), "2.1 grant");
    desk.tick(979);
    assert_eq!(desk.renew((2, 1), 1).first().unwrap(), "2.1 grant");
    desk.tick(980);
    assert_eq!(desk.renew((2, 1), 1), [""; 0]);
    assert_eq!(desk.renew((2, 9), 1), [""; 0], "not even refused");
    for at in (1200..5000).step_by(250) {
        assert_eq!(desk.tick(at), [""; 0], "nobody lapses who cannot be answered");
    }
    // The term stood all the time: it goes on, and each member has a lease's time to be heard.
    assert_eq!(desk.hears(KeeperEvent::Authority(time(6000))), [""; 0]);
    assert_eq!(desk.renew((2, 1), 1), ["2.1 grant"]);
}

#[test]
fn a_keeper_that_hears_less_than_half_gives_the_office_up_rather_than_take_the_others_for_gone() {
    let mut desk = appointed(3, 60_000, false);
    for at in (0..2000).step_by(250) {
        desk.tick(at);
        desk.renew((1, 1), 1);
    }
    assert_eq!(desk.tick(2020), ["resign"]);
    assert_eq!(desk.renew((1, 1), 1), [""; 0], "and does nothing any more");
    assert_eq!(desk.keeper.wake_at(), Time::FAR);

    let mut desk = appointed(3, 60_000, true);
    for at in (0..2000).step_by(250) {
        desk.tick(at);
        desk.renew((1, 1), 1);
    }
    assert_eq!(desk.tick(2020), ["persist v1[1.1,2.1,3.1|] out 2.1,3.1"], "the one before gave it up for that already");
}

#[test]
fn half_are_enough() {
    let mut desk = appointed(4, 60_000, false);
    for at in (0..2000).step_by(250) {
        desk.tick(at);
        desk.renew((1, 1), 1);
        desk.renew((2, 1), 1);
    }
    assert_eq!(desk.tick(2020), ["persist v1[1.1,2.1,3.1,4.1|] out 3.1,4.1"]);
}

/// A keeper where each incarnation has a rank of its own.
fn ranked() -> Desk {
    let text = "provider = \"etcd\"\nname = \"n1\"\naddress = \"a\"";
    let membership = Membership::new(&toml::from_str(text).unwrap()).unwrap();
    let term = Term { until: time(1_000_000), after_unheard: false };
    let keeper = Keeper::appointed(membership, Incarnation::new(1, 1), None, term, time(0), Rules::ALL);
    Desk { keeper, at: 0, explained: vec![] }
}

impl Desk {
    fn join_as(&mut self, rank: u32, name: &str) -> Vec<String> {
        let member = Member { name: name.into(), ..member(rank, 1) };
        self.told((rank, 1), 0, Body::Join { member, renewal: renewal(0, 0) })
    }
}

#[test]
fn a_later_life_is_known_by_its_name() {
    let mut desk = ranked();
    desk.join_as(1, "a");
    assert_eq!(desk.join_as(3, "b"), ["3.1 grant"]);
    assert_eq!(desk.join_as(2, "b"), ["2.1 Superseded(Incarnation { rank: Rank(3), start: 1 })"]);
    assert_eq!(desk.tick(50), ["persist v1[1.1,3.1|]"]);
    desk.hears(KeeperEvent::Persisted);
    assert_eq!(desk.join_as(7, "b"), ["7.1 grant"]);
    assert_eq!(desk.renew((3, 1), 1)[0], "3.1 Superseded(Incarnation { rank: Rank(7), start: 1 })");
}

#[test]
fn a_rank_that_was_let_in_long_ago_is_used() {
    let mut desk = ranked();
    desk.join_as(5, "a");
    desk.tick(50);
    desk.hears(KeeperEvent::Persisted);
    desk.acknowledge((5, 1), 1);
    desk.join_as(5000, "b");
    desk.tick(100);
    assert_eq!(desk.hears(KeeperEvent::Persisted)[0], "5.1 v2[5.1,5000.1|]");
    assert_eq!(desk.keeper.record.starts.keys().map(|rank| rank.0).collect::<Vec<_>>(), [5000], "the last thousand");
    assert_eq!(desk.join_as(5, "c")[0], "5.1 StartUsed { known: 1 }", "it has a seat, of another name");
    assert_eq!(desk.join_as(5000 - RANKS_KEPT, "d")[0], format!("{}.1 StartUsed {{ known: 0 }}", 5000 - RANKS_KEPT));
    assert_eq!(desk.join_as(5001 - RANKS_KEPT, "d")[0], format!("{}.1 grant", 5001 - RANKS_KEPT));
}
