//! Tests of departures: which members go, the reason that the keeper gives, and which can be expelled.

use super::*;

impl Desk {
    /// Makes the pending view durable. Returns the departures and their reasons, which all concerned members receive.
    fn explains(&mut self, told: &[(u32, u32)]) -> Vec<(Incarnation, Parting)> {
        self.explained.clear();
        self.hears(KeeperEvent::Persisted);
        let heard: Vec<_> = self.explained.iter().map(|(to, _)| (to.rank.0, to.start)).collect();
        assert_eq!(heard, told);
        let (_, dropped) = self.explained[0].clone();
        assert!(self.explained.iter().all(|(_, other)| *other == dropped));
        dropped
    }
}

fn who(rank: u32, start: u32) -> Incarnation {
    Incarnation::new(rank, start)
}

#[test]
fn c2_who_is_expelled_is_waited_for_in_full_and_is_out_of_the_next_view() {
    let mut desk = Desk::running(3);
    desk.tick(1000);
    for rank in 1..=3 {
        assert_eq!(desk.renew((rank, 1), 1).len(), 1);
    }
    assert_eq!(desk.told((2, 1), 1, Body::Expel(who(3, 1))), [""; 0]);
    desk.tick(1500);
    assert_eq!(desk.renew((3, 1), 1), ["3.1 Expelled"], "no lease any more, from now on");
    for at in [1750, 2000, 2250, 2500, 2750, 3000] {
        assert_eq!(desk.tick(at), [""; 0], "its last lease was granted at 1000");
        [1, 2].iter().for_each(|rank| drop(desk.renew((*rank, 1), 1)));
    }
    assert_eq!(desk.tick(1000 + OVER), [""; 0]);
    assert_eq!(desk.tick(1000 + OVER + 50), ["persist v2[1.1,2.1|3.1]"]);
    assert_eq!(desk.explains(&[(1, 1), (2, 1)]), [(who(3, 1), Parting::Expelled)]);
}

#[test]
fn c1_who_was_expelled_comes_back_as_another_and_the_later_life_stays() {
    let mut desk = Desk::running(2);
    desk.told((1, 1), 1, Body::Expel(who(2, 1)));
    assert_eq!(desk.join(2, 2), ["2.2 grant"]);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(at);
        desk.renew((1, 1), 1);
        desk.renew((2, 2), 0);
    }
    // All members have joined: the keeper waits for none.
    assert_eq!(desk.tick(OVER), ["persist v2[1.1,2.2|2.1]"]);
    assert_eq!(desk.explains(&[(1, 1), (2, 2)]), [(who(2, 1), Parting::Expelled)]);
    // The same request again, late: the incarnation has gone.
    assert_eq!(desk.told((1, 1), 2, Body::Expel(who(2, 1))), [format!("1.1 {:?}", Refusal::NoMember(who(2, 1)))]);
    assert_eq!(desk.renew((2, 2), 2), ["2.2 grant"]);
}

#[test]
fn c4_whom_nobody_can_expel_is_refused() {
    let mut desk = Desk::running(2);
    for stranger in [who(2, 2), who(7, 1)] {
        assert_eq!(desk.told((2, 1), 1, Body::Expel(stranger)), [format!("2.1 {:?}", Refusal::NoMember(stranger))]);
    }
    assert_eq!(desk.told((2, 1), 1, Body::Expel(who(1, 1))), [format!("2.1 {:?}", Refusal::KeepersOwn(who(1, 1)))]);
    assert_eq!(desk.renew((1, 1), 1), ["1.1 grant"]);
    // One that has joined and is in no view yet.
    desk.join(2, 2);
    assert_eq!(desk.told((1, 1), 1, Body::Expel(who(2, 2))), [format!("1.1 {:?}", Refusal::NoMember(who(2, 2)))]);
}

#[test]
fn each_is_told_how_the_others_went() {
    let mut desk = Desk::running(5);
    desk.told((2, 1), 1, Body::Leave { at_rest: true });
    desk.told((3, 1), 1, Body::Leave { at_rest: false });
    desk.join(4, 2);
    assert_eq!(desk.tick(50), ["persist v2[1.1,4.1,5.1|3.1; at rest 2.1]"]);
    let dropped = desk.explains(&[(1, 1), (4, 1), (5, 1), (2, 1), (3, 1)]);
    assert_eq!(dropped, [(who(2, 1), Parting::LeftAtRest), (who(3, 1), Parting::LeftOpen)]);
    desk.all_acknowledge(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], 2);
    for at in [500, 1000, 1500, 2000] {
        desk.tick(at);
        desk.renew((1, 1), 2);
        desk.told((4, 2), 2, Body::Renew(renewal(0, at)));
    }
    desk.tick(OVER);
    assert_eq!(desk.tick(OVER + 50), ["persist v3[1.1,4.2|3.1,4.1,5.1]"]);
    let dropped = desk.explains(&[(1, 1), (4, 2)]);
    assert_eq!(dropped, [(who(4, 1), Parting::Superseded), (who(5, 1), Parting::RanOut)]);
}
