//! `http.hits`: hits a second of the proxy in both modes, of nginx and of Varnish, by the same client.
//!
//! No figure of the papers. The client is `h2load`, with 64 connections; all caches have the whole page, and the application is stopped while hits are counted. `bench/compare.sh` asks
//! the same with `wrk`, with other pages, loads and a bare loop beside.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::servers;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::{Axis, Claim, FabricFound, Findings, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::web::{self, PROGRAM};

/// Connections, and threads of the client.
const CONNECTIONS: &str = "64";
const THREADS: &str = "2";
/// How long a stretch is at least.
const SHORTEST: Duration = Duration::from_millis(250);
/// Of TLS, for all.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";
/// What is wanted: over nginx, and over Varnish.
const OVER_NGINX: f64 = 1.3;
const OVER_VARNISH: f64 = 1.5;
const AS_NGINX: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    Coherent,
    Standard,
    Nginx,
    Varnish,
}

impl Cache {
    const ALL: [Cache; 4] = [Cache::Coherent, Cache::Standard, Cache::Nginx, Cache::Varnish];

    fn name(self) -> &'static str {
        ["coherent", "standard", "nginx", "varnish"][self as usize]
    }

    fn is_ours(self) -> bool {
        matches!(self, Cache::Coherent | Cache::Standard)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    name: &'static str,
    bytes: usize,
    is_tls: bool,
}

const WORK: [Work; 4] = [
    Work { name: "8 KiB", bytes: 8 << 10, is_tls: false },
    Work { name: "8 KiB, HTTP/2 with TLS", bytes: 8 << 10, is_tls: true },
    Work { name: "100 KiB", bytes: 100 << 10, is_tls: false },
    Work { name: "1 MiB", bytes: 1 << 20, is_tls: false },
];

struct Turn {
    cache: Cache,
    work: Work,
    address: SocketAddr,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let missing = || BenchError::NothingToMeasure {
        name: plan.name,
        reason: "there is no h2load (Debian: nghttp2-client)".to_owned(),
    };
    let client = in_path("h2load").ok_or_else(missing)?;
    let folder = crate::run::directory_in(&memory())?;
    let certificate = certificate(folder.path())?;
    let (nginx, varnish) = (in_path("nginx"), in_path("varnishd"));
    let program = |cache: Cache| match cache {
        Cache::Nginx => nginx.as_deref(),
        Cache::Varnish => varnish.as_deref(),
        Cache::Coherent | Cache::Standard => Some(verbena),
    };
    let (mut applications, mut caches, mut turns) = (vec![], vec![], vec![]);
    for (cache, is_tls) in Cache::ALL.into_iter().flat_map(|cache| [(cache, false), (cache, true)]) {
        let tls = certificate.as_ref().filter(|_| is_tls);
        let Some(program) = program(cache).filter(|_| !is_tls || (tls.is_some() && cache != Cache::Varnish)) else {
            continue;
        };
        let (application, running, address) = start(cache, program, tls, folder.path())?;
        applications.push(application);
        caches.push(running);
        let works = WORK.into_iter().filter(|work| work.is_tls == is_tls);
        turns.extend(works.map(|work| Turn { cache, work, address }));
    }
    turns.sort_by_key(|turn| WORK.iter().position(|work| *work == turn.work));
    for turn in &turns {
        fill(&client, turn)?;
    }
    applications.iter().try_for_each(|application| application.signal(Signal::STOP))?;
    let stretch = (plan.measuring / (plan.rounds + 1) / turns.len() as u32).max(SHORTEST);
    let rounds = interleave(
        plan.rounds,
        &mut turns,
        |turn| format!("{}, {}", turn.work.name, turn.cache.name()),
        |turn| {
            caches.iter_mut().try_for_each(Running::look)?;
            ask(&client, turn, stretch)
        },
        plan.progress,
    )?;

