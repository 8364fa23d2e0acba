//! What is particular to the provider `tcp`: many operations under way, callers who misbehave, connections that break.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::raw::{Raw, add, batch, element, frame, settle};
use verbena_fabric::tcp::{Counts, TcpConfig, TcpFabric};
use verbena_fabric::{
    Address, Batch, Class, Done, Error, Fabric, Operation, OperationId, Region, Rights, SharedRemote,
};
use verbena_terms::{Incarnation, Time, ViewNumber};
use verbena_testkit::programs::alone;
use verbena_testkit::relay::{Mode, Relays};

const VIEW: ViewNumber = ViewNumber(1);
const HANDSHAKE: Duration = Duration::from_millis(300);

fn node(rank: u32) -> TcpFabric {
    let config = TcpConfig { handshake: HANDSHAKE, ..TcpConfig::default() };
    TcpFabric::open(Incarnation::new(rank, 1), config).unwrap()
}

struct Pair {
    owner: TcpFabric,
    region: Box<dyn Region>,
    caller: TcpFabric,
    remote: SharedRemote,
}

fn pair() -> Pair {
    let (owner, caller) = (node(1), node(2));
    let region = owner.register(4 << 20, VIEW).unwrap();
    let remote = open(&caller, &owner, &*region, &owner.address());
    Pair { owner, region, caller, remote }
}

fn open(caller: &TcpFabric, owner: &TcpFabric, region: &dyn Region, address: &Address) -> SharedRemote {
    let peer = caller.connect(owner.identity(), address).unwrap();
    peer.open(&region.key(Rights::Change), soon(caller)).unwrap()
}

fn soon(fabric: &TcpFabric) -> Time {
    fabric.clock().now() + Duration::from_secs(10)
}

fn post_add(pair: &Pair) -> u64 {
    let add = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
    pair.remote.post(add, Class::Control, soon(&pair.caller)).wait().unwrap()[0].word().unwrap()
}

/// Waits until the counts say so.
fn counted(fabric: &TcpFabric, so: impl Fn(&Counts) -> bool) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while !so(&fabric.counts()) {
        assert!(Instant::now() < give_up, "{:?}", fabric.counts());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn ten_thousand_operations_are_under_way_at_once_in_a_few_frames() {
    let pair = pair();
    for word in 0..1000 {
        pair.region.store(word * 8, word).unwrap();
    }
    let before = pair.owner.counts();
    let deadline = soon(&pair.caller);
    let reads: Vec<_> = (0..10_000u64)
        .map(|index| pair.remote.post(Batch::read_words(&[index % 1000 * 8]), Class::Control, deadline))
        .collect();
    let adds: Vec<_> = (0..1000u64)
        .map(|_| {
            let add = Batch::one(Operation::FetchAdd { at: 1 << 20, addend: 1 });
            pair.remote.post(add, Class::Control, deadline)
        })
        .collect();
    for (index, read) in (0..).zip(reads) {
        assert_eq!(read.wait().unwrap()[0].word(), Some(index % 1000));
    }
    for (before, add) in (0..).zip(adds) {
        assert_eq!(add.wait().unwrap()[0].word(), Some(before));
    }
    let after = pair.owner.counts();
    assert_eq!(after.batches - before.batches, 11_000);
    let frames = after.frames - before.frames;
    assert!(frames < 11_000 / 2, "what waits together travels together: {frames} frames");
}

/// Who finds somebody sending leaves it to him what he has queued. What is left so and forgotten would wait for its deadline.
#[test]
fn of_what_is_posted_at_the_same_time_nothing_is_left_behind() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 3_000;
    let pair = pair();
    let before = pair.owner.counts();
    let deadline = pair.caller.clock().now() + Duration::from_secs(60);
    let post = |word: u64| {
        for round in 0..ROUNDS {
            let add = Batch::one(Operation::FetchAdd { at: 8 * word, addend: 1 });
            let found = pair.remote.post(add, Class::Control, deadline).wait().unwrap()[0].word();
            assert_eq!(found, Some(round));
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|word| drop(scope.spawn(move || post(word)))));
    assert_eq!(pair.owner.counts().batches - before.batches, THREADS * ROUNDS);
    // The others found one sending, or sent just before.
    let by_posters = pair.caller.counts().by_posters;
    assert!(by_posters > ROUNDS / 10, "posters sent {by_posters} frames");
}

