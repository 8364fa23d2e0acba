use super::*;
use crate::pool::Pool;
use crate::region::{Rights, Secret};
use crate::tcp::wire::{LARGEST_TRANSFER, Request, Requests};
use crate::window::WINDOW;

const TARGET: Incarnation = Incarnation::new(2, 1);
const PATIENCE: Duration = Duration::from_secs(1);
const LATER: Time = Time::from_nanos(1_000_000_000);
const MUCH_LATER: Time = Time::from_nanos(9_000_000_000);

fn ledger() -> Ledger {
    Ledger::new(TARGET, "tcp://there".into())
}

fn key() -> RegionKey {
    RegionKey {
        owner: TARGET,
        region: 5,
        view: ViewNumber(1),
        bytes: 64,
        rights: Rights::Change,
        secret: Secret([1; 16]),
    }
}

fn add() -> Batch {
    Batch::one(Operation::FetchAdd { at: 0, addend: 1 })
}

fn post(ledger: &mut Ledger, batch: Batch, deadline: Time) -> Pending<Completed> {
    ledger.post(Time::ZERO, &key(), batch, deadline).0
}

/// Calls with endings, and hands them over.
fn with<T>(act: impl FnOnce(&mut Endings) -> T) -> T {
    let mut endings = Endings::default();
    let outcome = act(&mut endings);
    endings.hand_over();
    outcome
}

/// Sends what is queued: first identifiers of the batches in the frame, 0 for other items.
fn gather(ledger: &mut Ledger, now: Time) -> Vec<u64> {
    let mut frame = FrameWriter::default();
    with(|endings| ledger.gather(now, &mut frame, endings));
    let bytes = frame.finish();
    if bytes.is_empty() {
        return vec![];
    }
    let first = |item: &Request<'_>| match item {
        Request::Batch(head, _) => head.first.map_or(0, |id| id.0),
        _ => 0,
    };
    Requests::parse(bytes).unwrap().items.iter().map(first).collect()
}

fn word(number: u32, value: &[u8; 8]) -> Answer<'_> {
    Answer::Results { number, outcome: Outcome::Done, done: 1, payload: value }
}

