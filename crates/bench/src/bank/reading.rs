//! `bank.throughput` and `bank.sharing`: files that are read whole, each thread its own, or all the one that a writer has just written (IMCa, Figures 9 and 10).

use std::fs::{self, File};
use std::io::Read;
use std::time::Instant;

use super::stat::panel;
use super::volume::{Cache, Programs, Volume};
use crate::error::BenchError;
use crate::report::{Claim, Findings, Measurement, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

const BYTES: usize = 4 << 20;
/// Of one read.
const RECORD: usize = 256 << 10;
const MOUNTS: usize = 4;
const CACHES: [Cache; 5] = [
    Cache::Plain,
    Cache::Bank("imca", 1, "64KB"),
    Cache::Bank("imca", 4, "64KB"),
    Cache::Bank("strong", 1, "64KB"),
    Cache::Bank("strong", 4, "64KB"),
];

/// What is read.
struct What {
    threads: &'static [usize],
    is_shared: bool,
    title: &'static str,
    /// Of the time of the plain volume, with the most threads and daemons.
    most: f64,
    text: &'static str,
}

struct Turn<'a> {
    volume: &'a Volume,
    threads: usize,
}

/// Measures `bank.throughput`.
pub(crate) fn throughput(plan: Plan) -> Result<Findings, BenchError> {
    let what = What {
        threads: &[1, 2, 4, 8],
        is_shared: false,
        title: "files of 4 MiB, each thread its own",
        most: 1.0 / 2.08,
        text: "2.08 times the rate with 4 daemons and 8 threads, as the paper has it: at most 0.48 of the time",
    };
    measure(plan, &what)
}

/// Measures `bank.sharing`.
pub(crate) fn sharing(plan: Plan) -> Result<Findings, BenchError> {
    let what = What {
        threads: &[1, 8, 32],
        is_shared: true,
        title: "one file of 4 MiB, which was just written",
        most: 0.55,
        text: "45% less with 32 readers, as the paper has it",
    };
    measure(plan, &what)
}

fn measure(plan: Plan, what: &What) -> Result<Findings, BenchError> {
    let programs = Programs::find(&plan)?;
    let mut volumes = Vec::new();
    for cache in CACHES {
        let volume = Volume::start(&programs, cache, MOUNTS)?;
        if !what.is_shared {
            for thread in 0..what.threads[what.threads.len() - 1] {
                write(&volume, &format!("file-{thread}"), 7)?;
            }
        }
        volumes.push(volume);
    }
    let mut turns: Vec<Turn> = what
        .threads
        .iter()
        .flat_map(|threads| volumes.iter().map(|volume| Turn { volume, threads: *threads }))
        .collect();
    let mut number = 0;
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} threads, {}", turn.threads, turn.volume.cache.name()),
        |turn| {
            if what.is_shared {
                number += 1;
                write(turn.volume, "shared", number as u8)?;
            }
            read(turn, what.is_shared)
        },
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: volumes.iter().map(Volume::found).collect(), ..Findings::default() };
    summarise(what, &turns, &rounds, &mut findings);
    findings.notes.push("Brick, daemons and readers share the cores of one machine, and the brick's files are in its memory: the paper's brick was the limit.".into());
    Ok(findings)
}

fn write(volume: &Volume, name: &str, byte: u8) -> Result<(), BenchError> {
    let path = volume.mount(0).join(name);
    fs::write(&path, vec![byte; BYTES]).map_err(|error| BenchError::io(&path, error))
}

/// Each thread reads its file from its beginning to its end. Gives the seconds of all.
fn read(turn: &mut Turn, is_shared: bool) -> Result<f64, BenchError> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let read = |thread: usize| -> Result<(), BenchError> {
            let name = if is_shared { "shared".to_owned() } else { format!("file-{thread}") };
            let path = turn.volume.mount(thread).join(name);
            let failed = |error| BenchError::io(&path, error);
            let (mut file, mut bytes, mut total) = (File::open(&path).map_err(failed)?, vec![0; RECORD], 0);
            loop {
                match file.read(&mut bytes).map_err(failed)? {
                    0 => break,
                    count => total += count,
                }
            }
            match total {
                BYTES => Ok(()),
                _ => Err(BenchError::Target {
                    doing: format!("read {}", path.display()),
                    reason: format!("{total} bytes came"),
                }),
            }
        };
        let threads: Vec<_> = (0..turn.threads).map(|thread| scope.spawn(move || read(thread))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(began.elapsed().as_secs_f64())
}

fn summarise(what: &What, turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    for (turn, rounds) in turns.iter().zip(rounds) {
        let cache = turn.volume.cache.name();
        let bytes = (turn.threads * BYTES) as u64;
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, bytes)).collect();
        let labels = [("cache", cache.as_str())];
        findings.measurements.extend(Measurement::new(
            &labels,
            turn.threads as f64,
            "time of all readers",
            "s",
            rounds,
        ));
    }
    let of = |cache: Cache, threads: usize| {
        let at = turns.iter().position(|turn| turn.volume.cache == cache && turn.threads == threads)?;
        Some(&rounds[at])
    };
    let most = what.threads[what.threads.len() - 1];
    for threads in what.threads {
        for cache in &CACHES[1..] {
            let Some(spread) = of(*cache, *threads)
                .zip(of(Cache::Plain, *threads))
                .and_then(|(ours, plain)| Spread::ratio(ours, plain))
            else {
                continue;
            };
            let reason = "every byte crosses FUSE in each of them, and no disk or network is the limit here".to_owned();
            let is_claimed = *threads == most && matches!(cache, Cache::Bank("imca", 4, _));
            let claim = is_claimed.then(|| Claim::at_most(what.most, what.text, &spread, reason));
            let named = format!("time of all readers, {} over plain", cache.name());
            findings.ratios.push(Ratio { what: named, under: format!("{threads} readers"), spread, claim });
        }
    }
    findings.panels.push(panel(what.title, "readers", "seconds", &CACHES, findings));
}
