//! One scheme with all that it needs: an application, the home of its pages, and a proxy, each a process.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbena_fabric::Provider;

use super::machines::{Cores, Running};
use crate::error::BenchError;
use crate::helpers::member_address;
use crate::primitives::network::{CALLER_AT, Network, TARGET_AT};
use crate::web::{self, LARGEST_PRODUCT, OBJECTS, PAGE_BYTES, database_path};

/// How long everything may take until the first hit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where processes listen.
const PORTS: Range<u16> = 10_000..32_000;

/// From one look at it to the next.
const LOOK: Duration = Duration::from_millis(20);

/// Of a page in a proxy's store beside its body: key, headers, bookkeeping. Rather too much than too little.
const BESIDE_BODY: usize = 512;

/// A kilobyte of memory for each of these is the least for a proxy that takes pages of the usual size.
const MOST_FILLED: u64 = 8 << 10;

/// What stands behind the proxy, and how it tells of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    /// Plain files, which never change.
    Files,
    /// A database. Writes are not announced: nothing is cached.
    Untold,
    /// A database. The proxy takes every write for one of everything.
    OfEverything,
    /// A database. The application says which objects it writes.
    Announced,
    /// A shop's products. The application says which it changes.
    Products,
}

/// A stack that is running.
pub(super) struct Stack {
    running: Vec<Running>,
    /// Of the proxy.
    pub(super) address: SocketAddr,
    /// Of the application.
    pub(super) origin: SocketAddr,
    /// Of the proxy's helper, for its metrics.
    api: SocketAddr,
    first: String,
    /// Last: what the processes use is there until they have ended.
    _directory: TempDir,
}

/// What to start.
pub(super) struct Setup<'a> {
    pub(super) verbena: &'a Path,
    pub(super) cores: &'a Cores,
    /// Between the proxy and the home.
    pub(super) provider: Provider,
    /// Where home and application are, if not where proxy and client are.
    pub(super) network: Option<&'a Network>,
    pub(super) application: Application,
    /// What the application's database is at first.
    pub(super) database: Option<&'a Path>,
    pub(super) room: Room,
}

/// How many pages there is room for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    /// The default, which is enough for every row but those that say otherwise.
    Usual,
    /// In the proxy's memory, for this part (of 1) of the database's pages.
    Share(f64),
    /// At the home, words and dependencies of this many pages; in the proxy's memory, pages of a kilobyte each.
    Pages(u32),
    /// In the proxy's memory, `memory` bytes, with this policy when they are taken; at the home, `words` words.
    Replacing { memory: u64, replacement: &'static str, words: usize },
}

impl Setup<'_> {
    /// Starts it all. [`Stack::ready`] waits for it.
    pub(super) fn start(&self) -> Result<Stack, BenchError> {
        let directory = crate::run::directory()?;
        let place = directory.path();
        let [mut origin, address, api, home_api, mut proxy_node, mut home_node] = free_addresses()?;
        if self.network.is_some() {
            // In these networks no other process takes ports.
            origin.set_ip(TARGET_AT.into());
            home_node.set_ip(TARGET_AT.into());
            proxy_node.set_ip(CALLER_AT.into());
        }
        let text = |path: &Path| path.display().to_string();

        let config = place.join("verbena.toml");
        let content = self.config(&text(&place.join("run")), origin, address, proxy_node, home_node);
        std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;

        let listen = origin.to_string();
        let own = place.join("database");
        if let Some(template) = self.database {
            std::fs::copy(template, &own).map_err(|error| BenchError::io(template, error))?;
        }
        let (database, helper) = (text(&own), format!("http://{home_api}"));
        let application: Vec<&str> = match self.application {
            Application::Files => vec![web::PAGES, "--listen", &listen],
            Application::Untold | Application::OfEverything => {
                vec![web::DATABASE, "--listen", &listen, "--file", &database]
            }
            Application::Announced => {
                vec![web::DATABASE, "--listen", &listen, "--file", &database, "--helper", &helper]
            }
            Application::Products => vec![web::PRODUCTS, "--listen", &listen, "--file", &database, "--helper", &helper],
        };
        let node = |command, name, api: SocketAddr| -> Vec<String> {
            let state = text(&place.join(name));
            let (verbena, config, api) = (text(self.verbena), text(&config), api.to_string());
            let words = [web::PROGRAM, &verbena, command, "--config", &config, "--cluster-name", name];
            words.into_iter().chain(["--node-state", &state, "--node-api", &api]).map(str::to_owned).collect()
        };
        let (proxy, home) = (node("proxy", "proxy", api), node("node", "home", home_api));
        let there = |what: &str, words: &[&str]| {
            let start = || Running::start(what, &self.cores.servers, words, place);
            self.network.map_or_else(|| Ok(start()), |network| network.target.visit(start))?
        };
        let running = vec![
            Running::start("proxy", &self.cores.proxies, &words(&proxy), place)?,
            there("home", &words(&home))?,
            there("application", &application)?,
        ];
        let first = match self.application {
            Application::Files => "/8192/0".to_owned(),
            Application::Products => web::product_path(0),
            _ => database_path(1, 0),
        };
        Ok(Stack { running, address, origin, api, first, _directory: directory })
    }

    /// The proxy's node is the keeper: it is not on the core that is loaded. Leases are long, because the home is.
    fn config(
        &self,
        runtime: &str,
        origin: SocketAddr,
        address: SocketAddr,
        proxy_node: SocketAddr,
        home_node: SocketAddr,
    ) -> String {
        let writes = match self.application {
            Application::Untold | Application::Announced | Application::Products => "announced",
            Application::Files | Application::OfEverything => "unsafe-methods",
        };
        let (room, pages) = match self.room {
            Room::Usual => Default::default(),
            Room::Share(share) => {
                let pages = (share * f64::from(OBJECTS)).round();
                let memory = (pages * (PAGE_BYTES + BESIDE_BODY) as f64) as u64;
                // A page's own limit is never the one that keeps it out.
                (format!("memory = \"{memory}B\"\nlargest = \"{PAGE_BYTES}B\"\n"), String::new())
            }
            Room::Pages(pages) => {
                let memory = format!("memory = \"{}B\"\n", u64::from(pages).max(MOST_FILLED) << 10);
                (memory, format!("[pages]\nwords = {pages}\nsets = {pages}\n"))
            }
            Room::Replacing { memory, replacement, words } => {
                let largest = memory.min(LARGEST_PRODUCT);
                let memory = format!("memory = \"{memory}B\"\nlargest = \"{largest}B\"\n");
                (format!("{memory}replacement = \"{replacement}\"\n"), format!("[pages]\nwords = {words}\n"))
            }
        };
        // No other host is on the experiment's own link.
        let insecure = self.network.is_some();
        format!(
            "[cluster]\nlease = \"10s\"\nmembers = [\n\
             {{ name = \"proxy\", address = \"{}\", roles = [\"reader\", \"updater\"] }},\n\
             {{ name = \"home\", address = \"{}\", roles = [\"home\", \"updater\"] }},\n]\n\
             [fabric]\nprovider = \"{}\"\ninsecure = {insecure}\n[node]\nruntime = \"{runtime}\"\n\
             [proxy]\nlisten = \"{address}\"\norigin = [\"http://{origin}\"]\nthreads = 1\nclient_timeout = \"2m\"\n{room}\
             routes = [{{ prefix = \"/\", writes = \"{writes}\" }}]\n{pages}",
            member_address(self.provider, "proxy", proxy_node),
            member_address(self.provider, "home", home_node),
            self.provider.name(),
        )
    }
}