    let mut findings = Findings::default();
    for cache in Cache::ALL {
        let because = match cache {
            Cache::Coherent => "`verbena proxy`, alone",
            Cache::Standard => "`verbena proxy --mode standard`, alone",
            Cache::Nginx if nginx.is_some() => "proxy_cache in memory, a worker for each core",
            Cache::Nginx => "there is no nginx (Debian: nginx-light)",
            Cache::Varnish if varnish.is_some() => "the built-in rules; it speaks no TLS",
            Cache::Varnish => "there is no varnishd (Debian: varnish)",
        };
        let (name, measured) = (cache.name().to_owned(), program(cache).is_some());
        findings.fabrics.push(FabricFound { name, measured, because: because.to_owned(), capabilities: None });
    }
    if certificate.is_none() {
        findings.notes.push("There is no openssl that makes a certificate: nothing was asked with TLS.".into());
    }
    summarise(&turns, &rounds, &mut findings);
    Ok(findings)
}

/// Where files are in memory, if there is such a place.
fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { std::env::temp_dir() }
}

/// A certificate and its key, if there is what makes them.
struct Certificate {
    file: String,
    key: String,
}

fn certificate(place: &Path) -> Result<Option<Certificate>, BenchError> {
    let Some(openssl) = in_path("openssl") else { return Ok(None) };
    let at = |name: &str| place.join(name).display().to_string();
    let certificate = Certificate { file: at("certificate.pem"), key: at("key.pem") };
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost";
    let made = Command::new(&openssl)
        .args(words.split(' '))
        .args(["-out", &certificate.file, "-keyout", &certificate.key])
        .output()
        .map_err(|error| BenchError::io(&openssl, error))?;
    let said = || String::from_utf8_lossy(&made.stderr).into_owned();
    match made.status.success() {
        true => Ok(Some(certificate)),
        false => Err(BenchError::Target { doing: "make a certificate".to_owned(), reason: said() }),
    }
}

