//! `coop.schemes`: throughput and misses of each scheme, by the number of proxies and the size of the files.
//!
//! Figures 7.4 and 7.5, Table 7.1: all files of a trace are asked for alike; each node has 64 MiB for 10,240 files of 8 to 64 KiB. Here both are scaled
//! down by the same factor, so what fits where is the same.

use std::time::{Duration, Instant};

use rand_core::Rng;
use rand_pcg::Pcg64;

use super::client::Client;
use super::pools::{Origin, Pools, failed};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::{Budget, Progress, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::traces::generator;

pub(super) const SCHEMES: [&str; 6] = ["ac", "bcc", "ccwr", "mtacc", "hybcc", "adaptive"];
pub(super) const PASSIVE: usize = 2;
const FILES: u64 = 10_240;
const NODE_BYTES: u64 = 64 << 20;
/// Of a run that is quick, and of one that is not.
const SCALES: [u64; 2] = [8, 4];
/// Runs that measure for less are quick.
const SHORT: Duration = Duration::from_secs(60);
/// Clients, each with a connection to every proxy.
const CLIENTS: usize = 4;
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(40);
/// Requests of the warm-up for each file.
const WARM: u64 = 3;
/// What was expected: of the best scheme beside BCC and AC somewhere, and of HYBCC beside the best everywhere.
const OVER_BCC: f64 = 1.35;
const OVER_AC: f64 = 2.8;
const HYBRID: f64 = 0.97;

/// A scheme's processes. Under AC each proxy is a cache of its own.
struct Stack {
    scheme: &'static str,
    pools: Vec<Pools>,
    clients: Vec<(Pcg64, Vec<Client>)>,
}

/// What one stretch gave.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    requests: u64,
    missed: u64,
    seconds: f64,
}

/// What is counted, and how it comes of a stretch.
type Quantity = (&'static str, fn(&Stretch) -> f64);

/// One point: what each round of each scheme gave.
struct Cell {
    proxies: usize,
    kib: u64,
    rounds: Vec<Vec<Stretch>>,
    letters: Vec<f64>,
}

impl Stack {
    fn start(plan: &Plan, scheme: &'static str, proxies: usize, memory: u64) -> Result<Stack, BenchError> {
        let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
        let more = ["--scheme", scheme, "--pool-mirror", "false"];
        let (each, passive, caches) = if scheme == "ac" { (1, 0, proxies) } else { (proxies, PASSIVE, 1) };
        let pools = (0..caches).map(|_| Pools::start(verbena, each, passive, memory, &more));
        Ok(Stack { scheme, pools: pools.collect::<Result<_, _>>()?, clients: vec![] })
    }

    fn ready(&mut self, seed: u64) -> Result<(), BenchError> {
        self.pools.iter_mut().try_for_each(Pools::ready)?;
        let addresses: Vec<_> = self.pools.iter().flat_map(|pools| pools.addresses.clone()).collect();
        let client = |nth| {
            let connected = addresses.iter().map(|address| Client::connect(*address)).collect::<Result<_, _>>();
            Ok((generator(seed, 7_400 + nth as u128), connected.map_err(|error| failed("connect to a pool", error))?))
        };
        self.clients = (0..CLIENTS).map(client).collect::<Result<_, BenchError>>()?;
        Ok(())
    }

    /// Clients ask without a pause until a time, or for a number of requests each.
    fn run(&mut self, origin: &Origin, files: u64, bytes: usize, end: End) -> Result<Stretch, BenchError> {
        let began = Instant::now();
        let asked = std::thread::scope(|scope| {
            let clients = self.clients.iter_mut();
            let ask = clients.map(|(random, clients)| {
                scope.spawn(move || {
                    let mut stretch = Stretch::default();
                    while !end.is_reached(&stretch, began) {
                        let path = Origin::path(bytes, random.next_u64() % files);
                        let at = random.next_u64() as usize % clients.len();
                        stretch.missed += u64::from(!hit_or_fill(&mut clients[at], origin, &path, bytes)?);
                        stretch.requests += 1;
                    }
                    Ok::<_, std::io::Error>(stretch)
                })
            });
            let asking: Vec<_> = ask.collect();
            asking.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))).collect()
        });
        let asked: Vec<std::io::Result<Stretch>> = asked;
        let mut sum = Stretch { seconds: began.elapsed().as_secs_f64(), ..Stretch::default() };
        for one in asked {
            let one = one.map_err(|error| failed(&format!("ask pools under {}", self.scheme), error))?;
            (sum.requests, sum.missed) = (sum.requests + one.requests, sum.missed + one.missed);
        }
        sum.seconds = began.elapsed().as_secs_f64();
        Ok(sum)
    }

    fn statistic(&self, name: &str) -> Result<u64, BenchError> {
        self.pools.iter().map(|pools| pools.statistic(name)).sum()
    }
}

