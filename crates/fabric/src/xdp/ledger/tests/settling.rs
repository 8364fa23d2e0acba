//! Identifiers: how they are settled, how many can be open, and what a target that has forgotten its caller leaves of them.

use super::*;
use crate::window::WINDOW;

#[test]
fn settling_gives_the_outcome_or_bars_the_operation() {
    let mut pair = Pair::new(8);
    let mut pending = [pair.post(add(), LATER), pair.post(add(), LATER)];
    let lost = pair.gather().unwrap();
    pair.expire(LATER);
    assert_eq!(pending.each_mut().map(unknown_ids), [(1, 1), (2, 2)]);
    let mut first = pair.settle(1, MUCH_LATER);
    pair.run();
    assert_eq!(first.poll_now(), Some(Ok(Settled::Barred)));
    // Its frame comes too late: the first is barred.
    pair.target.receive(&lost).unwrap();
    let mut second = pair.settle(2, MUCH_LATER);
    pair.run();
    assert_eq!(second.poll_now(), Some(Ok(Settled::Executed(0))));
    assert_eq!(pair.target.memory[0], 1);
    assert!(pair.ledger.open.is_empty());
}

#[test]
fn a_settle_is_sent_again_and_can_itself_be_unknown() {
    let mut pair = Pair::new(8);
    let _pending = pair.post(add(), LATER);
    pair.lose();
    pair.expire(LATER);
    let mut settled = pair.settle(1, LATER + Duration::from_millis(10));
    pair.lose();
    pair.now = LATER + FIRST_RESEND;
    let copy = pair.gather().unwrap();
    assert_eq!(ids(&copy).1, [1]);
    pair.expire(LATER + Duration::from_millis(10));
    let one = Some((OperationId(1), OperationId(1)));
    assert_eq!(settled.poll_now(), Some(Err(unknown(TARGET, one))));
    assert_eq!(pair.ledger.open.len(), 1);
    let mut asked_again = pair.settle(1, MUCH_LATER);
    pair.run();
    assert_eq!(asked_again.poll_now(), Some(Ok(Settled::Barred)));
}

#[test]
fn an_identifier_that_was_not_given_out_is_never_settled() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), LATER);
    for id in [0, 1, 2, u64::MAX] {
        let forgotten = Error::Forgotten { target: TARGET, operation: OperationId(id) };
        assert_eq!(pair.settle(id, LATER).poll_now(), Some(Err(forgotten)));
    }
    assert_eq!(pair.run(), 1);
    assert_eq!(words(&mut pending), [0]);
    assert_eq!(pair.settle(1, pair.now).poll_now(), Some(Err(Error::Late)));
}

#[test]
fn an_operation_that_is_settled_while_it_is_under_way_is_unknown() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    let mut settled = pair.settle(1, LATER);
    pair.run();
    assert_eq!(settled.poll_now(), Some(Ok(Settled::Barred)));
    pair.deliver(&frame);
    assert_eq!(unknown_ids(&mut pending), (1, 1));
    assert!(pair.ledger.open.is_empty(), "it was settled and stays so");
}

#[test]
fn no_open_identifier_leaves_the_targets_memory() {
    let mut pair = Pair::new(8);
    let mut lost = pair.post(add(), LATER);
    pair.lose();
    let mut posted: Vec<_> = (1..WINDOW).map(|_| pair.post(add(), MUCH_LATER)).collect();
    assert!(posted.iter_mut().all(|pending| pending.poll_now().is_none()));
    assert!(matches!(error(&mut pair.post(add(), MUCH_LATER)), Error::Full { most: WINDOW, .. }));
    let mut read = pair.post(Batch::read_words(&[0]), MUCH_LATER);
    assert!(read.poll_now().is_none(), "a read has no identifier");
    pair.expire(LATER);
    assert_eq!(unknown_ids(&mut lost), (1, 1));
    let first = Error::SettleFirst { target: TARGET, oldest: OperationId(1) };
    assert_eq!(error(&mut pair.post(add(), MUCH_LATER)), first);
    pair.run();
    assert_eq!(error(&mut pair.post(add(), MUCH_LATER)), first);
    let mut settled = pair.settle(1, MUCH_LATER);
    pair.run();
    assert_eq!(settled.poll_now(), Some(Ok(Settled::Barred)));
    let mut all = pair.post(adds(256), MUCH_LATER);
    pair.run();
    assert_eq!(words(&mut all).len(), 256);
    assert_eq!(pair.target.memory[0], WINDOW as u64 - 1 + 256);
}

#[test]
fn a_target_that_has_forgotten_its_caller_leaves_what_was_sent_unknown() {
    let mut pair = Pair::new(8);
    let mut between = pair.post(adds(100), MUCH_LATER);
    let first = pair.gather().unwrap();
    let mut executed = pair.post(add(), MUCH_LATER);
    let other = pair.gather().unwrap();
    let mut read = pair.post(Batch::read_words(&[0]), MUCH_LATER);
    let unheard = pair.gather().unwrap();
    pair.target.receive(&other).unwrap();
    // Of this one the next part is not sent yet.
    pair.deliver(&first);
    pair.target.knows = false;
    let mut queued = pair.post(add(), MUCH_LATER);
    assert_eq!(pair.deliver(&unheard), Arrival::Stranger);
    assert_eq!(error(&mut read), unknown(TARGET, None));
    assert!(!pair.ledger.is_introduced() && pair.gather().is_none());
    assert_eq!((unknown_ids(&mut between), unknown_ids(&mut executed)), ((1, 100), (101, 101)));
    assert!(queued.poll_now().is_none());
    assert_eq!(pair.ledger.frames.remembered(), 0);

    assert_eq!(pair.ledger.next_id(), OperationId(102));
    let key = pair.target.introduce(pair.ledger.next_id());
    pair.ledger.introduced(CALLER, key);
    let mut settled = pair.settle(101, MUCH_LATER);
    let frame = pair.gather().unwrap();
    assert_eq!(ids(&frame), (4, vec![102, 101]), "a serial is never used again");
    pair.deliver(&frame);
    assert_eq!(words(&mut queued), [58]);
    let forgotten = Error::Forgotten { target: TARGET, operation: OperationId(101) };
    assert_eq!(settled.poll_now(), Some(Err(forgotten)));
    assert_eq!(pair.ledger.open.len(), 100);
}

#[test]
fn a_stranger_is_believed_only_of_a_frame_under_way() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    let mut words_of_stranger = words_of(&frame);
    words_of_stranger[0] = words_of_stranger[0] & !0xff00_0000_0000 | 3 << 40;
    for serial in [0, 2] {
        words_of_stranger[2] = serial;
        assert_eq!(pair.take(&tagged(&words_of_stranger, pair.target.key)), Arrival::Stray);
    }
    pair.deliver(&frame);
    words_of_stranger[2] = 1;
    assert_eq!(pair.take(&tagged(&words_of_stranger, pair.target.key)), Arrival::Stray, "it was answered");
    assert!(pair.ledger.is_introduced());
    assert_eq!(words(&mut pending), [0]);
}

#[test]
fn a_second_introduction_changes_nothing() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    pair.ledger.introduced(CALLER + 1, TagKey([7, 7]));
    assert_eq!(pair.deliver(&frame), Arrival::Answered);
    assert_eq!(words(&mut pending), [0]);
}