/// No agent executes there, and none is waited for. What is refused elsewhere is refused here.
#[test]
fn a_nodes_own_region_is_reached_without_an_agent() {
    let owner = node(1);
    let region = owner.register(64, VIEW).unwrap();
    let peer = owner.connect(owner.identity(), &owner.address()).unwrap();
    let [mut change, mut read] =
        [Rights::Change, Rights::Read].map(|rights| peer.open(&region.key(rights), soon(&owner)).unwrap());
    let post = |remote: &SharedRemote, operations: &[fn(&TcpFabric) -> Operation], deadline| {
        let mut batch = Batch::new();
        for operation in operations {
            batch.push(operation(&owner));
        }
        let done = remote.post(batch, Class::Control, deadline).poll_now().expect("it is there at once");
        done.map(|done| done.iter().map(|one| one.word()).collect::<Vec<_>>())
    };
    let add = |_: &TcpFabric| Operation::FetchAdd { at: 8, addend: 5 };
    let write = |owner: &TcpFabric| Operation::Write { at: 16, from: owner.pool().copy_of(b"eight by").unwrap() };
    let all: [fn(&TcpFabric) -> Operation; 5] = [
        |_| Operation::WriteWord { at: 8, value: 1 },
        add,
        |_| Operation::CompareSwap { at: 8, expected: 6, desired: 7 },
        write,
        |_| Operation::ReadWord { at: 16 },
    ];
    let written = u64::from_le_bytes(*b"eight by");
    assert_eq!(post(&change, &all, soon(&owner)), Ok(vec![Some(0), Some(1), Some(6), None, Some(written)]));
    let buffer = owner.pool().take(8).unwrap();
    let batch = Batch::one(Operation::Read { at: 16, into: buffer });
    let done = change.post(batch, Class::Bulk, soon(&owner)).poll_now().unwrap().unwrap();
    assert!(matches!(&done[0], Done::Buffer(buffer) if buffer.bytes() == b"eight by"));

    assert_eq!(post(&change, &[add], owner.clock().now()), Err(Error::Late));
    assert!(matches!(post(&read, &[add], soon(&owner)), Err(Error::Denied { .. })));
    assert!(matches!(
        post(&change, &[add, |_| Operation::ReadWord { at: 64 }], soon(&owner)),
        Err(Error::OutOfBounds { at: 64, length: 8, region_bytes: 64 })
    ));
    assert_eq!(post(&read, &[|_| Operation::ReadWord { at: 8 }], soon(&owner)), Ok(vec![Some(12)]), "it ran in order");
    let forgotten = change.settle(OperationId(1), Class::Control, soon(&owner)).poll_now().unwrap();
    assert!(matches!(forgotten, Err(Error::Forgotten { .. })));

    region.remake(ViewNumber(2)).unwrap();
    assert!(matches!(post(&change, &[add], soon(&owner)), Err(Error::Revoked { .. })));
    [change, read] = [Rights::Change, Rights::Read].map(|rights| peer.open(&region.key(rights), soon(&owner)).unwrap());
    assert_eq!(post(&change, &[add], soon(&owner)), Ok(vec![Some(0)]), "other memory");
    assert_eq!((owner.counts().welcomed, owner.counts().batches), (0, 0));
    let words = || Batch::read_words(&[0]);
    let deadline = soon(&owner);
    drop(owner);
    assert_eq!(read.post(words(), Class::Control, deadline).wait().unwrap_err(), Error::Closed);
}

