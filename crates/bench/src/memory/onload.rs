//! `memory.onload`: what a service that reads the loads of many servers costs a proxy on whose core it is.
//!
//! After Figure 7: a proxy passes requests for a file of 16 KiB on, while its monitor reads the boards of 4 to 32 servers; on the proxy's core, and on the other one.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::{ON_CORE, Target};
use crate::content::{Running, free_addresses};
use crate::cores;
use crate::error::BenchError;
use crate::report::{Axis, Claim, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::web::{self, Found, Order, PROGRAM, Workload, get};

/// Servers that are monitored, as in the paper's figure.
const MONITORED: [usize; 4] = [4, 8, 16, 32];
const SERVERS: usize = MONITORED[MONITORED.len() - 1];
/// Proxies: one that monitors no server, and for each number of servers one with its monitor on its own core, one with
/// it on the other.
const PROXIES: usize = 1 + 2 * MONITORED.len();
/// How often boards are read.
const EVERY: Duration = Duration::from_millis(10);
/// The file of the paper.
const FILE_BYTES: usize = 16 << 10;
const WORKLOAD: Workload = Workload::Single { bytes: FILE_BYTES };
/// The path by which it is asked for.
const PATH: &str = "/16384/0";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// A stretch is at least so long: ten readings.
const SHORTEST: Duration = Duration::from_millis(100);
/// At least this part of the readings that are due in all rounds of a turn must be there, or nothing was measured:
/// where other processes want the same core they are late, and a single stretch of a tenth of a second may see next to
/// none.
const ENOUGH: f64 = 0.1;
/// What the paper found: half as long again on the proxy's core, and nothing on another.
const UNTOUCHED: f64 = 1.1;
/// What a proxy says of the boards that it has read.
const READS: &str = "verbena_monitor_reads_total{found=\"load\"}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    ProxysCore,
    OtherCore,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Nowhere => "no monitor",
            Place::ProxysCore => "monitor on the proxy's core",
            Place::OtherCore => "monitor on the other core",
        }
    }
}

/// A proxy, and what its monitor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    place: Place,
    monitored: usize,
}

impl Turn {
    fn all() -> Vec<Turn> {
        let places = [Place::ProxysCore, Place::OtherCore];
        let each = MONITORED.into_iter().flat_map(|monitored| places.map(|place| Turn { place, monitored }));
        std::iter::once(Turn { place: Place::Nowhere, monitored: 0 }).chain(each).collect()
    }
}

struct Taken {
    found: Found,
    /// Boards that were read meanwhile.
    boards: f64,
    /// The time in which they were.
    seconds: f64,
}

impl Taken {
    /// Boards that were read in a second.
    fn reads(&self) -> f64 {
        self.boards / self.seconds
    }
}

struct Outcome {
    turn: Turn,
    rounds: Vec<Taken>,
}

/// A proxy that is stopped but in its turns, so that only one monitor reads.
struct Proxy {
    running: Running,
    address: SocketAddr,
    api: SocketAddr,
}

struct Cluster {
    client: Target,
    proxies: Vec<Proxy>,
    others: Vec<Running>,
    /// Last: what the processes use is there until they have ended.
    _directory: TempDir,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let cores = cores::two(plan.name, "one for the proxy and one for all else")?;
    let mut turns = Turn::all();
    let mut cluster = Cluster::start(verbena, cores, &turns, plan.seed)?;
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {} servers", turn.place.name(), turn.monitored),
        |turn| cluster.take(*turn, budget.next().max(SHORTEST)),
        plan.progress,
    )?;
    cluster.look()?;
    let outcomes: Vec<Outcome> = turns.into_iter().zip(rounds).map(|(turn, rounds)| Outcome { turn, rounds }).collect();
    cluster.did_monitor(&outcomes)?;
    Ok(Findings {
        measurements: outcomes.iter().flat_map(Outcome::measurements).collect(),
        ratios: ratios(&outcomes),
        panels: [("median", median as Quantile), ("p99", p99)].map(|(name, of)| panel(&outcomes, name, of)).into(),
        notes: notes(&outcomes),
        ..Findings::default()
    })
}

