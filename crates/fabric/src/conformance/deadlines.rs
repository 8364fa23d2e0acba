//! No operation waits for ever.

use super::harness::{Able, Fault, Harness, Unable};
use super::scene::{SHORT, SLACK, Scene, finish};
use crate::{Batch, Class, Error, Operation};

/// What is posted after its deadline is not executed.
pub fn a_passed_deadline_sends_nothing(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let now = scene.caller.clock().now();
    for class in Class::ALL {
        let pending = scene.remote.post(Batch::one(Operation::FetchAdd { at: 0, addend: 1 }), class, now);
        assert_eq!(finish(harness, &*scene.caller, pending, now).expect_err("it is late"), Error::Late);
        let pending = scene.remote.post(Batch::read_words(&[0]), class, now);
        assert_eq!(finish(harness, &*scene.caller, pending, now).expect_err("it is late"), Error::Late);
    }
    assert_eq!(scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 }), 0);
    Ok(())
}

/// Whatever becomes of its link, an operation ends by its deadline and [`SLACK`], of each kind and in each class; settling too.
pub fn every_operation_ends_at_its_deadline(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    let mut arranged = Err(Unable("nothing can happen to a link"));
    for fault in [Fault::Cut, Fault::LoseAnswers, Fault::Hold] {
        match harness.fault(fault, from, to) {
            Ok(()) => arranged = Ok(()),
            Err(_) => continue,
        }
        let deadline = scene.caller.clock().now() + SHORT;
        let operations = [
            Operation::ReadWord { at: 0 },
            Operation::WriteWord { at: 8, value: 1 },
            Operation::FetchAdd { at: 0, addend: 1 },
            Operation::CompareSwap { at: 0, expected: 0, desired: 1 },
            Operation::Read { at: 0, into: scene.buffer(&[0; 8]) },
            Operation::Write { at: 16, from: scene.buffer(&[1; 8]) },
        ];
        let posted: Vec<_> = operations
            .into_iter()
            .enumerate()
            .map(|(index, operation)| scene.remote.post(Batch::one(operation), Class::ALL[index % 2], deadline))
            .collect();
        let mut unsettled = vec![];
        for (index, pending) in posted.into_iter().enumerate() {
            let error = finish(harness, &*scene.caller, pending, deadline).expect_err("no answer can come");
            match error {
                Error::Unknown { first: Some(first), .. } => unsettled.push((first, Class::ALL[index % 2])),
                Error::Unknown { .. } | Error::Unreachable { .. } => {}
                other => panic!("{fault:?}: {other}"),
            }
        }
        let deadline = scene.caller.clock().now() + SHORT;
        let settling: Vec<_> =
            unsettled.into_iter().map(|(id, class)| scene.remote.settle(id, class, deadline)).collect();
        for settling in settling {
            let error = finish(harness, &*scene.caller, settling, deadline).expect_err("no answer can come");
            assert!(matches!(error, Error::Unknown { .. } | Error::Unreachable { .. }), "{error}");
        }
        let now = scene.caller.clock().now();
        assert!(now <= deadline + SLACK, "{fault:?}: {:?} late", now.since(deadline));
        harness.heal(from, to);
    }
    arranged
}
