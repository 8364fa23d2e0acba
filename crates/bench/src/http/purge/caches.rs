//! Three caches before one application: proxies of one cluster, or Varnish instances that know nothing of each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_fabric::Provider;

use super::super::servers;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::helpers::member_address;
use crate::web::{self, Asker, PROGRAM};

/// Caches of an arm.
pub(super) const CACHES: usize = 3;
/// Of the proxies, those that are homes.
const HOMES: usize = 2;
/// How long a member may be silent.
const LEASE: Duration = Duration::from_secs(1);
/// Pages change at once here. A cache that is killed keeps out what it was purging for so long and a lease.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(3);
/// How long one is stopped: longer than a lease.
const PAUSE: Duration = Duration::from_millis(1_500);
/// All are well again within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// From a look to the next, and how long an answer to it may take.
const LOOK: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_millis(500);

/// What the caches of an arm are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ours(Provider),
    Varnish,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Ours(Provider::Shm), Kind::Ours(Provider::Tcp), Kind::Varnish];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Ours(provider) => provider.name(),
            Kind::Varnish => "varnish",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        self != Kind::Varnish
    }
}

/// What is done to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Pause,
}

/// Where an arm is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) origin: SocketAddr,
    pub(super) caches: [SocketAddr; CACHES],
    /// Of the helpers in the proxies.
    pub(super) helpers: [SocketAddr; CACHES],
}

/// The processes of an arm.
pub(super) struct Caches {
    kind: Kind,
    pub(super) at: Addresses,
    place: PathBuf,
    words: Vec<Vec<String>>,
    running: Vec<Running>,
    _application: Running,
}

impl Caches {
    /// Starts the application and its caches, and waits until all are well. `program` is `verbena` or `varnishd`.
    pub(super) fn start(kind: Kind, program: &Path, place: &Path) -> Result<Self, BenchError> {
        let place = place.join(kind.name());
        std::fs::create_dir(&place).map_err(|error| BenchError::io(&place, error))?;
        let ([origin], caches, helpers, nodes) =
            (free_addresses()?, free_addresses()?, free_addresses()?, free_addresses()?);
        let mut application =
            Running::begin("application", &[web::versions::ROLE, "--listen", &origin.to_string()], &place)?;
        application.listens(origin)?;
        let at = Addresses { origin, caches, helpers };
        let config = match kind {
            Kind::Ours(provider) => ours(provider, &at, nodes, &place),
            Kind::Varnish => theirs(origin),
        };
        let file = place.join("config");
        std::fs::write(&file, config).map_err(|error| BenchError::io(&file, error))?;
        let file = file.display().to_string();
        let words = |nth: usize| -> Vec<String> {
            let (name, address) = (format!("cache-{nth}"), caches[nth].to_string());
            let own = place.join(&name).display().to_string();
            let helper = helpers[nth].to_string();
            let program = program.display().to_string();
            let rest: Vec<&str> = match kind {
                Kind::Ours(_) => vec![
                    "proxy",
                    "--config",
                    &file,
                    "--cluster-name",
                    &name,
                    "--node-state",
                    &own,
                    "--node-api",
                    &helper,
                    "--listen",
                    &address,
                    "--log",
                    "error",
                ],
                Kind::Varnish => servers::varnish(&file, &own, "malloc,64m", &address).to_vec(),
            };
            [PROGRAM, &program].into_iter().chain(rest).map(str::to_owned).collect()
        };
        let words: Vec<Vec<String>> = (0..CACHES).map(words).collect();
        let mut all = Caches { kind, at, place, words, running: vec![], _application: application };
        for nth in 0..CACHES {
            let started = all.begin(nth)?;
            all.running.push(started);
        }
        all.until_well()?;
        Ok(all)
    }

    fn begin(&self, nth: usize) -> Result<Running, BenchError> {
        let words: Vec<&str> = self.words[nth].iter().map(String::as_str).collect();
        Running::begin(&format!("cache-{nth}"), &words, &self.place)
    }

