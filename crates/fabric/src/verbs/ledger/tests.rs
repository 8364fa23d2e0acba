#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use verbena_terms::ViewNumber;

use super::super::standstill::STALLED;
use super::*;
use crate::region::{Rights, Secret};
use crate::window::WINDOW;

const PLACE: Place = Place { remote_key: 7, address: 1 << 40, bytes: 4096 };
const NOW: Time = Time::from_nanos(1_000_000_000);
const SOON: Time = Time::from_nanos(2_000_000_000);
const LATE: Time = Time::from_nanos(3_000_000_000);

fn target() -> Incarnation {
    Incarnation::new(4, 2)
}

fn key(rights: Rights) -> RegionKey {
    RegionKey { owner: target(), region: 1, view: ViewNumber(3), bytes: PLACE.bytes, rights, secret: Secret([0; 16]) }
}

fn revoked() -> Error {
    Error::Revoked { target: target(), region: 1, view: ViewNumber(3) }
}

fn gone() -> Error {
    Error::Unreachable { target: target(), address: "there".into(), reason: "it is gone".into() }
}

/// A ledger with its endings, and a connection in which request n fetches 100 + n.
struct Side {
    ledger: Ledger,
    endings: Endings,
    pool: Pool,
}

impl Side {
    fn new() -> Self {
        Side::with(Refusals::Told)
    }

    fn with(refusals: Refusals) -> Self {
        let pool = Pool::new(1 << 20);
        let ledger = Ledger::new(target(), pool.clone(), refusals);
        let mut side = Side { ledger, endings: Endings::default(), pool };
        side.ledger.connected(&mut side.endings);
        side
    }

    fn post(&mut self, operations: Vec<Operation>, deadline: Time) -> Pending<Completed> {
        let mut batch = Batch::new();
        for operation in operations {
            batch.push(operation);
        }
        self.ledger.post(NOW, &key(Rights::Change), PLACE, batch, deadline)
    }

    /// How many requests went.
    fn go(&mut self) -> usize {
        let mut went = 0;
        while self.ledger.begin(NOW) {
            went += self.ledger.newest().unwrap().1.count();
        }
        went
    }

    fn complete(&mut self, number: u64) {
        self.ledger.completed(number, |number, _| 100 + number, &mut self.endings);
        self.endings.hand_over();
    }

    fn fail(&mut self, number: u64, failure: Failure) {
        self.ledger.failed(number, failure, |number, _| 100 + number, &mut self.endings);
        self.endings.hand_over();
    }

    fn connect(&mut self) {
        self.ledger.connected(&mut self.endings);
        self.endings.hand_over();
    }

    /// What the owner says of the key that is in doubt.
    fn tell(&mut self, is_good: Option<bool>) {
        let id = self.ledger.doubted(NOW).unwrap();
        assert_eq!(id, RegionId::from(&key(Rights::Change)));
        assert!(!self.ledger.told(&id, is_good, &mut self.endings), "there is no connection to end");
        self.endings.hand_over();
    }

    fn expire(&mut self, now: Time) {
        self.ledger.expire(now, &gone(), &mut self.endings);
        self.endings.hand_over();
    }

    fn settle(&mut self, id: u64) -> Pending<Settled> {
        self.ledger.settle(SOON, OperationId(id), LATE)
    }
}

fn add() -> Operation {
    Operation::FetchAdd { at: 0, addend: 1 }
}

fn words(pending: &mut Pending<Completed>) -> Vec<u64> {
    pending.poll_now().unwrap().unwrap().iter().map(|done| done.word().unwrap()).collect()
}

fn unknown_of(first: u64, last: u64) -> Error {
    Error::Unknown { target: target(), first: Some(OperationId(first)), last: Some(OperationId(last)) }
}

#[test]
fn a_batch_gives_what_its_requests_fetched_when_the_last_is_complete() {
    let mut side = Side::new();
    let write = Operation::WriteWord { at: 8, value: 5 };
    let mut first = side.post(vec![write, add(), Operation::ReadWord { at: 16 }], SOON);
    let mut second = side.post(vec![add()], SOON);
    assert_eq!(side.go(), 4);
    side.complete(2);
    assert_eq!(words(&mut first), [0, 101, 102]);
    assert!(second.poll_now().is_none());
    side.complete(3);
    assert_eq!(words(&mut second), [103]);
    assert!(side.ledger.is_idle() && side.ledger.identifiers.is_empty());
}

