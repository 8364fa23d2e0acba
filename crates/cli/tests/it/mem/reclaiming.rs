//! A node takes its memory back: with notice, and the system has it then.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use verbena_client::{Error, Failure, Helper, Memory, NewSegment, Placement, Socket};
use verbena_testkit::nodes::{Cluster, Node};

use super::commands::{json, refused, said};
use super::{connect, three, why};

const MIB: u64 = 1 << 20;
/// The value of the segment that has to go. It has two slots.
const LARGE: u64 = 8 * MIB;
const NOTICE: Duration = Duration::from_secs(3);
const MOVED: &str = "reclaimed_segments_total{outcome=\"moved\"}";
const GONE: &str = "reclaimed_segments_total{outcome=\"gone\"}";

/// Bytes that a node has of the system for its share: on `shm` the pages of its regions, whoever touched them; on `tcp` what it has of memory that can be shared.
fn has_of_the_system(node: &Node, is_shm: bool) -> u64 {
    let pid = node.status().1["pid"].as_u64().unwrap();
    if is_shm {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap().path());
        let is_region = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:verbena-region"))
        };
        // A home's memory has a second descriptor, which programs get.
        let bytes = |path: PathBuf| std::fs::metadata(path).ok().map(|file| (file.ino(), file.blocks() * 512));
        return descriptors.filter(is_region).filter_map(bytes).collect::<BTreeMap<_, _>>().into_values().sum();
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn counted(cluster: &Cluster, metric: &str) -> f64 {
    let socket = Socket::new(Some(&cluster.path().join("run")), Some("a")).unwrap();
    let text = Helper::connect(&socket, Duration::from_secs(5)).unwrap().metrics().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("verbena_memory_{metric} ")));
    line.unwrap_or_else(|| panic!("{metric} in {text}")).split(' ').next().unwrap().parse().unwrap()
}

/// At node a, for one writer at a time, with a value in each slot.
fn fill(program: &mut Memory, name: &str, bytes: u64) {
    let new = NewSegment { writers: 1, ..NewSegment::of(bytes) }.named(name).placed(Placement::Node("a".into()));
    program.allocate(new).unwrap();
    for seed in [1, 2] {
        program.put(name, &vec![seed; bytes as usize]).unwrap();
    }
}

