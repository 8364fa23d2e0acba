//! F4: revoked means other memory, and another incarnation is another node.

use verbena_terms::{Incarnation, ViewNumber};

use super::harness::{Able, Fault, Harness};
use super::scene::{SHORT, Scene, VIEW, eventually, node, open, pass, peer, run, soon, unknown};
use crate::{Batch, Error, Operation, RegionKey, Result, Rights, Secret};

const NEXT: ViewNumber = ViewNumber(VIEW.0 + 1);

/// F4: old keys fail, for a peer that has the region open and for one that opens it, and what they did is not in the
/// new memory.
pub fn a_region_made_anew_is_other_memory(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    let old = scene.region.key(Rights::Change);
    scene.word(harness, Operation::WriteWord { at: 0, value: 1 });
    scene.region.store(8, 2).expect("an owner stores");
    scene.region.remake(NEXT).expect("a region is made anew");
    let new = scene.region.key(Rights::Change);
    assert_eq!((new.view, new.bytes, new.owner), (NEXT, old.bytes, old.owner));
    assert_ne!(new.secret, old.secret);

    let revoked = Error::Revoked { target: old.owner, region: old.region, view: old.view };
    for operation in [
        Operation::ReadWord { at: 0 },
        Operation::WriteWord { at: 16, value: 1 },
        Operation::FetchAdd { at: 24, addend: 1 },
        Operation::CompareSwap { at: 32, expected: 0, desired: 1 },
        Operation::Read { at: 0, into: scene.buffer(&[0; 8]) },
        Operation::Write { at: 40, from: scene.buffer(&[1; 8]) },
    ] {
        assert_eq!(scene.one(harness, operation).expect_err("an old key reaches nothing"), revoked);
    }
    assert_eq!(reach(harness, &scene, &old), Err(revoked));
    for rights in [Rights::Change, Rights::Read] {
        assert_eq!(reach(harness, &scene, &scene.region.key(rights)), Ok(0), "new memory is zeroed");
    }
    let mut all = vec![1; 4096];
    scene.region.read(0, &mut all).expect("an owner reads");
    assert!(all.iter().all(|byte| *byte == 0), "the owner's side is the new memory too");
    let remote = open(&*scene.caller, &*scene.owner, &new).expect("the new key opens");
    run(harness, &*scene.caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 9 })).expect("and works");
    assert_eq!(scene.region.load(0), Ok(9));
    Ok(())
}

/// F4: dropping a region revokes its keys.
pub fn a_region_given_up_is_revoked(harness: &mut dyn Harness) -> Able<()> {
    let mut scene = Scene::new(harness, 64);
    let old = scene.region.key(Rights::Change);
    scene.word(harness, Operation::WriteWord { at: 0, value: 1 });
    scene.region = scene.owner.register(64, NEXT).expect("a node registers memory");
    let revoked = Error::Revoked { target: old.owner, region: old.region, view: old.view };
    assert_eq!(scene.one(harness, Operation::ReadWord { at: 0 }).expect_err("its memory was given up"), revoked);
    assert_eq!(scene.one(harness, Operation::FetchAdd { at: 0, addend: 1 }).expect_err("given up"), revoked);
    assert_eq!(reach(harness, &scene, &old), Err(revoked));
    assert_eq!(scene.region.load(0), Ok(0));
    assert_eq!(reach(harness, &scene, &scene.region.key(Rights::Read)), Ok(0));
    Ok(())
}

/// F4: memory of earlier views is given back when everyone has left them; making anew does not run out of anything.
pub fn a_region_can_be_made_anew_many_times(harness: &mut dyn Harness) -> Able<()> {
    const TIMES: u32 = 100;
    let scene = Scene::new(harness, 1 << 20);
    for view in (VIEW.0 + 1..=VIEW.0 + TIMES).map(ViewNumber) {
        scene.region.remake(view).expect("a region is made anew");
        let key = scene.region.key(Rights::Change);
        let remote = open(&*scene.caller, &*scene.owner, &key).expect("a new key opens");
        let mut batch = Batch::read_words(&[8]);
        batch.push(Operation::FetchAdd { at: 8, addend: 1 });
        let done = run(harness, &*scene.caller, &remote, batch).expect("and works");
        assert_eq!(done[0].word(), Some(0), "{view} begins with zeroes");
        scene.region.everyone_is_in(view);
        assert_eq!(scene.region.load(8), Ok(1), "the current memory stays");
    }
    Ok(())
}