    /// Does this to a cache, and waits until all are well again.
    pub(super) fn suffer(&mut self, nth: usize, fault: Fault) -> Result<(), BenchError> {
        match (fault, self.kind) {
            (Fault::Kill, Kind::Ours(_)) => {
                self.running[nth].signal(Signal::KILL)?;
                self.running[nth].ends(PATIENCE)?;
                self.running[nth] = self.begin(nth)?;
            }
            // Its manager starts it again.
            (Fault::Kill, Kind::Varnish) => self.signal_worker(nth, Signal::KILL)?,
            (Fault::Pause, Kind::Ours(_)) => {
                self.running[nth].signal(Signal::STOP)?;
                std::thread::sleep(PAUSE);
                self.running[nth].signal(Signal::CONT)?;
            }
            (Fault::Pause, Kind::Varnish) => {
                self.signal_worker(nth, Signal::STOP)?;
                std::thread::sleep(PAUSE);
                self.signal_worker(nth, Signal::CONT)?;
            }
        }
        self.until_well()
    }

    /// Signals the process of a Varnish that has the pages: the one that its manager started.
    fn signal_worker(&self, nth: usize, signal: Signal) -> Result<(), BenchError> {
        let manager = self.running[nth].number();
        let children = std::fs::read_to_string(format!("/proc/{manager}/task/{manager}/children")).unwrap_or_default();
        let worker = children.split_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        match worker.map(|pid| kill_process(pid, signal)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.running[nth].failed("has no process with pages")),
        }
    }

    fn until_well(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        for nth in 0..CACHES {
            while !self.is_well(nth) {
                self.running[nth].look()?;
                if Instant::now() > until {
                    return Err(self.running[nth].failed(&format!("is not well after {PATIENCE:?}")));
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    /// Whether it has a lease, or answers.
    fn is_well(&self, nth: usize) -> bool {
        let (address, request) = match self.kind {
            Kind::Ours(_) => (self.at.helpers[nth], "GET /healthz HTTP/1.1\r\nHost: a".to_owned()),
            Kind::Varnish => {
                let (host, section) = (web::versions::host(0), web::versions::section(0));
                (self.at.caches[nth], format!("GET {section}/0 HTTP/1.1\r\nHost: {host}"))
            }
        };
        Asker::new(address, SOON).ask(&request).is_ok_and(|answer| answer.is_well())
    }
}

fn ours(provider: Provider, at: &Addresses, nodes: [SocketAddr; CACHES], place: &Path) -> String {
    let member = |nth: usize| {
        let name = format!("cache-{nth}");
        let roles = if nth < HOMES { "\"reader\", \"home\", \"updater\"" } else { "\"reader\", \"updater\"" };
        format!(
            "{{ name = \"{name}\", address = \"{}\", roles = [{roles}] }},\n",
            member_address(provider, &name, nodes[nth])
        )
    };
    let members: String = (0..CACHES).map(member).collect();
    format!(
        "[cluster]\nlease = \"{}ms\"\nmembers = [\n{members}]\n[pages]\nlongest_transaction = \"{}ms\"\n[fabric]\nprovider = \"{}\"\n[node]\nruntime = \"{}\"\n\
         [proxy]\norigin = [\"http://{}\"]\nthreads = 1\nroutes = [\n{{ prefix = \"/standard\", mode = \"standard\" }},\n\
         {{ prefix = \"/coherent\", writes = \"announced\" }},\n]\n",
        LEASE.as_millis(),
        LONGEST_TRANSACTION.as_millis(),
        provider.name(),
        place.join("run").display(),
        at.origin,
    )
}

fn theirs(origin: SocketAddr) -> String {
    servers::varnish_backend(origin)
        + "sub vcl_recv {\n  if (req.method == \"PURGE\") { return (purge); }\n\
           \x20 if (req.method == \"BAN\") { ban(req.http.X-Ban); return (synth(200, \"Banned\")); }\n}\n\
           sub vcl_backend_response { set beresp.http.X-Host = bereq.http.host; set beresp.http.X-Url = bereq.url; }\n\
           sub vcl_deliver { if (obj.hits > 0) { set resp.http.Cache-Status = \"varnish; hit\"; } }\n"
}
