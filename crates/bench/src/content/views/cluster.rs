//! A proxy, the homes of its pages and an application, each a process. The proxy's node is the keeper, so that homes may come and go.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::machines::{Cores, Running};
use super::super::stack::{free_addresses, get};
use crate::error::BenchError;
use crate::web;

/// Homes at first.
pub(super) const HOMES: usize = 3;
/// The one that comes and goes.
pub(super) const GUEST: usize = HOMES - 1;
/// How long anything may take to come up, or to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// From one look to the next.
const LOOK: Duration = Duration::from_millis(20);
/// Page words of a home for each page: at this number hardly any pages share a word, so sharing does not affect the
/// counts.
const WORDS_EACH: usize = 4;

pub(super) struct Cluster<'a> {
    verbena: &'a Path,
    cores: &'a Cores,
    homes: [Option<Running>; HOMES],
    home_apis: [SocketAddr; HOMES],
    others: [Running; 2],
    /// Of the proxy.
    pub(super) address: SocketAddr,
    api: SocketAddr,
    /// Last: what the processes use is there until they have ended.
    directory: TempDir,
}

/// What the proxy has answered so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered {
    pub(super) hits: f64,
    /// By reason.
    pub(super) misses: BTreeMap<String, f64>,
}

impl<'a> Cluster<'a> {
    /// Starts all, with room for `pages` pages; `lease_s` seconds are the lease, and the longest transaction.
    /// [`ready`](Self::ready) waits for it.
    pub(super) fn start(verbena: &'a Path, cores: &'a Cores, pages: usize, lease_s: u64) -> Result<Self, BenchError> {
        let directory = crate::run::directory()?;
        let place = directory.path();
        let [origin, address, api, proxy_node] = free_addresses()?;
        let home_nodes = free_addresses::<HOMES>()?;
        let home_apis = free_addresses::<HOMES>()?;
        let member = |(at, node)| {
            format!("{{ name = \"home-{at}\", address = \"tcp://{node}\", roles = [\"home\", \"updater\"] }},\n")
        };
        let homes: String = home_nodes.iter().enumerate().map(member).collect();
        let memory = pages.max(8 << 10) << 10;
        let content = format!(
            "[cluster]\nlease = \"{lease_s}s\"\nmembers = [\n\
             {{ name = \"proxy\", address = \"tcp://{proxy_node}\", roles = [\"reader\", \"updater\"] }},\n{homes}]\n\
             [fabric]\nprovider = \"tcp\"\n[node]\nruntime = \"{runtime}\"\n\
             [proxy]\nlisten = \"{address}\"\norigin = [\"http://{origin}\"]\nthreads = 1\nclient_timeout = \"2m\"\nmemory = \"{memory}B\"\n\
             [pages]\nwords = {words}\nsets = {pages}\nlongest_transaction = \"{lease_s}s\"\n",
            runtime = place.join("run").display(),
            words = WORDS_EACH * pages,
        );
        let config = place.join("verbena.toml");
        std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;
        let listen = origin.to_string();
        let application = Running::start("application", &cores.servers, &[web::PAGES, "--listen", &listen], place)?;
        let proxy = node(verbena, place, "proxy", "proxy", &cores.proxies, api)?;
        let others = [proxy, application];
        let mut cluster =
            Cluster { verbena, cores, homes: [const { None }; HOMES], home_apis, others, address, api, directory };
        (0..HOMES).try_for_each(|home| cluster.start_home(home))?;
        Ok(cluster)
    }

