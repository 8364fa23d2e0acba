//! `database.relay`: what the relay before a database costs, beside none, beside HAProxy, which passes bytes and looks at none, and beside PgBouncer in session mode, which reads the
//! protocol as far as it must.
//!
//! No figure of the papers. The load is `pgbench`, the database a PostgreSQL of the experiment's own, by TCP on loopback in all variants. The relay is on a node without others: what a commit takes
//! there is the bracket itself, and no network.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::{Axis, Claim, FabricFound, Findings, Line, Measurement, Panel, Point, Ratio};
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::web::PROGRAM;

/// Connections of the load.
const CLIENTS: u32 = 4;
/// Transactions of a connection in one turn: at least, and at most.
const TRANSACTIONS: std::ops::RangeInclusive<u32> = 20..=20_000;
/// What is wanted of the relay beside HAProxy, and beside PgBouncer.
const OVER_OTHERS: f64 = 0.9;
/// How long the database has to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a connection reaches the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Relay,
    HaProxy,
    PgBouncer,
}

impl Way {
    const ALL: [Way; 4] = [Way::Direct, Way::Relay, Way::HaProxy, Way::PgBouncer];

    fn name(self) -> &'static str {
        match self {
            Way::Direct => "direct",
            Way::Relay => "relay",
            Way::HaProxy => "HAProxy",
            Way::PgBouncer => "PgBouncer",
        }
    }
}

/// What is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Reads,
    PreparedReads,
    Commits,
}

impl What {
    const ALL: [What; 3] = [What::Reads, What::PreparedReads, What::Commits];

    fn name(self) -> &'static str {
        match self {
            What::Reads => "reads",
            What::PreparedReads => "prepared reads",
            What::Commits => "commits",
        }
    }

    fn options(self) -> [&'static str; 3] {
        match self {
            What::Reads => ["-S", "-M", "simple"],
            What::PreparedReads => ["-S", "-M", "prepared"],
            What::Commits => ["-N", "-M", "simple"],
        }
    }
}

/// One variant, and how fast it was the last time.
struct Turn {
    way: Way,
    what: What,
    port: String,
    rate: f64,
}

/// The database. It gets a signal to end, and then this waits for it, so that none of its processes stays.
struct Server(Running);

impl Drop for Server {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        if self.0.signal(Signal::QUIT).is_ok() {
            while self.0.look().is_ok() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let missing = |what: &str| BenchError::NothingToMeasure { name: plan.name, reason: format!("there is no {what}") };
    let programs = postgresql().ok_or_else(|| missing("PostgreSQL server (Debian: postgresql)"))?;
    let pgbench = in_path("pgbench").ok_or_else(|| missing("pgbench (Debian: postgresql-contrib)"))?;
    let directory = open_directory()?;
    let place = directory.path();
    let [server_at, relay_at, haproxy_at, pgbouncer_at] = free_addresses::<4>()?;
    let port = |at: std::net::SocketAddr| at.port().to_string();

    let data = place.join("data").display().to_string();
    let initdb = programs.join("initdb").display().to_string();
    done(&mut as_database(&[&initdb, "-U", "bench", "-A", "trust", "--no-sync", "-D", &data]), "make a database")?;
    let postgres = programs.join("postgres").display().to_string();
    let sockets = place.display().to_string();
    let listen =
        ["-D", &data, "-k", &sockets, "-c", "listen_addresses=127.0.0.1", "-p", &port(server_at)].map(str::to_owned);
    let words = owned_words(&[&postgres], &listen);
    let mut server = Server(begin("postgresql", &words, place)?);
    server.0.listens(server_at)?;
    let mut fill = Command::new(&pgbench);
    fill.args(["-i", "-q", "-h", "127.0.0.1", "-p", &port(server_at), "-U", "bench", "postgres"]);
    done(&mut fill, "fill a database")?;

    let to = format!("postgres://bench@{server_at}/postgres");
    let (run, state) = (place.join("run").display().to_string(), place.join("state").display().to_string());
    let relay = [
        [&verbena.display().to_string(), "database", "--to", &to, "--listen", &relay_at.to_string()].map(str::to_owned),
        ["--name", "bench", "--node-runtime", &run, "--node-state", &state].map(str::to_owned),
    ];
    let mut relay = begin("relay", &relay.concat(), place)?;
    relay.listens(relay_at)?;
    let haproxy = match in_path("haproxy") {
        Some(program) => Some(haproxy(&program, place, haproxy_at, server_at)?),
        None => None,
    };

