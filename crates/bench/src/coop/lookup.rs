//! `coop.lookup`: what finding a file and keeping the books costs, by scheme and number of proxies.
//!
//! Figure 7.6 has the worst lookup of a request. Here one client asks one proxy, one request after the other: for nothing (`mn`: what the connection takes),
//! for a key that has no value (both buckets are read at its home: the lookup), and for files of 8 KiB that other nodes hold, each once, so that the
//! scheme keeps, moves or swaps each of them. All memory is full.

use std::time::{Duration, Instant};

use super::client::Client;
use super::pools::{Origin, Pools, failed};
use super::schemes::{PASSIVE, SCHEMES};
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// Without cooperation nothing is looked up elsewhere.
const FIRST: usize = 1;
const FILE_BYTES: usize = 8 << 10;
const MEMORY: u64 = 4 << 20;
/// A little more than two proxies and two passive nodes hold.
const FILES: u64 = 2_048;
const PROXIES: [usize; 4] = [2, 4, 8, 10];
const QUICK_PROXIES: [usize; 2] = [2, 10];
const SHORT: Duration = Duration::from_secs(60);
/// Requests of each kind in a stretch, at least.
const LEAST: usize = 32;
/// What was expected of CCWR: of a request of 8 KiB, and of ten proxies beside two.
const PART: f64 = 0.1;
const GROWTH: f64 = 1.2;

struct Stack {
    scheme: &'static str,
    pools: Pools,
    client: Option<Client>,
    next: u64,
}

/// Microseconds of one stretch, one after the other.
#[derive(Clone, Debug)]
struct Stretch {
    nothing: RoundSummary,
    lookup: RoundSummary,
    request: RoundSummary,
}

/// What is counted, and how it comes of a stretch.
type Quantity<T> = (&'static str, fn(&Stretch) -> T);

struct Cell {
    proxies: usize,
    rounds: Vec<Vec<Stretch>>,
}

impl Stretch {
    /// What is looked up takes that much longer than nothing.
    fn lookup_us(&self) -> f64 {
        // The clock of a busy machine may say that it took no time.
        (self.lookup.median - self.nothing.median).max(0.01)
    }

    fn request_us(&self) -> f64 {
        self.request.median
    }

    fn part(&self) -> f64 {
        self.lookup_us() / self.request_us()
    }
}

fn timed(samples: &mut Vec<f64>, ask: impl FnOnce() -> std::io::Result<bool>) -> std::io::Result<bool> {
    let began = Instant::now();
    let found = ask()?;
    samples.push(began.elapsed().as_secs_f64() * 1e6);
    Ok(found)
}

impl Stack {
    fn fill(&mut self) -> Result<(), BenchError> {
        let fill = |stack: &mut Stack| -> std::io::Result<()> {
            let value = vec![7; FILE_BYTES];
            let mut clients: Vec<Client> =
                stack.pools.addresses.iter().map(|address| Client::connect(*address)).collect::<Result<_, _>>()?;
            let proxies = clients.len() as u64;
            // As many for each proxy, so that all memory is full.
            for file in 0..FILES * (proxies + PASSIVE as u64) / 4 {
                clients[(file % proxies) as usize].set(&Origin::path(FILE_BYTES, file), &value)?;
            }
            stack.client = clients.into_iter().next();
            Ok(())
        };
        fill(self).map_err(|error| failed("fill pools", error))
    }

    fn run(&mut self, length: Duration) -> Result<Stretch, BenchError> {
        let measure = |stack: &mut Stack| -> std::io::Result<Stretch> {
            let files = FILES * (stack.pools.addresses.len() as u64 + PASSIVE as u64) / 4;
            let client = stack.client.as_mut().ok_or(std::io::ErrorKind::NotConnected)?;
            let (mut nothing, mut lookup, mut request) = (vec![], vec![], vec![]);
            let began = Instant::now();
            while request.len() < LEAST || began.elapsed() < length {
                stack.next += 1;
                timed(&mut nothing, || client.order("mn", b"MN").map(|()| true))?;
                timed(&mut lookup, || client.get(&format!("/none/{}", stack.next)))?;
                // Far apart: so that a file is not at this proxy because it was asked for a moment ago.
                let file = stack.next.wrapping_mul(0x9E37_79B9_7F4A_7C15) % files;
                let mut samples = vec![];
                if timed(&mut samples, || client.get(&Origin::path(FILE_BYTES, file)))? {
                    request.append(&mut samples);
                } else {
                    client.set(&Origin::path(FILE_BYTES, file), &vec![7; FILE_BYTES])?;
                }
            }
            let of =
                |samples: &mut Vec<f64>| RoundSummary::of(samples).ok_or_else(|| std::io::Error::other("no sample"));
            Ok(Stretch { nothing: of(&mut nothing)?, lookup: of(&mut lookup)?, request: of(&mut request)? })
        };
        measure(self).map_err(|error| failed("ask a pool", error))
    }
}

pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let all: &[usize] = if plan.measuring < SHORT { &QUICK_PROXIES } else { &PROXIES };
    let schemes = &SCHEMES[FIRST..];
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * (all.len() * schemes.len()) as u32);
    let mut cells = vec![];
    for &proxies in all {
        let start = |scheme: &&'static str| {
            let more = ["--scheme", scheme, "--pool-mirror", "false"];
            let pools = Pools::start(verbena, proxies, PASSIVE, MEMORY, &more)?;
            Ok(Stack { scheme, pools, client: None, next: 0 })
        };
        let mut stacks: Vec<Stack> = schemes.iter().map(start).collect::<Result<_, BenchError>>()?;
        for stack in &mut stacks {
            stack.pools.ready()?;
            stack.fill()?;
        }
        let name = |stack: &Stack| format!("{proxies} proxies: {}", stack.scheme);
        let rounds = interleave(plan.rounds, &mut stacks, name, |stack| stack.run(budget.next()), plan.progress)?;
        cells.push(Cell { proxies, rounds });
    }
    Ok(findings(&cells, schemes))
}