    /// Waits until all homes are in the view, and none of them waits for another node.
    pub(super) fn ready(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.others.iter_mut().try_for_each(Running::look)?;
            if self.is_whole().unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(self.others[0].failed(&format!("was not ready within {PATIENCE:?}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_whole(&self) -> Result<bool, BenchError> {
        let [members, view, in_effect] =
            values(self.api, ["verbena_node_members", "verbena_node_view", "verbena_node_view_in_effect"])?;
        let mut awaiting = 0.0;
        for api in self.home_apis {
            let [of_one] = values(api, ["verbena_content_awaiting"])?;
            awaiting += of_one;
        }
        Ok(members as usize == HOMES + 1 && view == in_effect && awaiting == 0.0)
    }

    pub(super) fn start_home(&mut self, home: usize) -> Result<(), BenchError> {
        let name = format!("home-{home}");
        let place = self.directory.path();
        let started = node(self.verbena, place, "node", &name, &self.cores.servers, self.home_apis[home])?;
        self.homes[home] = Some(started);
        Ok(())
    }

    /// Asks it to leave in order.
    pub(super) fn leave(&mut self, home: usize) -> Result<(), BenchError> {
        self.homes[home].as_ref().map_or(Ok(()), Running::ask_to_end)
    }

    /// Kills it, or waits for the end of one that leaves.
    pub(super) fn end(&mut self, home: usize, killed: bool) -> Result<(), BenchError> {
        match self.homes[home].take() {
            Some(mut running) if !killed => running.ends(PATIENCE),
            _ => Ok(()),
        }
    }

    /// The newest view that is in effect, as the proxy knows it.
    pub(super) fn view_in_effect(&self) -> Result<f64, BenchError> {
        Ok(values(self.api, ["verbena_node_view_in_effect"])?[0])
    }

    /// Pages whose dependencies a home keeps. It says so a moment late: until it says the same twice.
    pub(super) fn pages_of(&self, home: usize) -> Result<f64, BenchError> {
        let read = || Ok::<f64, BenchError>(values(self.home_apis[home], ["verbena_content_pages"])?[0]);
        let (until, mut last) = (Instant::now() + PATIENCE, read()?);
        loop {
            std::thread::sleep(10 * LOOK);
            let now = read()?;
            if now == last || Instant::now() > until {
                return Ok(now);
            }
            last = now;
        }
    }

    /// What the proxy has answered.
    pub(super) fn answered(&self) -> Result<Answered, BenchError> {
        let metrics = metrics(self.api)?;
        let labelled = |name: &str| -> BTreeMap<String, f64> {
            let one = |line: &str| {
                let (label, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("\"} ")?;
                Some((label.split_once("=\"")?.1.to_owned(), value.trim().parse().ok()?))
            };
            metrics.lines().filter_map(one).collect()
        };
        let hits = labelled("verbena_proxy_answers_total").get("hit").copied().unwrap_or(0.0);
        Ok(Answered { hits, misses: labelled("verbena_proxy_misses_total") })
    }

    /// Bytes of memory of all nodes.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        self.homes.iter().flatten().chain(&self.others[..1]).map(Running::memory).sum()
    }
}

impl Answered {
    /// What came since.
    pub(super) fn since(&self, before: &Answered) -> Answered {
        let more = |(reason, count): (&String, &f64)| {
            let more = count - before.misses.get(reason).copied().unwrap_or(0.0);
            (more > 0.0).then(|| (reason.clone(), more))
        };
        Answered { hits: self.hits - before.hits, misses: self.misses.iter().filter_map(more).collect() }
    }
}

fn node(
    verbena: &Path,
    place: &Path,
    command: &str,
    name: &str,
    core: &str,
    api: SocketAddr,
) -> Result<Running, BenchError> {
    let text = |path: &Path| path.display().to_string();
    let (program, config, state) = (text(verbena), text(&place.join("verbena.toml")), text(&place.join(name)));
    let api = api.to_string();
    let words = [web::PROGRAM, &program, command, "--config", &config, "--cluster-name", name];
    Running::start(name, core, &[&words[..], &["--node-state", &state, "--node-api", &api]].concat(), place)
}

fn metrics(api: SocketAddr) -> Result<String, BenchError> {
    get(api, "/metrics").map_err(|error| missing(error.to_string()))
}

/// Metrics that have no labels.
fn values<const N: usize>(api: SocketAddr, names: [&str; N]) -> Result<[f64; N], BenchError> {
    let metrics = metrics(api)?;
    let mut values = [0.0; N];
    for (name, value) in names.into_iter().zip(&mut values) {
        let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        *value = found.ok_or_else(|| missing(format!("there is no {name}")))?;
    }
    Ok(values)
}

fn missing(reason: String) -> BenchError {
    BenchError::Target { doing: "asked for metrics".to_owned(), reason }
}
