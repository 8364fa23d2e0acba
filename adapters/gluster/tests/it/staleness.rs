//! One client writes; another reads and asks for the size meanwhile. What is older than a write that was acknowledged before the question is counted.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use verbena_testkit::programs::wait_for;

use crate::volume::{Settings, Volume, is_there};

const BLOCK: usize = 2048;
/// Of two chunks, and one that a block shares with the next.
const PLACES: [u64; 3] = [0, BLOCK as u64, 5 << 20];

#[derive(Debug, Default)]
struct Counted {
    reads: AtomicU64,
    stats: AtomicU64,
    old_reads: AtomicU64,
    old_stats: AtomicU64,
}

/// Each write fills its block with its number, and makes a second file as many bytes long.
fn write_and_read(volume: &Volume, writes: u64) -> Counted {
    let [a, b] = ["a", "b"].map(|client| volume.path(client));
    let writer = |name: &str| OpenOptions::new().write(true).create(true).truncate(false).open(a.join(name)).unwrap();
    let (blocks, long) = (writer("blocks"), writer("long"));
    for place in PLACES {
        blocks.write_all_at(&[0; BLOCK], place).unwrap();
    }
    let counted = Counted::default();
    let acknowledged = [const { AtomicU64::new(0) }; PLACES.len()];
    let seen = [const { AtomicU64::new(0) }; PLACES.len()];
    let (length, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let [blocks, long] = ["blocks", "long"].map(|name| File::open(b.join(name)).unwrap());
                let mut bytes = [0; BLOCK];
                while !ended.load(SeqCst) {
                    for (at, place) in PLACES.into_iter().enumerate() {
                        let least = acknowledged[at].load(SeqCst).max(seen[at].load(SeqCst));
                        blocks.read_exact_at(&mut bytes, place).unwrap();
                        let numbers = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
                        let oldest = numbers.min().unwrap();
                        seen[at].fetch_max(oldest, SeqCst);
                        counted.reads.fetch_add(1, SeqCst);
                        counted.old_reads.fetch_add(u64::from(oldest < least), SeqCst);
                    }
                    let least = length.load(SeqCst);
                    let size = long.metadata().unwrap().len();
                    counted.stats.fetch_add(1, SeqCst);
                    counted.old_stats.fetch_add(u64::from(size < least), SeqCst);
                }
            });
        }
        for number in 1..=writes {
            let at = number as usize % PLACES.len();
            blocks.write_all_at(&number.to_le_bytes().repeat(BLOCK / 8), PLACES[at]).unwrap();
            acknowledged[at].store(number, SeqCst);
            long.write_all_at(&[1], number - 1).unwrap();
            length.store(number, SeqCst);
            // Readers have time for hits.
            if number % 8 == 0 {
                let until = counted.reads.load(SeqCst) + 24;
                while counted.reads.load(SeqCst) < until {
                    std::thread::yield_now();
                }
            }
        }
        ended.store(true, SeqCst);
    });
    counted
}

fn counts(counted: &Counted) -> [u64; 4] {
    [&counted.reads, &counted.stats, &counted.old_reads, &counted.old_stats].map(|count| count.load(SeqCst))
}

#[test]
fn strong_is_never_old_and_hits() {
    if !is_there() {
        return;
    }
    let volume = Volume::start(Settings { scheme: "strong", ..Settings::default() });
    let [reads, stats, old_reads, old_stats] = counts(&write_and_read(&volume, 600));
    let counters = volume.counters("b");
    eprintln!("strong: {old_reads} old of {reads} reads, {old_stats} old of {stats} stats; {counters:?}");
    assert_eq!((old_reads, old_stats), (0, 0));
    assert!(counters.hits > 20 && counters.stat_hits > 20 && counters.misses > 20, "{counters:?}");
}

#[test]
fn without_words_that_move_strong_is_old() {
    if !is_there() {
        return;
    }
    let volume = Volume::start(Settings { scheme: "strong", without: "B6", ..Settings::default() });
    let [reads, _, old_reads, old_stats] = counts(&write_and_read(&volume, 200));
    assert!(old_reads > 0 && old_stats > 0, "{old_reads} old of {reads} reads");
}

/// The paper's, with its thread for updates: a write is acknowledged before the daemons have it.
#[test]
fn imca_is_old_and_its_old_reads_are_counted() {
    if !is_there() {
        return;
    }
    let volume = Volume::start(Settings { scheme: "imca", more: &[("update-thread", "on")], ..Settings::default() });
    let [reads, stats, old_reads, old_stats] = counts(&write_and_read(&volume, 600));
    let counters = volume.counters("b");
    eprintln!("imca: {old_reads} old of {reads} reads, {old_stats} old of {stats} stats; {counters:?}");
    assert!(old_reads + old_stats > 0, "{old_reads} old of {reads} reads");
    assert!(counters.hits > 20 && counters.stat_hits > 20, "{counters:?}");
}

/// Changes a file on the brick while that is dead: the next one begins where no generation was used.
fn after_a_restart(without: &'static str) -> String {
    let mut volume = Volume::start(Settings { scheme: "strong", without, ..Settings::default() });
    let brick = volume.path("brick");
    for name in ["words", "other"] {
        std::fs::write(brick.join(name), "one").unwrap();
    }
    let read = |volume: &Volume, name: &str| std::fs::read_to_string(volume.path("b").join(name)).unwrap_or_default();
    let until_hit = |volume: &Volume, name: &str| {
        let hits = || volume.counters("b").hits;
        let before = hits();
        wait_for("a hit", || !read(volume, name).is_empty() && hits() > before);
    };
    until_hit(&volume, "words");
    volume.kill_brick();
    std::fs::write(brick.join("words"), "two").unwrap();
    volume.start_brick();
    wait_for("the brick", || !read(&volume, "other").is_empty());
    until_hit(&volume, "other");
    read(&volume, "words")
}

#[test]
fn generations_never_come_again() {
    if is_there() {
        assert_eq!(after_a_restart(""), "two");
        assert_eq!(after_a_restart("B10"), "one");
    }
}
