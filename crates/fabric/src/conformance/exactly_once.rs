//! F2: an operation with an effect happens exactly once, or its caller learns that the outcome is unknown and settles
//! it.

use super::harness::{Able, Fault, Harness};
use super::scene::{SHORT, Scene, eventually, finish, pass, soon, unknown};
use crate::window::WINDOW;
use crate::{Batch, Class, Error, Operation, OperationId, Settled};

/// Time in which whatever was held or lost on a healed link has arrived, if it ever does.
const AFTERMATH: std::time::Duration = SHORT.saturating_mul(3);

/// F2: of two copies of a request one executes, and the answer is that of the one.
pub fn repeated_requests_execute_once(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    harness.fault(Fault::Repeat, from, to)?;
    for round in 0..50 {
        assert_eq!(scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 }), round);
        let swap = Operation::CompareSwap { at: 8, expected: round, desired: round + 1 };
        assert_eq!(scene.word(harness, swap), round);
        // A copy of the first write that came after the second would bring the old value back.
        scene.word(harness, Operation::WriteWord { at: 16, value: round });
        scene.word(harness, Operation::WriteWord { at: 16, value: 1000 + round });
        assert_eq!(scene.word(harness, Operation::ReadWord { at: 16 }), 1000 + round);
    }
    harness.heal(from, to);
    pass(harness, &*scene.caller, AFTERMATH);
    let words = [0, 8, 16].map(|at| scene.region.load(at));
    assert_eq!(words, [Ok(50), Ok(50), Ok(1049)]);
    Ok(())
}

/// F2: what was executed, though its answer was lost, is settled to the outcome that the answer would have had.
pub fn lost_answers_are_settled_to_their_outcome(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    scene.region.store(0, 40).expect("an owner stores");
    let operations = [
        (Operation::FetchAdd { at: 0, addend: 2 }, Some(40), 42),
        (Operation::CompareSwap { at: 0, expected: 42, desired: 43 }, Some(42), 43),
        (Operation::CompareSwap { at: 0, expected: 42, desired: 44 }, Some(43), 43),
        (Operation::WriteWord { at: 8, value: 7 }, None, 43),
        (Operation::Write { at: 16, from: scene.buffer(&[5; 8]) }, Some(0), 43),
    ];
    for (operation, outcome, word) in operations {
        harness.fault(Fault::LoseAnswers, from, to)?;
        let id = unknown(scene.briefly(harness, operation));
        harness.heal(from, to);
        let settled = scene.settle(harness, id);
        let Settled::Executed(found) = settled else { panic!("it was executed, and is settled as {settled:?}") };
        assert!(outcome.is_none_or(|outcome| outcome == found), "{found} where {outcome:?} was the outcome");
        assert_eq!(scene.region.load(0), Ok(word));
    }
    assert_eq!((scene.region.load(8), scene.region.load(16)), (Ok(7), Ok(u64::from_ne_bytes([5; 8]))));
    pass(harness, &*scene.caller, AFTERMATH);
    assert_eq!(scene.word(harness, Operation::ReadWord { at: 0 }), 43, "nothing was executed again");

    // A read has no effect and no identifier; it is simply tried again.
    harness.fault(Fault::LoseAnswers, from, to)?;
    let read = scene.briefly(harness, Operation::ReadWord { at: 0 }).expect_err("its answer is lost");
    assert!(matches!(read, Error::Unknown { first: None, last: None, .. }) && !read.may_have_happened(), "{read}");
    harness.heal(from, to);
    assert!(eventually(harness, &*scene.caller, |harness| scene
        .briefly(harness, Operation::ReadWord { at: 0 })
        .is_ok()));
    Ok(())
}

/// F2: what did not arrive is barred by settling, and stays barred; what did is executed, once.
pub fn lost_requests_are_settled_for_ever(harness: &mut dyn Harness) -> Able<()> {
    settled_is_settled(harness, Fault::Cut)
}

/// F2: a copy that was under way when its operation was barred does not execute when it arrives.
pub fn late_copies_do_not_execute_after_settling(harness: &mut dyn Harness) -> Able<()> {
    settled_is_settled(harness, Fault::Hold)
}