/// When clients stop.
#[derive(Clone, Copy)]
enum End {
    /// After this many requests of each.
    Requests(u64),
    /// Then.
    After(Duration),
}

impl End {
    fn is_reached(self, stretch: &Stretch, began: Instant) -> bool {
        match self {
            End::Requests(requests) => stretch.requests >= requests,
            End::After(length) => stretch.requests > 0 && began.elapsed() >= length,
        }
    }
}

/// Whether the file was there. If it was not, the client gets it from the origin and stores it.
fn hit_or_fill(client: &mut Client, origin: &Origin, path: &str, bytes: usize) -> std::io::Result<bool> {
    if client.get(path)? {
        // The origin's files are their names over and over.
        let is_it = client.value.len() == bytes && client.value.starts_with(path.as_bytes());
        return if is_it { Ok(true) } else { Err(std::io::Error::other(format!("{path} has another file's bytes"))) };
    }
    client.set(path, &origin.get(path)?)?;
    Ok(false)
}

pub(crate) fn measure(mut plan: Plan) -> Result<Findings, BenchError> {
    let is_short = plan.measuring < SHORT;
    let scale = SCALES[usize::from(!is_short)];
    let (files, memory) = (FILES / scale, NODE_BYTES / scale);
    let (all_proxies, sizes): (&[usize], &[u64]) =
        if is_short { (&[2, 4], &[16, 64]) } else { (&[2, 4, 8, 10], &[8, 16, 32, 64]) };
    let origin = Origin::start()?;
    let steps = (plan.rounds + 1) * (all_proxies.len() * sizes.len() * SCHEMES.len()) as u32;
    let mut budget = Budget::new(plan.measuring, steps);
    let mut cells = vec![];
    for &proxies in all_proxies {
        let mut stacks =
            SCHEMES.iter().map(|scheme| Stack::start(&plan, scheme, proxies, memory)).collect::<Result<Vec<_>, _>>()?;
        for (nth, stack) in stacks.iter_mut().enumerate() {
            stack.ready(plan.seed + nth as u64)?;
        }
        for &kib in sizes {
            cells.push(cell(&mut plan, &mut stacks, &origin, (proxies, kib, files), &mut budget)?);
        }
    }
    Ok(findings(&cells, scale, files))
}

fn cell(
    plan: &mut Plan,
    stacks: &mut [Stack],
    origin: &Origin,
    (proxies, kib, files): (usize, u64, u64),
    budget: &mut Budget,
) -> Result<Cell, BenchError> {
    let bytes = (kib << 10) as usize;
    let under = format!("{proxies} proxies, {kib} KiB");
    for stack in stacks.iter_mut() {
        stack.pools.iter().try_for_each(Pools::flush)?;
        // Where copies are kept, each proxy has to see each file.
        let times = if matches!(stack.scheme, "ac" | "bcc") { proxies.max(2) as u64 / 2 } else { 1 };
        let doing = format!("{under}: warming {}", stack.scheme);
        (plan.progress)(&Progress { done: 0, of: 1, doing, elapsed: Duration::ZERO, left: None });
        stack.run(origin, files, bytes, End::Requests(WARM * times * files / CLIENTS as u64))?;
    }
    let letters = |stacks: &[Stack]| -> Result<Vec<(u64, u64)>, BenchError> {
        let of = |stack: &Stack| Ok((stack.statistic("pool_letters")?, stack.statistic("cmd_get")?));
        stacks.iter().map(of).collect()
    };
    let before = letters(stacks)?;
    let rounds = interleave(
        plan.rounds,
        stacks,
        |stack| format!("{under}: {}", stack.scheme),
        |stack| stack.run(origin, files, bytes, End::After(budget.next().max(SHORTEST))),
        plan.progress,
    )?;
    let after = letters(stacks)?;
    let letters = before.iter().zip(&after).map(|(before, after)| {
        let (letters, requests) = (after.0 - before.0, after.1 - before.1);
        letters as f64 / requests.max(1) as f64
    });
    Ok(Cell { proxies, kib, rounds, letters: letters.collect() })
}