fn findings(cells: &[Cell], schemes: &[&str]) -> Findings {
    let mut findings = Findings::default();
    for cell in cells {
        for (rounds, scheme) in cell.rounds.iter().zip(schemes) {
            let labels = [("variant", *scheme)];
            let quantities: [Quantity<RoundSummary>; 3] = [
                ("a request for nothing", |stretch| stretch.nothing),
                ("a request for a key without a value", |stretch| stretch.lookup),
                ("a request for 8 KiB", |stretch| stretch.request),
            ];
            for (quantity, of) in quantities {
                let rounds = rounds.iter().map(of).collect();
                findings.measurements.extend(Measurement::new(&labels, cell.proxies as f64, quantity, "us", rounds));
            }
        }
    }
    let of = |cell: &Cell, scheme: &str, quantity: fn(&Stretch) -> f64| -> Vec<f64> {
        let nth = schemes.iter().position(|name| *name == scheme).unwrap_or(0);
        cell.rounds[nth].iter().map(quantity).collect()
    };
    for cell in cells {
        let Some(spread) = Spread::of(&of(cell, "ccwr", Stretch::part)) else { continue };
        let reason = "a request of 8 KiB is a read of memory here, as the lookup is".to_owned();
        let claim = Claim::at_most(PART, "at most a tenth of a request of 8 KiB", &spread, reason);
        findings.ratios.push(Ratio {
            what: "lookup of ccwr over a request of 8 KiB".to_owned(),
            under: format!("{} proxies", cell.proxies),
            spread,
            claim: Some(claim),
        });
    }
    if let [least, .., most] = cells
        && let Some(spread) =
            Spread::ratio(&of(most, "ccwr", Stretch::lookup_us), &of(least, "ccwr", Stretch::lookup_us))
    {
        let reason = "more processes share the cores".to_owned();
        findings.ratios.push(Ratio {
            what: "lookup of ccwr at ten proxies over that at two".to_owned(),
            under: "one client".to_owned(),
            claim: Some(Claim::at_most(GROWTH, "at most 1.2 times", &spread, reason)),
            spread,
        });
    }
    let quantities: [Quantity<f64>; 2] =
        [("lookup (us)", Stretch::lookup_us), ("request of 8 KiB (us)", Stretch::request_us)];
    for (label, quantity) in quantities {
        let line = |(style, scheme): (usize, &&str)| {
            let point =
                |cell: &Cell| Some(Point { x: cell.proxies as f64, y: Spread::of(&of(cell, scheme, quantity))? });
            Line { name: (*scheme).to_owned(), style: style + FIRST, points: cells.iter().filter_map(point).collect() }
        };
        let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
        findings.panels.push(Panel {
            title: label.to_owned(),
            x: axis("proxies"),
            y: axis(label),
            series: schemes.iter().enumerate().map(line).collect(),
        });
    }
    findings.notes.push(
        "One client at one proxy. The lookup is a request for a key without a value, less one for nothing. Ratios across numbers of proxies are of rounds that were not \
         interleaved with each other. Under bcc a copy of what was asked for is kept; under ccwr and mtacc it changes places with another file. \
         Of what is asked for, a part is at this proxy already."
            .to_owned(),
    );
    findings
}