#[test]
fn what_changes_something_behind_a_read_or_an_atomic_goes_when_that_is_complete_and_only_the_last_reports() {
    let read = || Operation::ReadWord { at: 0 };
    let write = || Operation::WriteWord { at: 0, value: 1 };
    let swap = || Operation::CompareSwap { at: 0, expected: 0, desired: 1 };
    let cases = [
        (vec![write(), write(), read(), read()], vec![4]),
        (vec![read(), write(), write(), read()], vec![1, 3]),
        (vec![read(), read(), swap(), add()], vec![2, 1, 1]),
        (vec![write(), add(), read(), write()], vec![3, 1]),
    ];
    for (operations, parts) in cases {
        let mut side = Side::new();
        let mut pending = side.post(operations, SOON);
        let mut next = 0;
        for part in parts {
            assert!(side.ledger.begin(NOW) && pending.poll_now().is_none());
            let (_, requests) = side.ledger.newest().unwrap();
            let reported: Vec<_> = requests.map(|request| (request.number, request.is_signaled)).collect();
            let expected: Vec<_> = (next..next + part).map(|number| (number, number == next + part - 1)).collect();
            assert_eq!(reported, expected);
            assert!(!side.ledger.begin(NOW));
            next += part;
            side.complete(next - 1);
        }
        assert_eq!(words(&mut pending).len(), 4);
    }
}

#[test]
fn of_a_batch_that_ends_between_its_parts_the_rest_is_barred() {
    let ended = |mut side: Side, end: fn(&mut Side)| {
        let mut pending = side.post(vec![add(), add()], SOON);
        assert_eq!(side.go(), 1);
        end(&mut side);
        assert_eq!(pending.poll_now().unwrap().unwrap_err(), unknown_of(1, 2));
        let outcomes = [1, 2].map(|id| side.settle(id).poll_now());
        (outcomes, side.ledger.identifiers.is_empty())
    };
    let executed = Some(Ok(Settled::Executed(100)));
    let barred = Some(Ok(Settled::Barred));
    // Between two parts its deadline passes, its connection is lost and its peer is gone; or it is reported as unknown,
    // and completes behind that.
    let ends: [fn(&mut Side); 3] = [
        |side| {
            side.complete(0);
            side.expire(SOON);
        },
        |side| {
            side.complete(0);
            side.ledger.lost(&mut side.endings);
            side.ledger.unreachable(&gone(), &mut side.endings);
            side.endings.hand_over();
        },
        |side| {
            side.expire(SOON);
            side.complete(0);
        },
    ];
    for end in ends {
        assert_eq!(ended(Side::new(), end), ([executed.clone(), barred.clone()], true));
    }
}

#[test]
fn no_more_requests_are_under_way_than_the_connection_takes() {
    let mut side = Side::new();
    let most = DEPTH / LARGEST_BATCH;
    let pending: Vec<_> = (0..=most)
        .map(|_| side.post((0..LARGEST_BATCH).map(|_| Operation::ReadWord { at: 0 }).collect(), SOON))
        .collect();
    assert_eq!(side.go(), DEPTH);
    side.complete(LARGEST_BATCH as u64 - 1);
    assert_eq!(side.go(), LARGEST_BATCH);
    drop(pending);
    assert_eq!(
        side.post((0..=LARGEST_BATCH).map(|_| add()).collect(), SOON).poll_now().unwrap().unwrap_err(),
        Error::TooLarge { what: "a batch", asked: LARGEST_BATCH as u64 + 1, most: LARGEST_BATCH as u64 }
    );
}

#[test]
fn a_refused_request_ends_its_batch_and_what_stood_behind_it_goes_again() {
    let mut side = Side::new();
    let mut before = side.post(vec![add()], SOON);
    let mut refused = side.post(vec![Operation::WriteWord { at: 0, value: 1 }, add()], SOON);
    let mut behind = side.post(vec![add()], SOON);
    let mut last = side.post(vec![add()], SOON);
    assert_eq!(side.go(), 5);
    side.fail(2, Failure::Refused);
    assert_eq!(words(&mut before), [100]);
    assert_eq!(refused.poll_now().unwrap().unwrap_err(), revoked());
    assert!(behind.poll_now().is_none() && side.ledger.wants_connection());
    side.connect();
    assert_eq!(side.go(), 2);
    side.complete(0);
    side.complete(1);
    assert_eq!((words(&mut behind), words(&mut last)), (vec![100], vec![101]));
    assert!(side.ledger.identifiers.is_empty());
}

#[test]
fn what_completes_late_is_settled_to_its_outcome_again_and_again() {
    let mut side = Side::new();
    let mut pending = side.post(vec![Operation::WriteWord { at: 8, value: 5 }, add()], SOON);
    side.go();
    side.expire(SOON);
    assert_eq!(pending.poll_now().unwrap().unwrap_err(), unknown_of(1, 2));
    let mut settled = side.settle(2);
    assert!(settled.poll_now().is_none());
    side.complete(1);
    assert_eq!(settled.poll_now(), Some(Ok(Settled::Executed(101))));
    for _ in 0..2 {
        assert_eq!(side.settle(1).poll_now(), Some(Ok(Settled::Executed(0))));
    }
    assert!(side.ledger.identifiers.is_empty() && side.ledger.is_idle());
}

