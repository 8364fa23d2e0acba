//! `coop.memcached`: a pool beside memcached, on the same machine, in the same run.
//!
//! No figure of the papers. Both are asked by the same clients, threads of this process: a get, sixteen gets at once, a set. A pool of four processes is
//! asked at all of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand_core::Rng;
use rand_pcg::Pcg64;
use tempfile::TempDir;

use super::client::Client;
use super::pools::{Pools, failed};
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::traces::generator;
use crate::web::PROGRAM;

const MEMORY: u64 = 64 << 20;
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
const TOGETHER: usize = 16;
const CLIENTS: [usize; 4] = [1, 4, 16, 64];
const QUICK_CLIENTS: [usize; 2] = [1, 16];
const SHORT: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_millis(40);

const POOL: &str = "one pool";
const FOUR: &str = "a pool of four";
const MEMCACHED: &str = "memcached";
const NAMES: [&str; 3] = [POOL, FOUR, MEMCACHED];

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Get,
    GetTogether,
    Set,
}

impl Work {
    const ALL: [Work; 3] = [Work::Get, Work::GetTogether, Work::Set];

    fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::GetTogether => "get, 16 at once",
            Work::Set => "set",
        }
    }

    /// What was expected of a pool beside memcached.
    fn least(self) -> f64 {
        match self {
            Work::Get => 1.0,
            Work::GetTogether => 0.9,
            Work::Set => 0.8,
        }
    }
}

/// A server, or several that are one cache.
struct Server {
    name: &'static str,
    addresses: Vec<SocketAddr>,
}

/// A server under one kind of work.
struct Variant<'a> {
    server: &'a Server,
    work: Work,
    clients: Vec<(Pcg64, Client)>,
}

#[derive(Clone, Debug)]
struct Stretch {
    per_s: f64,
    latency: RoundSummary,
}

fn key(random: &mut Pcg64) -> String {
    format!("key-{:026}", random.next_u64() % KEYS)
}

fn begin(server: &Server, work: Work, clients: usize, seed: u64) -> std::io::Result<Vec<(Pcg64, Client)>> {
    let one = |nth: usize| {
        let address = server.addresses[nth % server.addresses.len()];
        Ok((generator(seed, 7_700 + nth as u128 + 1_000 * work as u128), Client::connect(address)?))
    };
    (0..clients).map(one).collect()
}

impl Variant<'_> {
    fn run(&mut self, length: Duration) -> Result<Stretch, BenchError> {
        let (work, began) = (self.work, Instant::now());
        let all: Vec<std::io::Result<Vec<f64>>> = std::thread::scope(|scope| {
            let ask = |(random, client): &mut (Pcg64, Client)| -> std::io::Result<Vec<f64>> {
                let (value, mut samples) = ([b'v'; VALUE_BYTES], vec![]);
                while samples.is_empty() || began.elapsed() < length {
                    let keys: Vec<String> = (0..TOGETHER).map(|_| key(random)).collect();
                    let asked = Instant::now();
                    match work {
                        Work::Get => drop(client.get(&keys[0])?),
                        Work::GetTogether => drop(client.get_together(&keys)?),
                        Work::Set => client.set(&keys[0], &value)?,
                    }
                    samples.push(asked.elapsed().as_secs_f64() * 1e6);
                }
                Ok(samples)
            };
            let asking: Vec<_> = self.clients.iter_mut().map(|client| scope.spawn(move || ask(client))).collect();
            asking.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))).collect()
        });
        let seconds = began.elapsed().as_secs_f64();
        let mut samples = vec![];
        for one in all {
            samples.extend(one.map_err(|error| failed(&format!("ask {}", self.server.name), error))?);
        }
        let each = if work == Work::GetTogether { TOGETHER } else { 1 };
        let per_s = (samples.len() * each) as f64 / seconds;
        let latency = RoundSummary::of(&mut samples).ok_or_else(|| failed("ask a server", "no sample"))?;
        Ok(Stretch { per_s, latency })
    }
}

