//! What batches are refused for, and answers that cannot be.

use super::super::target::READ_ONLY;
use super::*;
use crate::xdp::wire::FRAME_WORDS;

#[test]
fn a_refused_element_is_named_at_every_place_and_what_is_before_it_was_executed() {
    let refused = |place| {
        [
            (800, Error::OutOfBounds { at: 800 + 8 * place, length: 8, region_bytes: 64 }),
            (801, Error::Misaligned { at: 801 + 8 * place }),
        ]
    };
    for place in 0..120 {
        for (at, because) in refused(place) {
            let mut pair = Pair::new(8);
            let mut batch = adds(place as usize);
            batch.push(Operation::FetchAdd { at: at + 8 * place, addend: 1 });
            for operation in adds(120 - place as usize).into_operations() {
                batch.push(operation);
            }
            let mut pending = pair.post(batch, LATER);
            pair.run();
            assert_eq!(error(&mut pending), because);
            assert_eq!(pair.target.memory[0], place);
            assert!(pair.ledger.open.is_empty(), "what was refused is known");
            assert!(pair.gather().is_none() && pair.ledger.tasks.is_empty());
        }
    }
}

#[test]
fn a_cut_read_that_is_refused_names_what_its_caller_asked_for() {
    for at in [0, 5, 1400, 7000, 9000] {
        let mut pair = Pair::new(1024);
        let mut batch = adds(1);
        let read = pair.read(at, 8193);
        batch.push(read);
        let mut pending = pair.post(batch, LATER);
        pair.run();
        assert_eq!(error(&mut pending), Error::OutOfBounds { at, length: 8193, region_bytes: 8192 });
        assert!(pair.ledger.open.is_empty());
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let denied = RegionKey { secret: Secret([READ_ONLY; 16]), ..key() };
    let guessed = RegionKey { secret: Secret([9; 16]), ..key() };
    let old = RegionKey { view: ViewNumber(7), ..key() };
    let revoked = |view| Error::Revoked { target: TARGET, region: REGION, view: ViewNumber(view) };
    let cases = [(denied, Error::Denied { target: TARGET, region: REGION }), (guessed, revoked(1)), (old, revoked(7))];
    for (key, because) in cases {
        let mut pair = Pair::new(8);
        let mut batch = Batch::read_words(&[0]);
        batch.push(Operation::FetchAdd { at: 0, addend: 1 });
        let mut pending = pair.ledger.post(Time::ZERO, &key, batch, LATER);
        pair.run();
        assert_eq!(error(&mut pending), because);
        assert!(pair.ledger.open.is_empty() && pair.target.memory[0] == 0);
    }
}

#[test]
fn an_effect_behind_a_read_is_a_part_of_its_own_so_that_a_copy_can_be_answered() {
    let mut pair = Pair::new(8);
    let mut batch = Batch::read_words(&[0]);
    batch.push(Operation::FetchAdd { at: 0, addend: 1 }).push(Operation::ReadWord { at: 0 });
    let mut pending = pair.post(batch, LATER);
    let read = pair.gather().unwrap();
    assert_eq!(pair.deliver(&read), Arrival::Answered);
    let lost = pair.gather().unwrap();
    pair.target.receive(&lost).unwrap();
    pair.now = millis(4);
    pair.run();
    assert_eq!(words(&mut pending), [0, 0, 1]);
    assert!(pair.ledger.open.is_empty());
}

type Spoil = fn(&mut Vec<u64>);

#[test]
fn an_answer_that_does_not_fit_is_counted_and_passed_over() {
    // Words of the answer: 4 is the head of the batch, 9 that of its one element, 12 that of the settle.
    let spoil: [(&str, Spoil); 8] = [
        ("an item less", |words| {
            words.truncate(12);
            words[0] = words[0] & 0xffff_ffff_ffff | 12 << 48;
            words[1] -= 1 << 32;
        }),
        ("an element less", |words| {
            words[4] = 1 | 5 << 48;
            words.drain(9..12);
            words[0] = words[0] & 0xffff_ffff_ffff | 14 << 48;
        }),
        ("a shorter body", |words| words[9] = 4),
        ("a longer body", |words| {
            words[4] += 1 << 48;
            words[9] += 1 << 32;
            words.insert(12, 0);
            words[0] += 1 << 48;
        }),
        ("a settle for a batch", |words| {
            words[4] = 2 | 5 << 48;
            words.drain(9..12);
            words[0] = words[0] & 0xffff_ffff_ffff | 14 << 48;
        }),
        ("a batch for a settle", |words| words[12] = 1 | 1 << 8 | 5 << 48),
        ("more done than there is", |words| words[4] += 1 << 32),
        ("an outcome of no meaning", |words| words[4] |= 9 << 8),
    ];
    for (what, spoil) in spoil {
        let mut pair = Pair::new(8);
        let _unknown = pair.post(add(), millis(1));
        pair.lose();
        pair.expire(millis(1));
        let mut pending = pair.post(add(), LATER);
        let mut settled = pair.settle(1, LATER);
        let frame = pair.gather().unwrap();
        let answer = pair.target.receive(&frame).unwrap();
        let mut words = words_of(&answer);
        assert_eq!(words.len(), FRAME_WORDS + 8 + 5);
        spoil(&mut words);
        assert_eq!(pair.take(&tagged(&words, pair.target.key)), Arrival::Malformed, "{what}");
        assert!(pending.poll_now().is_none() && settled.poll_now().is_none(), "{what}");
        assert_eq!(pair.ledger.counts().malformed, 1);
        // Another one still counts.
        pair.now = millis(5);
        pair.run();
        assert_eq!(words_and_settled(&mut pending, &mut settled), (vec![0], Settled::Barred), "{what}");
    }
}

fn words_and_settled(pending: &mut Pending<Completed>, settled: &mut Pending<Settled>) -> (Vec<u64>, Settled) {
    (words(pending), settled.poll_now().unwrap().unwrap())
}

#[test]
fn datagrams_of_others_change_nothing() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    let answer = pair.target.receive(&frame).unwrap();
    let mut forged = answer.clone();
    forged[90] ^= 1;
    for bytes in [&forged[..], &frame, &answer[..24], &[]] {
        assert_eq!(pair.take(bytes), Arrival::Malformed);
    }
    let mut unasked = words_of(&answer);
    unasked[2] = 99;
    assert_eq!(pair.take(&tagged(&unasked, pair.target.key)), Arrival::Stray);
    assert!(pending.poll_now().is_none());
    assert_eq!((pair.ledger.counts().malformed, pair.ledger.counts().stray), (4, 1));
    assert_eq!(pair.take(&answer), Arrival::Answered);
    assert_eq!(words(&mut pending), [0]);
}