fn settled_is_settled(harness: &mut dyn Harness, fault: Fault) -> Able<()> {
    const ROUNDS: usize = 10;
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    let mut outcomes = Vec::new();
    for _ in 0..ROUNDS {
        harness.fault(fault, from, to)?;
        let id = unknown(scene.briefly(harness, Operation::FetchAdd { at: 0, addend: 1 }));
        harness.heal(from, to);
        outcomes.push((id, scene.settle(harness, id)));
    }
    pass(harness, &*scene.caller, AFTERMATH);
    let executed: Vec<Settled> =
        outcomes.iter().map(|(_, settled)| *settled).filter(|settled| *settled != Settled::Barred).collect();
    println!("  of {ROUNDS} operations {} had been executed when they were settled", executed.len());
    assert!(executed.iter().copied().eq((0..).map(Settled::Executed).take(executed.len())), "{outcomes:?}");
    assert_eq!(scene.region.load(0), Ok(executed.len() as u64), "{outcomes:?}");
    for (id, settled) in outcomes {
        assert_eq!(scene.settle(harness, id), settled, "what was settled stays as it was settled");
    }
    let next = scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 });
    assert_eq!(next, executed.len() as u64);
    Ok(())
}

/// F2: identifiers only grow, each for itself in its class.
pub fn identifiers_are_never_reused(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    let mut last = OperationId(0);
    for round in 1..=5 {
        for _ in 0..3 {
            scene.word(harness, Operation::FetchAdd { at: 8, addend: 1 });
        }
        harness.fault(Fault::Cut, from, to)?;
        let mut batch = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
        batch.push(Operation::ReadWord { at: 0 }).push(Operation::FetchAdd { at: 0, addend: 1 });
        let deadline = scene.caller.clock().now() + SHORT;
        let pending = scene.remote.post(batch, Class::Control, deadline);
        let error = finish(harness, &*scene.caller, pending, deadline).expect_err("a cut link answers nothing");
        harness.heal(from, to);
        let Error::Unknown { first: Some(first), last: Some(end), target } = error else { panic!("{error}") };
        assert_eq!((target, end.0), (to, first.0 + 1), "two of the three elements have an effect");
        assert!(first.0 > last.0 + 3, "round {round}: {first} after {last} and three more");
        last = end;
        for id in [first, end] {
            scene.settle(harness, id);
        }
    }
    Ok(())
}

/// F2: while an operation is not settled, no more than a window of others are posted; then it must be.
pub fn a_full_window_asks_to_settle_first(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    harness.fault(Fault::Cut, from, to)?;
    let id = unknown(scene.briefly(harness, Operation::FetchAdd { at: 0, addend: 1 }));
    harness.heal(from, to);
    let sound =
        eventually(harness, &*scene.caller, |harness| scene.briefly(harness, Operation::ReadWord { at: 0 }).is_ok());
    assert!(sound, "a healed link is sound again");
    let mut added = 0;
    let refusal = (0..=WINDOW).find_map(|_| match scene.one(harness, Operation::FetchAdd { at: 8, addend: 1 }) {
        Ok(_) => {
            added += 1;
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refusal, Some(Error::SettleFirst { target: to, oldest: id }));
    assert!(added >= WINDOW as u64 / 4, "only {added} operations fit behind an unsettled one");
    assert_eq!(scene.region.load(8), Ok(added));
    scene.run(harness, Batch::read_words(&[0])).expect("reads have no identifier and go on");
    let settled = scene.settle(harness, id);
    for _ in 0..10 {
        assert_eq!(scene.word(harness, Operation::FetchAdd { at: 8, addend: 1 }), added);
        added += 1;
    }
    assert_eq!(scene.region.load(0), Ok(u64::from(matches!(settled, Settled::Executed(_)))));
    Ok(())
}

/// F2: settling what ended long ago, or never was, makes nothing happen and does not disturb what is posted later.
pub fn what_was_never_posted_can_be_barred_or_is_forgotten(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    for _ in 0..10 {
        scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 });
    }
    for id in [OperationId(0), OperationId(1), OperationId(1 << 40)] {
        let deadline = soon(&*scene.caller);
        let pending = scene.remote.settle(id, Class::Control, deadline);
        match finish(harness, &*scene.caller, pending, deadline) {
            Ok(Settled::Executed(found)) => assert_eq!((id, found), (OperationId(1), 0)),
            Ok(Settled::Barred) => assert!(id.0 > 10, "{id} was executed and is said to be barred"),
            Err(error) => assert!(matches!(error, Error::Forgotten { operation, .. } if operation == id), "{error}"),
        }
    }
    // More than a window, so that every entry at the target is used once more.
    for before in 10..10 + 2 * WINDOW as u64 {
        assert_eq!(scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 }), before);
    }
    Ok(())
}
