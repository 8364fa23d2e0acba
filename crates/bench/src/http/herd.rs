//! `http.herd`: many clients that ask for one page which nobody has yet.
//!
//! No figure of the papers. A page takes its time at the application. Of a page that may be kept, one request should come to the application, and those who wait for it should have
//! its first byte when the first of them does. Of a page that may not be kept each needs its own, and none should wait for another's.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::servers;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::machine::raise_open_files;
use crate::programs::in_path;
use crate::report::{Axis, Claim, FabricFound, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::web::{self, PROGRAM};

/// Clients of the page that may be kept.
const CLIENTS: usize = 1_000;
/// How long a page takes; in a quick run.
const TAKES: Duration = Duration::from_secs(2);
const TAKES_QUICK: Duration = Duration::from_millis(300);
/// A run that may measure so long is no quick one.
const LONG: Duration = Duration::from_secs(120);
/// How long a client waits for its whole answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is wanted: of the last first byte over the first, and of the last answer of a page that may not be kept over the page's time.
const FIRST_BYTES: f64 = 1.1;
const UNKEPT: f64 = 1.5;

/// What stands before the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Coherent,
    Standard,
    Nginx,
}

impl Cache {
    const ALL: [Cache; 3] = [Cache::Coherent, Cache::Standard, Cache::Nginx];

    fn name(self) -> &'static str {
        match self {
            Cache::Coherent => "coherent",
            Cache::Standard => "standard",
            Cache::Nginx => "nginx",
        }
    }

    /// Clients of the page that may not be kept. nginx takes the time of a page, and up to half a second more, for each of them.
    fn unkept_clients(self) -> usize {
        if self == Cache::Nginx { 10 } else { 100 }
    }
}

struct Turn {
    cache: Cache,
    address: SocketAddr,
    /// Its application: proxies of one would be one cluster.
    origin: SocketAddr,
}

/// What one turn found.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Requests at the application for a page that may be kept.
    asked: u64,
    /// The last client's first byte over the first one's.
    first_bytes: f64,
    /// The last answer of a page that may not be kept, over the page's time.
    unkept: f64,
}

impl Found {
    fn all(&self) -> [f64; 3] {
        [self.asked as f64, self.first_bytes, self.unkept]
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let failed = |reason| BenchError::Target { doing: "raise the limit of open files".to_owned(), reason };
    raise_open_files(4 * CLIENTS as u64).map_err(failed)?;
    let takes = if plan.measuring >= LONG { TAKES } else { TAKES_QUICK };
    let folder = crate::run::directory()?;
    let place = folder.path();
    let takes_ms = takes.as_millis().to_string();
    let mut running = vec![];
    let (addresses, origins) = (free_addresses::<3>()?, free_addresses::<3>()?);
    for (cache, origin) in Cache::ALL.into_iter().zip(origins) {
        let words = [web::SLOW, "--listen", &origin.to_string(), "--takes-ms", &takes_ms];
        let mut application = Running::begin(&format!("application-{}", cache.name()), &words, place)?;
        application.listens(origin)?;
        running.push(application);
    }
    let at = |cache: Cache| (addresses[cache as usize], origins[cache as usize]);
    for cache in [Cache::Coherent, Cache::Standard] {
        running.push(ours(verbena, cache, at(cache), place)?);
    }
    let program = in_path("nginx");
    if let Some(program) = &program {
        running.push(theirs(program, at(Cache::Nginx), place)?);
    }
    let is_there = |cache: Cache| cache != Cache::Nginx || program.is_some();
    let turn = |cache| Turn { cache, address: at(cache).0, origin: at(cache).1 };
    let mut turns: Vec<Turn> = Cache::ALL.into_iter().filter(|cache| is_there(*cache)).map(turn).collect();
    let mut number = 0;
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{CLIENTS} clients, {}", turn.cache.name()),
        |turn| {
            running.iter_mut().try_for_each(Running::look)?;
            number += 1;
            take(turn, number, takes)
        },
        plan.progress,
    )?;

    let mut findings = Findings::default();
    for cache in Cache::ALL {
        let because = match cache {
            Cache::Coherent => "`verbena proxy`, alone",
            Cache::Standard => "`verbena proxy --mode standard`, alone",
            Cache::Nginx if is_there(cache) => "proxy_cache with proxy_cache_lock",
            Cache::Nginx => "there is no nginx (Debian: nginx-light)",
        };
        let (name, measured) = (cache.name().to_owned(), is_there(cache));
        findings.fabrics.push(FabricFound { name, measured, because: because.to_owned(), capabilities: None });
    }
    summarise(&turns, &rounds, takes, &mut findings);
    Ok(findings)
}

fn ours(
    verbena: &Path,
    cache: Cache,
    (at, origin): (SocketAddr, SocketAddr),
    place: &Path,
) -> Result<Running, BenchError> {
    let name = cache.name();
    let own = |part: &str| place.join(name).join(part).display().to_string();
    let folder = place.join(name);
    std::fs::create_dir(&folder).map_err(|error| BenchError::io(&folder, error))?;
    let words = [
        [PROGRAM, &verbena.display().to_string(), "proxy", "--mode", name, "--log", "warn"].map(str::to_owned).to_vec(),
        vec!["--listen".to_owned(), at.to_string(), "--origin".to_owned(), format!("http://{origin}")],
        vec!["--node-runtime".to_owned(), own("run"), "--node-state".to_owned(), own("state")],
    ];
    let words = words.concat();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut proxy = Running::begin(name, &words, place)?;
    proxy.listens(at)?;
    Ok(proxy)
}