#[test]
fn what_a_lost_connection_leaves_open_is_barred_by_the_next_one_and_forgotten() {
    let mut side = Side::new();
    let mut whole = side.post(vec![add()], SOON);
    let write = || Operation::WriteWord { at: 0, value: 1 };
    let mut half = side.post(vec![write(), write(), add()], SOON);
    let mut behind = side.post(vec![add()], SOON);
    let mut read = side.post(vec![Operation::ReadWord { at: 0 }], SOON);
    side.go();
    side.fail(2, Failure::Lost);
    assert_eq!(words(&mut whole), [100]);
    side.tell(None);
    assert_eq!(half.poll_now().unwrap().unwrap_err(), unknown_of(2, 4));
    assert_eq!(behind.poll_now().unwrap().unwrap_err(), unknown_of(5, 5));
    assert_eq!(read.poll_now().unwrap().unwrap_err(), Error::Unknown { target: target(), first: None, last: None });
    // The first of the batch was executed before the connection ended.
    assert_eq!(side.settle(2).poll_now(), Some(Ok(Settled::Executed(0))));
    let mut settled = side.settle(5);
    assert!(settled.poll_now().is_none() && side.ledger.wants_connection());
    side.connect();
    let forgotten = |id| Some(Err(Error::Forgotten { target: target(), operation: OperationId(id) }));
    assert_eq!(settled.poll_now(), forgotten(5));
    assert_eq!((side.settle(3).poll_now(), side.settle(4).poll_now()), (forgotten(3), forgotten(4)));
    assert!(side.ledger.identifiers.is_empty());
}

#[test]
fn what_expired_and_stood_behind_a_refused_request_is_barred() {
    let mut side = Side::new();
    let mut refused = side.post(vec![add()], LATE);
    let mut behind = side.post(vec![add()], SOON);
    side.go();
    side.expire(SOON);
    assert_eq!(behind.poll_now().unwrap().unwrap_err(), unknown_of(2, 2));
    side.fail(0, Failure::Refused);
    assert_eq!(refused.poll_now().unwrap().unwrap_err(), revoked());
    assert_eq!(side.settle(2).poll_now(), Some(Ok(Settled::Barred)));
    side.connect();
    assert_eq!(side.go(), 0, "whoever posted it has been told that it was barred");
}

#[test]
fn what_was_not_posted_at_its_deadline_never_is() {
    let mut side = Side::new();
    side.ledger.lost(&mut side.endings);
    let mut pending = side.post(vec![add()], SOON);
    assert_eq!((side.go(), side.ledger.armed()), (0, SOON));
    side.expire(SOON);
    assert_eq!(pending.poll_now().unwrap().unwrap_err(), gone());
    side.connect();
    assert_eq!(side.go(), 0);
    assert_eq!(side.ledger.identifiers.next(), OperationId(1), "it took no identifier");
    assert_eq!(side.post(vec![add()], NOW).poll_now().unwrap().unwrap_err(), Error::Late);
}

#[test]
fn the_first_element_that_the_caller_refuses_ends_the_batch_behind_what_is_executed() {
    let mut side = Side::new();
    let outside = || Operation::ReadWord { at: PLACE.bytes };
    let mut pending = side.post(vec![add(), outside(), add()], SOON);
    assert_eq!(side.go(), 1);
    side.complete(0);
    let refusal = Error::OutOfBounds { at: 4096, length: 8, region_bytes: 4096 };
    assert_eq!(pending.poll_now().unwrap().unwrap_err(), refusal);
    assert_eq!(side.post(vec![outside()], SOON).poll_now().unwrap().unwrap_err(), refusal);
    assert_eq!(side.post(vec![], SOON).poll_now().unwrap().unwrap().len(), 0);

    let mut only_reads = |operation| {
        let batch = Batch::one(operation);
        side.ledger.post(NOW, &key(Rights::Read), PLACE, batch, SOON).poll_now()
    };
    assert_eq!(only_reads(add()).unwrap().unwrap_err(), Error::Denied { target: target(), region: 1 });
    assert!(only_reads(Operation::ReadWord { at: 0 }).is_none());

    let foreign = Operation::Read { at: 0, into: Pool::new(1 << 20).take(8).unwrap() };
    assert_eq!(side.post(vec![foreign], SOON).poll_now().unwrap().unwrap_err(), Error::ForeignBuffer);
    let own = Operation::Read { at: 0, into: side.pool.take(8).unwrap() };
    assert!(side.post(vec![own], SOON).poll_now().is_none());
}