/// Of the requests, in hundredths, what the memory that a scheme uses cannot hold; for BCC what its duplicates leave, simulated with exact slots. `None` where
/// that depends on sizes.
fn expected(scheme: &str, proxies: usize, kib: u64) -> Option<f64> {
    let held = |nodes: usize| {
        let files = nodes as f64 * (NODE_BYTES >> 10) as f64 / kib as f64;
        (100.0 * (1.0 - files / FILES as f64)).max(0.0)
    };
    match scheme {
        "ac" => Some(held(1)),
        "ccwr" => Some(held(proxies)),
        "mtacc" => Some(held(proxies + PASSIVE)),
        "bcc" => {
            let by_size: [f64; 4] = match proxies {
                2 => [5.0, 40.0, 66.0, 82.0],
                4 => [0.0, 18.0, 46.0, 68.0],
                8 => [0.0, 4.0, 24.0, 49.0],
                _ => [0.0, 2.0, 17.0, 42.0],
            };
            Some(by_size[kib.ilog2() as usize - 3])
        }
        _ => None,
    }
}

impl Cell {
    fn of(&self, scheme: usize, quantity: fn(&Stretch) -> f64) -> Vec<f64> {
        self.rounds[scheme].iter().map(quantity).collect()
    }

    fn missed(&self, scheme: usize) -> f64 {
        let sum = |of: fn(&Stretch) -> u64| self.rounds[scheme].iter().map(of).sum::<u64>() as f64;
        100.0 * sum(|stretch| stretch.missed) / sum(|stretch| stretch.requests).max(1.0)
    }
}

fn rate(stretch: &Stretch) -> f64 {
    stretch.requests as f64 / stretch.seconds
}

fn misses(stretch: &Stretch) -> f64 {
    100.0 * stretch.missed as f64 / stretch.requests.max(1) as f64
}

fn measurement(cell: &Cell, scheme: usize, quantity: &str, unit: &str, of: fn(&Stretch) -> f64) -> Option<Measurement> {
    let summary = |stretch: &Stretch| RoundSummary::one(of(stretch), stretch.requests);
    let proxies = format!("{} proxies", cell.proxies);
    let labels = [("workload", proxies.as_str()), ("variant", SCHEMES[scheme])];
    Measurement::new(&labels, cell.kib as f64, quantity, unit, cell.rounds[scheme].iter().map(summary).collect())
}

