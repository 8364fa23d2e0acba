use std::time::Duration;

use verbena_terms::ViewNumber;

use super::target::{CALLER, CHANGE, REGION, Target, VIEW, look, tagged, words_of};
use super::*;
use crate::pool::Pool;
use crate::region::{Rights, Secret};

mod answers;
mod copies;
mod parts;
#[cfg(feature = "sim")]
mod random;
mod settling;

const TARGET: Incarnation = Incarnation::new(2, 1);
const LATER: Time = Time::from_nanos(1_000_000_000);
const MUCH_LATER: Time = Time::from_nanos(9_000_000_000);

fn millis(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn key() -> RegionKey {
    RegionKey {
        owner: TARGET,
        region: REGION,
        view: ViewNumber(VIEW),
        bytes: 64,
        rights: Rights::Change,
        secret: Secret([CHANGE; 16]),
    }
}

fn add() -> Batch {
    adds(1)
}

fn adds(count: usize) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..count {
        batch.push(Operation::FetchAdd { at: 0, addend: 1 });
    }
    batch
}

/// A ledger and its target, with nothing between them but what a test does with each frame.
struct Pair {
    ledger: Ledger,
    target: Target,
    now: Time,
    pool: Pool,
}

impl Pair {
    fn new(words: u64) -> Self {
        let mut pair = Pair::not_introduced(words);
        pair.ledger.introduced(CALLER, pair.target.key);
        pair
    }

    fn not_introduced(words: u64) -> Self {
        Pair {
            ledger: Ledger::new(TARGET, 1),
            target: Target::new((0..words).map(|word| word.wrapping_mul(0x0101_0101_0101_0101)).collect()),
            now: Time::ZERO,
            pool: Pool::new(64 << 20),
        }
    }

    /// Calls with endings, and hands them over.
    fn with<T>(&mut self, act: impl FnOnce(&mut Ledger, &mut Endings) -> T) -> T {
        let mut endings = Endings::default();
        let outcome = act(&mut self.ledger, &mut endings);
        endings.hand_over();
        outcome
    }

    fn post(&mut self, batch: Batch, deadline: Time) -> Pending<Completed> {
        self.ledger.post(self.now, &key(), batch, deadline)
    }

    fn settle(&mut self, id: u64, deadline: Time) -> Pending<Settled> {
        self.ledger.settle(self.now, OperationId(id), deadline)
    }

    fn gather(&mut self) -> Option<Vec<u8>> {
        let now = self.now;
        let mut bytes = Vec::new();
        let sent = self.with(|ledger, endings| ledger.gather(now, &mut FrameWriter::default(), &mut bytes, endings));
        assert!(self.ledger.frames.under_way() <= MOST_FRAMES);
        assert_eq!(sent, !bytes.is_empty());
        sent.then_some(bytes)
    }

    fn gather_all(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.gather()).collect()
    }

    fn take(&mut self, answer: &[u8]) -> Arrival {
        self.with(|ledger, endings| ledger.answered(answer, endings))
    }

    /// Delivers a frame, and its answer.
    fn deliver(&mut self, frame: &[u8]) -> Arrival {
        let answer = self.target.receive(frame).expect("it was not delivered before");
        self.take(&answer)
    }

    fn expire(&mut self, now: Time) -> Time {
        self.now = now;
        self.with(|ledger, endings| ledger.expire(now, endings))
    }

    /// Delivers everything. How many frames that took.
    fn run(&mut self) -> usize {
        std::iter::from_fn(|| self.gather().map(|frame| assert_eq!(self.deliver(&frame), Arrival::Answered))).count()
    }

    /// Sends what is due, and loses it.
    fn lose(&mut self) {
        assert!(!self.gather_all().is_empty());
    }

    fn read(&self, at: u64, length: usize) -> Operation {
        let mut into = self.pool.take(length).unwrap();
        into.bytes_mut().fill(0xee);
        Operation::Read { at, into }
    }

    /// Bytes of the target's memory.
    fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        self.target.memory.iter().flat_map(|word| word.to_le_bytes()).skip(at as usize).take(length).collect()
    }
}

/// Serial of a frame, and the first identifier of each item.
fn ids(frame: &[u8]) -> (u64, Vec<u64>) {
    let (serial, items) = look(&words_of(frame));
    (serial, items.iter().map(|item| item.id).collect())
}

fn words(pending: &mut Pending<Completed>) -> Vec<u64> {
    let results = pending.poll_now().expect("it has ended").expect("it was executed");
    results.iter().map(|result| result.word().unwrap()).collect()
}

fn error(pending: &mut Pending<Completed>) -> Error {
    pending.poll_now().expect("it has ended").expect_err("it was not executed")
}