impl Stack {
    /// Waits until a page comes out of the cache: all is there, and found each other.
    pub(super) fn ready(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.look()?;
            let last = match get(self.address, &self.first) {
                Ok(answer) if answer.contains("verbena; hit") => return Ok(()),
                Ok(answer) => answer.lines().find(|line| line.starts_with("cache-status")).unwrap_or("none").to_owned(),
                Err(error) => error.to_string(),
            };
            if Instant::now() > until {
                let proxy = &self.running[0];
                return Err(proxy.failed(&format!("gave no hit within {PATIENCE:?}; its last answer: {last}")));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The path of the page that it was asked for first.
    pub(super) fn first(&self) -> &str {
        &self.first
    }

    /// An error if any of it has ended.
    pub(super) fn look(&mut self) -> Result<(), BenchError> {
        self.running.iter_mut().try_for_each(Running::look)
    }

    /// Hits that the proxy has answered, and the microseconds that it took from the heads of the requests to those of the answers.
    pub(super) fn hits(&self) -> Result<(f64, f64), BenchError> {
        let [count, sum] =
            self.metrics(["verbena_proxy_hit_latency_seconds_count", "verbena_proxy_hit_latency_seconds_sum"])?;
        Ok((count, sum * 1e6))
    }

    /// Metrics of the proxy that have no labels.
    pub(super) fn metrics<const N: usize>(&self, names: [&str; N]) -> Result<[f64; N], BenchError> {
        let failed = |reason: String| BenchError::Target { doing: "asked for metrics".to_owned(), reason };
        let metrics = get(self.api, "/metrics").map_err(|error| failed(error.to_string()))?;
        let mut values = [0.0; N];
        for (name, value) in names.into_iter().zip(&mut values) {
            let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            *value = found.ok_or_else(|| failed(format!("there is no {name}")))?;
        }
        Ok(values)
    }

    /// Bytes of memory that proxy and home take. What they share with each other or others counts by its part.
    pub(super) fn memory(&self) -> Result<u64, BenchError> {
        self.running[..2].iter().map(Running::memory).sum()
    }
}

/// Addresses at which no process listens, each given once. Not of the ports that the system gives to connections (32768
/// and more): before a process listens at its own, a connection of another could be there.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], BenchError> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Experiments side by side begin in places of their own.
    let first = std::process::id().wrapping_mul(97);
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    let next = |_| {
        let nth = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        SocketAddr::from(([127, 0, 0, 1], PORTS.start + nth as u16))
    };
    for address in &mut addresses {
        let free = PORTS.map(next).find(|candidate| TcpListener::bind(candidate).is_ok());
        *address = free.ok_or_else(|| BenchError::io(Path::new("127.0.0.1"), ErrorKind::AddrInUse.into()))?;
    }
    Ok(addresses)
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// As text, whatever it is.
pub(super) fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&web::get(address, path, PATIENCE)?).into_owned())
}