/// F4: an operation that was under way when its region was made anew may land in the old memory, never in the new.
pub fn what_was_under_way_never_lands_in_new_memory(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let (from, to) = scene.caller_to_owner();
    harness.fault(Fault::Hold, from, to)?;
    unknown(scene.briefly(harness, Operation::WriteWord { at: 0, value: 1 }));
    unknown(scene.briefly(harness, Operation::FetchAdd { at: 8, addend: 1 }));
    scene.region.remake(NEXT).expect("a region is made anew");
    scene.region.everyone_is_in(NEXT);
    harness.heal(from, to);
    pass(harness, &*scene.caller, SHORT * 3);
    assert_eq!((scene.region.load(0), scene.region.load(8)), (Ok(0), Ok(0)));
    Ok(())
}

/// A key is one that was given: one that was guessed, or changed, opens nothing that it should not.
pub fn forged_keys_open_nothing(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    scene.region.store(0, 7).expect("an owner stores");
    let key = scene.region.key(Rights::Change);
    let mut near = key.secret;
    near.0[15] ^= 1;
    let forged = [
        RegionKey { secret: Secret([0; 16]), ..key.clone() },
        RegionKey { secret: near, ..key.clone() },
        RegionKey { region: key.region + 1, ..key.clone() },
        RegionKey { view: NEXT, ..key.clone() },
    ];
    for forged in forged {
        let result = reach(harness, &scene, &forged);
        assert!(matches!(result, Err(Error::Denied { .. } | Error::Revoked { .. })), "{forged:?} gave {result:?}");
    }
    let more = RegionKey { rights: Rights::Change, ..scene.region.key(Rights::Read) };
    let changed = open(&*scene.caller, &*scene.owner, &more)
        .and_then(|remote| run(harness, &*scene.caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 1 })));
    assert!(matches!(changed, Err(Error::Denied { .. } | Error::Revoked { .. })), "{changed:?}");
    let larger = RegionKey { bytes: 1 << 30, ..key };
    let beyond = open(&*scene.caller, &*scene.owner, &larger)
        .and_then(|remote| run(harness, &*scene.caller, &remote, Batch::read_words(&[1 << 20])));
    assert!(beyond.is_err(), "a key that says more bytes than there are reaches {beyond:?}");
    assert_eq!(scene.region.load(0), Ok(7));
    assert_eq!(reach(harness, &scene, &scene.region.key(Rights::Change)), Ok(7));
    Ok(())
}

/// F4: a connection to one incarnation never reaches another one at the same address, whatever key it shows.
pub fn another_incarnation_is_not_reached(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let me = scene.owner.identity();
    let key = scene.region.key(Rights::Change);
    let others = [
        Incarnation { start: me.start + 1, ..me },
        Incarnation { start: me.start.wrapping_sub(1), ..me },
        Incarnation::new(me.rank.0 + 1000, me.start),
    ];
    for other in others {
        let theirs = RegionKey { owner: other, ..key.clone() };
        for key in [&theirs, &key] {
            // Short, because no target will ever answer.
            let deadline = scene.caller.clock().now() + SHORT * 3;
            let result = scene
                .caller
                .connect(other, &scene.owner.address())
                .and_then(|peer| peer.open(key, deadline))
                .and_then(|remote| run(harness, &*scene.caller, &remote, Batch::read_words(&[0])));
            let error = result.expect_err("another incarnation was reached");
            assert!(
                matches!(error, Error::Unreachable { .. } | Error::Revoked { .. } | Error::Unknown { .. }),
                "{other} at the address of {me}: {error}"
            );
        }
    }
    let third = node(harness);
    let wrong = peer(&*scene.caller, &*third).open(&key, soon(&*scene.caller));
    assert!(wrong.is_err(), "a key of {me} was opened at {}", third.identity());
    assert_eq!(reach(harness, &scene, &key), Ok(0));
    Ok(())
}

