//! What a home says and asks of a segment that moves, as a dialogue.

use std::time::Duration;

use verbena_terms::Time;

use super::super::replicas::tests::{asked, home, two};
use super::*;
use crate::actions::Stands;
use crate::dialogue::{rank, view};
use crate::layout::{claims_at, extents_at};
use crate::wire::{Frame, MOST_PLACES, Message, Token};
use crate::{SegmentName, Wanted};

const BYTES: u64 = 4096;

/// A segment at home 1 alone.
fn one() -> (Home, SegmentId, View) {
    let (mut home, view, mut out) = (home(1), view(1, &[1, 2, 3]), vec![]);
    let wanted = Wanted::new(Some(SegmentName::new("a").unwrap()), 8, Coherence::Strict, 7);
    let asker = QuestionId { from: rank(3), number: 1 };
    home.allocate(asker, Token { asker: rank(3), request: 1 }, wanted, vec![], &mut out);
    let id = SegmentId { home: rank(1), number: 1 };
    home.completed(id, &[], &view, &mut out);
    home.answered(id, rank(1), Reply::Done, &view, &mut out);
    assert!(home.find(id).is_ok());
    (home, id, view)
}

fn place(of: u32) -> Place {
    Place { home: rank(of), control: 3, at: 1024 }
}

fn word(word: Word) -> Vec<Given> {
    vec![Given::Word(word.to_bits())]
}

/// What a step gives that finds what it expects.
fn given_by(step: &Step) -> Given {
    match *step {
        Step::Swap(_, expected, _) => Given::Word(expected),
        Step::ReadWord(_) => Given::Word(Word::new(4, 2).to_bits()),
        _ => Given::Bytes(vec![9; 16]),
    }
}

/// The home asks for a place, gets it, and all members forget the segment, up to the reading of its words.
fn stopped(home: &mut Home, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
    assert!(home.begin_move(id, rank(1), view, out));
    let to = asked(out)[0].clone();
    let at = if to == "Reserve 2" { 2 } else { 3 };
    assert!(home.find(id).is_ok(), "it goes on while a place is looked for");
    home.reserved(id, rank(at), Reply::Place(place(at)), view, out);
    assert!(home.is_comparing(id) && asked(out)[0].starts_with("Register"));
    home.answered(id, rank(1), Reply::Done, view, out);
    assert_eq!(asked(out), ["Forget 1", "Forget 2", "Forget 3"]);
    for member in 1..3 {
        home.answered(id, rank(member), Reply::Done, view, out);
        assert!(out.is_empty(), "somebody works on it");
    }
    home.answered(id, rank(3), Reply::Done, view, out);
    assert_eq!(asked(out), ["1 steps at 1"]);
}

/// It is given away.
fn given() -> (Home, SegmentId, View, Incarnation) {
    let ((mut home, id, view), mut out) = (one(), vec![]);
    stopped(&mut home, id, &view, &mut out);
    let to = home.segments[&id].segment.backups[0].home;
    home.completed(id, &word(Word::new(4, 2)), &view, &mut out);
    assert_eq!(asked(&mut out), [format!("Hold {}", to.rank)]);
    home.answered(id, to, Reply::Holds(0), &view, &mut out);
    assert_eq!(asked(&mut out), ["1 steps at 1"], "the value is read");
    home.completed(id, &[Given::Bytes(vec![9; 16])], &view, &mut out);
    assert_eq!(asked(&mut out), [format!("4 steps at {}", to.rank)]);
    home.completed(id, &[], &view, &mut out);
    let adopt = out.iter().find_map(|action| match action {
        HomeAction::Ask { question: Question::Adopt(segment), .. } => Some(segment.clone()),
        _ => None,
    });
    assert_eq!(adopt.map(|segment| (segment.home, segment.backups)), Some((to, vec![])));
    (home, id, view, to)
}

#[test]
fn a_segment_is_given_to_a_home_that_has_room() {
    let (mut home, id, view, to) = given();
    let mut out = vec![];
    assert!(home.is_comparing(id), "who asks before that is known is told nothing");
    home.answered(id, to, Reply::Done, &view, &mut out);
    assert_eq!(asked(&mut out), ["2 steps at 1"], "its own memory is free, and nobody else is told to drop it");
    assert_eq!(home.elsewhere(id, &view), Some(Reply::Held { id, by: to }));
    home.completed(id, &[Given::Word(0), Given::Word(1)], &view, &mut out);
    assert_eq!((home.taken(), home.elsewhere(id, &view)), (0, Some(Reply::Held { id, by: to })));
    assert_eq!(home.made_by(&Token { asker: rank(3), request: 1 }), Some(id), "it is not made a second time");
    home.view_ends();
    assert_eq!(home.elsewhere(id, &view), Some(Reply::Held { id, by: to }));
    let without = self::view(2, &[1, 5 - to.rank.0]);
    assert_eq!(home.elsewhere(id, &without), Some(Reply::Elsewhere(id)), "who has it by then others know");
}

