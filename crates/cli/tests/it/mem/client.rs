//! `verbena_client::Memory`: every operation, from other nodes than a segment's home.

use std::time::{Duration, Instant};

use verbena_client::{Error, Failure, NewSegment, Placement, PutOptions};
use verbena_terms::Coherence;
use verbena_testkit::nodes::Cluster;

use super::{NAMES, connect, three, why};

/// Longer than a message, and not a multiple of its parts.
const LONG: usize = 16 * (15 << 10) + 7;

fn bytes(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| seed ^ (at % 251) as u8).collect()
}

fn every_operation(cluster: &Cluster) {
    let _nodes = three(cluster);
    let [mut a, mut b, mut c] = NAMES.map(|node| connect(cluster, node));
    let coherences = ["null", "read", "write", "strict", "version", "delta(0)", "temporal(1us)"];
    for (nth, text) in coherences.into_iter().enumerate() {
        let coherence: Coherence = text.parse().unwrap();
        let node = NAMES[nth % 3];
        for size in [1, 8, LONG] {
            let name = format!("{text} {size}");
            let new = NewSegment::of(size as u64).named(&name).coherent(coherence);
            let made = a.allocate(new.placed(Placement::Node(node.into()))).unwrap();
            assert_eq!((made.home.as_str(), made.bytes, made.coherence), (node, size as u64, coherence));
            let first = b.get(&name).unwrap();
            assert_eq!((first.bytes, first.stamp_ns), (vec![0; size], 0), "{name}");
            let value = bytes(nth as u8, size);
            let over = PutOptions { over: Some(first.version), ..PutOptions::default() };
            let version = b.put_with(&name, &value, over).unwrap();
            assert_eq!(version, first.version + 1, "{name}");
            let got = c.get(made.id).unwrap();
            assert_eq!((got.bytes, got.version), (value.clone(), version), "{name}");
            // A part in the middle of it.
            let (from, length) = (size / 3, size.div_ceil(3));
            let part = bytes(0x55, length);
            let over = PutOptions { offset: from as u64, over: Some(version) };
            c.put_with(&name, &part, over).unwrap();
            let mut whole = value;
            whole[from..from + length].copy_from_slice(&part);
            assert_eq!(a.get(&name).unwrap().bytes, whole, "{name}");
            assert_eq!(a.get_part(&name, from as u64, Some(length as u64)).unwrap().bytes, part, "{name}");
            let stat = c.stat(&name).unwrap();
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            let age = now.saturating_sub(Duration::from_nanos(stat.stamp_ns));
            assert_eq!((stat.id, stat.version), (made.id, version + 1), "{name}");
            assert!(coherence == Coherence::Null || age < Duration::from_secs(60), "{name}: {age:?}");
        }
    }
    // All of them are listed, in more parts than one, by everybody.
    let listed = c.list("").unwrap();
    assert_eq!((listed.segments.len(), listed.silent.len()), (3 * coherences.len(), 0));
    assert_eq!(b.list("version ").unwrap().segments.len(), 3);
    for segment in listed.segments {
        b.release(segment.id).unwrap();
        assert_eq!(why(c.get(segment.id)), Failure::Released);
    }
    assert!(a.list("").unwrap().segments.is_empty());
    assert_eq!(why(a.get("read 8")), Failure::NotFound);
}

#[test]
fn every_operation_on_shm() {
    every_operation(&Cluster::on_shm("2s"));
}

#[test]
fn every_operation_on_tcp() {
    every_operation(&Cluster::on_tcp("2s"));
}

/// A clear error each, and nothing changed.
#[test]
fn bad_input() {
    let cluster = Cluster::on_shm("2s");
    cluster.set("[memory]\nshare = \"64KiB\"\nuser_share = \"40KiB\"\n");
    let _nodes = three(&cluster);
    let [mut a, mut b, _] = NAMES.map(|node| connect(&cluster, node));
    let at_a = |bytes| NewSegment::of(bytes).placed(Placement::Node("a".into()));
    let x = a.allocate(at_a(100).named("x").coherent(Coherence::Version)).unwrap();
    let version = a.stat("x").unwrap().version;
    let over = |over| PutOptions { over, ..PutOptions::default() };
    assert_eq!(why(a.allocate(at_a(8).named("x"))), Failure::Exists);
    assert_eq!(why(b.allocate(NewSegment::of(8).named("x").placed(Placement::Local))), Failure::Exists);
    assert_eq!(why(a.allocate(at_a(0))), Failure::Bad);
    assert_eq!(why(a.allocate(at_a((16 << 20) + 1))), Failure::Bad);
    assert_eq!(why(a.allocate(at_a(8).named(""))), Failure::Bad);
    assert_eq!(why(a.allocate(at_a(8).named("two\nlines"))), Failure::Bad);
    assert_eq!(why(a.allocate(NewSegment { writers: 0, ..at_a(8) })), Failure::Bad);
    assert_eq!(why(a.allocate(at_a(8).placed(Placement::Node("d".into())))), Failure::Bad);
    assert_eq!(why(a.allocate(at_a(20 << 10))), Failure::NoRoom, "more than a user may have");
    let name_of_none = verbena_terms::SegmentId { number: x.id.number + 1000, ..x.id };
    assert_eq!(why(a.get(name_of_none)), Failure::Released, "as far as its home knows");
    for (offset, length) in [(101, None), (100, Some(1)), (0, Some(101)), (u64::MAX, Some(u64::MAX)), (5, Some(0))] {
        assert_eq!(why(b.get_part("x", offset, length)), Failure::OutOfRange, "{offset} {length:?}");
    }
    assert_eq!(why(b.put_with("x", &[1; 101], over(Some(version)))), Failure::OutOfRange);
    assert_eq!(why(b.put_with("x", &[1; 100_000], over(Some(version)))), Failure::OutOfRange, "in parts");
    assert_eq!(why(b.put_with("x", &[], over(Some(version)))), Failure::OutOfRange);
    assert_eq!(why(b.put("x", &[1])), Failure::Bad, "a version has to be named");
    assert_eq!(why(b.put_with("x", &[1], over(Some(version + 1)))), Failure::Conflict { current: version });
    // More than can be staged.
    assert_eq!(why(b.put_with("x", &vec![1; (17 << 20) + 1], over(Some(version)))), Failure::Bad);
    let value = a.get("x").unwrap();
    assert_eq!((value.bytes, value.version), (vec![0; 100], version));
    b.release("x").unwrap();
    assert_eq!(why(b.put_with(x.id, &[1], over(Some(version)))), Failure::Released);
    assert_eq!(why(a.release("x")), Failure::NotFound);
    assert_eq!(why(a.release(x.id)), Failure::Released);
}

