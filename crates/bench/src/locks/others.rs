//! `locks.others`: what people use for locks beside this one, on the same machine, in the same run.
//!
//! No figure of the papers. Clients are processes. Ours ask the helper of a node, whose locks are at another node; those of etcd and Redis ask a server, by TCP on
//! loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use verbena_fabric::Provider;
use verbena_terms::{BootClock, Clock};

use super::client::{self, Order, ROLE};
use super::node::{Timed, Worked};
use super::panel;
use super::work::Together;
use crate::child::Target;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::helpers::Helpers;
use crate::programs::in_path;
use crate::report::{Claim, FabricFound, Findings, Line, Measurement, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::web::PROGRAM;

/// Those who want one lock.
const CONTENDERS: usize = 4;
/// All begin at the same moment: when each has got its order.
const TELLING: Duration = Duration::from_millis(5);
/// A stretch is at least so long.
const SHORTEST: Duration = Duration::from_millis(20);
/// What was expected: of etcd, and of Redis.
const OVER_ETCD: f64 = 200.0;
const OVER_REDIS: f64 = 3.0;

/// The lock services that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Clients at nodes of their own, over a fabric.
    Verbena(Provider),
    /// All clients at one node.
    OneNode(Provider),
    Etcd,
    EtcdWithoutSync,
    Redis,
    RedisAtOnce,
}

impl System {
    const ALL: [System; 7] = [
        System::Verbena(Provider::Shm),
        System::Verbena(Provider::Tcp),
        System::OneNode(Provider::Tcp),
        System::Etcd,
        System::EtcdWithoutSync,
        System::Redis,
        System::RedisAtOnce,
    ];

    fn name(self) -> &'static str {
        match self {
            System::Verbena(Provider::Shm) => "Verbena, shm",
            System::Verbena(_) => "Verbena, tcp",
            System::OneNode(_) => "Verbena, tcp, one node",
            System::Etcd => "etcd",
            System::EtcdWithoutSync => "etcd without fsync",
            System::Redis => "Redis",
            System::RedisAtOnce => "Redis without pauses",
        }
    }

    fn is(self) -> &'static str {
        match self {
            System::Verbena(_) => "each client at the helper of a node of its own, the home of the lock another node",
            System::OneNode(_) => "all clients at the helper of one node, the home of the lock another",
            System::Etcd => "one member; its own lock service, by gRPC, under a lease",
            System::EtcdWithoutSync => {
                "the same with --unsafe-no-fsync, which loses what was promised when the machine does"
            }
            System::Redis => {
                "SET key token NX PX, and a script that deletes the key if the token is one's own; who finds it taken waits up to 2 ms, by chance"
            }
            System::RedisAtOnce => "the same, and who finds it taken tries again at once",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// One client, with pauses.
    Alone,
    /// `clients` clients, each of which holds it for `hold`.
    Work { clients: usize, hold: Duration },
}

const WHAT: [What; 4] = [
    What::Alone,
    What::Work { clients: 1, hold: Duration::ZERO },
    What::Work { clients: CONTENDERS, hold: Duration::ZERO },
    What::Work { clients: CONTENDERS, hold: Duration::from_millis(1) },
];

impl What {
    fn name(self) -> String {
        match self {
            What::Alone => "one client, with pauses".to_owned(),
            What::Work { clients: 1, .. } => "one client".to_owned(),
            What::Work { clients, hold } => format!("{clients} clients, held for {} ms", hold.as_millis()),
        }
    }

    fn clients(self) -> usize {
        match self {
            What::Alone => 1,
            What::Work { clients, .. } => clients,
        }
    }
}

enum Taken {
    Alone(Timed),
    Work(Together),
}

/// A system that is there.
struct Present {
    system: System,
    clients: Vec<Target>,
    /// It ends with these.
    _servers: Servers,
}

enum Servers {
    Ours { _helpers: Helpers },
    Theirs { _server: Running, _directory: TempDir },
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let mut findings = Findings::default();
    let mut running: Vec<Present> = Vec::new();
    for system in System::ALL {
        let (name, is) = (system.name().to_owned(), system.is().to_owned());
        let (measured, because) = match start(system, verbena)? {
            Ok(one) => {
                running.push(one);
                (true, is)
            }
            Err(why) => (false, why),
        };
        findings.fabrics.push(FabricFound { name, measured, because, capabilities: None });
    }

    let mut turns: Vec<(usize, What)> =
        WHAT.into_iter().flat_map(|what| (0..running.len()).map(move |at| (at, what))).collect();
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let names: Vec<&str> = running.iter().map(|one| one.system.name()).collect();
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |(at, what)| format!("{}, {}", names[*at], what.name()),
        |(at, what)| take(&mut running[*at].clients, *what, budget.next().max(SHORTEST)),
        plan.progress,
    )?;
    let systems: Vec<System> = running.iter().map(|one| one.system).collect();
    summarise(&systems, &turns, &rounds, &mut findings);
    findings.notes = notes();
    Ok(findings)
}