#[test]
fn more_than_can_wait_is_refused_and_nothing_else_suffers() {
    let pair = pair();
    let (relays, address) = (Relays::default(), pair.owner.address());
    let relay = relays.to(address.rest().parse::<SocketAddr>().unwrap());
    let remote = open(&pair.caller, &pair.owner, &*pair.region, &Address(format!("tcp://{}", relay.address)));
    relay.up(Mode::Lose);
    let deadline = pair.caller.clock().now() + Duration::from_millis(300);
    let posted: Vec<_> = (0..20_000).map(|_| remote.post(Batch::read_words(&[0]), Class::Bulk, deadline)).collect();
    let full =
        posted.into_iter().map(|read| read.wait().unwrap_err()).filter(|e| matches!(e, Error::Full { .. })).count();
    assert_eq!(full, 20_000 - (16 << 10));
    assert_eq!(post_add(&pair), 0);
}

#[test]
fn an_operation_ends_soon_after_its_deadline() {
    let pair = pair();
    let relays = Relays::default();
    let relay = relays.to(pair.owner.address().rest().parse::<SocketAddr>().unwrap());
    // A caller of its own, whose only way is through the relay.
    let caller = node(3);
    let remote = open(&caller, &pair.owner, &*pair.region, &Address(format!("tcp://{}", relay.address)));
    relay.up(Mode::Lose);
    let mut late = Vec::new();
    for round in 0..20u64 {
        let deadline = caller.clock().now() + Duration::from_millis(5 + 3 * round);
        let error = remote.post(Batch::read_words(&[0]), Class::Control, deadline).wait().unwrap_err();
        assert!(matches!(error, Error::Unknown { first: None, .. }), "{error}");
        let now = caller.clock().now();
        assert!(now >= deadline, "not before it");
        late.push(now.since(deadline));
    }
    late.sort();
    assert!(late[10] < Duration::from_millis(20), "the median is {:?} late", late[10]);
    assert!(late[19] < Duration::from_millis(500), "one was {:?} late", late[19]);
}

#[test]
fn a_connection_on_which_nothing_is_heard_is_given_up() {
    let pair = pair();
    let relays = Relays::default();
    let relay = relays.to(pair.owner.address().rest().parse::<SocketAddr>().unwrap());
    let caller = node(3);
    let remote = open(&caller, &pair.owner, &*pair.region, &Address(format!("tcp://{}", relay.address)));
    let way = |relay: SocketAddr| caller.connect(pair.owner.identity(), &Address(format!("tcp://{relay}"))).unwrap();
    relay.up(Mode::Lose);
    // The network has another road, but the connection knows nothing of it.
    let sound = relays.to(pair.owner.address().rest().parse::<SocketAddr>().unwrap());
    way(sound.address);
    let brief = || caller.clock().now() + Duration::from_millis(100);
    let begun = Instant::now();
    while remote.post(Batch::read_words(&[0]), Class::Control, brief()).wait().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it is never given up");
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "it was given up without patience");
    assert_eq!(caller.counts().lost, 1);
}