/// What is gone is said to be gone, and a home that comes back has nothing of it.
#[test]
fn a_lost_home() {
    let cluster = Cluster::on_shm("2s");
    let [a, b, c] = three(&cluster);
    let mut at_b = connect(&cluster, "b");
    let kept = at_b.allocate(NewSegment::of(64).named("kept").placed(Placement::Local)).unwrap();
    let lost = at_b.allocate(NewSegment::of(64).named("lost").placed(Placement::Node("c".into()))).unwrap();
    at_b.put("kept", &[7; 64]).unwrap();
    at_b.put("lost", &[8; 64]).unwrap();
    c.kill();
    let began = Instant::now();
    // Its memory is read until its lease is over; then it is waited for the view without it, and it is lost.
    while let Ok(value) = at_b.get("lost") {
        assert_eq!(value.bytes, [8; 64]);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
    assert_eq!(why(at_b.get("lost")), Failure::Lost);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(why(at_b.put(lost.id, &[9; 64])), Failure::Lost);
    let got = at_b.get("kept").unwrap();
    assert_eq!((got.bytes, at_b.stat("kept").unwrap().id), (vec![7; 64], kept.id));
    let again = cluster.start("c");
    again.wait_until("three in", |status| super::are_in(status, &[1, 2, 3]));
    assert_eq!(why(at_b.get("lost")), Failure::Lost, "its home is another incarnation");
    assert_eq!(why(at_b.allocate(NewSegment::of(8).named("lost"))), Failure::Lost, "the name is its");
    at_b.release("lost").unwrap();
    at_b.allocate(NewSegment::of(8).named("lost")).unwrap();
    assert_eq!(at_b.get("lost").unwrap().bytes, [0; 8]);
    drop((a, b));
}

/// What has a copy elsewhere goes on, with every value that was put, when its home is killed; and has a copy again after that.
#[test]
fn a_lost_home_of_what_has_copies() {
    let cluster = Cluster::on_shm("2s");
    let [_a, _b, c] = three(&cluster);
    let mut at_b = connect(&cluster, "b");
    let new = NewSegment::of(8).named("kept").copied(2).placed(Placement::Node("c".into()));
    let made = at_b.allocate(new).unwrap();
    assert_eq!((made.home.as_str(), made.copies, made.backups.len()), ("c", 2, 1), "{made:?}");
    let writer = std::thread::spawn({
        let mut program = connect(&cluster, "a");
        move || {
            let until = Instant::now() + Duration::from_secs(3);
            let (mut last, mut unknown) = (0u64, 0);
            while Instant::now() < until {
                match program.put(made.id, &(last + 1).to_le_bytes()) {
                    Ok(_) => last += 1,
                    // It was put or was not: the next one says the same.
                    Err(Error::Memory { why: Failure::Unknown | Failure::Late, .. }) => unknown += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            (last, unknown)
        }
    });
    std::thread::sleep(Duration::from_millis(1000));
    c.kill();
    let (last, unknown) = writer.join().unwrap();
    let value = u64::from_le_bytes(at_b.get("kept").unwrap().bytes.try_into().unwrap());
    assert!(value == last || value == last + 1, "{value} was got, {last} were put, {unknown} unknown");
    assert!(last > 100, "{last}");
    let stat = at_b.stat("kept").unwrap();
    assert_eq!(stat.id, made.id);
    assert!(stat.segment.home != "c" && stat.segment.backups.len() == 1, "{stat:?}");
}

#[test]
fn where_segments_are_placed() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let mut at_c = connect(&cluster, "c");
    let homes: Vec<_> =
        (0..6).map(|_| at_c.allocate(NewSegment::of(8).placed(Placement::Spread)).unwrap().home).collect();
    assert_eq!(homes[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{homes:?}");
    assert_eq!(homes[..3], homes[3..], "one after the other");
    // Most free: each is at another home than the one before, for that has less by now.
    let most: Vec<_> = (0..3).map(|_| at_c.allocate(NewSegment::of(1 << 20)).unwrap().home).collect();
    assert_eq!(most.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{most:?}");
}