fn unknown_ids(pending: &mut Pending<Completed>) -> (u64, u64) {
    match pending.poll_now() {
        Some(Err(Error::Unknown { target: TARGET, first: Some(first), last: Some(last) })) => (first.0, last.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_sent_before_the_introduction() {
    let mut pair = Pair::not_introduced(8);
    let mut late = pair.post(add(), LATER);
    let mut patient = pair.post(add(), MUCH_LATER);
    assert!(!pair.ledger.is_introduced() && pair.gather().is_none());
    assert_eq!(pair.expire(Time::ZERO), LATER);
    assert_eq!(pair.expire(LATER), MUCH_LATER);
    assert_eq!(error(&mut late), Error::Late);
    assert!(patient.poll_now().is_none());
    pair.ledger.introduced(CALLER, pair.target.key);
    assert!(pair.ledger.is_introduced());
    assert_eq!(ids(&pair.gather().unwrap()), (1, vec![1]), "what never left leaves no gap");
}

#[test]
fn what_is_posted_goes_into_one_frame_and_its_results_come_back() {
    let mut pair = Pair::new(8);
    let mut swapped = Batch::one(Operation::WriteWord { at: 8, value: 5 });
    swapped.push(Operation::CompareSwap { at: 8, expected: 5, desired: 6 });
    swapped.push(Operation::CompareSwap { at: 8, expected: 5, desired: 7 });
    swapped.push(Operation::FetchAdd { at: 8, addend: u64::MAX }).push(Operation::ReadWord { at: 8 });
    let mut swapped = pair.post(swapped, LATER);
    let mut read = pair.post(Batch::read_words(&[8, 16]), LATER);
    let mut empty = pair.post(Batch::new(), LATER);
    assert!(empty.poll_now().unwrap().unwrap().is_empty());
    let frame = pair.gather().unwrap();
    assert_eq!(ids(&frame), (1, vec![1, 0]));
    assert!(pair.gather().is_none());
    assert_eq!(pair.deliver(&frame), Arrival::Answered);
    assert_eq!(words(&mut swapped), [0, 5, 6, 6, 5]);
    assert_eq!(words(&mut read), [5, 0x0202_0202_0202_0202]);
    assert!(pair.ledger.open.is_empty() && pair.ledger.frames.remembered() == 0);
    assert_eq!(pair.ledger.counts(), Counts { sent: 1, operations: 2, ..Counts::default() });
    assert_eq!(pair.expire(Time::ZERO), Time::FAR);
}

#[test]
fn what_cannot_be_is_refused_when_it_is_posted() {
    let mut pair = Pair::new(8);
    let large = |what, asked, most| Error::TooLarge { what, asked, most };
    let read = Batch::one(pair.read(0, LARGEST_READ + 1));
    let write = Batch::one(Operation::Write { at: 0, from: pair.pool.take(LARGEST_WRITE + 1).unwrap() });
    let refused = [(read, large("a read", 65537, 65536)), (write, large("a write", 1025, 1024))];
    for (batch, because) in refused.into_iter().chain([(adds(257), large("a batch", 257, 256))]) {
        assert_eq!(error(&mut pair.post(batch, LATER)), because);
    }
    assert_eq!(error(&mut pair.post(add(), Time::ZERO)), Error::Late);
    let _posted: Vec<_> = (0..MOST_UNDER_WAY).map(|_| pair.post(Batch::read_words(&[0]), LATER)).collect();
    assert_eq!(error(&mut pair.post(Batch::read_words(&[0]), LATER)), queue_full());
    pair.lose();
    assert_eq!(error(&mut pair.post(Batch::read_words(&[0]), LATER)), queue_full());
    pair.expire(LATER);
    assert!(pair.ledger.queue.is_empty());
    assert!(pair.post(add(), MUCH_LATER).poll_now().is_none());
}

#[test]
fn what_was_sent_ends_as_unknown_at_its_deadline_and_what_was_not_is_late() {
    let mut pair = Pair::new(8);
    let mut sent = pair.post(adds(2), LATER);
    let mut read = pair.post(Batch::read_words(&[0]), LATER);
    pair.lose();
    let mut queued = pair.post(adds(3), LATER);
    let mut patient = pair.post(add(), MUCH_LATER);
    assert_eq!(pair.ledger.armed(), Time::ZERO + FIRST_RESEND);
    assert_eq!(pair.expire(LATER), MUCH_LATER);
    assert_eq!(unknown_ids(&mut sent), (1, 2));
    assert_eq!(error(&mut read), unknown(TARGET, None));
    assert_eq!(error(&mut queued), Error::Late);
    assert!(patient.poll_now().is_none());
    assert_eq!(pair.ledger.queued_effects, 1);
    assert_eq!(pair.ledger.frames.under_way(), 0, "a frame of which everything has ended is given up");
    assert_eq!(ids(&pair.gather().unwrap()).1, [3]);
}

#[test]
fn a_deadline_that_passed_unnoticed_ends_what_would_be_sent() {
    let mut pair = Pair::new(8);
    let mut sent = pair.post(add(), LATER);
    pair.lose();
    let mut queued = pair.post(add(), LATER);
    pair.now = LATER;
    assert!(pair.gather().is_none());
    assert_eq!((unknown_ids(&mut sent), error(&mut queued)), ((1, 1), Error::Late));
    assert_eq!(pair.ledger.queued_effects, 0);
}

#[test]
fn a_closed_ledger_ends_everything_and_takes_nothing() {
    let mut pair = Pair::new(8);
    let mut sent = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    let mut queued = pair.post(add(), LATER);
    pair.with(|ledger, endings| ledger.close(endings));
    assert_eq!((unknown_ids(&mut sent), error(&mut queued)), ((1, 1), Error::Closed));
    assert_eq!(error(&mut pair.post(add(), LATER)), Error::Closed);
    assert_eq!(pair.settle(1, LATER).poll_now(), Some(Err(Error::Closed)));
    assert_eq!(pair.deliver(&frame), Arrival::Stray);
    pair.ledger.introduced(CALLER, pair.target.key);
    assert!(!pair.ledger.is_introduced() && pair.gather().is_none());
}