/// F4: a node that was restarted at its address is another incarnation to all who knew the former.
pub fn a_restarted_node_is_not_taken_for_the_former(harness: &mut dyn Harness) -> Able<()> {
    let Scene { owner, region, caller, remote } = Scene::new(harness, 64);
    let (former, old, address) = (owner.identity(), region.key(Rights::Change), owner.address());
    drop(region);
    let owner = harness.restart(owner)?;
    owner.set_view(NEXT);
    assert_eq!((owner.identity().rank, owner.address()), (former.rank, address));
    assert!(owner.identity().start > former.start);
    let region = owner.register(64, NEXT).expect("a node registers memory");
    let until = caller.clock().now() + SHORT * 5;
    while caller.clock().now() < until {
        let result = run(harness, &*caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 1 }));
        assert!(result.is_err(), "an operation on the former incarnation succeeded");
        assert!(peer_of(&*caller, former, &owner.address(), &old).is_err(), "an old key opened a region");
        pass(harness, &*caller, SHORT / 4);
    }
    assert_eq!(region.load(0), Ok(0));
    let scene = Scene {
        remote: open(&*caller, &*owner, &region.key(Rights::Change)).expect("a new key opens"),
        owner,
        region,
        caller,
    };
    assert_eq!(scene.word(harness, Operation::ReadWord { at: 0 }), 0);
    Ok(())
}

/// A fabric that was dropped is gone for its peers, whether its regions were dropped before it or are still held.
pub fn a_closed_fabric_stops_answering(harness: &mut dyn Harness) -> Able<()> {
    for held in [true, false] {
        let Scene { owner, region, caller, remote } = Scene::new(harness, 64);
        let (incarnation, address, key) = (owner.identity(), owner.address(), region.key(Rights::Change));
        let region = held.then_some(region);
        drop(owner);
        let refused = eventually(harness, &*caller, |harness| {
            run(harness, &*caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 1 })).is_err()
        });
        assert!(refused, "operations on a closed fabric go on to succeed (region held: {held})");
        assert!(
            peer_of(&*caller, incarnation, &address, &key).is_err(),
            "a closed fabric lets a region be opened (held: {held})"
        );
        drop(region);
    }
    Ok(())
}

/// A node whose process ended is gone for its peers: no operation on its memory looks like a success for ever.
pub fn a_killed_node_stops_answering(harness: &mut dyn Harness) -> Able<()> {
    let target = harness.target(64)?;
    let caller = node(harness);
    let to = caller.connect(target.incarnation, &target.address).expect("a node connects to a target");
    let remote = to.open(&target.key, soon(&*caller)).expect("a target's key opens its region");
    run(harness, &*caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 1 }))
        .expect("a live target answers");
    harness.kill(target.incarnation)?;
    let refused = eventually(harness, &*caller, |harness| {
        run(harness, &*caller, &remote, Batch::one(Operation::FetchAdd { at: 0, addend: 1 })).is_err()
    });
    assert!(refused, "operations on a dead node go on to succeed");
    for _ in 0..10 {
        let again = run(harness, &*caller, &remote, Batch::read_words(&[0]));
        assert!(again.is_err(), "a dead node came back");
        pass(harness, &*caller, SHORT / 10);
    }
    assert!(peer_of(&*caller, target.incarnation, &target.address, &target.key).is_err(), "a dead node opens a region");
    Ok(())
}

/// Opens with a key and reads the first word.
fn reach(harness: &mut dyn Harness, scene: &Scene, key: &RegionKey) -> Result<u64> {
    let remote = open(&*scene.caller, &*scene.owner, key)?;
    let done = run(harness, &*scene.caller, &remote, Batch::read_words(&[0]))?;
    Ok(done[0].word().expect("a word operation gives a word"))
}

/// Whether a region can still be opened, found out within a short time.
fn peer_of(
    caller: &dyn crate::Fabric,
    incarnation: Incarnation,
    address: &crate::Address,
    key: &RegionKey,
) -> Result<crate::SharedRemote> {
    caller.connect(incarnation, address)?.open(key, caller.clock().now() + SHORT * 3)
}
