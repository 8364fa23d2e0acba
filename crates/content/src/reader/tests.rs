use super::*;
use crate::hit::{Verdict, look};
use crate::names::Dependency;
use crate::table::Word;

const ME: Incarnation = Incarnation::new(1, 1);
const HOME: Incarnation = Incarnation::new(2, 1);
const VIEW: ViewNumber = ViewNumber(1);
const PAGE: PageId = PageId(9);
const LEASE: Lease = Lease { until: Time::from_nanos(1_000_000_000), acknowledged: VIEW, in_effect: VIEW };
const WORDS: Words = Words { home: HOME, word: Word(20), everything: Word(30), purge: Word(50), clock: 40 };

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn reader() -> Reader<&'static str> {
    Reader::new(ME, ReaderLimits { fills: 2, waiters: 2, unstorable: 4, ..ReaderLimits::default() })
}

fn start(reader: &mut Reader<&'static str>, key: &'static str, waiter: Waiter) -> Start {
    reader.start(&key, (PAGE, Kind::Coherent), waiter, Some((VIEW, WORDS)), &LEASE, at(0))
}

fn lead(reader: &mut Reader<&'static str>, key: &'static str) -> FillId {
    match start(reader, key, 0) {
        Start::Lead(fill) => fill,
        other => panic!("{other:?}"),
    }
}

fn accepted(request: FillId) -> Registered {
    Registered { view: VIEW, from: HOME, to: ME, request: request.0, outcome: Ok(Word(22)) }
}

#[test]
fn one_request_fills_for_all_that_wait() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    assert_eq!(start(&mut reader, "a", 1), Start::Wait(fill));
    let register = reader.answered(fill, Scope::of([Dependency(1)]), at(1)).unwrap();
    assert_eq!((register.word, register.common, register.clock, register.to), (Word(20), Word(30), 40, HOME));
    let settled = reader.registered(&accepted(fill), &LEASE, at(2)).unwrap();
    assert_eq!((settled.serve, settled.forward), (vec![1], vec![]));
    let stamp = settled.stored.unwrap();
    let now = Words { word: Word(22), clock: 99, ..WORDS };
    assert_eq!(look(&stamp, &now, VIEW, &LEASE, at(3)), Verdict::Fresh, "stored under the word that came back");
    assert_eq!(look(&stamp, &WORDS, VIEW, &LEASE, at(3)), Verdict::Moved);
    assert!(reader.is_empty());
}

#[test]
fn a_page_of_everything_compares_the_clock() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    reader.answered(fill, Scope::Everything, at(1)).unwrap();
    let stamp = reader.registered(&accepted(fill), &LEASE, at(2)).unwrap().stored.unwrap();
    let now = Words { word: Word(22), ..WORDS };
    assert_eq!(look(&stamp, &now, VIEW, &LEASE, at(3)), Verdict::Fresh);
    assert_eq!(look(&stamp, &Words { clock: 41, ..now }, VIEW, &LEASE, at(3)), Verdict::Moved);
}

#[test]
fn nobody_joins_once_the_registration_is_sent() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    reader.answered(fill, Scope::Everything, at(1)).unwrap();
    let second = lead(&mut reader, "a");
    assert_ne!(fill, second);
    reader.registered(&accepted(fill), &LEASE, at(2)).unwrap();
    assert_eq!(start(&mut reader, "a", 3), Start::Wait(second), "the end of the first leaves the second joinable");
}

#[test]
fn who_waited_is_not_served_without_acceptance_lease_and_view() {
    let refused = Registered { outcome: Err(Refusal::Moved), ..accepted(FillId(1)) };
    let later = Lease { acknowledged: ViewNumber(2), ..LEASE };
    for (registered, lease, now) in
        [(refused, LEASE, at(2)), (accepted(FillId(1)), LEASE, at(1000)), (accepted(FillId(1)), later, at(2))]
    {
        let mut reader = reader();
        let fill = lead(&mut reader, "a");
        start(&mut reader, "a", 1);
        reader.answered(fill, Scope::Everything, at(1)).unwrap();
        let settled = reader.registered(&registered, &lease, now).unwrap();
        assert_eq!((settled.serve, settled.forward), (vec![], vec![1]));
    }
}

#[test]
fn somebody_elses_answers_are_passed_over() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    assert_eq!(reader.registered(&accepted(fill), &LEASE, at(1)), None, "not asked yet");
    reader.answered(fill, Scope::Everything, at(1)).unwrap();
    let other_home = Registered { from: Incarnation::new(2, 2), ..accepted(fill) };
    let other_life = Registered { to: Incarnation::new(1, 0), ..accepted(fill) };
    assert_eq!(reader.registered(&other_home, &LEASE, at(1)), None);
    assert_eq!(reader.registered(&other_life, &LEASE, at(1)), None);
    assert_eq!(reader.registered(&accepted(FillId(77)), &LEASE, at(1)), None);
    assert!(reader.registered(&accepted(fill), &LEASE, at(1)).is_some());
}