/// memcached with as many threads as there are cores; `None` where it is not installed.
fn memcached(directory: &TempDir) -> Result<Option<(Running, SocketAddr)>, BenchError> {
    let Some(program) = in_path("memcached") else { return Ok(None) };
    let [address] = free_addresses()?;
    let (program, port) = (program.display().to_string(), address.port().to_string());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let memory = (MEMORY >> 20).to_string();
    let words =
        [PROGRAM, &program, "-u", "nobody", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", &threads, "-m", &memory];
    let mut running = Running::begin(MEMCACHED, &words, directory.path())?;
    running.listens(address)?;
    Ok(Some((running, address)))
}

pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let directory = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
    let mut one = Pools::start(verbena, 1, 0, MEMORY, &[])?;
    let mut four = Pools::start(verbena, 4, 0, MEMORY / 4, &[])?;
    let beside = memcached(&directory)?;
    one.ready()?;
    four.ready()?;
    let mut servers = vec![
        Server { name: POOL, addresses: one.addresses.clone() },
        Server { name: FOUR, addresses: four.addresses.clone() },
    ];
    servers.extend(beside.as_ref().map(|(_, address)| Server { name: MEMCACHED, addresses: vec![*address] }));
    for server in &servers {
        let fill = || -> std::io::Result<()> {
            let mut client = Client::connect(server.addresses[0])?;
            (0..KEYS).try_for_each(|nth| client.set(&format!("key-{nth:026}"), &[b'v'; VALUE_BYTES]))
        };
        fill().map_err(|error| failed(&format!("fill {}", server.name), error))?;
    }
    let counts: &[usize] = if plan.measuring < SHORT { &QUICK_CLIENTS } else { &CLIENTS };
    let steps = (plan.rounds + 1) * (counts.len() * Work::ALL.len() * servers.len()) as u32;
    let mut budget = Budget::new(plan.measuring, steps);
    let mut cells = vec![];
    for &clients in counts {
        for work in Work::ALL {
            let variant = |server| {
                let begun = begin(server, work, clients, plan.seed);
                let clients = begun.map_err(|error| failed(&format!("connect to {}", server.name), error))?;
                Ok(Variant { server, work, clients })
            };
            let mut variants: Vec<Variant> = servers.iter().map(variant).collect::<Result<_, BenchError>>()?;
            let name = |variant: &Variant| format!("{clients} clients, {}: {}", work.name(), variant.server.name);
            let run = |variant: &mut Variant| variant.run(budget.next().max(SHORTEST));
            cells.push((clients, work, interleave(plan.rounds, &mut variants, name, run, plan.progress)?));
        }
    }
    Ok(findings(&cells, beside.is_some()))
}

type Cell = (usize, Work, Vec<Vec<Stretch>>);

fn findings(cells: &[Cell], has_memcached: bool) -> Findings {
    let mut findings = Findings::default();
    let rates = |rounds: &[Stretch]| -> Vec<f64> { rounds.iter().map(|stretch| stretch.per_s).collect() };
    let p99 = |rounds: &[Stretch]| -> Vec<f64> { rounds.iter().map(|stretch| stretch.latency.p99).collect() };
    for (clients, work, of) in cells {
        for (name, rounds) in NAMES.iter().zip(of) {
            let labels = [("workload", work.name()), ("variant", name)];
            let per_s = rounds.iter().map(|stretch| RoundSummary::one(stretch.per_s, stretch.latency.count)).collect();
            let latency = rounds.iter().map(|stretch| stretch.latency).collect();
            let x = *clients as f64;
            findings.measurements.extend(Measurement::new(&labels, x, "throughput", "requests/s", per_s));
            findings.measurements.extend(Measurement::new(&labels, x, "response time", "us", latency));
        }
        let under = format!("{clients} clients, {}", work.name());
        if let [pool, four, rest @ ..] = &of[..] {
            if let Some(memcached) = rest.first() {
                let reason =
                    "each command of a pool is decided by one thread, which looks at lease and view".to_owned();
                if let Some(spread) = Spread::ratio(&rates(pool), &rates(memcached)) {
                    let (least, text) = (work.least(), format!("at least {}", work.least()));
                    let claim = Some(Claim::at_least(least, &text, &spread, reason.clone()));
                    let what = "requests a second of one pool over memcached".to_owned();
                    findings.ratios.push(Ratio { what, under: under.clone(), spread, claim });
                }
                if let Some(spread) = Spread::ratio(&p99(pool), &p99(memcached)) {
                    let claim = Some(Claim::at_most(1.2, "at most 1.2", &spread, reason));
                    let what = "99th percentile of one pool over memcached".to_owned();
                    findings.ratios.push(Ratio { what, under: under.clone(), spread, claim });
                }
            }
            if *work == Work::Get
                && let Some(spread) = Spread::ratio(&rates(four), &rates(pool))
            {
                let reason = "four processes share the cores that one has alone".to_owned();
                let claim = Some(Claim::at_least(0.85, "at least 0.85", &spread, reason));
                let what = "requests a second of a pool of four over one pool".to_owned();
                findings.ratios.push(Ratio { what, under, spread, claim });
            }
        }
    }
    for work in Work::ALL {
        let line = |(style, name): (usize, &&str)| {
            let points = cells.iter().filter(|(_, of, _)| *of == work).filter_map(|(clients, _, of)| {
                Some(Point { x: *clients as f64, y: Spread::of(&rates(of.get(style)?))? })
            });
            let points: Vec<Point> = points.collect();
            (!points.is_empty()).then(|| Line { name: (*name).to_owned(), style, points })
        };
        let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
        findings.panels.push(Panel {
            title: work.name().to_owned(),
            x: axis("clients", true),
            y: axis("requests a second", false),
            series: NAMES.iter().enumerate().filter_map(line).collect(),
        });
    }
    findings.notes.push(format!(
        "{KEYS} keys of 30 bytes with values of {VALUE_BYTES}, all of which fit. Clients are threads of one process, on the cores of the servers. All servers run at once; those that are \
         not asked sleep."
    ));
    if !has_memcached {
        findings.notes.push("memcached is not installed here: nothing stands beside the pools.".to_owned());
    }
    findings
}
