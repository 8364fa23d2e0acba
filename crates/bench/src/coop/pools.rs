//! Pools of one cache, with nodes behind them that only lend, and the origin of the files.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::Client;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::run::directory;
use crate::web::{self, PROGRAM};

/// How long nodes may take to meet.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);
/// Leases on a machine with more processes than cores.
const LEASE: &str = "20s";

pub(super) fn failed(doing: &str, reason: impl std::fmt::Display) -> BenchError {
    BenchError::Target { doing: doing.to_owned(), reason: reason.to_string() }
}

/// Processes that are one cache.
pub(super) struct Pools {
    running: Vec<Running>,
    /// Of the proxies.
    pub(super) addresses: Vec<SocketAddr>,
    members: u64,
    /// Last: what the processes use is there until they have ended.
    _directory: TempDir,
}

impl Pools {
    /// Starts `proxies` proxies and `passive` passive nodes, each with this memory. [`ready`](Self::ready) waits for
    /// them.
    pub(super) fn start(
        verbena: &Path,
        proxies: usize,
        passive: usize,
        memory: u64,
        more: &[&str],
    ) -> Result<Pools, BenchError> {
        let directory = directory()?;
        let place = directory.path();
        let text = |path: &Path| path.display().to_string();
        let (verbena, memory) = (text(verbena), format!("{}KiB", memory >> 10));
        let (runtime, state) = (text(&place.join("run")), text(&place.join("state")));
        let usual = ["--node-runtime", &runtime, "--node-state", &state, "--cluster-lease", LEASE];
        let (mut running, mut addresses) = (vec![], vec![]);
        for nth in 0..proxies {
            let [address] = free_addresses()?;
            let listen = address.to_string();
            let words = [PROGRAM, &verbena, "pool", "--listen", &listen, "--memory", &memory];
            running.push(Running::begin(&format!("pool-{nth}"), &[&words[..], &usual, more].concat(), place)?);
            addresses.push(address);
        }
        for nth in 0..passive {
            let words = [PROGRAM, &verbena, "node", "--pool-memory", &memory, "--pool-passive"];
            running.push(Running::begin(&format!("passive-{nth}"), &[&words[..], &usual].concat(), place)?);
        }
        Ok(Pools { running, addresses, members: (proxies + passive) as u64, _directory: directory })
    }

    /// Waits until all are members and every home decides.
    pub(super) fn ready(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        for nth in 0..self.addresses.len() {
            self.running[nth].listens(self.addresses[nth])?;
        }
        loop {
            self.running.iter_mut().try_for_each(Running::look)?;
            if self.is_ready().unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(self.running[0].failed(&format!("was not one cache with the others within {PATIENCE:?}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_ready(&self) -> std::io::Result<bool> {
        for address in &self.addresses {
            let mut client = Client::connect(*address)?;
            if client.statistic("pool_members")? != self.members {
                return Ok(false);
            }
            for nth in 0..64 {
                client.set(&format!("ready-{nth}"), b"?")?;
            }
        }
        Ok(true)
    }

    /// Sum over all proxies.
    pub(super) fn statistic(&self, name: &str) -> Result<u64, BenchError> {
        let one = |address: &SocketAddr| Client::connect(*address)?.statistic(name);
        self.addresses.iter().map(one).sum::<std::io::Result<u64>>().map_err(|error| failed("ask a pool", error))
    }

    /// Nothing is in it any more.
    pub(super) fn flush(&self) -> Result<(), BenchError> {
        let flush = || Client::connect(self.addresses[0])?.order("flush_all", b"OK");
        flush().map_err(|error| failed("flush a pool", error))
    }
}

/// Files, one at `/BYTES/NUMBER`.
pub(super) struct Origin {
    _running: Running,
    address: SocketAddr,
    _directory: TempDir,
}

impl Origin {
    pub(super) fn start() -> Result<Origin, BenchError> {
        let directory = directory()?;
        let [address] = free_addresses()?;
        let listen = address.to_string();
        let mut running = Running::begin("origin", &[web::PAGES, "--listen", &listen], directory.path())?;
        running.listens(address)?;
        Ok(Origin { _running: running, address, _directory: directory })
    }

    /// What a file is called, at the origin and in the cache.
    pub(super) fn path(bytes: usize, file: u64) -> String {
        format!("/{bytes}/{file}")
    }

    /// The file.
    pub(super) fn get(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let answer = web::get(self.address, path, PATIENCE)?;
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| answer[at + 4..].to_vec());
        body.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }
}
