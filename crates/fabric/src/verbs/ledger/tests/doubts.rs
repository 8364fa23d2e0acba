//! Where adapters do not say why a connection has failed: what was under way is in doubt.

use super::*;

fn write() -> Operation {
    Operation::WriteWord { at: 8, value: 1 }
}

fn read() -> Operation {
    Operation::ReadWord { at: 8 }
}

fn tell(side: &mut Side, is_good: Option<bool>) {
    let id = side.ledger.doubted().unwrap();
    assert_eq!(id, RegionId::from(&key(Rights::Change)));
    side.ledger.told(&id, is_good, &mut side.endings);
    side.endings.hand_over();
}

#[test]
fn where_the_key_is_revoked_everything_in_doubt_is() {
    let mut side = Side::with(Refusals::Untold);
    let mut pending = [side.post(vec![write()], SOON), side.post(vec![read()], SOON)];
    side.go();
    side.fail(0, Failure::Lost);
    assert!(pending.iter_mut().all(|pending| pending.poll_now().is_none()), "ended before anybody knows why");
    assert!(!side.ledger.is_idle());
    tell(&mut side, Some(false));
    pending.iter_mut().for_each(|pending| assert_eq!(pending.poll_now().unwrap().unwrap_err(), revoked()));
    assert!(side.ledger.doubted().is_none() && side.ledger.is_idle() && side.ledger.identifiers.is_empty());
}

#[test]
fn where_the_key_is_good_reads_go_again_and_what_changes_something_is_unknown() {
    let mut side = Side::with(Refusals::Untold);
    let mut first = side.post(vec![read()], SOON);
    let mut change = side.post(vec![write()], SOON);
    let mut last = side.post(vec![read()], SOON);
    side.go();
    side.fail(3, Failure::Refused);
    let mut settled = side.settle(1);
    side.connect();
    assert!(settled.poll_now().is_none(), "settled before it is known why the connection failed");
    assert_eq!(side.go(), 0);
    tell(&mut side, Some(true));
    assert_eq!(change.poll_now().unwrap().unwrap_err(), unknown_of(1, 1));
    assert_eq!(settled.poll_now(), Some(Err(Error::Forgotten { target: target(), operation: OperationId(1) })));
    assert_eq!(side.go(), 2);
    side.complete(1);
    assert_eq!((words(&mut first), words(&mut last)), (vec![100], vec![101]));
    assert!(side.ledger.is_idle() && side.ledger.identifiers.is_empty());
}

#[test]
fn without_a_word_of_the_owner_or_in_time_it_is_unknown() {
    for end in [
        (|side: &mut Side| tell(side, None)) as fn(&mut Side),
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
        assert!(side.ledger.doubted().is_none() && side.ledger.is_idle());
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
    assert!(side.ledger.doubted().is_none());
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
