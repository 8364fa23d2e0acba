//! Tests where the reason of a failed connection is not reported: what was under way is in doubt.

use super::*;

fn write() -> Operation {
    Operation::WriteWord { at: 8, value: 1 }
}

fn read() -> Operation {
    Operation::ReadWord { at: 8 }
}

type Fail = fn(&mut Side);

/// Of iWARP, whatever a completion says; and of the others, where the answer that said it was lost. The first of what was under way failed.
fn in_doubt() -> [(Side, Fail); 2] {
    let untold: Fail = |side| side.fail(3, Failure::Refused);
    let lost: Fail = |side| side.fail(0, Failure::Lost);
    [(Side::with(Refusals::Untold), untold), (Side::with(Refusals::Told), lost)]
}

#[test]
fn where_the_key_is_revoked_everything_in_doubt_is() {
    for (mut side, fail) in in_doubt() {
        let mut pending = [side.post(vec![write()], SOON), side.post(vec![read()], SOON)];
        side.go();
        fail(&mut side);
        assert!(pending.iter_mut().all(|pending| pending.poll_now().is_none()), "ended before anybody knows why");
        assert!(!side.ledger.is_idle());
        side.tell(Some(false));
        pending.iter_mut().for_each(|pending| assert_eq!(pending.poll_now().unwrap().unwrap_err(), revoked()));
        assert!(side.ledger.doubted(NOW).is_none() && side.ledger.is_idle() && side.ledger.identifiers.is_empty());
    }
}

#[test]
fn where_the_key_is_good_reads_go_again_and_what_changes_something_is_unknown() {
    for (mut side, fail) in in_doubt() {
        let mut first = side.post(vec![read()], SOON);
        let mut change = side.post(vec![write()], SOON);
        let mut last = side.post(vec![read()], SOON);
        side.go();
        fail(&mut side);
        let mut settled = side.settle(1);
        side.connect();
        assert!(settled.poll_now().is_none(), "settled before it is known why the connection failed");
        assert_eq!(side.go(), 0);
        side.tell(Some(true));
        assert_eq!(change.poll_now().unwrap().unwrap_err(), unknown_of(1, 1));
        assert_eq!(settled.poll_now(), Some(Err(Error::Forgotten { target: target(), operation: OperationId(1) })));
        assert_eq!(side.go(), 2);
        side.complete(1);
        assert_eq!((words(&mut first), words(&mut last)), (vec![100], vec![101]));
        assert!(side.ledger.is_idle() && side.ledger.identifiers.is_empty());
    }
}

#[test]
fn of_a_batch_that_failed_what_was_complete_is_in_no_doubt() {
    let mut side = Side::new();
    let mut whole = side.post(vec![add()], SOON);
    let mut reads = side.post(vec![read(), read(), read()], SOON);
    side.go();
    side.fail(2, Failure::Lost);
    assert_eq!(words(&mut whole), [100]);
    side.connect();
    side.tell(Some(true));
    assert_eq!(side.go(), 2, "the first of three was read");
    side.complete(1);
    assert_eq!(words(&mut reads), [101, 100, 101]);

    let mut writes = side.post(vec![write(), write(), add()], SOON);
    side.go();
    side.fail(3, Failure::Lost);
    side.tell(Some(true));
    assert_eq!(writes.poll_now().unwrap().unwrap_err(), unknown_of(2, 4));
    assert_eq!(side.settle(2).poll_now(), Some(Ok(Settled::Executed(0))));
    side.connect();
    let forgotten = |id| Some(Err(Error::Forgotten { target: target(), operation: OperationId(id) }));
    assert_eq!((side.settle(3).poll_now(), side.settle(4).poll_now()), (forgotten(3), forgotten(4)));
    assert!(side.ledger.is_idle() && side.ledger.identifiers.is_empty());
}

#[test]
fn without_a_word_of_the_owner_or_in_time_it_is_unknown() {
    for end in [
        (|side: &mut Side| side.tell(None)) as fn(&mut Side),
        |side| side.expire(SOON),
        |side| side.ledger.unreachable(&gone(), &mut side.endings),
        |side| side.ledger.close(&mut side.endings),
    ] {
        let mut side = Side::with(Refusals::Untold);
        let mut pending = side.post(vec![write()], SOON);
        side.go();
        side.fail(0, Failure::Lost);
        end(&mut side);
        side.endings.hand_over();
        assert_eq!(pending.poll_now().unwrap().unwrap_err(), unknown_of(1, 1));
        assert!(side.ledger.doubted(NOW).is_none() && side.ledger.is_idle());
        assert!(!side.ledger.identifiers.is_empty(), "it is to be settled");
    }
}

#[test]
fn what_expired_before_the_connection_failed_is_in_no_doubt() {
    let mut side = Side::with(Refusals::Untold);
    let mut pending = side.post(vec![write()], SOON);
    side.go();
    side.expire(SOON);
    assert_eq!(pending.poll_now().unwrap().unwrap_err(), unknown_of(1, 1));
    side.fail(0, Failure::Lost);
    assert!(side.ledger.doubted(NOW).is_none());
    side.connect();
    assert!(matches!(side.settle(1).poll_now(), Some(Err(Error::Forgotten { .. }))));
}

#[test]
fn a_connection_that_only_reads_is_stalled_sooner() {
    let stalls = |refusals| {
        let mut side = Side::with(refusals);
        let pending = side.post(vec![read()], NOW + Duration::from_secs(60));
        side.go();
        let after = |seconds| NOW + Duration::from_secs(seconds);
        drop(pending);
        [2, 3, 9, 10].map(|seconds| side.ledger.is_stalled(after(seconds)))
    };
    assert_eq!(stalls(Refusals::Untold), [false, true, true, true]);
    assert_eq!(stalls(Refusals::Told), [false, false, false, true]);
}

#[test]
fn of_what_stands_still_the_owner_is_asked_once_and_a_dead_key_ends_the_connection() {
    let after = |milliseconds| NOW + Duration::from_millis(milliseconds);
    let id = RegionId::from(&key(Rights::Change));
    let mut side = Side::new();
    assert!(side.ledger.doubted(after(60_000)).is_none(), "nothing is under way");
    let mut first = side.post(vec![add()], LATE);
    let mut refused = side.post(vec![add()], LATE);
    side.go();
    assert_eq!((side.ledger.doubted(after(900)), side.ledger.doubted(after(1000))), (None, Some(id)));
    for is_good in [Some(true), None] {
        side.ledger.moves(NOW);
        assert!(!side.ledger.told(&id, is_good, &mut side.endings));
        assert!(side.ledger.doubted(after(60_000)).is_none(), "it was asked");
    }
    side.ledger.moves(after(100));
    side.complete(0);
    assert_eq!(words(&mut first), [100]);
    assert_eq!((side.ledger.doubted(after(1000)), side.ledger.doubted(after(1100))), (None, Some(id)));
    assert!(side.ledger.told(&id, Some(false), &mut side.endings));
    assert!(refused.poll_now().is_none(), "its connection has not ended");
    side.fail(0, Failure::Lost);
    side.tell(Some(false));
    assert_eq!(refused.poll_now().unwrap().unwrap_err(), revoked());
    assert!(side.ledger.is_idle() && side.ledger.identifiers.is_empty());
}
