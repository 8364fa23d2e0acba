//! Checkpoints: all processes go on from one, whoever crashes when.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena_client::{CheckpointOptions, Error, Failure, Memory, Placement};
use verbena_testkit::nodes::{Cluster, are_in};

use super::{NAMES, connect, three, why};

const PROCESSES: u32 = 4;

fn options(kept: u32) -> CheckpointOptions {
    CheckpointOptions { processes: PROCESSES, bytes: 50_000, kept, copies: 1, placement: Placement::Spread }
}

/// Whose, and of which run: no two runs save the same.
fn part(process: u32, run: u64, number: u64) -> Vec<u8> {
    let words = [u64::from(process), run, number];
    let length = 24 + (run * 7919 + number * 104_729) as usize % 39_000;
    words.into_iter().flat_map(u64::to_le_bytes).chain(std::iter::repeat(run as u8)).take(length).collect()
}

/// What the dead save.
fn late(part: &[u8]) -> Vec<u8> {
    [part, &[0xdd; 9000]].concat()
}

fn read(part: &[u8]) -> (u32, u64, u64) {
    let word = |at: usize| u64::from_le_bytes(part[8 * at..8 * at + 8].try_into().unwrap());
    (word(0) as u32, word(1), word(2))
}

/// Four processes save and now and then begin again, each as if it had crashed. What all of them did since a checkpoint that they go back to is another run
/// afterwards: so a checkpoint of parts of two runs would be seen.
#[test]
fn a_checkpoint_is_of_one_run() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    connect(&cluster, "a").make_checkpoints("run", &options(3)).unwrap();
    let until = Instant::now() + Duration::from_secs(4);
    let (crashes, rolled, complete) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let (cluster, crashes, rolled, complete) = (&cluster, &crashes, &rolled, &complete);
            scope.spawn(move || {
                let mut memory = connect(cluster, NAMES[process as usize % 3]);
                let mut turns = 0u32;
                while Instant::now() < until {
                    let (joined, found) = memory.join_checkpoints("run", process).unwrap();
                    assert_eq!(found.is_some(), joined.number > 0);
                    if let Some(found) = found {
                        let (whose, era, number) = read(&found);
                        assert_eq!((whose, number), (process, joined.number));
                        assert!(era < joined.era || joined.era == 1 || era == joined.era, "{era} {joined:?}");
                    }
                    let mut next = joined.number + 1;
                    while Instant::now() < until {
                        turns += 1;
                        // 13 and 17 at the latest after so many, each process another time.
                        if turns.is_multiple_of(13 + 4 * process) {
                            crashes.fetch_add(1, Ordering::Relaxed);
                            let successor = connect(cluster, NAMES[turns as usize % 3]);
                            let mut dead = std::mem::replace(&mut memory, successor);
                            // It is believed dead, and is not: what it saves beside its successor is of a run that has ended.
                            let late = late(&part(process, joined.era, next));
                            scope.spawn(move || {
                                drop(dead.save_checkpoint("run", process, joined.era, next, &late));
                            });
                            break;
                        }
                        let mine = part(process, joined.era, next);
                        let saved = memory.save_checkpoint("run", process, joined.era, next, &mine);
                        let all = until.saturating_duration_since(Instant::now());
                        let saved = saved.and_then(|_| memory.wait_for_checkpoint("run", joined.era, next, all));
                        match saved {
                            Ok(is_complete) => {
                                // When the time is over the others may not save any more.
                                assert!(is_complete || Instant::now() >= until);
                                if is_complete {
                                    complete.fetch_max(next, Ordering::Relaxed);
                                }
                                next += 1;
                            }
                            Err(Error::RolledBack) => {
                                rolled.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
        // Who looks meanwhile sees whole checkpoints too.
        let mut looker = connect(&cluster, "c");
        let mut seen = BTreeSet::new();
        while Instant::now() < until {
            let record = looker.checkpoints("run").unwrap();
            let parts: Result<Vec<_>, _> =
                (0..PROCESSES).map(|process| looker.checkpoint_part("run", process, record.complete)).collect();
            match parts {
                Ok(parts) => {
                    let read: Vec<_> = parts.iter().map(|part| read(part)).collect();
                    let (_, era, number) = read[0];
                    assert_eq!(number, record.complete);
                    assert!(read.iter().enumerate().all(|(nth, it)| *it == (nth as u32, era, number)), "{read:?}");
                    let is_whole = |(nth, it): (usize, &Vec<u8>)| {
                        let mine = part(nth as u32, era, number);
                        // The dead may have been first, in the era that ended with that.
                        *it == mine || *it == late(&mine)
                    };
                    assert!(parts.iter().enumerate().all(is_whole), "torn");
                    seen.insert(number);
                }
                // None is complete yet, or the next ones are.
                Err(Error::Memory { why: Failure::NotFound, .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        println!("counted: {} checkpoints seen whole", seen.len());
        assert!(seen.len() > 5, "{seen:?}");
    });
    let [crashes, rolled, complete] = [crashes, rolled, complete].map(AtomicU64::into_inner);
    assert!(
        crashes > 10 && rolled > 10 && complete > 10,
        "{crashes} crashes, {rolled} rolled back, {complete} complete"
    );
}

/// All processes save this, as those at this node that have joined.
fn save_all(memory: &mut Memory, number: u64) {
    let record = memory.checkpoints("run").unwrap();
    for process in 0..PROCESSES {
        if !record.processes[process as usize].0 {
            memory.join_checkpoints("run", process).unwrap();
        }
        memory.save_checkpoint("run", process, record.era, number, &part(process, record.era, number)).unwrap();
    }
}

#[test]
fn who_was_believed_dead_changes_nothing() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let [mut a, mut b, mut c] = NAMES.map(|node| connect(&cluster, node));
    a.make_checkpoints("run", &options(3)).unwrap();
    for number in 1..=4 {
        save_all(&mut a, number);
    }
    let record = b.checkpoints("run").unwrap();
    assert_eq!((record.era, record.oldest, record.complete), (1, 3, 4));
    assert_eq!(b.checkpoint_part("run", 1, 3).unwrap(), part(1, 1, 3));
    for number in [0, 2, 5] {
        assert_eq!(why(b.checkpoint_part("run", 1, number)), Failure::NotFound, "{number}");
        assert_eq!(why(b.roll_back("run", number)), Failure::NotFound, "{number}");
    }
    let bad = |result: Result<u64, Error>| assert_eq!(why(result), Failure::Bad);
    bad(a.save_checkpoint("run", 0, 1, 4, b"complete already"));
    bad(a.save_checkpoint("run", 0, 1, 6, b"after one that is not complete"));
    bad(a.save_checkpoint("run", 0, 1, 5, &[0; 50_001]));
    bad(a.save_checkpoint("run", 4, 1, 5, b"no such process"));
    assert_eq!(why(a.join_checkpoints("run", 4)), Failure::Bad);
    assert_eq!(why(a.make_checkpoints("run", &options(3))), Failure::Exists);
    assert_eq!(why(a.make_checkpoints("other", &options(1))), Failure::Bad);
    // Process 0 has a successor, with which an era begins; the others learn it, and so does the one that was believed dead.
    let (joined, found) = b.join_checkpoints("run", 0).unwrap();
    assert_eq!((joined.era, joined.number, found), (2, 4, Some(part(0, 1, 4))));
    b.save_checkpoint("run", 0, 2, 5, &part(0, 2, 5)).unwrap();
    assert_eq!(why(b.save_checkpoint("run", 0, 2, 5, b"once more")), Failure::Bad);
    assert!(matches!(a.save_checkpoint("run", 0, 1, 5, b"late"), Err(Error::RolledBack)));
    assert!(matches!(c.save_checkpoint("run", 1, 1, 5, b"late"), Err(Error::RolledBack)));
    assert!(matches!(c.save_checkpoint("run", 1, 2, 5, b"has not joined"), Err(Error::RolledBack)));
    for process in 1..PROCESSES {
        assert_eq!(c.join_checkpoints("run", process).unwrap().0, joined, "no further era");
        c.save_checkpoint("run", process, 2, 5, &part(process, 2, 5)).unwrap();
    }
    assert_eq!(a.checkpoint_part("run", 0, 5).unwrap(), part(0, 2, 5));
    // Back to 4, and on from there: 5 is another one.
    a.roll_back("run", 4).unwrap();
    assert!(matches!(b.save_checkpoint("run", 0, 2, 6, b"late"), Err(Error::RolledBack)));
    assert_eq!(why(a.checkpoint_part("run", 0, 5)), Failure::NotFound);
    save_all(&mut c, 5);
    assert_eq!(a.checkpoint_part("run", 3, 5).unwrap(), part(3, 3, 5));
    a.remove_checkpoints("run").unwrap();
    assert!(a.list("run").unwrap().segments.is_empty());
}

/// With two copies a checkpoint is there whichever home dies (but for the keeper of the cluster, of which there is one here), and processes go on from it.
#[test]
fn a_checkpoint_with_copies_outlives_a_home() {
    for dies in 1..3 {
        let cluster = Cluster::on_shm("2s");
        let mut nodes: Vec<_> = three(&cluster).into_iter().collect();
        let dead = NAMES[dies];
        let mut memory = connect(&cluster, NAMES[(dies + 1) % 3]);
        memory.make_checkpoints("run", &CheckpointOptions { copies: 2, ..options(2) }).unwrap();
        save_all(&mut memory, 1);
        save_all(&mut memory, 2);
        nodes.remove(dies).kill();
        for node in &nodes {
            node.wait_until("two in", |status| are_in(status, &[1, 4 - dies as u64]));
        }
        let mut other = connect(&cluster, NAMES[(dies + 2) % 3]);
        let record = other.checkpoints("run").unwrap();
        assert_eq!((record.era, record.complete), (1, 2), "{dead} died");
        for process in 0..PROCESSES {
            let (joined, found) = other.join_checkpoints("run", process).unwrap();
            assert_eq!((joined.era, found), (2, Some(part(process, 1, 2))), "{dead} died");
        }
        save_all(&mut other, 3);
        assert_eq!(memory.checkpoint_part("run", 3, 3).unwrap(), part(3, 2, 3), "{dead} died");
    }
}
