//! What a home says and asks of copies, as a dialogue.

use super::super::*;
use crate::dialogue::{rank, view};
use crate::layout::{End, Word, extents_at};
use crate::wire::Token;
use crate::{Coherence, MemoryOptions, Rules, SegmentName, Wanted};

pub(in crate::home) fn home(of: u32) -> Home {
    let (owner_bytes, rules) = (u64::MAX, Rules::ALL);
    let options = MemoryOptions { bytes: 4096, segments: 4, owner_bytes, copies_bytes: 0, rules };
    let mut home = Home::new(rank(of), options);
    home.renewed(extents_at(4) + 4096, &[], &view(1, &[1, 2, 3]), &mut vec![]);
    home
}

/// The questions with their receivers, and the posts.
pub(in crate::home) fn asked(out: &mut Vec<HomeAction>) -> Vec<String> {
    let said = out.drain(..).filter_map(|action| match action {
        HomeAction::Ask { to, question, .. } | HomeAction::Tell { to, question } => {
            let question = format!("{question:?}");
            let word = question.split(['(', ' ']).next().unwrap_or_default();
            Some(format!("{word} {}", to.rank))
        }
        HomeAction::Post { at, steps, .. } => Some(format!("{} steps at {}", steps.len(), at.rank)),
        HomeAction::Reply { reply, .. } => Some(format!("{reply:?}").split(['(', ' ']).next().unwrap().to_owned()),
        HomeAction::Store { .. } | HomeAction::Discard { .. } | HomeAction::Note(_) => None,
    });
    said.collect()
}

/// A segment at homes 1 and 2, as home 1 makes it.
pub(in crate::home) fn two() -> (Home, SegmentId) {
    let (mut home, view, mut out) = (home(1), view(1, &[1, 2, 3]), vec![]);
    let wanted = Wanted { copies: 2, ..Wanted::new(Some(SegmentName::new("a").unwrap()), 8, Coherence::Strict, 7) };
    let token = Token { asker: rank(3), request: 1 };
    home.allocate(QuestionId { from: rank(3), number: 1 }, token, wanted, vec![rank(3), rank(2)], &mut out);
    let id = SegmentId { home: rank(1), number: 1 };
    assert_eq!(asked(&mut out), ["4 steps at 1"]);
    home.completed(id, &[], &view, &mut out);
    assert_eq!(asked(&mut out), ["Reserve 3"]);
    let none = Refusal::NoWords { home: rank(3), most: 4 };
    home.reserved(id, rank(3), Reply::Refused(none), &view, &mut out);
    assert_eq!(asked(&mut out), ["Reserve 2"]);
    let place = Place { home: rank(2), control: 3, at: 1024 };
    home.reserved(id, rank(2), Reply::Place(place), &view, &mut out);
    assert_eq!(asked(&mut out).len(), 1, "the registrar is asked before a copy is filled");
    home.answered(id, rank(1), Reply::Done, &view, &mut out);
    assert_eq!(asked(&mut out), ["Hold 2"]);
    home.answered(id, rank(2), Reply::Holds(0), &view, &mut out);
    assert_eq!(asked(&mut out), ["4 steps at 2"]);
    assert!(home.find(id).is_err(), "it is not served before its copies are there");
    home.completed(id, &[], &view, &mut out);
    assert_eq!(asked(&mut out), ["Segment"]);
    assert_eq!(home.find(id).unwrap().backups, [place]);
    (home, id)
}

/// The next view begins; at home 1 version 5 stands in slot 0, and home 2 holds this.
fn compared(word: Word) -> (Home, SegmentId, Vec<String>) {
    let ((mut home, id), mut out) = (two(), vec![]);
    home.view_ends();
    let view = view(2, &[1, 2]);
    home.renewed(extents_at(4) + 4096, &[Stands { id, word: Word::new(5, 0) }], &view, &mut out);
    assert_eq!(asked(&mut out), ["Hold 2"]);
    assert!(home.is_comparing(id));
    home.answered(id, rank(2), Reply::Holds(word.to_bits()), &view, &mut out);
    (home, id, asked(&mut out))
}

