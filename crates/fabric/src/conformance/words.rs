//! What an operation does, and what is refused.

use std::os::fd::AsFd;

use verbena_terms::ViewNumber;

use super::harness::{Able, Harness, Unable};
use super::scene::{Scene, VIEW, bytes, node, open, run, word};
use crate::memory::Words;
use crate::{Batch, Error, Operation, Readable, Rights};

/// Each word operation does what it says, and gives what was there.
pub fn every_word_operation_gives_its_result(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    let last = 4096 - 8;
    for at in [0, 8, 2048, last] {
        assert_eq!(scene.word(harness, Operation::ReadWord { at }), 0, "new memory is zeroed");
        scene.word(harness, Operation::WriteWord { at, value: 0x0123_4567_89ab_cdef });
        assert_eq!(scene.word(harness, Operation::ReadWord { at }), 0x0123_4567_89ab_cdef);
    }
    let at = 16;
    assert_eq!(scene.word(harness, Operation::FetchAdd { at, addend: 5 }), 0);
    assert_eq!(scene.word(harness, Operation::FetchAdd { at, addend: 0u64.wrapping_sub(6) }), 5, "addition wraps");
    assert_eq!(scene.word(harness, Operation::ReadWord { at }), u64::MAX);
    assert_eq!(scene.word(harness, Operation::CompareSwap { at, expected: 3, desired: 4 }), u64::MAX);
    assert_eq!(scene.word(harness, Operation::ReadWord { at }), u64::MAX, "a swap that does not match changes nothing");
    assert_eq!(scene.word(harness, Operation::CompareSwap { at, expected: u64::MAX, desired: 4 }), u64::MAX);
    assert_eq!(scene.word(harness, Operation::ReadWord { at }), 4);
    assert_eq!(scene.word(harness, Operation::ReadWord { at: 24 }), 0, "its neighbours are as they were");
    Ok(())
}

/// Bytes written are the bytes read, wherever they begin and end, and their neighbours stay.
pub fn bytes_come_back_at_every_alignment(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    let pattern: Vec<u8> = (1..=64).collect();
    let mut shadow = vec![0; 256];
    for (at, length) in [(0, 64), (1, 1), (3, 17), (8, 8), (13, 40), (7, 2), (100, 0), (190, 64)] {
        let written = scene.one(harness, Operation::Write { at, from: scene.buffer(&pattern[..length]) });
        assert_eq!(bytes(written.expect("a write inside succeeds")), pattern[..length], "the buffer comes back");
        shadow[at as usize..at as usize + length].copy_from_slice(&pattern[..length]);
        let read = scene.one(harness, Operation::Read { at: 0, into: scene.buffer(&[0xee; 256]) });
        assert_eq!(bytes(read.expect("a read inside succeeds")), shadow, "{length} bytes at {at}");
    }
    let to_the_end = scene.one(harness, Operation::Read { at: 4089, into: scene.buffer(&[1; 7]) });
    assert_eq!(bytes(to_the_end.expect("the last bytes are inside")), [0; 7]);
    Ok(())
}

/// Two regions of one owner are two memories.
pub fn regions_do_not_mix(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let other = scene.owner.register(128, VIEW).expect("a node registers more memory");
    assert_ne!(scene.region.key(Rights::Change).region, other.key(Rights::Change).region);
    let remote = open(&*scene.caller, &*scene.owner, &other.key(Rights::Change)).expect("a second region opens");
    scene.word(harness, Operation::WriteWord { at: 0, value: 1 });
    let wrote = run(harness, &*scene.caller, &remote, Batch::one(Operation::WriteWord { at: 0, value: 2 }));
    wrote.expect("a second region is written");
    assert_eq!((scene.region.load(0), other.load(0)), (Ok(1), Ok(2)));
    assert_eq!(scene.word(harness, Operation::ReadWord { at: 0 }), 1);
    Ok(())
}

/// What either side stores the other finds.
pub fn owner_and_peer_see_the_same_memory(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 100);
    let Scene { region, .. } = &scene;
    region.store(8, 77).expect("an owner stores");
    assert_eq!(scene.word(harness, Operation::ReadWord { at: 8 }), 77);
    scene.word(harness, Operation::WriteWord { at: 16, value: 78 });
    assert_eq!(region.load(16), Ok(78));
    region.write(33, b"from the owner").expect("an owner writes");
    let read = scene.one(harness, Operation::Read { at: 33, into: scene.buffer(&[0; 14]) });
    assert_eq!(bytes(read.expect("a read inside succeeds")), b"from the owner");
    scene
        .one(harness, Operation::Write { at: 61, from: scene.buffer(b"from a peer") })
        .expect("a write inside succeeds");
    let mut seen = [0; 11];
    region.read(61, &mut seen).expect("an owner reads");
    assert_eq!(&seen, b"from a peer");

    assert_eq!(region.load(12), Err(Error::Misaligned { at: 12 }));
    assert_eq!(region.store(9, 1), Err(Error::Misaligned { at: 9 }));
    for at in [96, 104, u64::MAX - 7] {
        let outside = Error::OutOfBounds { at, length: 8, region_bytes: 100 };
        assert_eq!(region.load(at), Err(outside.clone()));
        assert_eq!(region.store(at, 1), Err(outside));
    }
    assert_eq!(region.read(99, &mut [0; 2]), Err(Error::OutOfBounds { at: 99, length: 2, region_bytes: 100 }));
    assert_eq!(region.write(99, &[0; 2]), Err(Error::OutOfBounds { at: 99, length: 2, region_bytes: 100 }));
    Ok(())
}

