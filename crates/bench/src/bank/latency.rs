//! `bank.latency`: how long a read takes, by its length and the size of a block, and a write (IMCa, Figures 6 to 8).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::stat::panel;
use super::volume::{Cache, Programs, Volume};
use crate::error::BenchError;
use crate::report::{Claim, Findings, Measurement, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

const RECORDS: [usize; 5] = [1, 256, 2 << 10, 64 << 10, 1 << 20];
const FILE: usize = 1 << 20;
const CACHES: [Cache; 5] = [
    Cache::Plain,
    Cache::Bank("imca", 1, "256B"),
    Cache::Bank("imca", 1, "2KB"),
    Cache::Bank("imca", 1, "8KB"),
    Cache::Bank("strong", 1, "64KB"),
];
/// The paper's, for reads of one byte by one client.
const AT_ONE_BYTE: [(Cache, f64); 3] = [(CACHES[1], 0.41), (CACHES[2], 0.55), (CACHES[3], 0.69)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
}

struct Turn<'a> {
    volume: &'a Volume,
    operation: Operation,
    record: usize,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let programs = Programs::find(&plan)?;
    let mut volumes = Vec::new();
    for cache in CACHES {
        let volume = Volume::start(&programs, cache, 1)?;
        for name in ["read", "written"] {
            let path = volume.mount(0).join(name);
            fs::write(&path, vec![7; FILE]).map_err(|error| BenchError::io(&path, error))?;
        }
        volumes.push(volume);
    }
    let mut turns = Vec::new();
    for operation in [Operation::Read, Operation::Write] {
        for record in RECORDS {
            turns.extend(volumes.iter().map(|volume| Turn { volume, operation, record }));
        }
    }
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| {
            let what = if turn.operation == Operation::Read { "read" } else { "write" };
            format!("{what} of {} bytes, {}", turn.record, turn.volume.cache.name())
        },
        |turn| take(turn, budget.next()),
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: volumes.iter().map(Volume::found).collect(), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes.push("Through the mount, so the price of FUSE is in every time: the paper's ratios were of file systems in which a call to the brick took a network.".into());
    Ok(findings)
}

/// Operations one after the other, of one file that is open; their medians, in microseconds.
fn take(turn: &Turn, length: Duration) -> Result<RoundSummary, BenchError> {
    let path = turn.volume.mount(0).join(if turn.operation == Operation::Read { "read" } else { "written" });
    let failed = |error| BenchError::io(&path, error);
    let file = File::options().read(true).write(turn.operation == Operation::Write).open(&path).map_err(failed)?;
    let mut bytes = vec![9; turn.record];
    let (mut samples, mut at) = (Vec::new(), 0);
    let began = Instant::now();
    while samples.len() < 20 || began.elapsed() < length {
        let offset = (at % (FILE + 1 - turn.record)) as u64;
        at += turn.record.max(4096);
        let start = Instant::now();
        match turn.operation {
            Operation::Read => file.read_exact_at(&mut bytes, offset).map_err(failed)?,
            Operation::Write => file.write_all_at(&bytes, offset).map_err(failed)?,
        }
        samples.push(start.elapsed().as_secs_f64() * 1e6);
    }
    RoundSummary::of(&mut samples)
        .ok_or_else(|| BenchError::Target { doing: "read".into(), reason: "nothing was read".into() })
}

fn summarise(turns: &[Turn], rounds: &[Vec<RoundSummary>], findings: &mut Findings) {
    for (turn, rounds) in turns.iter().zip(rounds) {
        let (cache, quantity) = (turn.volume.cache.name(), quantity(turn.operation));
        let labels = [("cache", cache.as_str())];
        findings.measurements.extend(Measurement::new(&labels, turn.record as f64, quantity, "us", rounds.clone()));
    }
    let of = |cache: Cache, operation: Operation, record: usize| -> Option<Vec<f64>> {
        let at = turns
            .iter()
            .position(|turn| turn.volume.cache == cache && turn.operation == operation && turn.record == record)?;
        Some(rounds[at].iter().map(|round| round.median).collect())
    };
    for operation in [Operation::Read, Operation::Write] {
        for record in RECORDS {
            for cache in &CACHES[1..] {
                let pair = of(*cache, operation, record).zip(of(Cache::Plain, operation, record));
                let Some(spread) = pair.and_then(|(ours, plain)| Spread::ratio(&ours, &plain)) else { continue };
                let most = AT_ONE_BYTE.iter().find(|(of, _)| of == cache).map(|(_, most)| *most);
                let claim = most.filter(|_| operation == Operation::Read && record == 1).map(|most| {
                    let text = format!("at most {most}, as the paper has it");
                    let reason = "on one machine a call to the brick takes no network".to_owned();
                    Claim::at_most(most, &text, &spread, reason)
                });
                let what = format!("{}, {} over plain", quantity(operation), cache.name());
                findings.ratios.push(Ratio { what, under: format!("{record} bytes"), spread, claim });
            }
        }
    }
    for operation in [Operation::Read, Operation::Write] {
        let of_it = Findings {
            measurements: findings
                .measurements
                .iter()
                .filter(|one| one.quantity == quantity(operation))
                .cloned()
                .collect(),
            ..Findings::default()
        };
        findings.panels.push(panel(quantity(operation), "bytes", "microseconds", &CACHES, &of_it));
    }
}

fn quantity(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "time of a read",
        Operation::Write => "time of a write",
    }
}