fn goes_in(listed: &Value, name: &str) -> Option<u64> {
    let all = listed["segments"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap()["goes_in_ms"].as_u64()
}

fn with_notice(cluster: &Cluster, is_shm: bool) {
    let [a, _b, _c] = three(cluster);
    let (mut at_b, mut at_c) = (connect(cluster, "b"), connect(cluster, "c"));
    fill(&mut at_b, "small", MIB);
    fill(&mut at_b, "large", LARGE);
    let id = at_c.stat("large").unwrap().id;
    let before = has_of_the_system(&a, is_shm);
    assert!(before > 2 * (LARGE + MIB), "{before}");
    let asked = Instant::now();
    let told = json(cluster, "a", &["reclaim", "6MiB", "--notice", "3s"]);
    let expected = (&(72 * MIB).into(), &(6 * MIB).into(), &1.into());
    assert_eq!((&told["share"], &told["offered"], &told["segments"]), expected);
    assert!(told["bytes"].as_u64().unwrap() >= 2 * LARGE && told["first_in_ms"].as_u64().unwrap() <= 3000, "{told}");
    // Everybody is told.
    let listed = json(cluster, "b", &["ls"]);
    assert!(goes_in(&listed, "large").is_some_and(|ms| (1..=3000).contains(&ms)), "{listed}");
    assert_eq!(goes_in(&listed, "small"), None);
    assert!(said(cluster, "c", &["ls"], b"").lines().next().unwrap().ends_with("GOES IN"));
    assert!(said(cluster, "c", &["stat", "large"], b"").contains("its home takes its memory back"));
    assert_eq!(at_c.stat("small").unwrap().segment.goes_in_ms, None);
    let no_room = at_b.allocate(NewSegment::of(MIB).placed(Placement::Node("a".into())));
    assert_eq!(why(no_room), Failure::NoRoom);
    assert_eq!((counted(cluster, "offered_bytes"), counted(cluster, MOVED)), (6.0 * MIB as f64, 0.0));
    assert!(counted(cluster, "reclaiming_bytes") >= (2 * LARGE) as f64);
    // Who puts goes on, and at the end of the notice it is elsewhere.
    let mut version = at_b.stat("large").unwrap().version;
    let (mut puts, mut moved_at) = (0u8, None);
    while moved_at.is_none() || puts < 6 {
        let next = at_b.put("large", &vec![puts; LARGE as usize]).unwrap();
        assert_eq!(next, version + 1);
        (version, puts) = (next, puts.wrapping_add(1));
        let stat = at_c.stat(id).unwrap();
        assert_eq!((stat.id, stat.version), (id, version));
        if stat.segment.home != "a" && moved_at.is_none() {
            moved_at = Some((asked.elapsed(), puts));
        }
        assert!(asked.elapsed() < 20 * NOTICE, "{stat:?}");
    }
    let moved_at = moved_at.unwrap();
    assert!(moved_at.0 > NOTICE - Duration::from_millis(50) && moved_at.1 > 2, "{moved_at:?}");
    for program in [&mut at_b, &mut at_c] {
        let value = program.get("large").unwrap();
        assert!(value.version == version && value.bytes == vec![puts - 1; LARGE as usize]);
        assert!(program.get("small").unwrap().bytes == vec![2; MIB as usize]);
    }
    assert_eq!(at_b.stat("small").unwrap().segment.home, "a");
    let until = Instant::now() + Duration::from_secs(60);
    let after = loop {
        let after = has_of_the_system(&a, is_shm);
        if before.saturating_sub(after) > 2 * LARGE - 64 * 1024 {
            break after;
        }
        assert!(Instant::now() < until, "the system has {} of {before} bytes back", before.saturating_sub(after));
        std::thread::sleep(Duration::from_millis(50));
    };
    println!("counted: a node had {before} bytes of the system, and has {after} after it took {} back", 2 * LARGE);
    assert_eq!(
        (counted(cluster, "reclaiming_bytes"), counted(cluster, MOVED), counted(cluster, GONE)),
        (0.0, 1.0, 0.0)
    );
    assert!(a.log().contains("another home holds it"));
    // It has it for segments again.
    let told = said(cluster, "a", &["reclaim", "72MiB"], b"");
    assert!(told.starts_with("offers 72MiB of 72MiB") && told.lines().count() == 1, "{told}");
    fill(&mut at_b, "next", LARGE);
    assert!(has_of_the_system(&a, is_shm) >= after + 2 * LARGE - 64 * 1024);
}

#[test]
fn memory_is_the_systems_again_on_shm() {
    with_notice(&Cluster::on_shm("2s"), true);
}

#[test]
fn memory_is_the_systems_again_on_tcp() {
    with_notice(&Cluster::on_tcp("2s"), false);
}

#[test]
fn what_nobody_has_room_for_is_gone() {
    let cluster = Cluster::on_shm("2s");
    let [a, _b, _c] = three(&cluster);
    let (mut at_b, mut at_c) = (connect(&cluster, "b"), connect(&cluster, "c"));
    fill(&mut at_b, "small", MIB / 2);
    fill(&mut at_b, "large", MIB);
    let id = at_c.stat("large").unwrap().id;
    for node in ["b", "c"] {
        said(&cluster, node, &["reclaim", "0B", "--notice", "0s"], b"");
    }
    let asked = Instant::now();
    said(&cluster, "a", &["reclaim", "2MiB", "--notice", "1s"], b"");
    let (mut version, mut puts) = (at_b.stat("large").unwrap().version, 0);
    let text = loop {
        match at_b.put("large", &vec![3; MIB as usize]) {
            Ok(next) => {
                assert_eq!(next, version + 1);
                (version, puts) = (next, puts + 1);
            }
            Err(Error::Memory { why: Failure::Reclaimed, text }) => break text,
            Err(error) => panic!("{error}"),
        }
        assert!(asked.elapsed() < Duration::from_secs(60));
    };
    assert!(asked.elapsed() > Duration::from_millis(950) && puts > 2, "{:?}, {puts} puts", asked.elapsed());
    assert!(text.contains("node a took its memory back"), "{text}");
    assert_eq!(why(at_c.get(id)), Failure::Reclaimed);
    assert_eq!(why(at_c.get("large")), Failure::Reclaimed);
    let (code, text) = refused(&cluster, &["get", "large"], b"");
    assert!(code == Some(1) && text.contains("node a took its memory back"), "{text}");
    assert_eq!((counted(&cluster, MOVED), counted(&cluster, GONE)), (0.0, 1.0));
    assert!(a.log().contains("no other home has room for it"));
    // Its name is free, and nothing else has changed.
    said(&cluster, "b", &["reclaim", "72MiB"], b"");
    let again = at_c.allocate(NewSegment::of(MIB).named("large")).unwrap();
    assert!(again.id != id && again.home == "b", "{again:?}");
    assert_eq!(at_b.get("large").unwrap().bytes[..8], [0; 8]);
    assert_eq!(why(at_b.get(id)), Failure::Reclaimed);
    assert!(at_c.get("small").unwrap().bytes == vec![2; MIB as usize / 2]);
}

/// Its home is given to who holds the other copy, and a third node gets one; whoever puts goes on.
#[test]
fn copies_stay_as_many() {
    for cluster in [Cluster::on_shm("2s"), Cluster::on_tcp("2s")] {
        let _nodes = three(&cluster);
        let mut at_b = connect(&cluster, "b");
        let new = NewSegment::of(8).named("kept").copied(2).placed(Placement::Node("a".into()));
        let made = at_b.allocate(new).unwrap();
        let other = made.backups[0].clone();
        let writer = std::thread::spawn({
            let mut program = connect(&cluster, "c");
            move || {
                let until = Instant::now() + Duration::from_secs(2);
                let mut last = 0u64;
                while Instant::now() < until {
                    last += 1;
                    program.put(made.id, &last.to_le_bytes()).unwrap();
                }
                last
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        said(&cluster, "a", &["reclaim", "0B", "--notice", "0s"], b"");
        std::thread::sleep(Duration::from_millis(500));
        // And on: the copy of the third one goes, and nobody else has room.
        let stat = at_b.stat("kept").unwrap();
        assert_eq!((&stat.segment.home, stat.segment.backups.len()), (&other, 1), "{stat:?}");
        said(&cluster, &stat.segment.backups[0], &["reclaim", "0B", "--notice", "0s"], b"");
        let last = writer.join().unwrap();
        assert!(last > 100, "{last}");
        let stat = at_b.stat("kept").unwrap();
        assert_eq!((stat.id, &stat.segment.home, stat.segment.backups.len()), (made.id, &other, 0), "{stat:?}");
        let value = at_b.get("kept").unwrap();
        assert_eq!((value.bytes, value.version), (last.to_le_bytes().to_vec(), last + 1));
    }
}

#[test]
fn a_reclaim_that_is_taken_back_takes_nothing() {
    let cluster = Cluster::on_shm("2s");
    let [a, _b, c] = three(&cluster);
    let mut at_b = connect(&cluster, "b");
    fill(&mut at_b, "kept", MIB);
    fill(&mut at_b, "released", MIB);
    let told = json(&cluster, "a", &["reclaim", "0B", "--notice", "2s"]);
    assert_eq!(told["segments"], 2);
    // Asking again postpones nothing, and what is released counts.
    let told = json(&cluster, "a", &["reclaim", "0B", "--notice", "1h"]);
    assert!(told["first_in_ms"].as_u64().unwrap() <= 2000, "{told}");
    at_b.release("released").unwrap();
    let told = json(&cluster, "a", &["reclaim", "3MiB", "--notice", "1s"]);
    assert_eq!((&told["segments"], &told["first_in_ms"]), (&0.into(), &Value::Null));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(at_b.get("kept").unwrap().bytes == vec![2; MIB as usize]);
    assert_eq!(at_b.stat("kept").unwrap().segment.goes_in_ms, None);
    // In the next view it offers no more.
    c.kill();
    a.wait_until("two in", |status| super::are_in(status, &[1, 2]));
    assert!(at_b.get("kept").unwrap().bytes == vec![2; MIB as usize]);
    let no_room = at_b.allocate(NewSegment::of(MIB).placed(Placement::Node("a".into())));
    assert_eq!(why(no_room), Failure::NoRoom);
}

#[test]
fn what_cannot_be_reclaimed() {
    let cluster = Cluster::on_shm("2s");
    cluster.set("[memory]\nshare = \"8MiB\"\n");
    let _nodes = three(&cluster);
    let cases: [(&[&str], i32, &str); 4] = [
        (&["reclaim", "9MiB"], 1, "this node is configured to offer 8388608"),
        (&["reclaim", "many"], 2, "many"),
        (&["reclaim", "1MiB", "--notice", "soon"], 2, "soon"),
        (&["reclaim"], 2, "SIZE"),
    ];
    for (arguments, code, text) in cases {
        let (exit, complaint) = refused(&cluster, arguments, b"");
        assert!(exit == Some(code) && complaint.contains(text), "{arguments:?}: {complaint}");
    }
    let mut at_b = connect(&cluster, "b");
    assert_eq!(why(at_b.reclaim(u64::MAX, NOTICE)), Failure::Bad);
    let told = at_b.reclaim(8 * MIB, Duration::MAX).unwrap();
    assert_eq!((told.share, told.offered, told.segments), (8 * MIB, 8 * MIB, 0));
}

#[test]
fn a_segment_of_the_largest_size_fits_with_the_defaults() {
    const LARGEST: u64 = 16 << 20;
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let mut program = connect(&cluster, "a");
    program.allocate(NewSegment::of(LARGEST).named("largest")).unwrap();
    program.put("largest", &vec![7; LARGEST as usize]).unwrap();
    assert!(program.get("largest").unwrap().bytes.iter().all(|byte| *byte == 7));
}
