//! What is sent again, when, and beside what.

use super::*;

#[test]
fn what_is_not_answered_is_sent_again_with_its_identifiers_until_its_deadline() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(add(), millis(200));
    let mut sent = Vec::new();
    loop {
        sent.extend(pair.gather().map(|frame| (pair.now, ids(&frame))));
        assert!(pair.gather().is_none());
        let next = pair.expire(pair.now);
        if pending.poll_now().is_some() {
            break;
        }
        assert!(next > pair.now);
        // Not before it is time.
        pair.now = Time::from_nanos(next.nanos() - 1);
        assert!(pair.gather().is_none());
        pair.now = next;
    }
    let times = [0, 4, 12, 28, 60, 124, 188].map(millis);
    let expected: Vec<_> = times.into_iter().zip(1..).map(|(at, serial)| (at, (serial, vec![1]))).collect();
    assert_eq!(sent, expected);
    assert_eq!((pair.ledger.counts().sent, pair.ledger.counts().resent), (7, 6));
    assert_eq!(pair.now, millis(200));
}

#[test]
fn an_answer_to_any_copy_counts_and_only_once() {
    for which in 0..3 {
        let mut pair = Pair::new(8);
        let mut pending = pair.post(add(), LATER);
        let frames: Vec<_> = [0, 4, 12]
            .map(|at| {
                pair.now = millis(at);
                pair.gather().unwrap()
            })
            .into();
        let answers: Vec<_> = frames.iter().map(|frame| pair.target.receive(frame).unwrap()).collect();
        assert!(pair.target.receive(&frames[0]).is_none(), "a serial is used once");
        assert_eq!(pair.take(&answers[which]), Arrival::Answered);
        assert_eq!(words(&mut pending), [0]);
        assert!(answers.iter().all(|answer| pair.take(answer) == Arrival::Stray));
        assert_eq!((pair.target.memory[0], pair.ledger.counts().stray), (1, 3));
        assert_eq!(pair.ledger.frames.remembered(), 0);
        assert_eq!(pair.expire(LATER), Time::FAR);
    }
}

#[test]
fn a_copy_of_a_part_answers_no_later_part() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(adds(100), LATER);
    let first = pair.gather().unwrap();
    pair.now = millis(4);
    let again = pair.gather().unwrap();
    pair.deliver(&first);
    let second = pair.gather().unwrap();
    assert_eq!(pair.deliver(&again), Arrival::Stray);
    assert!(pending.poll_now().is_none());
    pair.deliver(&second);
    assert_eq!(words(&mut pending).len(), 100);
    assert_eq!(pair.target.memory[0], 100);
}

#[test]
fn a_part_of_a_frame_that_was_answered_elsewhere_is_passed_over() {
    let mut pair = Pair::new(8);
    let mut first = pair.post(add(), millis(6));
    let mut second = pair.post(add(), LATER);
    let frame = pair.gather().unwrap();
    pair.expire(millis(6));
    assert_eq!(unknown_ids(&mut first), (1, 1));
    assert_eq!(pair.deliver(&frame), Arrival::Answered);
    assert_eq!(words(&mut second), [1]);
    assert_eq!(pair.ledger.open.len(), 1, "what ended as unknown is to be settled, answered late or not");
}

#[test]
fn what_is_posted_while_enough_frames_are_under_way_shares_few() {
    let mut pair = Pair::new(8);
    let frames: Vec<_> = (0..MOST_FRAMES)
        .map(|_| {
            let _pending = pair.post(Batch::read_words(&[0]), LATER);
            pair.gather().unwrap()
        })
        .collect();
    let mut reads: Vec<_> = (0..100).map(|_| pair.post(Batch::read_words(&[8]), LATER)).collect();
    assert!(pair.gather().is_none());
    pair.deliver(&frames[3]);
    let next = pair.gather().unwrap();
    assert!(pair.gather().is_none());
    assert_eq!(ids(&next).1.len(), 22);
    for frame in frames.iter().enumerate().filter(|(at, _)| *at != 3).map(|(_, frame)| frame).chain([&next]) {
        pair.deliver(frame);
    }
    assert_eq!(pair.run(), 4);
    assert!(reads.iter_mut().all(|read| words(read) == [0x0101_0101_0101_0101]));
}

#[test]
fn a_frame_that_is_sent_again_takes_along_what_waits() {
    let mut pair = Pair::new(8);
    for _ in 0..MOST_FRAMES {
        let _pending = pair.post(add(), LATER);
        pair.lose();
    }
    let _waiting = pair.post(add(), LATER);
    assert!(pair.gather().is_none());
    assert_eq!(pair.expire(Time::ZERO), Time::ZERO + FIRST_RESEND);
    pair.now = Time::ZERO + FIRST_RESEND;
    assert_eq!(ids(&pair.gather().unwrap()), (9, (1..=9).collect()));
    assert!(pair.gather().is_none());
    assert_eq!(pair.ledger.frames.under_way(), 1);
    // Each has its own time from here on.
    assert_eq!(pair.expire(pair.now), millis(8));
    pair.now = millis(8);
    assert_eq!(ids(&pair.gather().unwrap()), (10, vec![9]));
    pair.now = millis(12);
    assert_eq!(ids(&pair.gather().unwrap()), (11, (1..=8).collect()));
}

#[test]
fn frames_of_which_some_is_due_wait_when_no_other_may_be_sent() {
    let mut pair = Pair::new(8);
    let _older = pair.post(add(), LATER);
    pair.lose();
    pair.now = millis(4);
    let _newer = pair.post(add(), LATER);
    // One item that is due again at 12 ms, and one at 8.
    assert_eq!(ids(&pair.gather().unwrap()).1, [1, 2]);
    pair.now = millis(7);
    for _ in 1..MOST_FRAMES {
        let _pending = pair.post(add(), LATER);
        pair.lose();
    }
    assert_eq!(pair.expire(millis(8)), millis(11), "the first frame that another one can take the place of");
    assert!(pair.gather().is_none());
    pair.now = millis(11);
    assert_eq!(ids(&pair.gather().unwrap()).1, [3, 4, 5, 6, 7, 8, 9, 2]);
    pair.now = millis(12);
    assert_eq!(ids(&pair.gather().unwrap()).1, [1]);
}

#[test]
fn what_is_remembered_of_lost_frames_is_bounded() {
    let mut pair = Pair::new(8);
    let mut pending: Vec<_> = (0..MOST_FRAMES)
        .map(|at| {
            pair.now = millis(at as u64 / 2);
            let pending = pair.post(Batch::read_words(&[0; 57]), Time::FAR);
            pair.lose();
            pending
        })
        .collect();
    for _ in 0..500 {
        pair.now = pair.expire(pair.now);
        pair.lose();
    }
    assert!(pair.ledger.frames.remembered() <= 256);
    pair.now = pair.expire(pair.now);
    for frame in pair.gather_all() {
        pair.deliver(&frame);
    }
    assert!(pending.iter_mut().any(|pending| pending.poll_now().is_some()));
}
