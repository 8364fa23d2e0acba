//! Batches that do not fit a frame.

use super::*;

#[test]
fn a_part_is_sent_when_the_one_before_it_was_answered() {
    let mut pair = Pair::new(8);
    let mut batch = adds(100);
    batch.push(Operation::ReadWord { at: 0 });
    let mut pending = pair.post(batch, LATER);
    let mut other = pair.post(add(), LATER);
    let frames = pair.gather_all();
    assert_eq!(frames.len(), 2, "what is behind it does not wait for its parts");
    assert_eq!((ids(&frames[0]).1, ids(&frames[1]).1), (vec![1], vec![101]));
    assert_eq!(pair.deliver(&frames[1]), Arrival::Answered);
    assert_eq!(words(&mut other), [0]);
    assert!(pair.gather().is_none());
    assert_eq!(pair.deliver(&frames[0]), Arrival::Answered);
    assert!(pending.poll_now().is_none());
    let last = pair.gather().unwrap();
    assert_eq!(ids(&last).1, [58], "its identifiers are consecutive over the parts");
    assert_eq!(pair.deliver(&last), Arrival::Answered);
    assert_eq!(words(&mut pending), (1..=101).collect::<Vec<_>>());
    assert!(pair.ledger.open.is_empty());
}

#[test]
fn a_part_of_reads_has_no_identifier() {
    let mut pair = Pair::new(8);
    let mut batch = Batch::read_words(&[0; 57]);
    batch.push(Operation::FetchAdd { at: 0, addend: 1 });
    let _pending = pair.post(batch, LATER);
    let first = pair.gather().unwrap();
    assert_eq!(ids(&first).1, [0]);
    pair.deliver(&first);
    assert_eq!(ids(&pair.gather().unwrap()).1, [1]);
}

#[test]
fn reads_are_cut_and_put_together_at_every_place() {
    // About the lengths at which one more frame is needed.
    for length in [0, 1, 7, 8, 9, 1340, 1345, 1352, 1353, 1360, 2700, 2704, 2705, 4096] {
        for at in [0, 1, 7, 8, 1003] {
            let mut pair = Pair::new(1024);
            let mut batch = Batch::one(Operation::ReadWord { at: 24 });
            let read = pair.read(at, length);
            batch.push(read).push(Operation::ReadWord { at: 16 });
            let mut pending = pair.post(batch, LATER);
            pair.run();
            let results = pending.poll_now().unwrap().unwrap();
            assert_eq!(results[0].word(), Some(pair.target.memory[3]));
            let crate::operation::Done::Buffer(read) = &results[1] else { panic!("a read gives its buffer") };
            assert_eq!(read.bytes(), pair.bytes(at, length), "{length} at {at}");
            assert_eq!(results[2].word(), Some(pair.target.memory[2]));
        }
    }
}

#[test]
fn pieces_of_a_read_are_whole_words_and_full_frames() {
    let mut pair = Pair::new(9000);
    let read = pair.read(3, LARGEST_READ);
    let mut pending = pair.post(Batch::one(read), LATER);
    let mut places = Vec::new();
    while let Some(frame) = pair.gather() {
        let (_, items) = look(&words_of(&frame));
        places.extend(items[0].elements.iter().map(|element| (element.at, element.body.len())));
        pair.deliver(&frame);
    }
    assert_eq!(places.len(), (LARGEST_READ / 8 + 1).div_ceil(169));
    assert!(places.is_sorted_by(|(at, words), (next, _)| at + 8 * *words as u64 == *next));
    let results = pending.poll_now().unwrap().unwrap();
    let crate::operation::Done::Buffer(read) = &results[0] else { panic!("a read gives its buffer") };
    assert_eq!(read.bytes(), pair.bytes(3, LARGEST_READ));
}

#[test]
fn writes_leave_the_bytes_beside_them() {
    for length in [0, 1, 5, 8, 11, 1000, LARGEST_WRITE] {
        for at in [0, 1, 7, 9, 200] {
            let mut pair = Pair::new(256);
            let (before, after) = (pair.bytes(0, at as usize), pair.bytes(at + length as u64, 2048));
            let from = pair.pool.copy_of(&vec![0xaa; length]).unwrap();
            let mut batch = Batch::one(Operation::Write { at, from });
            batch.push(Operation::ReadWord { at: 0 });
            let mut pending = pair.post(batch, LATER);
            assert_eq!(pair.run(), 1);
            assert_eq!(pending.poll_now().unwrap().unwrap().len(), 2);
            assert_eq!(pair.bytes(0, 2048), [before, vec![0xaa; length], after].concat(), "{length} at {at}");
        }
    }
}

#[test]
fn a_batch_of_which_a_part_is_missing_is_unknown_as_a_whole() {
    let mut pair = Pair::new(8);
    let mut pending = pair.post(adds(100), LATER);
    let first = pair.gather().unwrap();
    pair.deliver(&first);
    // The other part is not even sent.
    pair.expire(LATER);
    assert_eq!(unknown_ids(&mut pending), (1, 100));
    assert_eq!(pair.ledger.open.len(), 100);
    let mut settled: Vec<_> = (1..=100).map(|id| pair.settle(id, MUCH_LATER)).collect();
    pair.run();
    for (before, settled) in settled.iter_mut().enumerate() {
        let outcome = if before < 57 { Settled::Executed(before as u64) } else { Settled::Barred };
        assert_eq!(settled.poll_now(), Some(Ok(outcome)));
    }
    assert!(pair.ledger.open.is_empty());
}