#[test]
fn behind_what_is_not_settled_no_more_than_a_window_is_posted() {
    let mut side = Side::new();
    let _lost = side.post(vec![add()], SOON);
    side.go();
    side.fail(0, Failure::Lost);
    side.tell(None);
    side.connect();
    for number in 0..WINDOW as u64 - 1 {
        let _pending = side.post(vec![add()], SOON);
        assert_eq!(side.go(), 1, "{number}");
        side.complete(number);
    }
    let refused = side.post(vec![add()], SOON).poll_now().unwrap().unwrap_err();
    assert_eq!(refused, Error::SettleFirst { target: target(), oldest: OperationId(1) });
    assert!(side.settle(1).poll_now().is_some());
    assert!(side.post(vec![add()], SOON).poll_now().is_none());
}

#[test]
fn what_nobody_posted_or_everybody_knows_is_forgotten() {
    let mut side = Side::new();
    let mut pending = side.post(vec![add()], SOON);
    side.go();
    side.complete(0);
    assert_eq!(words(&mut pending), [100]);
    for id in [0, 1, 2, 1 << 40] {
        let forgotten = Error::Forgotten { target: target(), operation: OperationId(id) };
        assert_eq!(side.settle(id).poll_now(), Some(Err(forgotten)));
    }
}

#[test]
fn buffers_of_a_lost_connection_are_kept_until_it_is_destroyed_and_others_are_not() {
    let mut side = Side::new();
    let read = |side: &Side| Operation::Read { at: 0, into: side.pool.take(8).unwrap() };
    let operations = vec![read(&side), add()];
    let _between = side.post(operations, SOON);
    side.go();
    side.expire(SOON);
    side.complete(0);
    assert!(side.ledger.take_retired().is_empty(), "nothing of it is under way");

    let operations = [vec![read(&side)], vec![read(&side)]];
    let pending = operations.map(|operations| side.post(operations, LATE));
    side.go();
    side.ledger.lost(&mut side.endings);
    side.endings.hand_over();
    assert_eq!(side.ledger.take_retired().len(), 2);
    assert!(pending.map(|mut one| one.poll_now().unwrap().is_err()) == [true, true]);
}

#[test]
fn what_was_settled_is_remembered_for_a_window_and_then_forgotten() {
    let mut side = Side::new();
    for number in 0..3 * WINDOW as u64 {
        let mut pending = side.post(vec![add()], SOON);
        assert_eq!(side.go(), 1);
        side.expire(SOON);
        assert!(pending.poll_now().unwrap().is_err());
        side.complete(number);
        assert_eq!(side.settle(number + 1).poll_now(), Some(Ok(Settled::Executed(100 + number))));
    }
    let (first, last) = (1, 3 * WINDOW as u64);
    assert!(side.ledger.outcomes.len() <= 2 * WINDOW + 1, "{}", side.ledger.outcomes.len());
    assert_eq!(
        side.settle(last - WINDOW as u64).poll_now(),
        Some(Ok(Settled::Executed(100 + last - WINDOW as u64 - 1)))
    );
    let forgotten = Error::Forgotten { target: target(), operation: OperationId(first) };
    assert_eq!(side.settle(first).poll_now(), Some(Err(forgotten)));
}

#[test]
fn a_connection_on_which_nothing_completes_is_stalled() {
    let mut side = Side::new();
    let long = |time: Time| time + STALLED;
    assert!(!side.ledger.is_stalled(long(NOW)), "nothing is under way");
    let _pending = [side.post(vec![add()], SOON), side.post(vec![add()], SOON)];
    side.go();
    assert!(!side.ledger.is_stalled(SOON) && side.ledger.is_stalled(long(NOW)));
    side.ledger.moves(SOON);
    side.complete(0);
    assert!(!side.ledger.is_stalled(long(NOW)) && side.ledger.is_stalled(long(SOON)));
    side.complete(1);
    assert!(!side.ledger.is_stalled(long(SOON)));
}

#[test]
fn a_closed_fabric_ends_everything() {
    let mut side = Side::new();
    let mut posted = side.post(vec![add()], SOON);
    side.go();
    let mut waiting: Vec<_> = (0..DEPTH).map(|_| side.post(vec![add()], SOON)).collect();
    side.ledger.close(&mut side.endings);
    side.endings.hand_over();
    assert_eq!(posted.poll_now().unwrap().unwrap_err(), unknown_of(1, 1));
    assert!(waiting.iter_mut().all(|pending| pending.poll_now().unwrap().unwrap_err() == Error::Closed));
    assert_eq!(side.post(vec![add()], SOON).poll_now().unwrap().unwrap_err(), Error::Closed);
    assert!(side.ledger.is_idle());
}

mod doubts;