/// An application and the cache before it, and where that listens: proxies of one application would be one cluster.
fn start(
    cache: Cache,
    program: &Path,
    tls: Option<&Certificate>,
    place: &Path,
) -> Result<(Running, Running, SocketAddr), BenchError> {
    let name = format!("{}{}", cache.name(), if tls.is_some() { "-tls" } else { "" });
    let folder = place.join(&name);
    std::fs::create_dir(&folder).map_err(|error| BenchError::io(&folder, error))?;
    let [origin, address] = free_addresses()?;
    let mut application = Running::begin("application", &[web::PAGES, "--listen", &origin.to_string()], &folder)?;
    application.listens(origin)?;
    let own = |part: &str| folder.join(part).display().to_string();
    let write = |text: String| {
        let path = folder.join("config");
        std::fs::write(&path, text).map_err(|error| BenchError::io(&path, error))
    };
    let mut words = vec![PROGRAM.to_owned(), program.display().to_string()];
    let mut say = |all: &[&str]| words.extend(all.iter().map(|word| (*word).to_owned()));
    match cache {
        Cache::Coherent | Cache::Standard => {
            let (listen, origin) = (address.to_string(), format!("http://{origin}"));
            say(&["proxy", "--mode", cache.name(), "--log", "warn", "--listen", &listen, "--origin", &origin]);
            say(&["--node-runtime", &own("run"), "--node-state", &own("state")]);
            if let Some(Certificate { file, key }) = tls {
                say(&["--tls-cert", file, "--tls-key", key]);
            }
        }
        Cache::Nginx => {
            write(nginx(address, origin, tls, &folder))?;
            say(&["-c", &own("config")]);
        }
        Cache::Varnish => {
            write(servers::varnish_backend(origin))?;
            say(&servers::varnish(&own("config"), &own("work"), "malloc,256m", &address.to_string()));
            say(&["-p", "thread_pools=2"]);
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut running = Running::begin(&name, &words, place)?.ended_in_order();
    running.listens(address)?;
    Ok((application, running, address))
}

/// As its manual advises for a cache; bench/nginx.conf says what of it was found by measurement.
fn nginx(at: SocketAddr, origin: SocketAddr, tls: Option<&Certificate>, folder: &Path) -> String {
    let directory = folder.display();
    let temporary = servers::nginx_temporary(folder);
    let secure = tls.map(|Certificate { file, key }| {
        format!("ssl_certificate {file};\nssl_certificate_key {key};\nssl_protocols TLSv1.3;\nssl_conf_command Ciphersuites {CIPHER};\n")
    });
    let listen = if tls.is_some() { " ssl http2" } else { "" };
    format!(
        "daemon off;\nworker_processes auto;\nworker_cpu_affinity auto;\npid {directory}/pid;\nerror_log {directory}/errors crit;\n\
         events {{ worker_connections 4096; multi_accept on; }}\nhttp {{\naccess_log off;\nsendfile off;\noutput_buffers 2 128k;\ntcp_nodelay on;\n\
         keepalive_timeout 600s;\nkeepalive_requests 1000000000;\nopen_file_cache max=20000 inactive=600s;\nopen_file_cache_valid 600s;\n{temporary}\
         proxy_cache_path {directory}/cache keys_zone=pages:16m use_temp_path=off;\nupstream application {{ server {origin}; keepalive 64; }}\n\
         server {{ listen {at}{listen} reuseport backlog=1024;\n{}proxy_http_version 1.1;\nproxy_set_header Connection \"\";\n\
         proxy_cache pages;\nproxy_cache_valid 200 1h;\nproxy_cache_lock on;\nadd_header Cache-Status \"nginx; $upstream_cache_status\";\n\
         location / {{ proxy_pass http://application; }}\nlocation /{}/ {{ sendfile on; proxy_pass http://application; }}\n\
         location /{}/ {{ sendfile on; proxy_pass http://application; }} }} }}\n",
        secure.unwrap_or_default(),
        100 << 10,
        1 << 20,
    )
}

/// What `h2load` found.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Found {
    /// Answers in the time that was counted.
    answers: u64,
    per_s: f64,
}

/// Has the page kept: asked for twice, it is there.
fn fill(client: &Path, turn: &Turn) -> Result<(), BenchError> {
    run(client, turn, &["-n", "64", "-c", "2"]).map(drop)
}

/// A stretch of hits. The application stands still: an answer that is no hit does not come.
fn ask(client: &Path, turn: &Turn, stretch: Duration) -> Result<Found, BenchError> {
    let length = format!("{}ms", stretch.as_millis());
    let found = run(client, turn, &["-D", &length, "-c", CONNECTIONS, "-t", THREADS])?;
    match found.answers {
        0 => Err(BenchError::Target {
            doing: format!("ask {} for {}", turn.cache.name(), turn.work.name),
            reason: "there was no answer".to_owned(),
        }),
        _ => Ok(found),
    }
}

fn run(client: &Path, turn: &Turn, how: &[&str]) -> Result<Found, BenchError> {
    let failed = |reason: String| BenchError::Target {
        doing: format!("ask {} for {}", turn.cache.name(), turn.work.name),
        reason,
    };
    let scheme = if turn.work.is_tls { "https" } else { "http" };
    let version: &[&str] = if turn.work.is_tls { &["--tls13-ciphers", CIPHER] } else { &["--h1"] };
    // The name of the certificate, and the same page at every cache.
    let address = format!("{scheme}://{}/{}/page", turn.address, turn.work.bytes);
    let output = Command::new(client).args(how).args(version).args(["-m", "1", &address]).output();
    let output = output.map_err(|error| BenchError::io(client, error))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    found(&said, turn.work.is_tls).map_err(|reason| failed(format!("{reason}: {said}")))
}

fn found(said: &str, is_tls: bool) -> Result<Found, &'static str> {
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).ok_or("a line is not there");
    if is_tls && (line("Cipher: ")? != CIPHER || line("Application protocol: ")? != "h2") {
        return Err("it was another cipher or protocol");
    }
    // finished in 2.00s, 52345.50 req/s, 410.10MB/s
    let per_s = line("finished in ")?.split(", ").nth(1).and_then(|rate| rate.strip_suffix(" req/s")?.parse().ok());
    // requests: 10 total, 10 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout
    let count = |name: &str| -> Option<u64> {
        let counts = said.lines().find_map(|line| line.strip_prefix("requests: "))?;
        counts.split(", ").find_map(|count| count.strip_suffix(name)?.trim().parse().ok())
    };
    // status codes: 10 2xx, 0 3xx, 0 4xx, 0 5xx
    let other = line("status codes: ")?.split(", ").skip(1).any(|count| !count.starts_with("0 "));
    match (per_s, count(" succeeded"), count(" failed"), count(" errored"), count(" timeout")) {
        (Some(per_s), Some(answers), Some(0), Some(0), Some(0)) if !other => Ok(Found { answers, per_s }),
        _ => Err("an answer was not well"),
    }
}