/// Why not, where the program is not there.
fn start(system: System, verbena: &Path) -> Result<Result<Present, String>, BenchError> {
    let ours = |provider, nodes| -> Result<(Vec<Target>, Servers), BenchError> {
        let mut helpers = Helpers::start(verbena, provider, 1, nodes, None)?;
        let at = |client: usize| client % nodes + 1;
        let clients = (0..CONTENDERS).map(|client| client::at(&mut helpers, at(client))).collect::<Result<_, _>>()?;
        Ok((clients, Servers::Ours { _helpers: helpers }))
    };
    let (clients, servers) = match system {
        System::Verbena(provider) => ours(provider, CONTENDERS)?,
        System::OneNode(provider) => ours(provider, 1)?,
        System::Etcd | System::EtcdWithoutSync if cfg!(not(feature = "etcd")) => {
            return Ok(Err("this build speaks with no etcd (feature `etcd`)".to_owned()));
        }
        System::Etcd | System::EtcdWithoutSync => match in_path("etcd") {
            Some(program) => theirs("etcd", |address, place| etcd(&program, system, address, place))?,
            None => return Ok(Err("there is no etcd (Debian: etcd-server)".to_owned())),
        },
        System::Redis | System::RedisAtOnce => match in_path("redis-server") {
            Some(program) => {
                let kind = if system == System::Redis { "redis" } else { "redis-at-once" };
                theirs(kind, |[address, _], place| redis(&program, address, place))?
            }
            None => return Ok(Err("there is no redis-server (Debian: redis-server)".to_owned())),
        },
    };
    Ok(Ok(Present { system, clients, _servers: servers }))
}

fn theirs(
    kind: &str,
    words: impl FnOnce([SocketAddr; 2], &str) -> Vec<String>,
) -> Result<(Vec<Target>, Servers), BenchError> {
    let directory = crate::run::directory()?;
    let addresses = free_addresses::<2>()?;
    let words = words(addresses, &directory.path().display().to_string());
    let words: Vec<&str> = [PROGRAM].into_iter().chain(words.iter().map(String::as_str)).collect();
    let server = Running::begin(kind, &words, directory.path())?;
    let client = |_| {
        let mut client = Target::start(&[ROLE, kind, &addresses[0].to_string()])?;
        let () = client.answer("connect to a server")?;
        Ok(client)
    };
    let clients: Result<Vec<Target>, BenchError> = (0..CONTENDERS).map(client).collect();
    let clients = clients.map_err(|error| server.failed(&format!("was of no use: {error}")))?;
    Ok((clients, Servers::Theirs { _server: server, _directory: directory }))
}

fn etcd(program: &Path, system: System, [client, peer]: [SocketAddr; 2], place: &str) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    let options = [
        ("data-dir", format!("{place}/data")),
        ("listen-client-urls", format!("http://{client}")),
        ("advertise-client-urls", format!("http://{client}")),
        ("listen-peer-urls", format!("http://{peer}")),
        ("initial-advertise-peer-urls", format!("http://{peer}")),
        ("initial-cluster", format!("default=http://{peer}")),
    ];
    for (option, value) in options {
        words.extend([format!("--{option}"), value]);
    }
    if system == System::EtcdWithoutSync {
        words.push("--unsafe-no-fsync".to_owned());
    }
    words
}

/// As it comes, but that it writes nothing to the disc.
fn redis(program: &Path, address: SocketAddr, place: &str) -> Vec<String> {
    let words = [&program.display().to_string(), "--bind", "127.0.0.1", "--port", &address.port().to_string()];
    words.into_iter().chain(["--dir", place, "--save", ""]).map(str::to_owned).collect()
}

fn take(clients: &mut [Target], what: What, length: Duration) -> Result<Taken, BenchError> {
    const DOING: &str = "take locks";
    match what {
        What::Alone => Ok(Taken::Alone(clients[0].ask(&Order::Alone { length }, DOING)?)),
        What::Work { clients: count, hold } => {
            let start = BootClock.now() + TELLING;
            let clients = &mut clients[..count];
            clients.iter_mut().try_for_each(|client| client.tell(&Order::Work { hold, start, length }, DOING))?;
            let worked = clients.iter_mut().map(|client| client.answer(DOING));
            let clients: Vec<Worked> = worked.collect::<Result<_, _>>()?;
            Ok(Taken::Work(Together { clients, cpu_s: None }))
        }
    }
}