impl Cluster {
    fn start(verbena: &Path, [proxys, other]: [usize; 2], turns: &[Turn], seed: u64) -> Result<Cluster, BenchError> {
        let directory = crate::run::directory()?;
        let place = directory.path();
        let [origin] = free_addresses::<1>()?;
        let servers: Vec<String> = (1..=SERVERS).map(|nth| format!("server-{nth}")).collect();
        let names: Vec<String> = (1..=PROXIES).map(|nth| format!("proxy-{nth}")).collect();
        let addresses = free_addresses::<{ 1 + SERVERS + PROXIES }>()?;
        let all = std::iter::once("home").chain(servers.iter().chain(&names).map(String::as_str));
        let member = |(name, address): (&str, &SocketAddr)| {
            let role = if name == "home" { "home" } else { "reader\", \"updater" };
            format!("{{ name = \"{name}\", address = \"tcp://{address}\", roles = [\"{role}\"] }},\n")
        };
        let members: String = all.zip(&addresses).map(member).collect();
        // Proxies are stopped for most of the time, and stay members.
        let content = format!(
            "[cluster]\nlease = \"10m\"\nmembers = [\n{members}]\n[node]\nruntime = \"{}\"\n[monitor]\nevery = \"1s\"\n",
            place.join("run").display(),
        );
        let config = place.join("verbena.toml");
        std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;
        let start = |command: &str, name: &str, core: usize, more: &[String]| {
            let text = |path: &Path| path.display().to_string();
            let (verbena, config, state) = (text(verbena), text(&config), text(&place.join(name)));
            let words =
                [PROGRAM, &verbena, command, "--config", &config, "--cluster-name", name, "--node-state", &state];
            let words: Vec<&str> = words.into_iter().chain(more.iter().map(String::as_str)).collect();
            Running::start(name, &core.to_string(), &words, place)
        };
        let mut others = vec![Running::start(
            "application",
            &other.to_string(),
            &[web::PAGES, "--listen", &origin.to_string()],
            place,
        )?];
        others.push(start("node", "home", other, &[])?);
        for server in &servers {
            others.push(start("node", server, other, &[])?);
        }
        let (listens, apis) = (free_addresses::<PROXIES>()?, free_addresses::<PROXIES>()?);
        let mut proxies = vec![];
        for (((turn, name), address), api) in turns.iter().zip(&names).zip(listens).zip(apis) {
            let mut more = words(["--listen", &address.to_string(), "--node-api", &api.to_string()]);
            more.extend(words(["--proxy-threads", "1", "--monitor-every", &format!("{}ms", EVERY.as_millis())]));
            for _ in 0..turn.monitored.max(1) {
                more.extend(words(["--origin", &format!("http://{origin}")]));
            }
            if turn.place != Place::Nowhere {
                let nodes = format!("{:?}", &servers[..turn.monitored]);
                let core = if turn.place == Place::ProxysCore { proxys } else { other };
                more.extend(words(["--proxy-origin-nodes", &nodes, "--monitor-core", &core.to_string()]));
            }
            proxies.push(Proxy { running: start("proxy", name, proxys, &more)?, address, api });
        }
        let client = Target::start(&[ON_CORE, &other.to_string(), web::CLOSED, "--seed", &seed.to_string()])?;
        let mut cluster = Cluster { client, proxies, others, _directory: directory };
        cluster.is_ready(turns)?;
        Ok(cluster)
    }