fn findings(cells: &[Cell], scale: u64, files: u64) -> Findings {
    let mut findings = Findings::default();
    for cell in cells {
        for scheme in 0..SCHEMES.len() {
            findings.measurements.extend(measurement(cell, scheme, "throughput", "requests/s", rate));
            findings.measurements.extend(measurement(cell, scheme, "cache misses", "%", misses));
        }
        let rates: Vec<Vec<f64>> = (0..SCHEMES.len()).map(|scheme| cell.of(scheme, rate)).collect();
        let median = |rounds: &[f64]| Spread::of(rounds).map_or(0.0, |spread| spread.median);
        let best = (0..SCHEMES.len()).max_by(|one, other| median(&rates[*one]).total_cmp(&median(&rates[*other])));
        let best = best.unwrap_or(0);
        let under = format!("{} proxies, {} KiB", cell.proxies, cell.kib);
        for (below, claim) in [(0, None), (1, None), (4, Some(HYBRID)), (5, Some(HYBRID))] {
            let (what, spread) = match claim {
                None => {
                    (format!("{} over {}", SCHEMES[best], SCHEMES[below]), Spread::ratio(&rates[best], &rates[below]))
                }
                Some(_) => (
                    format!("{} over the best, {}", SCHEMES[below], SCHEMES[best]),
                    Spread::ratio(&rates[below], &rates[best]),
                ),
            };
            let Some(spread) = spread else { continue };
            let claim = claim.map(|least| {
                let reason = format!("it misses {:.1} of 100, the best {:.1}", cell.missed(below), cell.missed(best));
                Claim::at_least(least, &format!("at least {least} of the best in every cell"), &spread, reason)
            });
            findings.ratios.push(Ratio { what, under: under.clone(), spread, claim });
        }
        let shown: Vec<String> = (0..SCHEMES.len())
            .map(|scheme| {
                let beside = expected(SCHEMES[scheme], cell.proxies, cell.kib);
                let beside = beside.map_or(String::new(), |beside| format!(" ({beside:.0})"));
                format!("{} {:.1}{beside}", SCHEMES[scheme], cell.missed(scheme))
            })
            .collect();
        let letters: Vec<String> =
            SCHEMES.iter().zip(&cell.letters).map(|(scheme, letters)| format!("{scheme} {letters:.2}")).collect();
        findings.notes.push(format!(
            "{under}: misses of 100 requests, and in brackets what the memory of the scheme cannot hold: {}. Messages that proxies sent for each request: {}.",
            shown.join(", "),
            letters.join(", "),
        ));
    }
    let somewhere = |below: usize| {
        let ratio = |cell: &Cell| {
            let best = (0..SCHEMES.len()).filter_map(|scheme| Spread::of(&cell.of(scheme, rate))).map(|s| s.median);
            let below = Spread::of(&cell.of(below, rate)).map_or(f64::INFINITY, |spread| spread.median);
            best.fold(0.0, f64::max) / below
        };
        cells.iter().map(ratio).fold(0.0, f64::max)
    };
    let (over_ac, over_bcc) = (somewhere(0), somewhere(1));
    findings.notes.push(format!(
        "The best scheme has at most {} times the throughput of ac ({OVER_AC} is wanted somewhere) and {} times that of bcc ({OVER_BCC} is wanted somewhere).",
        number(over_ac),
        number(over_bcc)
    ));
    findings.notes.push(format!(
        "Everything is a {scale}th of the chapter's: {files} files and {} MiB a node, as many clients' requests as the cores of this machine make. All processes share these \
         cores, so throughput says what a request costs all of them together, and nodes add no processors. The origin is a process that serves files; one that computes them \
         makes misses dearer.",
        (NODE_BYTES / scale) >> 20
    ));
    findings.notes.push(
        "Under ac each proxy is a pool of one. Each scheme has processes of its own, which sleep while others are measured. Homes have no mirrors. Two passive nodes stand beside the proxies."
            .to_owned(),
    );
    let counts: std::collections::BTreeSet<usize> = cells.iter().map(|cell| cell.proxies).collect();
    for proxies in counts {
        let quantities: [Quantity; 2] = [("requests a second", rate), ("misses of 100", misses)];
        for (label, quantity) in quantities {
            findings.panels.push(panel(cells, proxies, label, quantity));
        }
    }
    findings
}

fn panel(cells: &[Cell], proxies: usize, label: &str, quantity: fn(&Stretch) -> f64) -> Panel {
    let line = |(scheme, name): (usize, &&str)| {
        let points = cells.iter().filter(|cell| cell.proxies == proxies);
        let points = points.filter_map(|cell| {
            let y = Spread::of(&cell.of(scheme, quantity))?;
            Some(crate::report::Point { x: cell.kib as f64, y })
        });
        Line { name: (*name).to_owned(), style: scheme, points: points.collect() }
    };
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    Panel {
        title: format!("{proxies} proxies: {label}"),
        x: axis("file (KiB)", true),
        y: axis(label, false),
        series: SCHEMES.iter().enumerate().map(line).collect(),
    }
}