fn summarise(systems: &[System], turns: &[(usize, What)], rounds: &[Vec<Taken>], findings: &mut Findings) {
    for ((at, what), rounds) in turns.iter().zip(rounds) {
        let (name, clients) = (what.name(), what.clients() as f64);
        let labels = [("system", systems[*at].name()), ("clients", name.as_str())];
        let together: Vec<Together> = rounds.iter().filter_map(|taken| taken.work().cloned()).collect();
        findings.measurements.extend(Together::measurements(&labels, clients, &together));
        let alone = |of: fn(&Timed) -> Option<RoundSummary>| -> Vec<RoundSummary> {
            rounds.iter().filter_map(|taken| taken.alone().and_then(of)).collect()
        };
        let of = |quantity, rounds| Measurement::new(&labels, clients, quantity, "us", rounds);
        findings.measurements.extend(of("latency of lock", alone(|timed| Some(timed.lock))));
        findings.measurements.extend(of("latency of unlock", alone(|timed| timed.unlock)));
    }
    let of = |system: System, what: What| -> Option<Vec<f64>> {
        let at = systems.iter().position(|one| *one == system)?;
        let turn = turns.iter().position(|turn| *turn == (at, what))?;
        Some(rounds[turn].iter().map(Taken::figure).collect())
    };
    for what in WHAT {
        for ours in &System::ALL[..3] {
            for theirs in &System::ALL[3..] {
                let Some((our, their)) = of(*ours, what).zip(of(*theirs, what)) else { continue };
                // Of rates the larger is better, of latencies the smaller.
                let (spread, quantity) = match what {
                    What::Alone => (Spread::ratio(&their, &our), "latency of a free lock, that of"),
                    What::Work { .. } => (Spread::ratio(&our, &their), "locks a second,"),
                };
                let Some(spread) = spread else { continue };
                let median = |rounds: &[f64]| number(Spread::of(rounds).map_or(0.0, |spread| spread.median));
                let reason = format!(
                    "{} against {}; on one machine what is counted is who has to be woken: for a lock and a release of ours a helper and the client, unless both look for each other, \
                     and from node to node three threads of the next one's helper, over tcp an agent of the home besides; of Redis the server and the client",
                    median(&our),
                    median(&their)
                );
                let least = match theirs {
                    System::Etcd => Some((OVER_ETCD, "hundreds of times")),
                    System::Redis => Some((OVER_REDIS, "at least three times")),
                    _ => None,
                };
                let is_rate = what != What::Alone;
                // Where it is held for a while, that bounds the rate, whichever service has the locks.
                let is_free = matches!(what, What::Work { hold: Duration::ZERO, .. });
                let claim = least.filter(|_| is_free).map(|(least, text)| {
                    Claim::at_least(least, &format!("{text} ({least}), our own"), &spread, reason)
                });
                let (above, below) = if is_rate { (ours.name(), theirs.name()) } else { (theirs.name(), ours.name()) };
                let what_is = format!("{quantity} {above} over {below}");
                findings.ratios.push(Ratio { what: what_is, under: what.name(), spread, claim });
            }
        }
    }
    for (quantity, y, is_logarithmic) in [
        ("locks", "locks a second", true),
        ("Jain's index", "Jain's index", false),
        ("longest wait over the mean", "longest wait over the mean", true),
    ] {
        let line = |(style, system): (usize, &System)| {
            let its = findings
                .measurements
                .iter()
                .filter(|one| one.quantity == quantity && one.labels.iter().any(|(_, it)| it == system.name()));
            // One point for each of what is done, in its order.
            let points = its.filter_map(|one| {
                let is_this = |what: &What| one.labels.iter().any(|(_, it)| *it == what.name());
                let x = WHAT[1..].iter().position(is_this)?;
                Some(crate::report::Point { x: x as f64 + 1.0, y: one.spread })
            });
            Line { name: system.name().to_owned(), style, points: points.collect() }
        };
        let series: Vec<Line> = systems.iter().enumerate().map(line).collect();
        findings.panels.push(panel(y, "1 one client, 2 four, 3 four that hold it 1 ms", y, is_logarithmic, series));
    }
}

impl Taken {
    fn work(&self) -> Option<&Together> {
        match self {
            Taken::Work(together) => Some(together),
            Taken::Alone(_) => None,
        }
    }

    fn alone(&self) -> Option<&Timed> {
        match self {
            Taken::Alone(timed) => Some(timed),
            Taken::Work(_) => None,
        }
    }

    fn figure(&self) -> f64 {
        match self {
            Taken::Work(together) => together.rate(),
            Taken::Alone(timed) => timed.lock.median,
        }
    }
}

fn notes() -> Vec<String> {
    vec![
        "Clients are processes of this machine, and so are all servers; nobody has a machine for itself. A client takes the lock, holds it or not, and gives it back; \
         rates count locks that were given back."
            .to_owned(),
        "A client that asks again at once holds on at its node for up to half a millisecond while others wait (docs/concepts/locks.md), without a word to the lock's home; one that pauses \
         does not."
            .to_owned(),
        "etcd has one member here: three of them agree on each lock over a network, which takes longer. It writes to the disc before it answers, which Verbena and Redis \
         do not; without fsync it stands beside itself."
            .to_owned(),
        "A Redis lock under contention goes to whoever tries at the right moment, mostly to who has just had it: the rate is near that of one client, the index of Jain \
         says at what price."
            .to_owned(),
    ]
}