/// F2 at the target: a copy of a request is answered as the first was, and is not executed; on another connection too.
#[test]
fn a_copy_of_a_request_is_not_executed() {
    let owner = node(1);
    let region = owner.register(64, VIEW).unwrap();
    let key = region.key(Rights::Change);
    let from = Incarnation::new(9, 1);
    let request = |number| batch(number, &key, 1, &[add(0, 5), element(2, 0, 8, &[7]), element(1, 0, 0, &[])]);
    let (mut first, verdict, _) = Raw::greet(&owner, from, 1);
    assert_eq!(verdict, 0);
    first.0.write_all(&frame(&[request(0), request(1)])).unwrap();
    let answers = first.answer();
    region.store(8, 0).unwrap();
    let (mut second, _, _) = Raw::greet(&owner, from, 3);
    second.0.write_all(&frame(&[request(0)])).unwrap();
    let third = second.answer();
    assert_eq!((region.load(0), region.load(8)), (Ok(5), Ok(0)), "neither was executed again");
    let results =
        |item: &[u8]| item[24..48].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
    assert_eq!(results(&answers[..48]), [0, 0, 5]);
    assert_eq!(results(&answers[48..]), [0, 0, 5]);
    assert_eq!(results(&third), [0, 0, 5]);

    // Settled before it comes, it is barred when it comes.
    second.0.write_all(&frame(&[settle(1, 3), batch(2, &key, 3, &[add(0, 1)]), settle(3, 1)])).unwrap();
    let answers = second.answer();
    assert_eq!(&answers[..2], [2, 0], "barred");
    assert_eq!(&answers[16..18], [1, 5], "its batch is unknown");
    assert_eq!((&answers[40..42], answers[48]), (&[2, 1][..], 0), "the first one was executed and found 0");
    assert_eq!(region.load(0), Ok(5));
}

/// The caller makes sure whom it has reached, and the target whom it is taken for.
#[test]
fn a_hello_to_another_is_refused_by_who_lives_there() {
    let owner = node(1);
    for other in [Incarnation::new(1, 2), Incarnation::new(1, 0), Incarnation::new(2, 1)] {
        let (mut caller, verdict, who) = Raw::greet_to(&owner, Incarnation::new(9, 1), other, 1);
        assert_eq!((verdict, who), (3, owner.identity()));
        assert!(caller.is_closed());
    }
    counted(&owner, |counts| (counts.welcomed, counts.refused) == (0, 3));
}

#[test]
fn a_later_incarnation_ends_the_earlier() {
    let owner = node(1);
    let region = owner.register(64, VIEW).unwrap();
    let key = region.key(Rights::Change);
    let (early, late) = (Incarnation::new(9, 1), Incarnation::new(9, 2));
    let (mut former, _, _) = Raw::greet(&owner, early, 1);
    let (_latter, verdict, _) = Raw::greet(&owner, late, 1);
    assert_eq!(verdict, 0);
    former.0.write_all(&frame(&[batch(0, &key, 1, &[add(0, 1)])])).unwrap();
    assert!(former.is_closed());
    assert_eq!(region.load(0), Ok(0));
    let (_, verdict, by) = Raw::greet(&owner, early, 2);
    assert_eq!((verdict, by), (4, late));
}

/// Bad input changes nothing: neither what stands before it in the frame, nor anybody else's connection.
#[test]
fn a_malformed_frame_executes_nothing_and_ends_its_connection() {
    let pair = pair();
    let key = pair.region.key(Rights::Change);
    let sound = frame(&[batch(0, &key, 1, &[add(8, 1)])]);
    let mut spoilt = Vec::new();
    for at in [0, 4, 6, 8, 12, 17, 18, 56, 57] {
        let mut frame = sound.clone();
        frame[at] ^= 0x40;
        spoilt.push(frame);
    }
    spoilt.push(frame(&[batch(0, &key, 1, &[add(8, 1)]), vec![7; 16]]));
    let count = spoilt.len() as u64;
    for frame in spoilt {
        let (mut caller, _, _) = Raw::greet(&pair.owner, Incarnation::new(9, 1), 1);
        caller.0.write_all(&frame).unwrap();
        // A length that says more than there is only leaves the frame unfinished.
        let _ = caller.0.shutdown(std::net::Shutdown::Write);
        assert!(caller.is_closed());
    }
    counted(&pair.owner, |counts| counts.malformed == count);
    assert_eq!(pair.region.load(8), Ok(0));
    assert_eq!(post_add(&pair), 0);
}