fn theirs(program: &Path, (at, origin): (SocketAddr, SocketAddr), place: &Path) -> Result<Running, BenchError> {
    let folder = place.join("nginx");
    std::fs::create_dir(&folder).map_err(|error| BenchError::io(&folder, error))?;
    let (directory, config) = (folder.display(), folder.join("nginx.conf"));
    let temporary = servers::nginx_temporary(&folder);
    let text = format!(
        "daemon off;\nmaster_process off;\npid {directory}/pid;\nerror_log {directory}/errors crit;\n\
         events {{ worker_connections 8192; }}\nhttp {{\naccess_log off;\n{temporary}\
         proxy_cache_path {directory}/cache keys_zone=pages:16m;\nupstream application {{ server {origin}; keepalive 64; }}\n\
         server {{ listen {at} backlog=4096;\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_cache pages;\nproxy_cache_lock on;\nproxy_cache_lock_timeout 60s;\nlocation / {{ proxy_pass http://application; }} }} }}\n"
    );
    std::fs::write(&config, text).map_err(|error| BenchError::io(&config, error))?;
    let (program, config) = (program.display().to_string(), config.display().to_string());
    let mut nginx = Running::begin("nginx", &[PROGRAM, &program, "-c", &config], place)?;
    nginx.listens(at)?;
    Ok(nginx)
}

fn take(turn: &Turn, number: u32, takes: Duration) -> Result<Found, BenchError> {
    let failed = |reason: String| BenchError::Target { doing: format!("ask {} at once", turn.cache.name()), reason };
    let shared = format!("/shared/{number}");
    let served = web::ask_at_once(turn.address, &shared, CLIENTS, PATIENCE).map_err(failed)?;
    let firsts = || served.iter().map(|served| served.first.as_secs_f64());
    let counted =
        web::get(turn.origin, &format!("/count{shared}"), PATIENCE).map_err(|error| failed(error.to_string()))?;
    let counted = String::from_utf8_lossy(&counted).into_owned();
    let asked = counted.rsplit("\r\n").next().and_then(|number| number.parse().ok());
    let asked = asked.ok_or_else(|| failed(format!("the application said {counted:?}")))?;
    let first_bytes = firsts().fold(0.0, f64::max) / firsts().fold(f64::INFINITY, f64::min);
    let private = format!("/private/{number}");
    let served = web::ask_at_once(turn.address, &private, turn.cache.unkept_clients(), PATIENCE).map_err(failed)?;
    let last = served.iter().map(|served| served.last.as_secs_f64()).fold(0.0, f64::max);
    Ok(Found { asked, first_bytes, unkept: last / takes.as_secs_f64() })
}

fn summarise(turns: &[Turn], rounds: &[Vec<Found>], takes: Duration, findings: &mut Findings) {
    let quantities = [
        "requests at the application",
        "last first byte over the first",
        "last answer that may not be kept over the time of one",
    ];
    for (turn, found) in turns.iter().zip(rounds) {
        let x = turn.cache as usize as f64 + 1.0;
        for (nth, quantity) in quantities.into_iter().enumerate() {
            let clients = if nth < 2 { CLIENTS } else { turn.cache.unkept_clients() };
            let values: Vec<f64> = found.iter().map(|found| found.all()[nth]).collect();
            let summaries = values.iter().map(|value| RoundSummary::one(*value, clients as u64)).collect();
            let labels = [("cache", turn.cache.name()), ("counted", quantity)];
            findings.measurements.extend(Measurement::new(&labels, x, quantity, "", summaries));
            let Some(spread) = Spread::of(&values) else { continue };
            let reason = format!("{} in the median", spread.median);
            let claim = (turn.cache != Cache::Nginx).then(|| match nth {
                0 => Claim::at_most(1.0, "one, our own", &spread, reason),
                1 => Claim::at_most(FIRST_BYTES, &format!("at most {FIRST_BYTES}, our own"), &spread, reason),
                _ => Claim::at_most(UNKEPT, &format!("at most {UNKEPT}, our own"), &spread, reason),
            });
            let what = format!("{quantity}, {}", turn.cache.name());
            let under = format!("{clients} clients, a page that takes {takes:?}");
            findings.ratios.push(Ratio { what, under, spread, claim });
        }
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    for quantity in quantities {
        let series = findings.lines(Cache::ALL.map(|cache| cache.name().to_owned()), Some(quantity));
        let (x, y) = (axis("1 coherent, 2 standard, 3 nginx"), axis(quantity));
        findings.panels.push(Panel { title: quantity.to_owned(), x, y, series });
    }
    findings.notes.push(
        "Clients, caches and application share the cores of this machine. Connections are open before the clients ask."
            .into(),
    );
    findings.notes.push("nginx lets those who wait for a page look for it twice a second, and lets a page that may not be kept go out to one after the other: so ten clients ask it.".into());
}