    let pgbouncer = match in_path("pgbouncer") {
        Some(program) => Some(pgbouncer(&program, place, pgbouncer_at, server_at)?),
        None => None,
    };

    let mut findings = Findings::default();
    let is_there = |way: Way| match way {
        Way::Direct | Way::Relay => true,
        Way::HaProxy => haproxy.is_some(),
        Way::PgBouncer => pgbouncer.is_some(),
    };
    for way in Way::ALL {
        let because = match way {
            Way::Direct => "pgbench at the server",
            Way::Relay => "`verbena database --to`, on a node without others",
            Way::HaProxy if is_there(way) => "one frontend and one backend in TCP mode, one thread",
            Way::HaProxy => "there is no haproxy (Debian: haproxy)",
            Way::PgBouncer if is_there(way) => "pool_mode = session",
            Way::PgBouncer => "there is no pgbouncer (Debian: pgbouncer)",
        };
        let (name, measured) = (way.name().to_owned(), is_there(way));
        findings.fabrics.push(FabricFound { name, measured, because: because.to_owned(), capabilities: None });
    }
    let at = |way| port([server_at, relay_at, haproxy_at, pgbouncer_at][way as usize]);
    let turn = |what, way| Turn { way, what, port: at(way), rate: 0.0 };
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| is_there(*way)).collect();
    let mut turns: Vec<Turn> =
        What::ALL.into_iter().flat_map(|what| ways.iter().map(move |way| turn(what, *way))).collect();
    let mut budget = Budget::new(plan.measuring, (plan.rounds + 1) * turns.len() as u32);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {}", turn.what.name(), turn.way.name()),
        |turn| take(&pgbench, turn, budget.next()),
        plan.progress,
    )?;
    summarise(&turns, &rounds, &mut findings);
    findings.notes = notes();
    Ok(findings)
}

/// The newest version that Debian has installed.
fn postgresql() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let bins = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    bins.filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists()).max()
}

/// A directory in which another user may write: the server does not run as root.
fn open_directory() -> Result<TempDir, BenchError> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error| BenchError::io(&std::env::temp_dir(), error);
    let directory = tempfile::Builder::new().prefix("verbena-bench-").tempdir().map_err(failed)?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).map_err(failed)?;
    Ok(directory)
}

/// What stands before a command of the database's user.
fn before_database() -> &'static [&'static str] {
    const AS_POSTGRES: [&str; 4] = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
    if geteuid().is_root() { &AS_POSTGRES } else { &[] }
}

fn as_database(words: &[&str]) -> Command {
    let words = [before_database(), words].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir("/");
    command
}

fn owned_words(program: &[&str], options: &[String]) -> Vec<String> {
    let words = [before_database(), program].concat();
    words.into_iter().map(str::to_owned).chain(options.iter().cloned()).collect()
}

fn begin(what: &str, words: &[String], place: &Path) -> Result<Running, BenchError> {
    let words: Vec<&str> = [PROGRAM].into_iter().chain(words.iter().map(String::as_str)).collect();
    Running::begin(what, &words, place)
}

/// What a command printed that succeeded.
fn done(command: &mut Command, doing: &str) -> Result<String, BenchError> {
    let failed = |reason: String| BenchError::Target { doing: doing.to_owned(), reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(failed(said(&output.stderr)));
    }
    Ok(said(&output.stdout))
}

fn haproxy(
    program: &Path,
    place: &Path,
    at: std::net::SocketAddr,
    server: std::net::SocketAddr,
) -> Result<Running, BenchError> {
    let config = place.join("haproxy.cfg");
    let text = format!(
        "global\n nbthread 1\ndefaults\n mode tcp\n timeout connect 10s\n timeout client 1h\n timeout server 1h\n\
         listen database\n bind {at}\n server one {server}\n"
    );
    std::fs::write(&config, text).map_err(|error| BenchError::io(&config, error))?;
    let words = [&program.display().to_string(), "-db", "-f", &config.display().to_string()].map(str::to_owned);
    let mut running = begin("haproxy", &words, place)?;
    running.listens(at)?;
    Ok(running)
}