#[test]
fn random_bytes_and_half_frames_are_refused() {
    let pair = pair();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..50 {
        let bytes: Vec<u8> = (0..8 + random() % 100).flat_map(|_| random().to_le_bytes()).collect();
        let mut stranger = Raw::connect(&pair.owner);
        // It may have been closed at the first of them.
        let _ = stranger.0.write_all(&bytes);
        assert!(stranger.is_closed());
        let (mut caller, _, _) = Raw::greet(&pair.owner, Incarnation::new(9, 1), 1);
        let _ = caller.0.write_all(&bytes);
        assert!(caller.is_closed());
    }
    counted(&pair.owner, |counts| counts.malformed == 100);

    let key = pair.region.key(Rights::Change);
    let whole = frame(&[batch(0, &key, 1, &[add(8, 1)]), settle(1, 1)]);
    for end in 1..whole.len() {
        let (mut caller, _, _) = Raw::greet(&pair.owner, Incarnation::new(9, 1), 1);
        caller.0.write_all(&whole[..end]).unwrap();
        caller.0.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(caller.is_closed(), "after {end} bytes");
    }
    assert_eq!(pair.region.load(8), Ok(0));
    assert_eq!(post_add(&pair), 0);
}

#[test]
fn who_does_not_say_who_he_is_is_not_waited_for() {
    let owner = node(1);
    // One says nothing, one says it a byte at a time, one stops after the preamble.
    let mut silent = Raw::connect(&owner);
    let mut stopped = Raw::connect(&owner);
    stopped.0.write_all(b"VTCP\x01\0\0\0\0\0\0\0\0\0\0\0").unwrap();
    stopped.0.read_exact(&mut [0; 16]).unwrap();
    let mut slow = Raw::connect(&owner);
    let begun = Instant::now();
    for byte in b"VTCP\x01\0\0\0\0\0\0\0" {
        std::thread::sleep(HANDSHAKE / 10);
        if slow.0.write_all(&[*byte]).is_err() {
            break;
        }
    }
    for raw in [&mut silent, &mut stopped, &mut slow] {
        assert!(raw.is_closed());
    }
    assert!(begun.elapsed() >= HANDSHAKE);
    counted(&owner, |counts| counts.silent == 3);

    // Many who say nothing take no more than their places, and only for so long.
    let crowd: Vec<_> = (0..100).map(|_| Raw::connect(&owner)).collect();
    counted(&owner, |counts| counts.turned_away >= 36);
    counted(&owner, |counts| counts.silent >= 3 + 64);
    let region = owner.register(64, VIEW).unwrap();
    let caller = node(2);
    open(&caller, &owner, &*region, &owner.address());
    drop(crowd);
}

/// A caller that asks for much and takes nothing is not read from any more, and nobody else notices.
#[test]
fn a_slow_reader_costs_bounded_memory() {
    // It measures the memory of its process.
    alone("tcp::a_slow_reader_costs_bounded_memory", || {
        let pair = pair();
        let key = pair.region.key(Rights::Read);
        let (mut slow, verdict, _) = Raw::greet(&pair.owner, Incarnation::new(9, 1), 1);
        assert_eq!(verdict, 0);
        // 4 MiB asked for with each 104 bytes.
        let reads = vec![element(5, 1 << 20, 0, &[]); 4];
        slow.0.set_nonblocking(true).unwrap();
        let before = resident_bytes();
        let (mut asked, mut number) = (0u64, 0);
        let mut idle = Instant::now();
        let mut rest: Vec<u8> = Vec::new();
        while idle.elapsed() < Duration::from_millis(500) {
            if rest.is_empty() {
                rest = frame(&(0..64).map(|index| batch(number + index, &key, 0, &reads)).collect::<Vec<_>>());
                number += 64;
            }
            match slow.0.write(&rest) {
                Ok(bytes) => {
                    rest.drain(..bytes);
                    asked += bytes as u64 * (4 << 20) / 104;
                    idle = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{error}"),
            }
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(asked > 1 << 30, "only {asked} bytes were asked for");
        assert!(grown < 64 << 20, "{asked} bytes asked for and not taken cost {grown} bytes of memory");
        assert_eq!(post_add(&pair), 0);
    });
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
