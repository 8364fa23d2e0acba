//! `bank.stat`: how long clients take to look at the attributes of many files, each file once (IMCa, Figure 5).

use std::fs;
use std::time::{Duration, Instant};

use super::volume::{Cache, Programs, Volume};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// Files, in a quick run and in one that takes its time. The paper has 262,144.
const FILES: [usize; 2] = [64, 16_384];
const LONG: Duration = Duration::from_secs(120);
/// Clients, the most of which the paper has.
const CLIENTS: [usize; 3] = [1, 8, 64];
const MOUNTS: usize = 4;
const CACHES: [Cache; 5] = [
    Cache::Plain,
    Cache::Metadata,
    Cache::Bank("imca", 1, "2KB"),
    Cache::Bank("imca", 4, "2KB"),
    Cache::Bank("strong", 1, "2KB"),
];
/// The paper: 82% less with one daemon at 64 clients.
const OVER_PLAIN: f64 = 0.18;

struct Turn<'a> {
    volume: &'a Volume,
    clients: usize,
    files: usize,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let programs = Programs::find(&plan)?;
    let files = FILES[usize::from(plan.measuring >= LONG)];
    let mut volumes = Vec::new();
    for cache in CACHES {
        let volume = Volume::start(&programs, cache, MOUNTS)?;
        for number in 0..files {
            let path = volume.mount(0).join(format!("f{number}"));
            fs::write(&path, b"x").map_err(|error| BenchError::io(&path, error))?;
        }
        volumes.push(volume);
    }
    let mut turns: Vec<Turn> = CLIENTS
        .iter()
        .flat_map(|clients| volumes.iter().map(|volume| Turn { volume, clients: *clients, files }))
        .collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{} clients, {}", turn.clients, turn.volume.cache.name()),
        |turn| look(turn),
        plan.progress,
    )?;
    let mut findings = Findings { fabrics: volumes.iter().map(Volume::found).collect(), ..Findings::default() };
    summarise(&turns, &rounds, &mut findings);
    findings.notes.push("Clients are threads of one machine at four mounts; a look opens the file and asks for its attributes, since a lookup by its path goes to the brick in GlusterFS of today.".into());
    Ok(findings)
}

/// Each client looks at each file once. Gives the seconds of all.
fn look(turn: &mut Turn) -> Result<f64, BenchError> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let look = |client: usize| -> Result<(), BenchError> {
            for number in 0..turn.files {
                // Each begins elsewhere.
                let number = (number + client * 37) % turn.files;
                let path = turn.volume.mount(client).join(format!("f{number}"));
                let found = fs::File::open(&path).and_then(|file| file.metadata());
                found.map_err(|error| BenchError::io(&path, error))?;
            }
            Ok(())
        };
        let clients: Vec<_> = (0..turn.clients).map(|client| scope.spawn(move || look(client))).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(began.elapsed().as_secs_f64())
}

fn summarise(turns: &[Turn], rounds: &[Vec<f64>], findings: &mut Findings) {
    for (turn, rounds) in turns.iter().zip(rounds) {
        let cache = turn.volume.cache.name();
        let looks = (turn.files * turn.clients) as u64;
        let rounds = rounds.iter().map(|seconds| RoundSummary::one(*seconds, looks)).collect();
        let labels = [("cache", cache.as_str())];
        findings.measurements.extend(Measurement::new(&labels, turn.clients as f64, "time of all files", "s", rounds));
    }
    let of = |cache: Cache, clients: usize| {
        let at = turns.iter().position(|turn| turn.volume.cache == cache && turn.clients == clients)?;
        Some(&rounds[at])
    };
    for clients in CLIENTS {
        for cache in &CACHES[1..] {
            let Some(spread) =
                of(*cache, clients).zip(of(Cache::Plain, clients)).and_then(|(ours, plain)| Spread::ratio(ours, plain))
            else {
                continue;
            };
            let text = format!("at most {OVER_PLAIN} with one daemon, as the paper has it");
            let reason = "the brick's files are in its memory, and a look is an open at the brick first".to_owned();
            let is_claimed = clients == 64 && *cache == Cache::Bank("imca", 1, "2KB");
            let claim = is_claimed.then(|| Claim::at_most(OVER_PLAIN, &text, &spread, reason));
            let what = format!("time of all files, {} over plain", cache.name());
            findings.ratios.push(Ratio { what, under: format!("{clients} clients"), spread, claim });
        }
    }
    findings.panels.push(panel("attributes of each file once", "clients", "seconds", &CACHES, findings));
}

/// A line for each cache.
pub(super) fn panel(title: &str, x: &str, y: &str, caches: &[Cache], findings: &Findings) -> Panel {
    let series = findings.lines(caches.iter().map(|cache| cache.name()), None);
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    Panel { title: title.to_owned(), x: axis(x, true), y: axis(y, true), series }
}
