//! Two shops on one database, a home beside each, and three proxies.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use verbena_fabric::{FabricConfig, Provider, try_out};
use verbena_namespaces::{End, Namespace};

use crate::process::{PATIENCE, Part, Place, Process};

/// The interconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fabric {
    /// Shared memory.
    Shm,
    /// Loopback.
    Tcp,
    /// A virtual link between two network namespaces: homes and shops are in the one, proxies and shoppers in the other. For root.
    Xdp,
}

/// How updates are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// The shop is unchanged: a proxy brackets every unsafe request with an update of everything.
    InvalidateAll,
    /// The shop says what pages are made of, and announces what it is about to touch at the helper beside it.
    DependencyLists,
}

/// How the system is made.
#[derive(Clone, Debug)]
pub struct Plan {
    pub fabric: Fabric,
    pub scheme: Scheme,
    pub lease: Duration,
    pub longest_transaction: Duration,
    /// Where the programs are.
    pub programs: PathBuf,
    /// Where homes and shops are, if it is elsewhere than proxies and shoppers: what [`go_apart`] gave.
    pub there: Option<Arc<Namespace>>,
}

/// All of it, running.
pub struct Town {
    pub processes: Vec<Process>,
    pub proxies: Vec<SocketAddr>,
}

const HOMES: [&str; 2] = ["app-1", "app-2"];
const SHOPS: [&str; 2] = ["shop-1", "shop-2"];
const PROXIES: [&str; 3] = ["proxy-1", "proxy-2", "proxy-3"];

/// Below the ports that the system gives to clients, so that a process that comes back finds its own free.
const SHOP_PORT: u16 = 8001;
const API_PORT: u16 = 9001;
const PROXY_PORT: u16 = 8081;
const FABRIC_PORT: u16 = 7001;

/// The two ends of the link, where there is one.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Moves this program, and what it starts, into a network of its own, and gives another one behind a link: what is sent from one to the other
/// is seen by the programs of `xdp`. Both are gone when the last process in them is.
///
/// # Errors
/// What is missing for that; nothing is moved then.
pub fn go_apart() -> Result<Arc<Namespace>, String> {
    try_out(Provider::Xdp, &FabricConfig::default()).map_err(|error| error.to_string())?;
    let apart = || {
        let (here, there) = (Namespace::new()?, Namespace::new()?);
        here.link(End::new("here", HERE), &there, End::new("there", THERE))?;
        here.join()?;
        Ok(Arc::new(there))
    };
    let needs = "xdp is tried between two networks, which takes CAP_SYS_ADMIN, CAP_NET_ADMIN and the command ip";
    apart().map_err(|error: verbena_namespaces::Error| format!("{error}; {needs}"))
}