#[test]
fn a_view_that_ends_begins_the_move_anew_or_ends_it() {
    let ((mut home, id, view_of), mut out) = (one(), vec![]);
    stopped(&mut home, id, &view_of, &mut out);
    home.view_ends();
    let stands = [Stands { id, word: Word::new(4, 2) }];
    home.renewed(extents_at(4) + BYTES, &stands, &view(2, &[1, 2, 3]), &mut out);
    // The place that it had asked for is looked at as that of a copy. It was never filled.
    let said = asked(&mut out);
    assert!(said.len() == 1 && said[0].starts_with("Hold"), "{said:?}");
    let to = home.segments[&id].segment.backups[0].home;
    home.answered(id, to, Reply::Refused(Refusal::Released { id }), &view(2, &[1, 2, 3]), &mut out);
    assert_eq!(home.find(id).map(|segment| segment.backups.len()), Ok(0));
    // What is given away does not come back, whether that was heard or not.
    let (mut home, id, view, to) = given();
    home.view_ends();
    assert_eq!((home.taken(), home.elsewhere(id, &view)), (0, Some(Reply::Held { id, by: to })));
}

#[test]
fn one_copy_too_many_leaves_before_the_segment_is_served() {
    let ((mut home, id, view_of), mut out) = (one(), vec![]);
    stopped(&mut home, id, &view_of, &mut out);
    let to = home.segments[&id].segment.backups[0].home;
    home.view_ends();
    let next = view(2, &[1, 2, 3]);
    home.renewed(extents_at(4) + BYTES, &[Stands { id, word: Word::new(4, 2) }], &next, &mut out);
    out.clear();
    home.answered(id, to, Reply::Holds(Word::new(4, 2).to_bits()), &next, &mut out);
    assert_eq!(asked(&mut out), [format!("Leave {}", to.rank)]);
    assert!(home.find(id).is_err());
    home.answered(id, to, Reply::Done, &next, &mut out);
    assert_eq!(asked(&mut out), ["2 steps at 1"]);
    home.completed(id, &[Given::Word(Word::new(4, 2).to_bits()), Given::Word(5)], &next, &mut out);
    let [HomeAction::Post { steps, .. }] = &out[..] else { panic!("{out:?}") };
    let control = home.segments[&id].place.control;
    assert_eq!(steps[..], [Step::Swap(claims_at(control), 5, 4)], "slots that others had claimed are free");
}

#[test]
fn what_is_released_while_a_place_is_looked_for_needs_none() {
    let ((mut home, id, view), mut out) = (one(), vec![]);
    home.begin_move(id, rank(1), &view, &mut out);
    assert!(!home.begin_move(id, rank(1), &view, &mut out), "once");
    home.release(QuestionId { from: rank(3), number: 2 }, id, 7, &mut out);
    out.clear();
    home.reserved(id, rank(2), Reply::Place(place(2)), &view, &mut out);
    assert_eq!(asked(&mut out), ["Drop 2"]);
    // A segment that finds no room is reclaimed.
    let (mut home, id, view) = one();
    home.begin_move(id, rank(1), &view, &mut out);
    for at in [2, 3] {
        let none = Refusal::NoRoom { home: rank(at), asked: 1, free: 0, largest: 0 };
        home.reserved(id, rank(at), Reply::Refused(none), &view, &mut out);
    }
    assert!(home.segments[&id].stage.is_ending() && home.segments[&id].end == End::Reclaimed);
}

