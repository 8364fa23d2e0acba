//! The office as a dialogue: what happens, at which millisecond, and what is asked and done.

use super::*;
use crate::ClusterConfig;

const MS: u64 = 1_000_000;

struct Desk {
    office: Office,
    at: u64,
}

fn time(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

fn short(action: &OfficeAction) -> String {
    match action {
        OfficeAction::Ask(number, question) => {
            let what = match question {
                Question::Enrol { name } => format!("enrol {name}"),
                Question::Look => "look".into(),
                Question::Take { term, beat, .. } => format!("take {}/{}", term.0, beat.0),
                Question::Beat { term, says } => {
                    let resigns = if says.resigned { " and resign" } else { "" };
                    format!("beat {}{resigns}{}", term.0, if says.unheard { " unheard" } else { "" })
                }
                Question::Store { term, after, .. } => format!("store {} after {}", term.0, after.0),
            };
            format!("{number}: {what}")
        }
        OfficeAction::Enrolled(life) => format!("life {life}"),
        OfficeAction::Appoint(_, Term { until, after_unheard }) => {
            format!("keep until {}{}", until.nanos() / MS, if *after_unheard { " with whoever is there" } else { "" })
        }
        OfficeAction::Authority(until) => format!("until {}", until.nanos() / MS),
        OfficeAction::Stored => "stored".into(),
        OfficeAction::Dismiss => "keep no longer".into(),
        OfficeAction::Follow(holder) => format!("follow {}", holder.who),
    }
}

fn sight(rank: u32, term: u64, beat: u64) -> Sight {
    let holder = Holder {
        who: Incarnation::new(rank, 1),
        name: format!("n{rank}"),
        address: "at".into(),
        terms: LeaseTerms::DEFAULT,
    };
    Sight { term: Revision(term), holder, beat: Revision(beat), said: Beat::default() }
}

fn resigned(sight: Sight, unheard: bool) -> Sight {
    Sight { said: Beat { resigned: true, unheard }, ..sight }
}

impl Desk {
    /// Incarnation 7.1 of node `n7` has begun at 0 ms. If `is_member`, it is a member that has just heard a keeper.
    fn begun(is_member: bool) -> Self {
        let text = "provider = \"etcd\"\nname = \"n7\"\naddress = \"tcp://10.0.0.7:7001\"";
        let membership = Membership::new(&toml::from_str::<ClusterConfig>(text).unwrap()).unwrap();
        let mut desk = Desk { office: Office::new(&membership, time(0)), at: 0 };
        assert_eq!(desk.does(OfficeEvent::Enrol), ["1: enrol n7"]);
        assert_eq!(desk.answered(1, Answer::Enrolled(Incarnation::new(7, 1))), ["life 7.1"]);
        assert_eq!(desk.does(OfficeEvent::Begun(Incarnation::new(7, 1), "at".into())), ["2: look"]);
        desk.does(OfficeEvent::Heard { from: Incarnation::new(3, 1), is_member });
        desk
    }

    /// It holds the office in term 10, from 0 ms.
    fn holding() -> Self {
        let mut desk = Desk::begun(true);
        assert_eq!(desk.answered(2, Answer::Seen(None)), ["3: take 0/0"]);
        let taken = Answer::Taken { term: Revision(10), record: None, changed: Revision(0) };
        assert_eq!(desk.answered(3, taken), ["follow 7.1", "keep until 980"]);
        desk
    }

    fn does(&mut self, event: OfficeEvent) -> Vec<String> {
        self.office.handle(time(self.at), event).iter().map(short).collect()
    }

    fn answered(&mut self, number: u64, answer: Answer) -> Vec<String> {
        self.does(OfficeEvent::Answered(number, Some(answer)))
    }

    fn unanswered(&mut self, number: u64) -> Vec<String> {
        self.does(OfficeEvent::Answered(number, None))
    }

    fn tick(&mut self, at: u64) -> Vec<String> {
        self.at = at;
        self.does(OfficeEvent::Tick)
    }
}

#[test]
fn a_beat_that_stands_still_for_half_a_lease_and_the_drift_is_over() {
    let mut desk = Desk::begun(true);
    // The first answer that shows it so arrives at 30 ms: from then it counts.
    desk.at = 30;
    assert_eq!(desk.answered(2, Answer::Seen(Some(sight(3, 5, 9)))), ["follow 3.1"]);
    // What is followed has its time to be heard.
    assert_eq!(desk.office.wake_at(), time(30 + 750));
    assert_eq!(desk.tick(780), ["3: look"]);
    assert_eq!(desk.answered(3, Answer::Seen(Some(sight(3, 5, 9)))), [""; 0]);
    assert_eq!(desk.tick(1030), ["4: look"]);
    desk.at = 1049;
    assert_eq!(desk.answered(4, Answer::Seen(Some(sight(3, 5, 9)))), [""; 0], "1000 + 20 from 30 are not over");
    assert_eq!(desk.tick(1280), ["5: look"]);
    assert_eq!(desk.answered(5, Answer::Seen(Some(sight(3, 5, 9)))), ["6: take 5/9"]);
}

#[test]
fn a_beat_in_between_begins_the_wait_anew() {
    let mut desk = Desk::begun(true);
    desk.answered(2, Answer::Seen(Some(sight(3, 5, 9))));
    desk.tick(1000);
    desk.answered(3, Answer::Seen(Some(sight(3, 5, 10))));
    desk.tick(1250);
    assert_eq!(desk.answered(4, Answer::Seen(Some(sight(3, 5, 10)))), [""; 0]);
    assert_eq!(desk.tick(2020), ["5: look"]);
    assert_eq!(desk.answered(5, Answer::Seen(Some(sight(3, 5, 10)))), ["6: take 5/10"]);
}

#[test]
fn who_is_not_in_lets_members_go_first() {
    let mut desk = Desk::begun(false);
    desk.answered(2, Answer::Seen(Some(sight(3, 5, 9))));
    desk.tick(1500);
    assert_eq!(desk.answered(3, Answer::Seen(Some(sight(3, 5, 9)))), [""; 0]);
    desk.tick(2020);
    assert_eq!(desk.answered(4, Answer::Seen(Some(sight(3, 5, 9)))), ["5: take 5/9"]);
}

#[test]
fn nobody_looks_while_the_keeper_is_heard() {
    let mut desk = Desk::begun(true);
    desk.answered(2, Answer::Seen(Some(sight(3, 5, 9))));
    for at in (0..10_000).step_by(500) {
        desk.at = at;
        assert_eq!(desk.does(OfficeEvent::Heard { from: Incarnation::new(3, 1), is_member: true }), [""; 0]);
    }
    // A message of another member than the keeper does not count.
    desk.at = 10_200;
    assert_eq!(desk.does(OfficeEvent::Heard { from: Incarnation::new(4, 1), is_member: true }), [""; 0]);
    assert_eq!(desk.tick(9500 + 750), ["3: look"]);
}

#[test]
fn longer_terms_of_the_holder_are_waited_for() {
    let mut desk = Desk::begun(true);
    let terms = LeaseTerms::new(6000, 60).unwrap();
    let holder = Holder { terms, ..sight(3, 5, 9).holder };
    let long = Sight { holder, ..sight(3, 5, 9) };
    desk.answered(2, Answer::Seen(Some(long.clone())));
    desk.tick(3000);
    assert_eq!(desk.answered(3, Answer::Seen(Some(long.clone()))), [""; 0]);
    desk.tick(3060);
    desk.tick(3250);
    assert_eq!(desk.answered(4, Answer::Seen(Some(long))), ["5: take 5/9"]);
}

#[test]
fn authority_counts_from_the_sending_of_a_beat() {
    let mut desk = Desk::holding();
    assert_eq!(desk.tick(250), ["4: beat 10"]);
    desk.at = 700;
    assert_eq!(desk.answered(4, Answer::Beaten), ["until 1230", "5: beat 10"]);
    // Nothing is known of this one. It is sent again, and the term may still stand.
    desk.at = 1200;
    assert_eq!(desk.unanswered(5), [""; 0]);
    desk.at = 1600;
    assert_eq!(desk.does(OfficeEvent::Tick), ["6: beat 10"]);
    assert_eq!(desk.answered(6, Answer::Beaten), ["until 2580"]);
    assert!(desk.office.holds());
}

#[test]
fn who_is_overtaken_keeps_no_longer_and_looks_for_the_next() {
    let mut desk = Desk::holding();
    desk.tick(250);
    assert_eq!(desk.answered(4, Answer::Overtaken), ["keep no longer", "5: look"]);
    assert_eq!(desk.answered(5, Answer::Seen(Some(sight(8, 20, 20)))), ["follow 8.1"]);
    assert!(!desk.office.holds());
}

#[test]
fn a_record_of_which_nothing_is_known_is_stored_again_after_the_same_one() {
    let mut desk = Desk::holding();
    let record = KeeperRecord { view: None, out: vec![], starts: [].into(), terms: LeaseTerms::DEFAULT };
    let store = || OfficeEvent::Store(Box::new(record.clone()));
    assert_eq!(desk.does(store()), ["4: store 10 after 0"]);
    assert_eq!(desk.unanswered(4), [""; 0]);
    assert_eq!(desk.tick(63), ["5: store 10 after 0"]);
    assert_eq!(desk.answered(5, Answer::Stored(Revision(12))), ["stored"]);
    assert_eq!(desk.does(store()), ["6: store 10 after 12"]);
    assert_eq!(desk.answered(6, Answer::Overtaken), ["keep no longer", "7: look"]);
}

#[test]
fn who_heard_too_few_stands_back_and_the_next_goes_on_with_whoever_is_there() {
    let mut desk = Desk::holding();
    desk.at = 100;
    assert_eq!(desk.does(OfficeEvent::Unheard), ["keep no longer", "4: beat 10 and resign unheard"]);
    desk.answered(4, Answer::Beaten);
    desk.tick(400);
    let own = resigned(sight(7, 10, 11), true);
    assert_eq!(desk.answered(5, Answer::Seen(Some(own.clone()))), [""; 0], "others have their turn");
    desk.tick(3200);
    assert_eq!(desk.answered(6, Answer::Seen(Some(own.clone()))), ["7: take 10/11"]);

    let mut other = Desk::begun(true);
    assert_eq!(other.answered(2, Answer::Seen(Some(own))), ["3: take 10/11"], "it is its own: the name is the same");
    let taken = Answer::Taken { term: Revision(12), record: None, changed: Revision(0) };
    assert_eq!(other.answered(3, taken), ["follow 7.1", "keep until 980 with whoever is there"]);
}

#[test]
fn an_office_that_was_given_up_is_taken_at_once() {
    let mut desk = Desk::begun(false);
    let gone = resigned(sight(3, 5, 9), false);
    assert_eq!(desk.answered(2, Answer::Seen(Some(gone))), ["follow 3.1", "3: take 5/9"]);
}

#[test]
fn who_does_not_know_that_it_holds_the_office_takes_it_again() {
    let mut desk = Desk::begun(true);
    assert_eq!(desk.answered(2, Answer::Seen(None)), ["3: take 0/0"]);
    assert_eq!(desk.unanswered(3), [""; 0]);
    assert_eq!(desk.tick(100), ["4: look"]);
    assert_eq!(desk.answered(4, Answer::Seen(Some(sight(7, 10, 10)))), ["5: take 10/10"]);
}

#[test]
fn the_end_of_a_life_is_the_end_of_its_term() {
    let mut desk = Desk::holding();
    assert_eq!(desk.does(OfficeEvent::Over), ["keep no longer", "4: beat 10 and resign"]);
    assert_eq!(desk.does(OfficeEvent::Enrol), ["5: enrol n7"]);
    assert_eq!(desk.unanswered(5), [""; 0]);
    assert_eq!(desk.tick(70), ["6: enrol n7"]);
    assert_eq!(desk.answered(6, Answer::Enrolled(Incarnation::new(9, 1))), ["life 9.1"]);
    desk.answered(4, Answer::Beaten);
    assert_eq!(desk.does(OfficeEvent::Begun(Incarnation::new(9, 1), "at".into())), ["7: look"]);
    let before = resigned(sight(7, 10, 11), false);
    assert_eq!(desk.answered(7, Answer::Seen(Some(before))), ["follow 7.1", "8: take 10/11"]);
}