fn unknown_ids(pending: &mut Pending<Completed>) -> (u64, u64) {
    match pending.poll_now() {
        Some(Err(Error::Unknown { first: Some(first), last: Some(last), .. })) => (first.0, last.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_goes_into_one_frame_and_its_answers_come_back() {
    let mut ledger = ledger();
    let mut first = post(&mut ledger, add(), LATER);
    let mut second = post(&mut ledger, Batch::read_words(&[0]), LATER);
    assert!(ledger.has_work());
    ledger.connected(Time::ZERO);
    assert_eq!(gather(&mut ledger, Time::ZERO), [1, 0]);
    assert!(!ledger.has_work() && gather(&mut ledger, Time::ZERO).is_empty());
    let (seven, eight) = (7u64.to_le_bytes(), 8u64.to_le_bytes());
    with(|endings| ledger.answered(Time::ZERO, &[word(0, &seven), word(1, &eight)], endings)).unwrap();
    assert_eq!(first.poll_now().unwrap().unwrap()[0].word(), Some(7));
    assert_eq!(second.poll_now().unwrap().unwrap()[0].word(), Some(8));
    assert!(ledger.open.is_empty());
}

#[test]
fn what_was_sent_ends_as_unknown_and_what_was_not_says_so() {
    let mut ledger = ledger();
    ledger.connected(Time::ZERO);
    let mut sent = post(&mut ledger, add(), LATER);
    gather(&mut ledger, Time::ZERO);
    let mut queued = post(&mut ledger, add(), LATER);
    with(|endings| ledger.lost(endings));
    assert_eq!(unknown_ids(&mut sent), (1, 1));
    assert!(queued.poll_now().is_none(), "what was queued goes over the next connection");
    with(|endings| ledger.attempt_failed(LATER, "nobody is at home", endings));
    assert!(matches!(queued.poll_now(), Some(Err(Error::Unreachable { reason, .. })) if reason == "nobody is at home"));
    // What never left took no identifier, and each element with an effect takes one.
    ledger.connected(Time::ZERO);
    let mut three = add();
    three.push(Operation::ReadWord { at: 0 }).push(Operation::WriteWord { at: 8, value: 1 });
    three.push(Operation::CompareSwap { at: 0, expected: 0, desired: 1 });
    let _others = [add(), three, add()].map(|batch| post(&mut ledger, batch, MUCH_LATER));
    assert_eq!(gather(&mut ledger, Time::ZERO), [2, 3, 6]);
}

#[test]
fn while_it_rests_what_cannot_wait_is_refused_and_the_rest_waits() {
    let mut ledger = ledger();
    with(|endings| ledger.attempt_failed(LATER, "nobody is at home", endings));
    assert_eq!(ledger.rests_until(), LATER);
    assert!(matches!(post(&mut ledger, add(), LATER).poll_now(), Some(Err(Error::Unreachable { .. }))));
    assert!(post(&mut ledger, add(), MUCH_LATER).poll_now().is_none());
}

#[test]
fn deadlines_end_what_waits_and_what_is_under_way() {
    let mut ledger = ledger();
    let mut nowhere = post(&mut ledger, add(), LATER);
    with(|endings| ledger.expire(LATER, PATIENCE, endings));
    assert!(matches!(nowhere.poll_now(), Some(Err(Error::Unreachable { .. }))));

    ledger.connected(Time::ZERO);
    let mut under_way = post(&mut ledger, add(), LATER);
    let mut read = post(&mut ledger, Batch::read_words(&[0]), LATER);
    gather(&mut ledger, Time::ZERO);
    let mut waiting = post(&mut ledger, add(), LATER);
    let mut patient = post(&mut ledger, add(), MUCH_LATER);
    let next = with(|endings| ledger.expire(LATER, PATIENCE, endings));
    assert_eq!(next, Next { at: MUCH_LATER, silent: false });
    assert_eq!(unknown_ids(&mut under_way), (1, 1));
    assert!(matches!(read.poll_now(), Some(Err(Error::Unknown { first: None, last: None, .. }))));
    assert!(matches!(waiting.poll_now(), Some(Err(Error::Late))));
    // An answer that comes too late changes nothing, and the ones behind it find their place.
    assert_eq!(gather(&mut ledger, LATER), [2]);
    let value = 3u64.to_le_bytes();
    let answers = [0, 1, 2].map(|number| word(number, &value));
    with(|endings| ledger.answered(LATER, &answers, endings)).unwrap();
    assert_eq!(patient.poll_now().unwrap().unwrap()[0].word(), Some(3));
    assert_eq!(ledger.open.len(), 1, "what ended as unknown is to be settled, answered late or not");
}

#[test]
fn a_deadline_that_passed_is_late_and_the_timer_is_woken_for_an_earlier_one() {
    let mut ledger = ledger();
    let late = ledger.post(LATER, &key(), add(), LATER).0.poll_now();
    assert!(matches!(late, Some(Err(Error::Late))));
    let wake = |ledger: &mut Ledger, deadline| ledger.post(Time::ZERO, &key(), add(), deadline).1;
    assert_eq!(wake(&mut ledger, MUCH_LATER), Wake { writer: true, timer: true });
    assert_eq!(wake(&mut ledger, MUCH_LATER), Wake { writer: false, timer: false });
    assert_eq!(wake(&mut ledger, LATER), Wake { writer: false, timer: true });
}

#[test]
fn silence_is_noticed_when_something_expires_in_it() {
    let mut ledger = ledger();
    ledger.connected(Time::ZERO);
    let _first = post(&mut ledger, add(), Time::from_nanos(500_000_000));
    let _second = post(&mut ledger, add(), MUCH_LATER);
    gather(&mut ledger, Time::ZERO);
    assert!(!with(|endings| ledger.expire(Time::from_nanos(500_000_000), PATIENCE, endings)).silent);
    assert!(
        !with(|endings| ledger.expire(Time::from_nanos(3_000_000_000), PATIENCE, endings)).silent,
        "nothing expired"
    );
    assert!(with(|endings| ledger.expire(MUCH_LATER, PATIENCE, endings)).silent);
}

#[test]
fn no_open_identifier_leaves_the_targets_memory() {
    let mut ledger = ledger();
    ledger.connected(Time::ZERO);
    let mut lost = post(&mut ledger, add(), LATER);
    gather(&mut ledger, Time::ZERO);
    let mut posted: Vec<_> = (1..WINDOW).map(|_| post(&mut ledger, add(), MUCH_LATER)).collect();
    assert!(posted.iter_mut().all(|pending| pending.poll_now().is_none()));
    assert!(matches!(post(&mut ledger, add(), MUCH_LATER).poll_now(), Some(Err(Error::Full { most: WINDOW, .. }))));
    assert!(post(&mut ledger, Batch::read_words(&[0]), MUCH_LATER).poll_now().is_none(), "a read has no identifier");
    with(|endings| ledger.expire(LATER, PATIENCE, endings));
    assert_eq!(unknown_ids(&mut lost), (1, 1));
    let refused = post(&mut ledger, add(), MUCH_LATER).poll_now();
    assert!(matches!(refused, Some(Err(Error::SettleFirst { oldest: OperationId(1), .. }))), "{refused:?}");

    let mut settled = ledger.settle(LATER, OperationId(1), MUCH_LATER).0;
    while ledger.has_work() {
        gather(&mut ledger, LATER);
    }
    let value = 0u64.to_le_bytes();
    let answers = (0..=WINDOW as u32).map(|number| word(number, &value));
    let settling = Answer::Settled { number: WINDOW as u32 + 1, settled: Some(Settled::Barred) };
    let answers: Vec<_> = answers.chain([settling]).collect();
    with(|endings| ledger.answered(LATER, &answers, endings)).unwrap();
    assert_eq!(settled.poll_now(), Some(Ok(Settled::Barred)));
    assert!(post(&mut ledger, add(), MUCH_LATER).poll_now().is_none());
}

#[test]
fn answers_that_cannot_be_are_refused_and_leave_the_outcome_unknown() {
    let value = 0u64.to_le_bytes();
    let nonsense = [
        word(1, &value),
        Answer::Settled { number: 0, settled: None },
        Answer::Results { number: 0, outcome: Outcome::Done, done: 1, payload: &value[..7] },
        Answer::Results { number: 0, outcome: Outcome::Done, done: 0, payload: &[] },
        Answer::Results { number: 0, outcome: Outcome::Revoked, done: 1, payload: &value },
        Answer::Results { number: 0, outcome: Outcome::Revoked, done: 2, payload: &value },
    ];
    for answer in nonsense {
        let mut ledger = ledger();
        ledger.connected(Time::ZERO);
        let mut pending = post(&mut ledger, add(), LATER);
        gather(&mut ledger, Time::ZERO);
        with(|endings| {
            assert!(ledger.answered(Time::ZERO, &[answer], endings).is_err(), "{answer:?}");
            ledger.lost(endings);
        });
        assert_eq!(unknown_ids(&mut pending), (1, 1));
        assert!(with(|endings| ledger.answered(Time::ZERO, &[answer], endings)).is_err(), "nothing was asked");
    }
}

#[test]
fn what_a_batch_is_refused_for_is_named() {
    let cases = [
        (Outcome::Revoked, Error::Revoked { target: TARGET, region: 5, view: ViewNumber(1) }),
        (Outcome::Denied, Error::Denied { target: TARGET, region: 5 }),
        (Outcome::OutOfBounds(64), Error::OutOfBounds { at: 800, length: 8, region_bytes: 64 }),
        (Outcome::Misaligned, Error::Misaligned { at: 800 }),
    ];
    for (outcome, error) in cases {
        let mut ledger = ledger();
        ledger.connected(Time::ZERO);
        let mut batch = add();
        batch.push(Operation::FetchAdd { at: 800, addend: 1 });
        let mut pending = post(&mut ledger, batch, LATER);
        gather(&mut ledger, Time::ZERO);
        let answer = Answer::Results { number: 0, outcome, done: 1, payload: &[0; 8] };
        with(|endings| ledger.answered(Time::ZERO, &[answer], endings)).unwrap();
        assert_eq!(pending.poll_now().unwrap().unwrap_err(), error);
        assert!(ledger.open.is_empty(), "what was refused is known");
    }
}

#[test]
fn queues_are_bounded_in_number_and_in_bytes() {
    let mut ledger = ledger();
    let posted: Vec<_> = (0..MOST_UNDER_WAY).map(|_| post(&mut ledger, Batch::read_words(&[0]), LATER)).collect();
    assert!(matches!(post(&mut ledger, Batch::read_words(&[0]), LATER).poll_now(), Some(Err(Error::Full { .. }))));
    ledger.connected(Time::ZERO);
    while ledger.has_work() {
        gather(&mut ledger, Time::ZERO);
    }
    assert!(matches!(post(&mut ledger, Batch::read_words(&[0]), LATER).poll_now(), Some(Err(Error::Full { .. }))));
    with(|endings| ledger.lost(endings));
    drop(posted);

    let pool = Pool::new(64 << 20);
    let write = || Batch::one(Operation::Write { at: 0, from: pool.take(LARGEST_TRANSFER).unwrap() });
    let mut written: Vec<_> = (0..17).map(|_| post(&mut ledger, write(), LATER)).collect();
    assert!(matches!(written.pop().unwrap().poll_now(), Some(Err(Error::Full { .. }))));
    assert!(written.iter_mut().all(|pending| pending.poll_now().is_none()));
    assert!(ledger.send(ViewNumber(1), Port(1), 1, &[0]).is_err());
    assert!(ledger.send(ViewNumber(1), Port(1), 1, &[]).is_ok());
    with(|endings| ledger.expire(LATER, PATIENCE, endings));
    assert_eq!((ledger.queued_bytes, ledger.queued_effects), (0, 0));
}

#[test]
fn a_closed_ledger_ends_everything_and_takes_nothing() {
    let mut ledger = ledger();
    ledger.connected(Time::ZERO);
    let mut sent = post(&mut ledger, add(), LATER);
    gather(&mut ledger, Time::ZERO);
    let mut queued = post(&mut ledger, add(), LATER);
    with(|endings| ledger.close(endings));
    assert_eq!(unknown_ids(&mut sent), (1, 1));
    assert!(matches!(queued.poll_now(), Some(Err(Error::Closed))));
    assert!(matches!(post(&mut ledger, add(), LATER).poll_now(), Some(Err(Error::Closed))));
    assert_eq!(ledger.send(ViewNumber(1), Port(1), 1, &[]), Err(Error::Closed));
}

#[test]
fn whoever_posts_sends_what_is_little_and_ends_nothing() {
    let few = |ledger: &mut Ledger, now| {
        let mut frame = FrameWriter::default();
        ledger.gather_few(now, &mut frame);
        Requests::parse(frame.finish()).map_or(0, |requests| requests.items.len())
    };
    let mut ledger = ledger();
    ledger.connected(Time::ZERO);
    let mut posted: Vec<_> = (0..FEW).map(|_| post(&mut ledger, add(), LATER)).collect();
    assert_eq!(few(&mut ledger, LATER), 0, "they are late: to end them is the task's");
    assert!(posted.iter_mut().all(|one| one.poll_now().is_none()));
    assert_eq!(few(&mut ledger, Time::ZERO), FEW);
    posted.extend((0..=FEW).map(|_| post(&mut ledger, add(), MUCH_LATER)));
    assert_eq!(few(&mut ledger, Time::ZERO), 0, "too many");
    assert_eq!(gather(&mut ledger, Time::ZERO).len(), FEW + 1);
    ledger.send(ViewNumber(1), Port(1), 1, &[0; FEW_BYTES + 1]).unwrap();
    assert_eq!(few(&mut ledger, Time::ZERO), 0, "too large");
}