fn summarise(turns: &[Turn], rounds: &[Vec<Found>], findings: &mut Findings) {
    let rates = |cache: Cache, work: Work| -> Option<Vec<f64>> {
        let at = turns.iter().position(|turn| turn.cache == cache && turn.work == work)?;
        Some(rounds[at].iter().map(|found| found.per_s).collect())
    };
    for (turn, found) in turns.iter().zip(rounds) {
        let x = WORK.iter().position(|work| *work == turn.work).unwrap_or(0) as f64 + 1.0;
        let labels = [("cache", turn.cache.name()), ("asked for", turn.work.name)];
        let summaries = found.iter().map(|found| RoundSummary::one(found.per_s, found.answers)).collect();
        findings.measurements.extend(Measurement::new(&labels, x, "hits", "requests/s", summaries));
        for other in [Cache::Nginx, Cache::Varnish] {
            let spread = rates(turn.cache, turn.work).zip(rates(other, turn.work));
            let spread = spread.and_then(|(ours, theirs)| Spread::ratio(&ours, &theirs));
            let Some(spread) = spread.filter(|_| turn.cache.is_ours()) else { continue };
            let least = match (other, turn.work.is_tls, turn.work.bytes) {
                (Cache::Nginx, false, 8_192) => Some(OVER_NGINX),
                (Cache::Varnish, false, 8_192) => Some(OVER_VARNISH),
                (Cache::Nginx, ..) => Some(AS_NGINX),
                _ => None,
            };
            let reason = format!("{:.2} in the median", spread.median);
            let claim =
                least.map(|least| Claim::at_least(least, &format!("at least {least}, our own"), &spread, reason));
            let what = format!("hits a second, {} over {}", turn.cache.name(), other.name());
            findings.ratios.push(Ratio { what, under: turn.work.name.to_owned(), spread, claim });
        }
    }
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic, bytes: false };
    let series = findings.lines(Cache::ALL.map(|cache| cache.name().to_owned()), None);
    let x = axis("1: 8 KiB, 2: 8 KiB by HTTP/2 with TLS, 3: 100 KiB, 4: 1 MiB", false);
    findings.panels.push(Panel { title: "hits".to_owned(), x, y: axis("requests/s", true), series });
    findings.notes.push("Caches and client share the cores of this machine. Each cache has an application of its own, which is stopped while hits are counted.".into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_of_the_kind_that_was_asked_for_count() {
        let said = "Cipher: TLS_AES_128_GCM_SHA256\nApplication protocol: h2\n\nfinished in 2.00s, 52345.50 req/s, 410.10MB/s\n\
                    requests: 12 total, 12 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout\n\
                    status codes: 10 2xx, 0 3xx, 0 4xx, 0 5xx\n";
        let well = Ok(Found { answers: 10, per_s: 52_345.5 });
        assert_eq!((found(said, true), found(said, false)), (well, well));
        for (word, instead) in
            [("h2", "http/1.1"), ("128", "256"), ("0 failed", "1 failed"), ("0 5xx", "1 5xx"), (" req/s", "")]
        {
            assert!(found(&said.replace(word, instead), true).is_err(), "{instead}");
        }
    }
}