/// What is handed on for reading shows what is put into the region, until that is made anew, and is not mapped for writing.
pub fn what_is_handed_on_shows_the_region(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    let Some(Readable { descriptor, from }) = scene.region.readable().expect("a region is handed on") else {
        return Err(Unable("regions are not handed on"));
    };
    let seen = Words::map(descriptor.as_fd(), from + 4096, false).expect("it is mapped");
    assert!(Words::map(descriptor.as_fd(), from + 4096, true).is_err(), "it is mapped for writing");
    scene.word(harness, Operation::WriteWord { at: 8, value: 77 });
    scene.one(harness, Operation::Write { at: 61, from: scene.buffer(b"from a peer") }).expect("a write succeeds");
    scene.region.store(4088, 78).expect("an owner stores");
    let mut bytes = [0; 11];
    seen.copy_out(from + 61, &mut bytes);
    assert_eq!((seen.load(from + 8), seen.load(from + 4088), &bytes), (77, 78, b"from a peer"));
    scene.region.remake(ViewNumber(VIEW.0 + 1)).expect("a region is made anew");
    scene.region.store(8, 1).expect("an owner stores");
    assert_eq!(seen.load(from + 8), 77, "it is other memory");
    Ok(())
}

/// F3: an owner can reach its own memory by the same way as all others.
pub fn an_owner_reaches_its_own_region(harness: &mut dyn Harness) -> Able<()> {
    let owner = node(harness);
    let region = owner.register(64, VIEW).expect("a node registers memory");
    let remote = open(&*owner, &*owner, &region.key(Rights::Change)).expect("an owner opens its own region");
    let mut batch = Batch::one(Operation::FetchAdd { at: 0, addend: 3 });
    batch.push(Operation::ReadWord { at: 0 });
    let done = run(harness, &*owner, &remote, batch).expect("an owner posts on its own region");
    assert_eq!(done.into_iter().map(word).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(region.load(0), Ok(3));
    Ok(())
}

/// What is outside the region, or a word that is not aligned, is refused with its name, and nothing is changed.
pub fn what_is_outside_or_askew_is_refused(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 100);
    let mut refusals = 0;
    for at in [4, 1, 95] {
        for operation in [
            Operation::ReadWord { at },
            Operation::WriteWord { at, value: 1 },
            Operation::FetchAdd { at, addend: 1 },
            Operation::CompareSwap { at, expected: 0, desired: 1 },
        ] {
            assert_eq!(scene.one(harness, operation).expect_err("askew"), Error::Misaligned { at });
            refusals += 1;
        }
    }
    for at in [96, 104, 1 << 40, u64::MAX - 7] {
        let outside = Error::OutOfBounds { at, length: 8, region_bytes: 100 };
        for operation in [
            Operation::ReadWord { at },
            Operation::WriteWord { at, value: 1 },
            Operation::FetchAdd { at, addend: 1 },
            Operation::CompareSwap { at, expected: 0, desired: 1 },
            Operation::Read { at, into: scene.buffer(&[0; 8]) },
            Operation::Write { at, from: scene.buffer(&[1; 8]) },
        ] {
            assert_eq!(scene.one(harness, operation).expect_err("outside"), outside);
            refusals += 1;
        }
    }
    assert_eq!(refusals, 36);
    let mut all = [0; 100];
    scene.region.read(0, &mut all).expect("an owner reads");
    assert_eq!(all, [0; 100], "a refused operation changes nothing");
    Ok(())
}

/// A key to read is not a key to change.
pub fn what_rights_forbid_is_refused(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    scene.region.store(0, 9).expect("an owner stores");
    let key = scene.region.key(Rights::Read);
    let denied = Error::Denied { target: key.owner, region: key.region };
    let reader = open(&*scene.caller, &*scene.owner, &key).expect("a key to read opens");
    let read = run(harness, &*scene.caller, &reader, Batch::read_words(&[0])).expect("a key to read reads");
    assert_eq!(read[0].word(), Some(9));
    for operation in [
        Operation::WriteWord { at: 0, value: 1 },
        Operation::FetchAdd { at: 0, addend: 1 },
        Operation::CompareSwap { at: 0, expected: 9, desired: 1 },
        Operation::Write { at: 0, from: scene.buffer(&[1; 8]) },
    ] {
        let result = run(harness, &*scene.caller, &reader, Batch::one(operation));
        assert_eq!(result.expect_err("a key to read does not change"), denied);
    }
    assert_eq!(scene.region.load(0), Ok(9));
    Ok(())
}