fn pgbouncer(
    program: &Path,
    place: &Path,
    at: std::net::SocketAddr,
    server: std::net::SocketAddr,
) -> Result<Running, BenchError> {
    let (config, users) = (place.join("pgbouncer.ini"), place.join("users.txt"));
    let text = format!(
        "[databases]\npostgres = host={} port={}\n[pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {}\npool_mode = session\n",
        server.ip(),
        server.port(),
        at.ip(),
        at.port(),
        users.display(),
    );
    for (file, text) in [(&config, text.as_str()), (&users, "\"bench\" \"\"\n")] {
        std::fs::write(file, text).map_err(|error| BenchError::io(file, error))?;
    }
    // It does not run as root.
    let words = owned_words(&[&program.display().to_string()], &[config.display().to_string()]);
    let mut running = begin("pgbouncer", &words, place)?;
    running.listens(at)?;
    Ok(running)
}

/// Transactions a second, and how many they were.
fn take(pgbench: &Path, turn: &mut Turn, length: Duration) -> Result<(f64, u64), BenchError> {
    let wanted = turn.rate * length.as_secs_f64() / f64::from(CLIENTS);
    let transactions = (wanted as u32).clamp(*TRANSACTIONS.start(), *TRANSACTIONS.end());
    let mut command = Command::new(pgbench);
    command.args(["-n", "-h", "127.0.0.1", "-p", &turn.port, "-U", "bench", "-c", &CLIENTS.to_string(), "-j", "2"]);
    command.args(turn.what.options()).args(["-t", &transactions.to_string(), "postgres"]);
    let said = done(&mut command, "run pgbench")?;
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    turn.rate = rate.filter(|rate| *rate > 0.0).ok_or_else(|| BenchError::Target {
        doing: "run pgbench".to_owned(),
        reason: format!("it said no rate: {said}"),
    })?;
    Ok((turn.rate, u64::from(transactions) * u64::from(CLIENTS)))
}

fn summarise(turns: &[Turn], rounds: &[Vec<(f64, u64)>], findings: &mut Findings) {
    let x = |what: What| what as usize as f64 + 1.0;
    for (turn, rounds) in turns.iter().zip(rounds) {
        let labels = [("way", turn.way.name()), ("what", turn.what.name())];
        let rounds = rounds.iter().map(|(rate, count)| RoundSummary::one(*rate, *count)).collect();
        findings.measurements.extend(Measurement::new(&labels, x(turn.what), "transactions", "1/s", rounds));
    }
    let of = |way: Way, what: What| -> Option<Vec<f64>> {
        let at = turns.iter().position(|turn| turn.way == way && turn.what == what)?;
        Some(rounds[at].iter().map(|(rate, _)| *rate).collect())
    };
    for what in What::ALL {
        for below in [Way::Direct, Way::HaProxy, Way::PgBouncer] {
            let Some((ours, theirs)) = of(Way::Relay, what).zip(of(below, what)) else { continue };
            let Some(spread) = Spread::ratio(&ours, &theirs) else { continue };
            let reason = "the relay reads each statement, and for each commit begins and ends an update, on one thread"
                .to_owned();
            let text = format!("at least {OVER_OTHERS} of it, our own");
            let claim = (below != Way::Direct).then(|| Claim::at_least(OVER_OTHERS, &text, &spread, reason));
            let named = format!("{} a second, relay over {}", what.name(), below.name());
            findings.ratios.push(Ratio { what: named, under: format!("{CLIENTS} connections"), spread, claim });
        }
    }
    let line = |(style, way): (usize, Way)| {
        let its = findings.measurements.iter().filter(|one| one.labels[0].1 == way.name());
        let points: Vec<Point> = its.map(Measurement::point).collect();
        Line { name: way.name().to_owned(), style, points }
    };
    let series: Vec<Line> = Way::ALL.into_iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    findings.panels.push(Panel {
        title: "transactions a second".to_owned(),
        x: axis("1 reads, 2 prepared reads, 3 commits"),
        y: axis("transactions a second"),
        series,
    });
}

fn notes() -> Vec<String> {
    vec![
        "pgbench, the server, the relay and the others share the cores of this machine: where these are busy, what a way takes of them is missing to the others.".to_owned(),
        "A commit through the relay waits until every home knows what it touches. Here the only home is in the relay's process.".to_owned(),
    ]
}
