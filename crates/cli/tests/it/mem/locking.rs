//! Locks of segments: a lock is not another's before all that was put under it has arrived, or never will (rule M3).

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Failure, Locks, NewSegment, Placement, Socket};
use verbena_testkit::nodes::Cluster;

use super::{connect, connect_for, three, why};

/// Enough that the locks of some have their home where nobody is stopped.
const SEGMENTS: usize = 9;

#[test]
fn who_waits_for_a_lock_waits_for_what_was_put_under_it() {
    let cluster = Cluster::on_tcp("6s");
    let [a, _b, _c] = three(&cluster);
    let mut at_c = connect(&cluster, "c");
    let new = |nth| NewSegment::of(8).named(&format!("s{nth}")).placed(Placement::Node("a".into()));
    let segments: Vec<_> = (0..SEGMENTS).map(|nth| at_c.allocate(new(nth)).unwrap().id).collect();
    let (held, all_held) = channel();
    let mut programs = vec![];
    for (nth, id) in segments.iter().copied().enumerate() {
        // All is found and open before a is stopped.
        let mut program = connect_for(&cluster, "b", Duration::from_millis(700));
        let hold = program.lock(id, LockMode::Exclusive, Some(Duration::from_secs(5))).unwrap();
        let version = program.put(id, &1u64.to_le_bytes()).unwrap();
        let held = held.clone();
        let (go, gone) = channel();
        programs.push((
            go,
            std::thread::spawn(move || {
                held.send(()).unwrap();
                gone.recv().unwrap();
                let put = program.put(id, &2u64.to_le_bytes());
                // Who gives up another lock waits for that put too, and not instead of the one that is released.
                if nth % 2 == 0 {
                    let other = program.locks().ask(format!("other {nth}").as_bytes(), LockMode::Exclusive).unwrap();
                    program.locks().give_up(other).unwrap();
                }
                let began = Instant::now();
                program.unlock(hold).unwrap();
                (put, began.elapsed(), version)
            }),
        ));
    }
    segments.iter().for_each(|_| all_held.recv().unwrap());
    a.signal(Signal::STOP);
    programs.iter().for_each(|(go, _)| go.send(()).unwrap());
    // Their puts have no answer by now, and they have asked for the release.
    std::thread::sleep(Duration::from_millis(1500));
    let socket = Socket::new(Some(&cluster.path().join("run")), Some("c")).unwrap();
    let mut other = Locks::connect(&socket, Duration::from_secs(5)).unwrap();
    let mut wishes = vec![];
    for id in &segments {
        let wish = other.ask(format!("memory/{id}").as_bytes(), LockMode::Exclusive).unwrap();
        wishes.push(wish);
    }
    std::thread::sleep(Duration::from_millis(500));
    let free: Vec<_> = wishes.iter().map(|wish| other.wait(wish, Some(Duration::ZERO)).unwrap()).collect();
    a.signal(Signal::CONT);
    let mut unknown = 0;
    for ((wish, free), (_, program)) in wishes.iter().zip(free).zip(programs) {
        let (put, waited, version) = program.join().unwrap();
        // One whose slot was given up is known not to be done.
        if put.is_err() && why(put) == Failure::Unknown {
            unknown += 1;
            assert!(free.is_none(), "a lock came while what was put is on its way");
            assert!(waited > Duration::from_millis(500), "{waited:?}");
        }
        let hold = match free {
            Some(hold) => hold,
            None => other.wait(wish, Some(Duration::from_secs(20))).unwrap().expect("it is free"),
        };
        assert!(other.is_held(&hold));
        assert!(version > 0);
    }
    assert!(unknown >= SEGMENTS / 3, "{unknown} of {SEGMENTS} puts have an unknown outcome");
    // What nobody knew is settled, and stays as it is.
    let values: Vec<_> = segments.iter().map(|id| at_c.get(*id).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(300));
    for (id, value) in segments.iter().zip(values) {
        assert_eq!(at_c.get(*id).unwrap(), value);
    }
}

#[test]
fn locks_of_segments_keep_each_other_out() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let (mut at_a, mut at_b) = (connect(&cluster, "a"), connect(&cluster, "b"));
    let id = at_a.allocate(NewSegment::of(8).named("counter")).unwrap().id;
    let hold = at_a.lock("counter", LockMode::Exclusive, None).unwrap();
    let soon = Some(Duration::from_millis(100));
    assert!(matches!(at_b.lock(id, LockMode::Shared, soon), Err(Error::NotInTime { .. })));
    at_a.unlock(hold).unwrap();
    let shared = at_b.lock(id, LockMode::Shared, soon).unwrap();
    let other = at_a.lock("counter", LockMode::Shared, soon).unwrap();
    at_b.unlock(shared).unwrap();
    at_a.unlock(other).unwrap();
    // Under it, what is read and written back is no other's.
    let counts = 50;
    let programs = ["a", "b", "c"].map(|node| {
        let mut program = connect(&cluster, node);
        std::thread::spawn(move || {
            for _ in 0..counts {
                let hold = program.lock(id, LockMode::Exclusive, Some(Duration::from_secs(20))).unwrap();
                let value = u64::from_le_bytes(program.get(id).unwrap().bytes.try_into().unwrap());
                program.put(id, &(value + 1).to_le_bytes()).unwrap();
                program.unlock(hold).unwrap();
            }
        })
    });
    programs.into_iter().for_each(|program| program.join().unwrap());
    assert_eq!(at_a.get(id).unwrap().bytes, (3u64 * counts).to_le_bytes());
    assert_eq!(why(at_a.lock("none", LockMode::Shared, soon)), Failure::NotFound);
}