    /// Waits until every proxy answers and knows all that it monitors, and stops them.
    fn is_ready(&mut self, turns: &[Turn]) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        for (proxy, turn) in self.proxies.iter_mut().zip(turns) {
            // All that it monitors, some times over.
            let enough = 10 * turn.monitored as u64;
            while !get(proxy.address, PATH, PATIENCE).is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
                || proxy.reads().is_none_or(|reads| reads < enough)
            {
                proxy.running.look()?;
                if Instant::now() > until {
                    return Err(proxy.running.failed(&format!("did not read {} boards in time", turn.monitored)));
                }
                std::thread::sleep(LOOK);
            }
        }
        // Not before: a stopped proxy acknowledges no view.
        self.proxies.iter().try_for_each(|proxy| proxy.running.signal(Signal::STOP))
    }

    fn take(&mut self, turn: Turn, length: Duration) -> Result<Taken, BenchError> {
        let at = Turn::all().iter().position(|one| *one == turn).expect("invariant: each turn has a proxy");
        self.proxies[at].running.signal(Signal::CONT)?;
        let taken = self.ask(at, turn, length);
        self.proxies[at].running.signal(Signal::STOP)?;
        taken
    }

    fn ask(&mut self, at: usize, turn: Turn, length: Duration) -> Result<Taken, BenchError> {
        let proxy = &mut self.proxies[at];
        let failed = |proxy: &Proxy, what: &str| proxy.running.failed(what);
        let count = |proxy: &Proxy| proxy.reads().ok_or_else(|| failed(proxy, "did not say what it has read"));
        // It goes on where it was stopped.
        let (first, until) = (count(proxy)?, Instant::now() + PATIENCE);
        while turn.monitored > 0 && count(proxy)? < first + turn.monitored as u64 {
            if Instant::now() > until {
                return Err(failed(proxy, "did not go on reading boards"));
            }
            std::thread::sleep(LOOK);
        }
        let order = Order {
            address: proxy.address,
            workload: WORKLOAD,
            cached: false,
            connections: 1,
            sweep: Duration::ZERO,
            updates: None,
            length,
        };
        let (before, began) = (count(proxy)?, Instant::now());
        let found: Found = self.client.ask(&order, "ask for the file")?;
        let boards = (count(proxy)? - before) as f64;
        Ok(Taken { found, boards, seconds: began.elapsed().as_secs_f64() })
    }

    /// Whether every monitor has read what it is measured by.
    fn did_monitor(&mut self, outcomes: &[Outcome]) -> Result<(), BenchError> {
        for (proxy, outcome) in self.proxies.iter_mut().zip(outcomes) {
            let (reads, due) = (outcome.reads(), outcome.turn.monitored as f64 / EVERY.as_secs_f64());
            if reads < ENOUGH * due {
                let what = format!("read {reads:.0} boards a second where {due:.0} were due");
                return Err(proxy.running.failed(&what));
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), BenchError> {
        let proxies = self.proxies.iter_mut().map(|proxy| &mut proxy.running);
        proxies.chain(&mut self.others).try_for_each(Running::look)
    }
}

impl Proxy {
    /// Boards that it has read, if it says so.
    fn reads(&self) -> Option<u64> {
        let metrics = get(self.api, "/metrics", PATIENCE).ok()?;
        let metrics = String::from_utf8_lossy(&metrics).into_owned();
        metrics.lines().find_map(|line| line.strip_prefix(READS)?.trim().parse().ok())
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

type Quantile = fn(&RoundSummary) -> f64;

fn median(round: &RoundSummary) -> f64 {
    round.median
}

fn p99(round: &RoundSummary) -> f64 {
    round.p99
}

impl Outcome {
    fn measurements(&self) -> Vec<Measurement> {
        let labels = [("monitor", self.turn.place.name())];
        let servers = self.turn.monitored as f64;
        let times = self.rounds.iter().map(|round| round.found.latency_us).collect();
        let reads = self.rounds.iter().map(|round| RoundSummary::one(round.reads(), 1)).collect();
        let response = Measurement::new(&labels, servers, "response time", "us", times);
        response.into_iter().chain(Measurement::new(&labels, servers, "boards read", "1/s", reads)).collect()
    }

    /// Boards that were read in a second, in all rounds together.
    fn reads(&self) -> f64 {
        let (boards, seconds) =
            self.rounds.iter().fold((0.0, 0.0), |sum, round| (sum.0 + round.boards, sum.1 + round.seconds));
        boards / seconds
    }

    fn each(&self, of: Quantile) -> Vec<f64> {
        self.rounds.iter().map(|round| of(&round.found.latency_us)).collect()
    }

    fn typical(&self, of: Quantile) -> f64 {
        Spread::of(&self.each(of)).map_or(0.0, |spread| spread.median)
    }
}

fn find(outcomes: &[Outcome], place: Place, monitored: usize) -> &Outcome {
    let found = outcomes.iter().find(|one| one.turn == Turn { place, monitored });
    found.expect("invariant: each of these has a turn")
}

fn ratios(outcomes: &[Outcome]) -> Vec<Ratio> {
    let none = find(outcomes, Place::Nowhere, 0);
    let mut ratios = vec![];
    for place in [Place::ProxysCore, Place::OtherCore] {
        for (name, of) in [("median", median as Quantile), ("p99", p99)] {
            for monitored in MONITORED {
                let some = find(outcomes, place, monitored);
                let Some(spread) = Spread::ratio(&some.each(of), &none.each(of)) else { continue };
                let reason = || format!("{} us against {}", number(some.typical(of)), number(none.typical(of)));
                let is_claimed = place == Place::OtherCore && monitored == SERVERS && name == "median";
                let text = "at most 1.1: on a core of its own the service does not touch the proxy";
                let claim = is_claimed.then(|| Claim::at_most(UNTOUCHED, text, &spread, reason()));
                ratios.push(Ratio {
                    what: format!("response time, {name}, {} over no monitor", place.name()),
                    under: format!("{monitored} servers"),
                    claim,
                    spread,
                });
            }
        }
    }
    ratios
}

fn panel(outcomes: &[Outcome], name: &str, of: Quantile) -> Panel {
    let axis = |label: String| Axis { label, logarithmic: false, bytes: false };
    let none = find(outcomes, Place::Nowhere, 0);
    let line = |(style, place): (usize, Place)| {
        let some = MONITORED.into_iter().map(|monitored| (monitored, find(outcomes, place, monitored)));
        let points = std::iter::once((0, none)).chain(some).filter_map(|(monitored, one)| {
            let spread = Spread::of(&one.each(of))?;
            Some(Point { x: monitored as f64, y: spread })
        });
        Line { name: place.name().to_owned(), style, points: points.collect() }
    };
    Panel {
        title: format!("A file of 16 KiB through a proxy that monitors servers, {name}"),
        x: axis("servers that are monitored".to_owned()),
        y: axis(format!("response time, {name} (us)")),
        series: [Place::ProxysCore, Place::OtherCore].into_iter().enumerate().map(line).collect(),
    }
}

fn notes(outcomes: &[Outcome]) -> Vec<String> {
    let reads = find(outcomes, Place::ProxysCore, SERVERS).rounds.iter().map(Taken::reads).collect::<Vec<_>>();
    let reads = Spread::of(&reads).map_or(0.0, |spread| spread.median);
    vec![
        format!(
            "The proxy has one thread and a core; client, application and all servers share the other one, and so does the monitor where it is not on the proxy's. Boards are read \
             every {} ms over tcp: {} of {SERVERS} servers' a second.",
            EVERY.as_millis(),
            number(reads)
        ),
        "Proxies with other settings are stopped meanwhile.".to_owned(),
    ]
}