/// A home that has no memory in this view yet may have room soon: nothing is lost for that.
#[test]
fn what_is_to_go_waits_for_a_home_that_has_no_memory_yet() {
    let ((mut home, id, view), mut out) = (one(), vec![]);
    home.set_offer(0, Duration::ZERO, Time::ZERO, &mut out);
    let refused = |home: &mut Home, at, out: &mut Vec<HomeAction>| {
        let none = Refusal::NoRoom { home: rank(at), asked: 1, free: 0, largest: 0 };
        let refusal = if at == 2 { Refusal::NoHome { who: "2".into() } } else { none };
        home.reserved(id, rank(at), Reply::Refused(refusal), &view, out);
    };
    let mut now = Time::ZERO;
    for _ in 0..3 {
        out.clear();
        home.reclaim(&view, now, &mut out);
        assert!(asked(&mut out)[0].starts_with("Reserve"), "it is tried");
        [2, 3].into_iter().for_each(|at| refused(&mut home, at, &mut out));
        assert!(home.find(id).is_ok());
        let again = home.reclaim_at().unwrap();
        assert!(home.goes_in(id, now).is_some_and(|goes_in| goes_in >= Duration::from_millis(100)), "{again:?}");
        now = now + home.goes_in(id, now).unwrap();
    }
    home.reclaim(&view, now, &mut out);
    asked(&mut out);
    [3, 3].into_iter().for_each(|at| refused(&mut home, at, &mut out));
    assert!(home.segments[&id].stage.is_ending() && home.segments[&id].end == End::Reclaimed);
}

/// Home 2 holds a copy of what home 1 leads, and home 3 another.
fn copy() -> (Home, Segment) {
    let (led, id) = two();
    let segment = led.find(id).unwrap().clone();
    let (mut home, mut out) = (home(2), vec![]);
    home.reserve(QuestionId { from: rank(1), number: 1 }, Segment { backups: vec![], ..segment.clone() }, &mut out);
    home.completed(id, &[], &view(1, &[1, 2, 3]), &mut out);
    let segment = Segment { backups: vec![home.segments[&id].place, place(3)], ..segment };
    assert_eq!(home.hold(segment.clone()), Reply::Holds(0));
    (home, segment)
}

/// The leader may be gone by then; the other copy's holder says the same.
#[test]
fn who_held_a_copy_of_what_was_released_sends_nobody_to_others_who_did() {
    let (next, words) = (view(2, &[2, 3]), [Given::Word(0), Given::Word(1)]);
    for (end, says) in [(End::Released, None), (End::Moved, Some(3))] {
        let ((mut home, segment), mut out) = (copy(), vec![]);
        let id = segment.id;
        let says = says.map(|by| Reply::Held { id, by: rank(by) });
        home.drop_copy(id, end, &mut out);
        assert_eq!(home.elsewhere(id, &next), says);
        home.completed(id, &words, &next, &mut out);
        assert_eq!((home.taken(), home.elsewhere(id, &next)), (0, says));
    }
    // It hears of it in the next view.
    let told = [
        (Reply::Refused(Refusal::Released { id: copy().1.id }), None),
        (Reply::Segment(Segment { backups: vec![place(4)], ..copy().1 }), Some(4)),
    ];
    for (reply, says) in told {
        let ((mut home, segment), mut out) = (copy(), vec![]);
        let (id, next) = (segment.id, view(2, &[1, 2, 3]));
        home.view_ends();
        home.renewed(extents_at(4) + BYTES, &[Stands { id, word: Word::new(6, 1) }], &next, &mut out);
        home.told_where(id, rank(1), reply, &next, &mut out);
        home.completed(id, &words, &next, &mut out);
        let says = says.map(|by| Reply::Held { id, by: rank(by) });
        assert_eq!((home.taken(), home.elsewhere(id, &view(3, &[2, 3, 4]))), (0, says));
    }
    // A place that was not filled when the view ended.
    let ((mut home, segment), mut out) = (copy(), vec![]);
    let id = segment.id;
    home.drop_copy(id, End::Released, &mut out);
    home.completed(id, &words, &next, &mut out);
    home.reserve(
        QuestionId { from: rank(3), number: 2 },
        Segment { home: rank(3), backups: vec![], ..segment },
        &mut out,
    );
    home.view_ends();
    assert_eq!((home.taken(), home.elsewhere(id, &next)), (0, Some(Reply::Held { id, by: rank(3) })));
}

