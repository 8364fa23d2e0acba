//! Which segments have to go, and what a home does when their notice is over.

use proptest::prelude::*;

use super::*;
use crate::access::{Given, Step};
use crate::actions::{QuestionId, Stands};
use crate::layout::{FREE_AT, GOING_AT, Word, word_at};
use crate::wire::{Question, Reply, Token};
use crate::{Coherence, MemoryOptions, Rules, SegmentName, Wanted};
use verbena_cluster::{Member, Roles};
use verbena_terms::ViewNumber;

const SHARE: u64 = 64 * 1024;
const ME: Incarnation = Incarnation::new(1, 1);

fn view() -> View {
    let member = Member { incarnation: ME, name: "n1".into(), address: String::new(), roles: Roles::ALL };
    View::new(ViewNumber(1), vec![member], vec![]).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A home with segments of these sizes in kilobytes, two slots each.
fn home(kilobytes: &[u64]) -> Home {
    let options =
        MemoryOptions { bytes: SHARE, segments: 16, owner_bytes: u64::MAX, copies_bytes: 0, rules: Rules::ALL };
    let mut home = Home::new(ME, options);
    home.renewed(extents_at(16) + SHARE, &[], &view(), &mut vec![]);
    for (nth, kilobytes) in kilobytes.iter().enumerate() {
        assert_eq!(allocate(&mut home, nth as u64, *kilobytes), Ok(()));
    }
    home
}

fn allocate(home: &mut Home, nth: u64, kilobytes: u64) -> Result<(), Refusal> {
    let name = SegmentName::new(&format!("s{nth}")).unwrap();
    let wanted = Wanted { writers: 1, ..Wanted::new(Some(name), kilobytes * 512 - 16, Coherence::Strict, 7) };
    let (token, asker, mut out) = (Token { asker: ME, request: nth }, QuestionId { from: ME, number: nth }, vec![]);
    home.allocate(asker, token, wanted, vec![], &mut out);
    if let Some(HomeAction::Reply { reply: Reply::Refused(refusal), .. }) = out.pop() {
        return Err(refusal);
    }
    home.completed(id(home.made()), &[], &view(), &mut vec![]);
    home.answered(id(home.made()), ME, Reply::Done, &view(), &mut out);
    Ok(())
}

fn id(number: u64) -> SegmentId {
    SegmentId { home: ME, number }
}

/// What it posts is executed, and what it asks is answered, until nothing is left.
fn go_on(home: &mut Home, mut out: Vec<HomeAction>) -> Vec<HomeAction> {
    let mut all = vec![];
    while !out.is_empty() {
        for action in std::mem::take(&mut out) {
            match &action {
                HomeAction::Post { id, steps, .. } => {
                    let given: Vec<Given> = steps
                        .iter()
                        .map(|step| {
                            Given::Word(match step {
                                Step::Swap(_, expected, _) => *expected,
                                _ => 0,
                            })
                        })
                        .collect();
                    home.completed(*id, &given, &view(), &mut out);
                }
                HomeAction::Ask { id, to, .. } => home.answered(*id, *to, Reply::Done, &view(), &mut out),
                _ => {}
            }
            all.push(action);
        }
    }
    all
}

fn going(home: &Home, now: Time) -> Vec<(u64, u64)> {
    let all = (1..=home.made()).filter_map(|nth| Some((nth, home.goes_in(id(nth), now)?.as_millis() as u64)));
    all.collect()
}

fn word(out: &[HomeAction], at: u64) -> Option<u64> {
    out.iter().rev().find_map(|action| match action {
        HomeAction::Store { at: stored, word } if *stored == at => Some(*word),
        _ => None,
    })
}

#[test]
fn what_does_not_fit_goes_when_its_notice_is_over() {
    let mut home = home(&[8, 16, 4, 16]);
    let mut out = vec![];
    home.set_offer(30 * 1024, ms(100), at(0), &mut out);
    assert_eq!(going(&home, at(40)), [(4, 60)], "the smallest that suffices, and of equal ones the younger");
    assert_eq!((word(&out, FREE_AT), word(&out, GOING_AT)), (Some(0), Some(1)), "what peers read");
    assert!(
        out.contains(&HomeAction::Note(Note::Noticed { segments: 1, bytes: 16 << 10, notice: ms(100) })),
        "{out:?}"
    );
    let no_room = allocate(&mut home, 9, 4).unwrap_err();
    assert_eq!(no_room, Refusal::NoRoom { home: ME, asked: 4096, free: 0, largest: 0 });
    out.clear();
    home.reclaim(&view(), at(99), &mut out);
    assert!(home.find(id(4)).is_ok() && word(&out, GOING_AT) == Some(1), "{out:?}");
    out.clear();
    home.reclaim(&view(), at(100), &mut out);
    let marked = Word::new(1, 0).ended(End::Reclaimed).to_bits();
    let control = home.segments[&id(4)].place.control;
    let mark = HomeAction::Post {
        id: id(4),
        at: ME,
        steps: vec![Step::Swap(word_at(control), Word::new(1, 0).to_bits(), marked)],
    };
    assert!(out.contains(&mark) && word(&out, GOING_AT) == Some(0), "{out:?}");
    let reclaimed = Refusal::Reclaimed { id: id(4), home: ME };
    assert_eq!(home.find(id(4)), Err(reclaimed.clone()));
    let all = go_on(&mut home, out);
    let asked = |question: &Question| {
        all.iter().any(|action| matches!(action, HomeAction::Ask { question: asked, .. } if asked == question))
    };
    let name = SegmentName::new("s3").unwrap();
    assert!(asked(&Question::Unregister { name, id: id(4), end: End::Reclaimed }));
    assert!(asked(&Question::Forget { id: id(4), end: End::Reclaimed }));
    assert_eq!((home.taken(), home.free().0, home.find(id(4))), (28 << 10, 2 << 10, Err(reclaimed)));
    assert!(all.iter().any(|action| matches!(action, HomeAction::Discard { bytes, .. } if *bytes >= 16 << 10)));
    home.reclaim(&view(), at(100), &mut vec![]);
    assert_eq!((home.reclaim_at(), allocate(&mut home, 9, 2)), (None, Ok(())), "it has what it offers");
}

#[test]
fn who_need_not_go_any_more_is_spared() {
    let mut home = home(&[8, 4, 4, 16]);
    home.set_offer(8 << 10, ms(100), at(0), &mut vec![]);
    assert_eq!(going(&home, at(0)), [(1, 100), (4, 100)]);
    let mut out = vec![];
    home.release(QuestionId { from: ME, number: 77 }, id(1), 7, &mut out);
    home.reclaim(&view(), at(50), &mut out);
    assert_eq!(going(&home, at(50)), [(4, 50)], "what is released counts, before its memory is free");
    home.release(QuestionId { from: ME, number: 78 }, id(4), 7, &mut out);
    home.reclaim(&view(), at(51), &mut out);
    assert_eq!((going(&home, at(51)), home.reclaim_at()), (vec![], None));
    go_on(&mut home, out);
    assert_eq!((home.taken(), home.find(id(4))), (8 << 10, Err(Refusal::Released { id: id(4) })));
}

#[test]
fn asking_again_postpones_nothing() {
    let mut home = home(&[8, 8, 8]);
    let mut out = vec![];
    home.set_offer(16 << 10, ms(100), at(0), &mut out);
    home.set_offer(16 << 10, ms(100), at(60), &mut out);
    assert_eq!(going(&home, at(60)), [(3, 40)]);
    home.set_offer(8 << 10, ms(100), at(70), &mut out);
    assert_eq!(going(&home, at(70)), [(2, 100), (3, 30)], "who is new has all of the notice");
    home.set_offer(8 << 10, ms(10), at(70), &mut out);
    assert_eq!(going(&home, at(70)), [(2, 10), (3, 10)]);
    home.set_offer(SHARE, ms(10), at(75), &mut out);
    assert_eq!((going(&home, at(75)), home.reclaim_at(), home.free().0), (vec![], None, SHARE - (24 << 10)));
    home.reclaim(&view(), at(1000), &mut out);
    assert!((1..=3).all(|nth| home.find(id(nth)).is_ok()));
    assert_eq!(allocate(&mut home, 9, 40), Ok(()));
}

#[test]
fn what_stood_in_no_view_is_given_notice_when_it_stands() {
    let mut home = home(&[8]);
    let mut out = vec![];
    let wanted = Wanted { writers: 1, ..Wanted::new(None, 4080, Coherence::Strict, 7) };
    home.allocate(QuestionId { from: ME, number: 50 }, Token { asker: ME, request: 50 }, wanted, vec![], &mut out);
    home.set_offer(0, ms(100), at(0), &mut out);
    assert_eq!(going(&home, at(0)), [(1, 100)]);
    home.completed(id(2), &[], &view(), &mut out);
    assert_eq!(home.reclaim_at(), Some(Time::ZERO));
    home.reclaim(&view(), at(30), &mut out);
    assert_eq!(going(&home, at(30)), [(1, 70), (2, 100)]);
    // A view ends: a segment under notice stays under it.
    home.view_ends();
    assert_eq!(home.reclaim_at(), None);
    let stand = [1, 2].map(|nth| Stands { id: id(nth), word: Word::new(1, 0) });
    home.renewal();
    home.renewed(extents_at(16) + SHARE, &stand, &view(), &mut out);
    home.reclaim(&view(), at(30), &mut out);
    assert_eq!(going(&home, at(30)), [(1, 70), (2, 100)]);
    // The next incarnation has no segments, and offers no more.
    let next = Home::after(&home, Incarnation::new(1, 2));
    assert_eq!((next.offered(), next.taken(), next.going()), (0, 0, 0));
}

#[test]
fn pinned_memory_is_less_in_the_next_view() {
    let mut home = home(&[8, 16, 4, 16]);
    let full = extents_at(16) + SHARE;
    let renewal = home.renewal();
    assert_eq!((renewal.bytes, renewal.least), (full, full));
    let mut out = vec![];
    home.set_offer(28 << 10, Duration::ZERO, at(0), &mut out);
    home.release(QuestionId { from: ME, number: 77 }, id(2), 7, &mut out);
    home.reclaim(&view(), at(0), &mut out);
    go_on(&mut home, out);
    assert_eq!(home.taken(), 28 << 10);
    home.view_ends();
    let renewal = home.renewal();
    assert_eq!((renewal.bytes, renewal.least), (full, extents_at(16) + (28 << 10)));
    let mut places: Vec<(u64, u64)> = renewal
        .segments
        .iter()
        .map(|stay| (stay.place.at, stay.place.at + stay.segment.wanted.extent_bytes()))
        .collect();
    places.sort_unstable();
    assert!(
        places.windows(2).all(|two| two[0].1 <= two[1].0) && places.last().unwrap().1 <= renewal.least,
        "{places:?}"
    );
    assert!(renewal.segments.iter().any(|stay| stay.from != stay.place.at));
    home.renewed(renewal.least, &[], &view(), &mut vec![]);
    let stays = |stay: &Stay| home.find(stay.segment.id).is_ok_and(|segment| segment.at == stay.place.at);
    assert!(renewal.segments.iter().all(stays));
    // More is offered, and there is no more before the next view.
    home.set_offer(SHARE, Duration::ZERO, at(0), &mut vec![]);
    assert_eq!(home.free(), (0, 0));
    home.view_ends();
    home.renewed(full, &[], &view(), &mut vec![]);
    assert_eq!(home.free().0, SHARE - (28 << 10));
}

proptest! {
    #[test]
    fn what_goes_suffices_and_nothing_of_it_could_stay(sizes in prop::collection::vec(1u64..100, 0..12), needed in 0u64..600) {
        let of: Vec<(u64, SegmentId)> = sizes.iter().enumerate().map(|(nth, bytes)| (*bytes, id(nth as u64))).collect();
        let all: u64 = sizes.iter().sum();
        let bytes = |ids: &[SegmentId]| ids.iter().map(|id| sizes[id.number as usize]).sum::<u64>();
        let (chosen, lacking) = choose(of.clone(), needed);
        prop_assert_eq!(lacking, needed.saturating_sub(all));
        prop_assert!(bytes(&chosen) >= needed.min(all));
        prop_assert!(chosen.iter().collect::<BTreeSet<_>>().len() == chosen.len());
        // Less is needed than was chosen for.
        for less in [needed, needed / 2, 0] {
            let chosen_of = chosen.iter().map(|id| (sizes[id.number as usize], *id)).collect();
            let go: Vec<SegmentId> = spare(chosen_of, less).into_iter().collect();
            prop_assert!(bytes(&go) >= less.min(all));
            for id in &go {
                prop_assert!(bytes(&go) - sizes[id.number as usize] < less, "{id} could stay");
            }
        }
    }
}