#[test]
fn an_unstorable_page_is_never_waited_for_until_it_is_forgotten() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    start(&mut reader, "a", 1);
    let settled = reader.unstorable(fill, Unstorable::Page("private"), at(0)).unwrap();
    assert_eq!((settled.forward, settled.stored), (vec![1], Err(NotStored::Unstorable)));
    assert_eq!(start(&mut reader, "a", 2), Start::Alone(Alone::Unstorable("private")));
    let later = Lease { until: Time::FAR, ..LEASE };
    let mut again = |time| reader.start(&"a", (PAGE, Kind::Coherent), 2, Some((VIEW, WORDS)), &later, at(time));
    let Start::Lead(fill) = again(60_000) else { panic!("it is forgotten") };
    assert!(reader.unstorable(fill, Unstorable::Failure, at(60_000)).is_some());
    let mut again = |time| reader.start(&"a", (PAGE, Kind::Coherent), 2, Some((VIEW, WORDS)), &later, at(time));
    assert_eq!(again(60_999), Start::Alone(Alone::Failing));
    let Start::Lead(fill) = again(61_000) else { panic!("it is forgotten") };
    assert!(reader.unstorable(fill, Unstorable::Answer("status"), at(61_000)).is_some());
    let mut again = |time| reader.start(&"a", (PAGE, Kind::Coherent), 2, Some((VIEW, WORDS)), &later, at(time));
    assert_eq!(again(61_999), Start::Alone(Alone::Unstorable("status")));
    assert!(matches!(again(62_000), Start::Lead(_)));
}

#[test]
fn what_cannot_be_registered_is_forwarded_alone() {
    let mut reader = reader();
    let mut with = |words| reader.start(&"a", (PAGE, Kind::Coherent), 0, words, &LEASE, at(0));
    assert_eq!(with(None), Start::Alone(Alone::NoWords));
    assert_eq!(with(Some((ViewNumber(2), WORDS))), Start::Alone(Alone::NoLease));
    assert_eq!(with(Some((VIEW, Words { word: Word(21), ..WORDS }))), Start::Alone(Alone::Busy));
    assert_eq!(with(Some((VIEW, Words { everything: Word(31), ..WORDS }))), Start::Alone(Alone::Busy));
}

#[test]
fn fills_and_waiters_are_bounded() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    lead(&mut reader, "b");
    assert_eq!(start(&mut reader, "c", 0), Start::Alone(Alone::Full));
    assert_eq!(start(&mut reader, "a", 1), Start::Wait(fill));
    assert_eq!(start(&mut reader, "a", 2), Start::Wait(fill));
    assert_eq!(start(&mut reader, "a", 3), Start::Alone(Alone::Full));
    assert_eq!(reader.failed(fill).unwrap().forward, [1, 2]);
}

#[test]
fn a_fill_whose_words_moved_is_not_joined() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    let moved = Words { word: Word(24), ..WORDS };
    let second = reader.start(&"a", (PAGE, Kind::Coherent), 1, Some((VIEW, moved)), &LEASE, at(0));
    assert!(matches!(second, Start::Lead(id) if id != fill));
}

#[test]
fn a_registration_without_an_answer_is_given_up() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    start(&mut reader, "a", 1);
    reader.answered(fill, Scope::Everything, at(1)).unwrap();
    assert_eq!(reader.next_deadline(), Some(at(501)));
    assert_eq!(reader.tick(at(500)), []);
    let late = reader.tick(at(501));
    assert_eq!((late[0].stored, &late[0].forward[..]), (Err(NotStored::Late), &[1][..]));
    assert_eq!(reader.registered(&accepted(fill), &LEASE, at(502)), None);
}

#[test]
fn a_fill_whose_body_takes_long_is_not_waited_for_and_is_stored() {
    let mut reader = reader();
    let fill = lead(&mut reader, "a");
    assert_eq!(start(&mut reader, "a", 1), Start::Wait(fill));
    assert_eq!(start(&mut reader, "a", 2), Start::Wait(fill));
    assert_eq!(reader.slow(fill), [1, 2]);
    assert_eq!((start(&mut reader, "a", 3), reader.slow(fill)), (Start::Alone(Alone::Slow), vec![]));
    assert!(reader.answered(fill, Scope::Everything, at(1)).is_some(), "it goes on");
    assert!(reader.slow(fill).is_empty(), "it is here");
    assert!(matches!(start(&mut reader, "a", 4), Start::Lead(_)), "whoever comes now could be told something older");
}

/// (I2) Refresh 0 is answered and its registration slow; the origin changes; refresh 1 is answered and stored; refresh 0 must not be stored over it.
#[test]
fn a_standard_page_is_fetched_by_one_request_until_it_is_stored() {
    for one_refresh in [true, false] {
        let rules = Rules { one_refresh, ..Rules::ALL };
        let mut reader = Reader::with_rules(ME, ReaderLimits::default(), rules);
        let begin = |reader: &mut Reader<&str>, waiter| {
            reader.start(&"a", (PAGE, Kind::Standard), waiter, Some((VIEW, WORDS)), &LEASE, at(0))
        };
        let Start::Lead(fill) = begin(&mut reader, 1) else { panic!("the first leads") };
        let register = reader.answered(fill, Scope::of([Dependency(1)]), at(1)).unwrap();
        assert_eq!((register.kind, register.common), (Kind::Standard, WORDS.purge));
        let second = begin(&mut reader, 2);
        assert_eq!(second == Start::Alone(Alone::Slow), one_refresh, "{second:?}");
        if one_refresh {
            let settled = reader.failed(fill).unwrap();
            assert!(settled.forward.is_empty());
            assert!(matches!(begin(&mut reader, 3), Start::Lead(_)), "then the next one may");
        }
    }
}

#[test]
fn a_coherent_and_a_standard_request_do_not_share_a_fill() {
    let mut reader = Reader::new(ME, ReaderLimits::default());
    let mut begin = |kind, words| reader.start(&"a", (PAGE, kind), 0, Some((VIEW, words)), &LEASE, at(0));
    let busy = Words { everything: Word(31), ..WORDS };
    assert_eq!(begin(Kind::Coherent, busy), Start::Alone(Alone::Busy));
    assert!(matches!(begin(Kind::Standard, busy), Start::Lead(_)), "the open update does not concern it");
    assert!(matches!(begin(Kind::Coherent, WORDS), Start::Lead(_)));
}
