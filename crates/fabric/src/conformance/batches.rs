//! F1: batches are in order, and end where they are refused.

use super::harness::{Able, Harness};
use super::scene::{Scene, bytes, finish, soon, word};
use crate::{Batch, Class, Done, Error, LARGEST_BATCH, Operation, Ordering};

/// F1: what comes later in a batch finds what came earlier, whatever the kinds.
pub fn batches_run_in_order(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    let mut batch = Batch::new();
    batch
        .push(Operation::FetchAdd { at: 0, addend: 1 })
        .push(Operation::CompareSwap { at: 0, expected: 1, desired: 10 })
        .push(Operation::CompareSwap { at: 0, expected: 1, desired: 99 })
        .push(Operation::ReadWord { at: 0 })
        .push(Operation::WriteWord { at: 8, value: 20 })
        .push(Operation::Write { at: 10, from: scene.buffer(&[7; 2]) })
        .push(Operation::Read { at: 8, into: scene.buffer(&[0; 8]) })
        .push(Operation::WriteWord { at: 8, value: 30 })
        .push(Operation::ReadWord { at: 8 })
        .push(Operation::FetchAdd { at: 0, addend: 5 });
    let done = scene.run(harness, batch).expect("a batch that is allowed succeeds");
    assert_eq!(done.len(), 10, "one result for each element");
    let words: Vec<Option<u64>> = done.iter().map(Done::word).collect();
    assert_eq!((words[0], words[1], words[2], words[3]), (Some(0), Some(1), Some(10), Some(10)));
    assert_eq!((words[8], words[9]), (Some(30), Some(10)));
    let read = done.into_iter().nth(6).expect("ten results");
    assert_eq!(bytes(read), [20, 0, 7, 7, 0, 0, 0, 0]);
    assert_eq!((scene.region.load(0), scene.region.load(8)), (Ok(15), Ok(30)));
    let nothing = scene.run(harness, Batch::new()).expect("an empty batch succeeds");
    assert!(nothing.is_empty());
    Ok(())
}

/// F1: what stands before a refused element was executed, the element and what stands behind it were not.
pub fn a_batch_ends_at_the_first_refusal(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let refused = [
        (Operation::ReadWord { at: 64 }, Error::OutOfBounds { at: 64, length: 8, region_bytes: 64 }),
        (Operation::FetchAdd { at: 4, addend: 1 }, Error::Misaligned { at: 4 }),
        (
            Operation::Write { at: 60, from: scene.buffer(&[0xff; 8]) },
            Error::OutOfBounds { at: 60, length: 8, region_bytes: 64 },
        ),
    ];
    for (round, (operation, error)) in (1..).zip(refused) {
        let mut batch = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
        batch
            .push(Operation::WriteWord { at: 8, value: round })
            .push(operation)
            .push(Operation::FetchAdd { at: 16, addend: 1 })
            .push(Operation::WriteWord { at: 24, value: 1 });
        assert_eq!(scene.run(harness, batch).expect_err("a refused element ends the batch"), error);
        assert_eq!((scene.region.load(0), scene.region.load(8)), (Ok(round), Ok(round)), "what stood before it");
        assert_eq!((scene.region.load(16), scene.region.load(24)), (Ok(0), Ok(0)), "what stood behind it");
    }
    assert_eq!(scene.region.load(56), Ok(0), "the refused element itself");
    Ok(())
}

/// A batch has at most [`LARGEST_BATCH`] elements; a larger one is refused as a whole.
pub fn a_batch_has_a_largest_size(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let of = |elements: usize| {
        let mut batch = Batch::new();
        (0..elements).for_each(|_| {
            batch.push(Operation::FetchAdd { at: 0, addend: 1 });
        });
        batch
    };
    let done = scene.run(harness, of(LARGEST_BATCH)).expect("the largest batch succeeds");
    assert!(done.into_iter().map(word).eq(0..LARGEST_BATCH as u64));
    let larger = scene.run(harness, of(LARGEST_BATCH + 1)).expect_err("a larger one is refused");
    let (asked, most) = (LARGEST_BATCH as u64 + 1, LARGEST_BATCH as u64);
    assert!(matches!(larger, Error::TooLarge { asked: a, most: m, .. } if (a, m) == (asked, most)), "{larger}");
    assert_eq!(scene.region.load(0), Ok(most));
    Ok(())
}

/// Where it is promised, batches that one caller posts without waiting are executed in that order.
pub fn batches_keep_their_order_where_promised(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    if scene.caller.capabilities().ordering != Ordering::Posted {
        return Err(super::Unable("no order between batches is promised"));
    }
    let deadline = soon(&*scene.caller);
    let posted: Vec<_> = (1..=200)
        .map(|value| {
            let mut batch = Batch::one(Operation::ReadWord { at: 0 });
            batch.push(Operation::WriteWord { at: 0, value });
            (value, scene.remote.post(batch, Class::Control, deadline))
        })
        .collect();
    for (value, pending) in posted {
        let done = finish(harness, &*scene.caller, pending, deadline).expect("a posted batch succeeds");
        assert_eq!(done[0].word(), Some(value - 1));
    }
    assert_eq!(scene.region.load(0), Ok(200));
    Ok(())
}