#[test]
fn copies_are_brought_to_the_highest_word_that_is_left() {
    let (home, id, said) = compared(Word::new(5, 0));
    assert_eq!((said.len(), home.find(id).is_ok()), (0, true), "{said:?}");
    let view = view(2, &[1, 2]);
    // A put was decided, and did not come to the home.
    let (mut home, id, said) = compared(Word::new(6, 1));
    assert_eq!(said, ["1 steps at 2"], "the value is read");
    let mut out = vec![];
    home.completed(id, &[Given::Bytes(vec![9; 16])], &view, &mut out);
    let [HomeAction::Post { at, steps, .. }] = &out[..] else { panic!("{out:?}") };
    let control = home.segments[&id].place.control;
    assert_eq!(*at, rank(1));
    let swapped = Step::Swap(word_at(control), Word::new(5, 0).to_bits(), Word::new(6, 1).to_bits());
    assert_eq!(steps[3..], [swapped, Step::Swap(claims_at(control), 1, 2)]);
    assert!(home.find(id).is_err());
    home.completed(id, &[], &view, &mut out);
    assert!(home.find(id).is_ok());
    // One did not come to a copy: its word is lower.
    let (_, _, said) = compared(Word::new(4, 1));
    assert_eq!(said, ["1 steps at 1"]);
}

#[test]
fn a_release_that_was_begun_is_ended() {
    let (mut home, id, mut said) = compared(Word::new(5, 0).ended(End::Released));
    // Everywhere first: a holder with an unmarked copy would lead it if this home went.
    let (view, mut out) = (view(2, &[1, 2]), vec![]);
    for (at, word) in [(2, Word::new(5, 0).ended(End::Released)), (1, Word::new(5, 0)), (1, Word::new(5, 0))] {
        assert_eq!(said, [format!("1 steps at {at}")]);
        assert!(home.is_comparing(id), "who asks meanwhile is told nothing");
        home.completed(id, &[Given::Word(word.to_bits())], &view, &mut out);
        said = asked(&mut out);
    }
    assert!(said[0].starts_with("Unregister"), "{said:?}");
    assert_eq!(home.find(id), Err(Refusal::Released { id }));
}

#[test]
fn a_release_is_said_when_it_is_at_all_copies() {
    let ((mut home, id), view, mut out) = (two(), view(1, &[1, 2, 3]), vec![]);
    home.release(QuestionId { from: rank(3), number: 2 }, id, 7, &mut out);
    assert_eq!(asked(&mut out), ["1 steps at 2"]);
    assert!(home.is_comparing(id), "who asks meanwhile is told nothing");
    let word = |word: Word| [Given::Word(word.to_bits())];
    home.completed(id, &word(Word::new(3, 1)), &view, &mut out);
    assert_eq!(asked(&mut out), ["1 steps at 2"], "with the word that stands there");
    home.completed(id, &word(Word::new(3, 1)), &view, &mut out);
    assert_eq!(asked(&mut out), ["1 steps at 1"]);
    home.completed(id, &word(Word::new(3, 1)), &view, &mut out);
    assert!(asked(&mut out)[0].starts_with("Unregister"));
    assert!(!home.is_comparing(id));
    home.answered(id, rank(1), Reply::Done, &view, &mut out);
    assert_eq!(asked(&mut out), ["Done", "Forget 1", "Forget 2", "Forget 3"]);
}