impl Town {
    /// Starts everybody, with all files in `directory`, and waits until all serve.
    pub fn start(plan: &Plan, directory: &Path) -> Result<Self, String> {
        let host = own_address();
        let (_, shops) = sides(plan.fabric);
        let here = &Place { directory: directory.to_owned(), network: None };
        let there = &Place { network: plan.there.clone(), ..here.clone() };
        let failed = |error: std::io::Error| error.to_string();
        std::fs::write(directory.join("verbena.toml"), configuration(plan, directory)).map_err(failed)?;
        let (verbena, shop) = (program(&plan.programs, "verbena")?, program(&plan.programs, "shop")?);
        let mut processes = Vec::new();
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (port, name) in (API_PORT..).zip(HOMES) {
            let part = if processes.is_empty() { Part::Keeper } else { Part::Home };
            let arguments = words(&format!(
                "node --config verbena.toml --cluster-name {name} --node-state state-{name} --node-api {host}:{port} --json"
            ));
            processes.push(
                Process::start((name, part), &verbena, arguments, there, r#""event":"listening""#).map_err(failed)?,
            );
        }
        for (number, name) in (0..).zip(SHOPS) {
            let mut line = format!("--database shop.db --listen {shops}:{}", SHOP_PORT + number);
            if plan.scheme == Scheme::DependencyLists {
                line.push_str(&format!(" --helper http://{host}:{}", API_PORT + number));
            }
            processes
                .push(Process::start((name, Part::Shop), &shop, words(&line), there, "shop: http").map_err(failed)?);
        }
        let mut proxies = Vec::new();
        for (port, name) in (PROXY_PORT..).zip(PROXIES) {
            proxies.push(SocketAddr::from((host, port)));
            let arguments = words(&format!(
                "proxy --config verbena.toml --cluster-name {name} --node-state state-{name} --listen {host}:{port} --json"
            ));
            processes.push(
                Process::start((name, Part::Proxy), &verbena, arguments, here, r#""event":"serving""#)
                    .map_err(failed)?,
            );
        }
        let mut town = Town { processes, proxies };
        let until = Instant::now() + PATIENCE;
        while !town.all_serve() {
            town.tend()?;
            if Instant::now() > until {
                return Err("not everybody serves in time".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(town)
    }

    /// Does what is due.
    pub fn tend(&mut self) -> Result<(), String> {
        self.processes.iter_mut().try_for_each(Process::tend)
    }

    /// Whether everybody is there and serves.
    pub fn all_serve(&self) -> bool {
        self.processes.iter().all(Process::serves)
    }

    /// Asks everybody to end, those first who ask others, and waits until they have.
    pub fn end(mut self) -> Result<(), String> {
        for process in self.processes.iter_mut().rev() {
            process.ask_to_end();
        }
        let until = Instant::now() + PATIENCE;
        for process in &mut self.processes {
            loop {
                match process.ended()? {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("{} ended badly ({status})", process.name)),
                    None if Instant::now() > until => return Err(format!("{} does not end", process.name)),
                    None => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(())
    }
}

/// A loopback address of this process alone, so that runs at the same time do not meet.
fn own_address() -> Ipv4Addr {
    let [low, middle, high, _] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, 128 + high % 64, middle, low)
}

/// Where proxies are reached by homes, and where homes and shops are by proxies.
fn sides(fabric: Fabric) -> (Ipv4Addr, Ipv4Addr) {
    match fabric {
        Fabric::Shm | Fabric::Tcp => (own_address(), own_address()),
        Fabric::Xdp => (HERE, THERE),
    }
}

fn program(directory: &Path, name: &str) -> Result<PathBuf, String> {
    // Each process runs in the directory of its files.
    let program =
        std::path::absolute(directory.join(name)).map_err(|error| format!("{}: {error}", directory.display()))?;
    let missing = || format!("{} is not there: `cargo build --workspace --bins` makes it", program.display());
    if program.is_file() { Ok(program) } else { Err(missing()) }
}

fn configuration(plan: &Plan, directory: &Path) -> String {
    let fabric = match plan.fabric {
        Fabric::Shm => "provider = \"shm\"",
        Fabric::Tcp => "provider = \"tcp\"",
        // Nobody else is at the link.
        Fabric::Xdp => "provider = \"xdp\"\ninsecure = true",
    };
    let (here, there) = sides(plan.fabric);
    let (writes, home) = match plan.scheme {
        Scheme::InvalidateAll => ("", r#"["home"]"#),
        Scheme::DependencyLists => (ANNOUNCED, r#"["home", "updater"]"#),
    };
    let mut members = String::new();
    for (port, name) in (FABRIC_PORT..).zip(HOMES.iter().chain(&PROXIES)) {
        let (host, roles) = if HOMES.contains(name) { (there, home) } else { (here, r#"["reader", "updater"]"#) };
        let address = match plan.fabric {
            Fabric::Shm => format!("shm://{name}"),
            Fabric::Tcp => format!("tcp://{host}:{port}"),
            Fabric::Xdp => format!("xdp://{host}:{port}"),
        };
        members.push_str(&format!("    {{ name = \"{name}\", address = \"{address}\", roles = {roles} }},\n"));
    }
    let (lease, longest) = (plan.lease.as_millis(), plan.longest_transaction.as_millis());
    let runtime = directory.join("run");
    let origins = [0, 1].map(|number| format!("\"http://{there}:{}\"", SHOP_PORT + number)).join(", ");
    format!(
        "[cluster]\nlease = \"{lease}ms\"\nmembers = [\n{members}]\n\n[fabric]\n{fabric}\n\n[node]\nruntime = {runtime:?}\n\n\
         [pages]\nlongest_transaction = \"{longest}ms\"\n\n[proxy]\norigin = [{origins}]\n{writes}"
    )
}

const ANNOUNCED: &str = "routes = [{ prefix = \"/\", writes = \"announced\" }]\n";
