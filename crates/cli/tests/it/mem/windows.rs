//! Values that are read where they are: what a window shows, and when it shows nothing any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use verbena_client::{Coherence, Failure, NewSegment, Placement, PutOptions, Window};
use verbena_testkit::nodes::{Cluster, are_in};

use super::{NAMES, connect, three, why};

/// Long enough that a busy machine keeps it.
const LEASE: &str = "2s";
/// Long enough that a reader is overtaken again and again.
const LONG: usize = 256 << 10;

fn at(node: &str, bytes: usize) -> NewSegment {
    NewSegment::of(bytes as u64).placed(Placement::Node(node.into()))
}

fn shown(window: &Window) -> Option<Vec<u8>> {
    let mut bytes = vec![0; window.len()];
    window.read(0, &mut bytes).then_some(bytes)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

fn of_every_coherence(cluster: &Cluster) {
    let _nodes = three(cluster);
    let [mut a, mut b, mut c] = NAMES.map(|node| connect(cluster, node));
    for text in ["null", "read", "write", "strict", "version", "delta(0)", "temporal(1us)"] {
        let coherence: Coherence = text.parse().unwrap();
        let copies = if coherence == Coherence::Null { 1 } else { 2 };
        let id = c.allocate(at("a", 100).named(text).coherent(coherence).copied(copies)).unwrap().id;
        let first = a.window(text).unwrap();
        assert_eq!((first.id(), first.len(), first.stamp_ns()), (id, 100, 0));
        assert_eq!((shown(&first), first.is_newest()), (Some(vec![0; 100]), true));
        let over = PutOptions { over: Some(first.version()), ..Default::default() };
        let version = b.put_with(id, &[7; 100], over).unwrap();
        assert!(!first.is_newest(), "{text}");
        let second = first.newest().unwrap();
        assert_eq!(
            (second.version(), shown(&second), second.is_newest()),
            (version, Some(vec![7; 100]), true),
            "{text}"
        );
        assert_eq!(second.stamp_ns() == 0, coherence == Coherence::Null);
        let mut part = [0; 5];
        assert!(second.read(95, &mut part) && part == [7; 5]);
        // It is there until its slot is filled anew.
        assert!(first.holds(), "{text}");
        for seed in 0..4 {
            let version = a.stat(id).unwrap().version;
            let over = PutOptions { over: Some(version), ..Default::default() };
            b.put_with(id, &[seed; 100], over).unwrap();
        }
        assert_eq!(first.holds(), coherence == Coherence::Null, "{text}");
        assert_eq!(shown(&a.window(id).unwrap()), Some(vec![3; 100]));
        for elsewhere in [&mut b, &mut c] {
            assert_eq!(why(elsewhere.window(id)), Failure::Elsewhere);
        }
    }
    assert_eq!(why(a.window("none")), Failure::NotFound);
}

#[test]
fn a_window_shows_the_newest_value_on_shm() {
    of_every_coherence(&Cluster::on_shm(LEASE));
}

#[test]
fn a_window_shows_the_newest_value_on_tcp() {
    of_every_coherence(&Cluster::on_tcp(LEASE));
}

/// Two writers at other nodes do not pause; what holds is one value, whole, and versions do not go back.
fn beside_writers(cluster: &Cluster) {
    let _nodes = three(cluster);
    let mut a = connect(cluster, "a");
    let id = a.allocate(NewSegment { writers: 1, ..at("a", LONG) }).unwrap().id;
    // Three seconds, and on a busy machine until enough was seen.
    let (least, until) = (Instant::now() + Duration::from_secs(3), Instant::now() + Duration::from_secs(60));
    let is_over = &AtomicBool::new(false);
    let write = |node: &str| {
        let (mut program, mut puts) = (connect(cluster, node), 0u64);
        while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
            puts += 1;
            program.put(id, &vec![puts as u8; LONG]).unwrap();
        }
        puts
    };
    let (mut whole, mut overtaken, mut versions) = (0u64, 0u64, 0u64);
    let puts: u64 = thread::scope(|scope| {
        let writers = ["b", "c"].map(|node| scope.spawn(move || write(node)));
        let mut window = a.window(id).unwrap();
        let mut bytes = vec![0; LONG];
        let enough = |whole, overtaken, versions| whole > 50 && overtaken > 5 && versions > 20;
        while Instant::now() < least || Instant::now() < until && !enough(whole, overtaken, versions) {
            // A slow reader in between, whom writers overtake.
            let middle = LONG / 2;
            let (one, other) = bytes.split_at_mut(middle);
            let mut holds = window.read(0, one);
            if (whole + overtaken) % 4 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            holds &= window.read(middle, other);
            if holds {
                whole += 1;
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a torn value was said to hold");
            } else {
                overtaken += 1;
            }
            let newest = window.newest().unwrap_or_else(|| a.window(id).unwrap());
            assert!(newest.version() >= window.version());
            versions += u64::from(newest.version() > window.version());
            window = newest;
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    println!(
        "counted: {puts} puts beside a window, {whole} reads that hold, {overtaken} overtaken, {versions} newer versions"
    );
    assert!(puts > 50 && whole > 50 && overtaken > 5 && versions > 20);
}

#[test]
fn what_a_window_holds_is_whole_on_shm() {
    beside_writers(&Cluster::on_shm("3s"));
}

#[test]
fn what_a_window_holds_is_whole_on_tcp() {
    beside_writers(&Cluster::on_tcp("3s"));
}

/// What is there afterwards is another segment's, or the same in the memory of another view.
fn is_over_when_it_should_be(cluster: &Cluster) {
    let [a_node, _b_node, c_node] = three(cluster);
    let [mut a, mut b] = ["a", "b"].map(|node| connect(cluster, node));
    let released = a.allocate(at("a", 100).named("released")).unwrap().id;
    a.put(released, &[1; 100]).unwrap();
    let window = a.window(released).unwrap();
    assert!(window.holds());
    b.release(released).unwrap();
    // Whoever asks for as much gets what was its own; the same version may be in the same slot.
    wait_for("the segment's memory is another's", || {
        let other = b.allocate(at("a", 100)).unwrap().id;
        b.put(other, &[9; 100]).unwrap();
        let mut bytes = vec![0; 100];
        assert!(!window.read(0, &mut bytes), "a released segment's place holds");
        bytes == [9; 100]
    });
    assert!(!window.is_newest() && window.newest().is_none());
    assert_eq!(why(a.window(released)), Failure::Released);

    let stays = a.allocate(at("a", 100).named("stays")).unwrap().id;
    a.put(stays, &[5; 100]).unwrap();
    let before = a.window(stays).unwrap();
    c_node.signal(Signal::KILL);
    a_node.wait_until("two in", |status| are_in(status, &[1, 2]));
    // The view is other memory.
    let after = a.window(stays).unwrap();
    assert!(!before.holds() && before.newest().is_none());
    assert_eq!((after.version(), shown(&after)), (before.version(), Some(vec![5; 100])));
    b.put(stays, &[6; 100]).unwrap();
    assert_eq!(shown(&before), None);
    assert_eq!(shown(&after.newest().unwrap()), Some(vec![6; 100]));

    // Its helper is stopped: what is read holds as long as the lease, and no longer.
    let newest = after.newest().unwrap();
    a_node.signal(Signal::STOP);
    let began = Instant::now();
    let mut held = 0u64;
    while newest.holds() {
        held += 1;
        assert!(began.elapsed() < Duration::from_secs(60), "it holds for ever");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(held > 10, "it held {held} times, nobody being asked");
    a_node.signal(Signal::CONT);
}

#[test]
fn a_window_is_over_when_its_place_is_anothers_on_shm() {
    is_over_when_it_should_be(&Cluster::on_shm(LEASE));
}

#[test]
fn a_window_is_over_when_its_place_is_anothers_on_tcp() {
    is_over_when_it_should_be(&Cluster::on_tcp(LEASE));
}