#[test]
fn who_holds_a_copy_leads_it_when_those_before_it_have_gone() {
    let (mut second, mut out) = (home(2), vec![]);
    let ((first, id), ask) = (two(), QuestionId { from: rank(1), number: 1 });
    let mut reserved = first.find(id).unwrap().clone();
    reserved.backups.clear();
    second.reserve(ask, reserved.clone(), &mut out);
    assert_eq!(asked(&mut out), ["2 steps at 2"]);
    second.completed(id, &[], &view(1, &[1, 2, 3]), &mut out);
    assert_eq!(asked(&mut out), ["Place"]);
    let place = second.segments[&id].place;
    let third = Place { home: rank(3), ..place };
    assert_eq!(second.hold(Segment { backups: vec![place, third], ..reserved }), Reply::Holds(0));
    let stands = |word| [Stands { id, word }];
    let stored = |out: &[HomeAction], word: Word| {
        out.contains(&HomeAction::Store { at: word_at(place.control), word: word.to_bits() })
    };
    let in_next = |mut home: Home, members: &[u32], word: Word| {
        let mut out = vec![];
        home.view_ends();
        home.renewed(extents_at(4) + 4096, &stands(word), &view(2, members), &mut out);
        // A mark is copied into the memory of the view: a node may have to learn of it in the next one.
        let lasts = home.segments.contains_key(&id) && word.slot().is_none();
        assert_eq!(stored(&out, word), lasts, "{out:?}");
        (asked(&mut out), home)
    };
    // The one before it is there: that says whether it is a copy still.
    let (said, mut asking) = in_next(second.clone(), &[1, 2, 3], Word::new(5, 0));
    assert_eq!(said, ["Where 1"]);
    let gone = Reply::Refused(Refusal::Released { id });
    asking.told_where(id, rank(1), gone.clone(), &view(2, &[1, 2, 3]), &mut out);
    let said = asked(&mut out);
    assert!(said[0].starts_with("Unregister") && said[1] == "2 steps at 2", "{said:?}: what nobody leads is dropped");
    let (_, mut told) = in_next(second.clone(), &[1, 2, 3], Word::new(5, 0));
    let now = told.segments[&id].segment.clone();
    assert_eq!(told.hold(now), Reply::Holds(Word::new(5, 0).to_bits()));
    told.told_where(id, rank(1), gone, &view(2, &[1, 2, 3]), &mut out);
    assert!(asked(&mut out).is_empty(), "who was told that it holds one waits for the word to drop it");
    // It has gone.
    let (said, led) = in_next(second.clone(), &[2, 3], Word::new(5, 0));
    assert_eq!((said, led.segments[&id].segment.backups.clone()), (vec!["Hold 3".to_owned()], vec![third]));
    assert_eq!(led.led(&view(2, &[2, 3])).len(), 1);
    // Of two places that were never filled the later one sends who asks to the one before it, and that one to the registrar.
    let next = view(2, &[2, 3]);
    let (_, left) = in_next(second.clone(), &[2, 3], Word::default());
    assert_eq!(left.elsewhere(id, &next), Some(Reply::Elsewhere(id)));
    // A place that was never filled is free, and so is a released one with no other copy left.
    let released = Word::new(5, 0).ended(End::Released);
    for (members, word) in [(&[2, 3][..], Word::default()), (&[2], released)] {
        let (said, left) = in_next(second.clone(), members, word);
        assert_eq!((said.len(), left.free().0), (0, 4096), "{word:?}: {said:?}");
    }
    // Where one is, it may be unmarked: it would be served again if this home went.
    let (said, copy) = in_next(second.clone(), &[1, 2, 3], released);
    assert_eq!((said, copy.led(&view(2, &[1, 2, 3])).len()), (vec!["Where 1".to_owned()], 0));
    let (said, mut ending) = in_next(second, &[2, 3], released);
    assert_eq!((said, ending.led(&next).len()), (vec!["Hold 3".to_owned()], 0), "nobody is told that it stands");
    ending.answered(id, rank(3), Reply::Holds(Word::new(5, 0).to_bits()), &next, &mut out);
    assert_eq!(asked(&mut out), ["1 steps at 3"]);
}

/// A bounded number of segments is compared at a time. Here each waits for a holder that leaves.
#[test]
fn the_next_copies_are_compared_when_a_holder_has_left() {
    let (owner_bytes, rules, segments) = (u64::MAX, Rules::ALL, 32);
    let options = MemoryOptions { bytes: 1 << 16, segments, owner_bytes, copies_bytes: 0, rules };
    let (mut home, mut out) = (Home::new(rank(1), options), vec![]);
    let (word, asker, token) = (Word::new(5, 0), None, None);
    let ids: Vec<_> = (1..=17).map(|number| SegmentId { home: rank(1), number }).collect();
    for id in &ids {
        let wanted = Wanted { copies: 2, ..Wanted::new(None, 8, Coherence::Strict, 7) };
        let (_, place) = home.share.take(&wanted).unwrap();
        let backups = [2, 3].map(|of| Place { home: rank(of), ..place }).to_vec();
        let segment = Segment { id: *id, wanted, home: rank(1), control: place.control, at: place.at, backups };
        let held = Held { segment, place, token, stage: Stage::Standing, asker, end: End::default() };
        home.segments.insert(*id, held);
    }
    home.view_ends();
    let stands: Vec<_> = ids.iter().map(|id| Stands { id: *id, word }).collect();
    let view = view(2, &[1, 2, 3]);
    home.renewed(extents_at(segments) + (1 << 16), &stands, &view, &mut out);
    assert_eq!(asked(&mut out), ["Hold 2", "Hold 3"].repeat(16));
    for id in &ids[1..] {
        for of in [2, 3] {
            home.answered(*id, rank(of), Reply::Holds(word.to_bits()), &view, &mut out);
        }
    }
    assert_eq!(asked(&mut out), ["Leave 3"; 16], "a place more than is wanted");
    home.answered(ids[1], rank(3), Reply::Done, &view, &mut out);
    assert_eq!(
        asked(&mut out),
        ["Hold 2", "2 steps at 1", "Hold 2", "Hold 3"],
        "and the last of the segments is compared"
    );
}
