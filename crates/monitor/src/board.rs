//! A node's board: one region for each of its incarnations, which that incarnation alone writes and all members read.
//!
//! ```text
//!  0        8       16
//!  +--------+-------+--------------------------------------------+
//!  | header | round | the words of a Load, in the order of WORDS |
//!  | "VLOD" |       |                                            |
//!  +--------+-------+--------------------------------------------+
//! ```
//!
//! Little endian. The round is odd while words are being written, and two more with each publication. No node changes a
//! board by atomics, so its owner stores plainly (rule F3). A reader reads the round, the words and the round again in
//! one batch, which is executed in order (rule F1): if both rounds are the same and even, all words are of one
//! publication.

use verbena_fabric::{Batch, Buffer, Completed, Done, Operation, Pool, Region};
use verbena_terms::{Format, Load, LoadCounts};

/// What a board begins with.
pub const BOARD: Format = Format::new(*b"VLOD", 1);
/// Where the round is.
const ROUND_AT: u64 = 8;
/// Where the words of a load begin.
const WORDS_AT: u64 = 16;
/// How many there are.
const WORDS: usize = 14;
/// Bytes of a board.
pub const BOARD_BYTES: u64 = WORDS_AT + 8 * WORDS as u64;

/// Makes a board of zeroed memory.
///
/// # Errors
/// If the region is gone or too small.
pub fn begin(region: &dyn Region) -> verbena_fabric::Result<()> {
    region.store(0, BOARD.word())
}

/// Publishes a load as this round, which is one more than the one before.
///
/// # Errors
/// If the region is gone or too small.
pub fn publish(region: &dyn Region, round: u64, load: &Load) -> verbena_fabric::Result<()> {
    region.store(ROUND_AT, 2 * round - 1)?;
    for (at, word) in (WORDS_AT..).step_by(8).zip(words(load)) {
        region.store(at, word)?;
    }
    region.store(ROUND_AT, 2 * round)
}

/// What reads a board.
///
/// # Errors
/// If the pool has no buffer.
pub fn question(pool: &Pool) -> verbena_fabric::Result<Batch> {
    let mut batch = Batch::new();
    batch.push(Operation::ReadWord { at: 0 });
    batch.push(Operation::ReadWord { at: ROUND_AT });
    batch.push(Operation::Read { at: WORDS_AT, into: pool.take(8 * WORDS)? });
    batch.push(Operation::ReadWord { at: ROUND_AT });
    Ok(batch)
}

/// What was read of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A publication, and its round.
    Load(u64, Load),
    /// Its owner was writing.
    Torn,
    /// It is no board, or nothing is on it yet.
    Blank,
}

/// What [`question`] found.
pub fn answer(found: &Completed) -> Answer {
    let [Done::Word(header), Done::Word(before), Done::Buffer(buffer), Done::Word(after)] = &found[..] else {
        return Answer::Blank;
    };
    if BOARD.check_word(*header).is_err() || *before == 0 {
        return Answer::Blank;
    }
    if before != after || before % 2 != 0 {
        return Answer::Torn;
    }
    Answer::Load(before / 2, load(buffer))
}

fn words(load: &Load) -> [u64; WORDS] {
    let counts = &load.counts;
    [
        load.cores.into(),
        load.busy_milli.into(),
        load.runnable_milli.into(),
        load.connections.into(),
        load.programs.into(),
        load.every_ms.into(),
        load.memory_bytes,
        load.available_bytes,
        counts.answers,
        counts.hits,
        counts.updates,
        counts.locks,
        counts.memory,
        counts.requests,
    ]
}

/// What a member wrote, whatever that is.
fn load(buffer: &Buffer) -> Load {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(buffer.bytes().chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    let [cores, busy, runnable, connections, programs, every, memory_bytes, available_bytes, counts @ ..] = words;
    let [answers, hits, updates, locks, memory, requests] = counts;
    let small = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
    Load {
        cores: small(cores),
        busy_milli: small(busy),
        runnable_milli: small(runnable),
        connections: small(connections),
        programs: small(programs),
        every_ms: small(every),
        memory_bytes,
        available_bytes,
        counts: LoadCounts { answers, hits, updates, locks, memory, requests },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use verbena_fabric::tcp::{TcpConfig, TcpFabric};
    use verbena_fabric::{Class, Fabric, Rights};
    use verbena_terms::{BootClock, Clock, Incarnation, ViewNumber};

    use super::*;

    fn sample(n: u32) -> Load {
        let counts = LoadCounts { answers: 9, hits: 10, updates: 11, locks: 12, memory: 13, requests: u64::from(n) };
        Load {
            cores: n,
            busy_milli: 2,
            runnable_milli: 3,
            connections: 4,
            programs: 5,
            every_ms: 6,
            memory_bytes: 7,
            available_bytes: 8,
            counts,
        }
    }

    #[test]
    fn whoever_reads_sees_one_publication_or_knows_that_it_did_not() {
        let [owner, reader] =
            [1, 2].map(|rank| TcpFabric::open(Incarnation::new(rank, 1), TcpConfig::default()).unwrap());
        let region = owner.register(BOARD_BYTES, ViewNumber(0)).unwrap();
        let peer = reader.connect(owner.identity(), &owner.address()).unwrap();
        let soon = || BootClock.now() + Duration::from_secs(10);
        let remote = peer.open(&region.key(Rights::Read), soon()).unwrap();
        let read = || answer(&remote.post(question(reader.pool()).unwrap(), Class::Control, soon()).wait().unwrap());
        assert_eq!(read(), Answer::Blank, "no board yet");
        begin(&*region).unwrap();
        assert_eq!(read(), Answer::Blank, "nothing on it");
        publish(&*region, 1, &sample(1)).unwrap();
        assert_eq!(read(), Answer::Load(1, sample(1)));
        // Its owner died, or was stopped, in the middle.
        region.store(ROUND_AT, 3).unwrap();
        assert_eq!(read(), Answer::Torn);
        // Some machines give the three threads one core between them.
        let (stop, until) = (std::sync::atomic::AtomicBool::new(false), BootClock.now() + Duration::from_secs(60));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 2.. {
                    publish(&*region, n.into(), &sample(n)).unwrap();
                    // A writer without pauses, faster than any reader, would leave next to nothing whole.
                    for _ in 0..n % 128 {
                        std::hint::spin_loop();
                    }
                    // A reader that fails does not say so.
                    if stop.load(std::sync::atomic::Ordering::Relaxed) || BootClock.now() > until {
                        return;
                    }
                }
            });
            let (mut whole, mut torn, mut newest) = (0, 0, 0);
            while (whole < 5000 || torn < 20) && BootClock.now() < until {
                match read() {
                    Answer::Load(round, load) => {
                        assert_eq!(load, sample(u32::try_from(round).unwrap()), "half of another");
                        assert!(round >= newest);
                        (whole, newest) = (whole + 1, round);
                    }
                    Answer::Torn => torn += 1,
                    Answer::Blank => panic!("blank"),
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(whole >= 5000 && torn >= 20, "{whole} whole, {torn} torn");
        });
    }
}