/// As many homes hold it as can be asked for, and one of them is to leave: as long as it has not, there is one more.
#[test]
fn all_that_is_said_of_a_segment_at_most_homes_can_be_read() {
    let (view, mut out) = (view(1, &[1, 2, 3, 4, 5]), vec![]);
    let mut home = home(1);
    let wanted = Wanted { copies: 4, ..Wanted::new(Some(SegmentName::new("a").unwrap()), 8, Coherence::Strict, 7) };
    let token = Token { asker: rank(3), request: 1 };
    home.allocate(QuestionId { from: rank(3), number: 1 }, token, wanted, [2, 3, 4].map(rank).to_vec(), &mut out);
    let id = SegmentId { home: rank(1), number: 1 };
    let mut most = 0;
    let mut leaver = Some(rank(2));
    for _ in 0..100 {
        let Some(action) = (!out.is_empty()).then(|| out.remove(0)) else {
            if home.find(id).is_ok()
                && let Some(who) = leaver.take()
            {
                assert!(home.begin_move(id, who, &view, &mut out));
                continue;
            }
            break;
        };
        match action {
            HomeAction::Post { steps, .. } => {
                let given: Vec<Given> = steps.iter().map(given_by).collect();
                home.completed(id, &given, &view, &mut out);
            }
            HomeAction::Ask { to, question, .. } => {
                let message = Message::Ask { number: 1, oldest: 1, question: question.clone() };
                let frame = Frame { view: view.number(), from: rank(1), to, message };
                assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
                if let Question::Hold(segment) = &question {
                    most = most.max(segment.places().count());
                }
                let reply = match question {
                    Question::Reserve(_) => Reply::Place(place(to.rank.0)),
                    Question::Hold(_) => Reply::Holds(0),
                    _ => Reply::Done,
                };
                match question {
                    Question::Reserve(_) => home.reserved(id, to, reply, &view, &mut out),
                    _ => home.answered(id, to, reply, &view, &mut out),
                }
            }
            _ => {}
        }
    }
    let held: Vec<_> = home.find(id).unwrap().places().map(|place| place.home).collect();
    assert_eq!((most, held), (MOST_PLACES, [1, 3, 4, 5].map(rank).to_vec()));
}

/// Numbers are given once: a member that says otherwise is faulty, and all of its report is ignored.
#[test]
fn what_is_said_of_another_segment_changes_nothing() {
    let ((mut home, segment), mut out) = (copy(), vec![]);
    let larger = Segment { wanted: Wanted { bytes: 4096, ..segment.wanted.clone() }, ..segment.clone() };
    let released = Reply::Refused(Refusal::Released { id: segment.id });
    assert_eq!(home.hold(larger.clone()), released);
    home.adopted(QuestionId { from: rank(1), number: 9 }, larger.clone(), &mut out);
    assert_eq!(asked(&mut out), ["Refused"]);
    let next = view(2, &[1, 2, 3]);
    home.view_ends();
    home.renewed(extents_at(4) + BYTES, &[Stands { id: segment.id, word: Word::new(6, 1) }], &next, &mut out);
    home.told_where(segment.id, rank(1), Reply::Segment(larger), &next, &mut out);
    assert_eq!(home.segments[&segment.id].segment.wanted, segment.wanted);
    home.completed(segment.id, &[Given::Word(0), Given::Word(1)], &next, &mut out);
    assert_eq!(home.taken(), 0);
}

#[test]
fn who_holds_an_older_list_strikes_off_who_has_left() {
    // Home 2 holds a copy of what home 1 led.
    let (led, id) = two();
    let segment = led.find(id).unwrap().clone();
    let (mut home, mut out) = (home(2), vec![]);
    home.reserve(QuestionId { from: rank(1), number: 1 }, Segment { backups: vec![], ..segment }, &mut out);
    home.completed(id, &[], &view(1, &[1, 2, 3]), &mut out);
    home.view_ends();
    let next = view(2, &[1, 2, 3]);
    out.clear();
    home.renewed(extents_at(4) + BYTES, &[Stands { id, word: Word::new(6, 1) }], &next, &mut out);
    assert_eq!(asked(&mut out), ["Where 1"]);
    assert!(home.is_comparing(id));
    home.told_where(id, rank(1), Reply::Elsewhere(id), &next, &mut out);
    // It leads, and looks for another home for the second copy.
    assert_eq!(home.segments[&id].segment.home, rank(2));
    let said = asked(&mut out);
    assert!(said.len() == 1 && said[0].starts_with("Reserve"), "{said:?}");
    for at in [1, 3] {
        let none = Refusal::NoWords { home: rank(at), most: 4 };
        home.reserved(id, rank(at), Reply::Refused(none), &next, &mut out);
    }
    assert_eq!(asked(&mut out).last().unwrap(), "2 steps at 2");
    home.completed(id, &[Given::Word(Word::new(6, 1).to_bits()), Given::Word(2)], &next, &mut out);
    home.completed(id, &[Given::Word(2)], &next, &mut out);
    let said = asked(&mut out);
    assert!(said.last().unwrap().starts_with("Register"), "{said:?}: it was reported by nobody in this view");
    home.answered(id, rank(1), Reply::Done, &next, &mut out);
    assert!(asked(&mut out)[0].starts_with("Moved") && home.find(id).is_err());
    home.answered(id, rank(1), Reply::Done, &next, &mut out);
    assert!(home.find(id).is_ok());
}
