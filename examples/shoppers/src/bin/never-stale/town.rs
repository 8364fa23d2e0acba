//! Two shops on one database, a home for each, and three proxies; and three members of etcd, where it numbers the views.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::net::UnixStream;
use verbena_fabric::{FabricConfig, Provider, try_out};
use verbena_namespaces::{End, Namespace};
use verbena_shoppers::Door;

use crate::network::{Network, inside, outside};
use crate::process::{PATIENCE, Part, Place, Process};
use crate::{ask, doors, etcd};

/// The interconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fabric {
    /// Shared memory.
    Shm,
    /// Loopback.
    Tcp,
    /// A virtual link between two network namespaces: homes and shops are in the one, proxies and shoppers in the other. For root.
    Xdp,
    /// Two RDMA devices of this machine: homes and shops are at the one, proxies and shoppers at the other. `verbena` is to be built with `verbs`.
    Verbs,
}

/// Who numbers the views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Cluster {
    /// The first home.
    Static,
    /// Whichever node holds the office, in an etcd of three members.
    Etcd,
}

/// How updates are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// The shop is unchanged: a proxy brackets every unsafe request with an update of everything.
    InvalidateAll,
    /// The shop says what pages are made of, and announces what it is about to touch at its helper.
    DependencyLists,
}

/// How the system is made.
#[derive(Clone, Debug)]
pub struct Plan {
    pub fabric: Fabric,
    pub cluster: Cluster,
    pub scheme: Scheme,
    pub lease: Duration,
    pub longest_transaction: Duration,
    /// Where the programs are.
    pub programs: PathBuf,
    /// Standard mode, slices, TLS and both versions of HTTP, too.
    pub mixed: bool,
}

/// In which networks all are.
pub enum Ground {
    /// All in that of this program.
    One,
    /// All in that of this program, proxies at the first address and all else at the second.
    Devices([Ipv4Addr; 2]),
    /// Homes and shops in this one, proxies and shoppers in that of this program.
    Two(Arc<Namespace>),
    /// Each in its own.
    Many(Network),
}

/// All of it, running.
pub struct Town {
    pub processes: Vec<Process>,
    pub proxies: Vec<SocketAddr>,
    /// The ways to them.
    pub doors: Vec<Door>,
    /// Where each home's HTTP is.
    pub homes: Vec<PathBuf>,
    /// Where all nodes' sockets are.
    run: PathBuf,
    pub ground: Ground,
}

const HOMES: [&str; 2] = ["app-1", "app-2"];
const SHOPS: [&str; 2] = ["shop-1", "shop-2"];
const PROXIES: [&str; 3] = ["proxy-1", "proxy-2", "proxy-3"];
/// Numbers: nodes from 1, homes first, members of etcd from `etcd::FIRST`.
const FIRST_PROXY: u8 = 3;
const FIRST_SHOP: u8 = 21;

/// Below the ports that the system gives to clients, so that a process that comes back finds its own free.
const SHOP_PORT: u16 = 8001;
const PROXY_PORT: u16 = 8081;
const FABRIC_PORT: u16 = 7001;

/// Messages that a node's adapter has sent.
const BY_ADAPTERS: [&str; 1] = ["verbena_fabric_messages_sent_total"];

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

impl Ground {
    /// Where somebody is reached from outside, by its number.
    fn outside(&self, number: u8) -> Ipv4Addr {
        match self {
            Ground::Many(_) => outside(number),
            Ground::One | Ground::Devices(_) | Ground::Two(_) => self.inside(number),
        }
    }

    /// Where a member is known to the others.
    fn inside(&self, number: u8) -> Ipv4Addr {
        match self {
            Ground::One => own_address(),
            Ground::Devices(at) => at[usize::from(!is_proxy(number))],
            Ground::Two(_) if is_proxy(number) => HERE,
            Ground::Two(_) => THERE,
            Ground::Many(_) => inside(number),
        }
    }

    /// The network that somebody lives in: a new one, where each has its own.
    fn network(&self, number: u8) -> Result<Option<Arc<Namespace>>, String> {
        match self {
            Ground::One | Ground::Devices(_) => Ok(None),
            Ground::Two(there) => Ok((!is_proxy(number)).then(|| there.clone())),
            Ground::Many(network) if number < FIRST_SHOP => network.member(number).map(Some),
            Ground::Many(network) => network.other(number).map(Some),
        }
        .map_err(|error| error.to_string())
    }
}

impl Town {
    /// Starts everybody, with all files in `directory`, and waits until all serve.
    pub fn start(plan: &Plan, ground: Ground, directory: &Path) -> Result<Self, String> {
        let (verbena, shop) = (program(&plan.programs, "verbena")?, program(&plan.programs, "shop")?);
        let run = directory.join("run");
        let homes = HOMES.iter().map(|name| socket(&run, name)).collect();
        let proxies = (PROXY_PORT..).zip(FIRST_PROXY..).zip(PROXIES);
        let proxies: Vec<_> =
            proxies.map(|((port, number), _)| SocketAddr::from((ground.outside(number), port))).collect();
        let doors = match plan.mixed {
            true => doors::mixed(&proxies, directory)?,
            false => proxies.iter().copied().map(Door::from).collect(),
        };
        let mut town = Town { processes: Vec::new(), proxies, doors, homes, run, ground };
        let start = |town: &mut Town, name: &str, part, number, program: &Path, arguments: &str, greeting| {
            let place = Place { directory: directory.to_owned(), network: town.ground.network(number)? };
            let arguments = arguments.split(' ').map(OsString::from).collect();
            let process = Process::start((name, part), program, arguments, &place, greeting);
            town.processes.push(process.map_err(|error| error.to_string())?);
            Ok::<(), String>(())
        };
        if plan.cluster == Cluster::Etcd {
            let place = |number| Ok(Place { directory: directory.to_owned(), network: town.ground.network(number)? });
            town.processes = etcd::start(place)?;
            // Who has no etcd asks again, and so would be a while later.
            town.wait_for_all()?;
        }
        for (number, name) in nodes() {
            let file = format!("{name}.toml");
            let text = configuration(plan, &town.ground, directory, number, name);
            std::fs::write(directory.join(&file), text).map_err(|error| format!("{file}: {error}"))?;
        }
        for (number, name) in nodes().take(HOMES.len()) {
            let keeps = number == 1 && plan.cluster == Cluster::Static;
            let part = if keeps { Part::Keeper } else { Part::Home };
            let arguments = format!("node --config {name}.toml --json");
            start(&mut town, name, part, number, &verbena, &arguments, r#""event":"listening""#)?;
        }
        for ((number, port), (name, socket)) in
            (FIRST_SHOP..).zip(SHOP_PORT..).zip(SHOPS.iter().zip(town.homes.clone()))
        {
            let mut arguments = format!("--database shop.db --listen {}:{port}", town.ground.outside(number));
            if plan.scheme == Scheme::DependencyLists {
                arguments.push_str(&format!(" --helper {}", socket.display()));
            }
            if plan.mixed {
                arguments.push_str(" --lifetime 600");
            }
            start(&mut town, name, Part::Shop, number, &shop, &arguments, "shop: http")?;
        }
        for ((number, name), address) in nodes().skip(HOMES.len()).zip(town.proxies.clone()) {
            let arguments = format!("proxy --config {name}.toml --listen {address} --json");
            start(&mut town, name, Part::Proxy, number, &verbena, &arguments, r#""event":"serving""#)?;
        }
        town.wait_for_all()?;
        Ok(town)
    }

    fn wait_for_all(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while !self.all_serve() {
            self.tend()?;
            if Instant::now() > until {
                return Err("not everybody serves in time".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What the adapters of all nodes that answer have sent, as messages, since they began to live.
    pub async fn messages_by_adapters(&self) -> u64 {
        let mut sum = 0.0;
        for (_, name) in nodes() {
            let socket = socket(&self.run, name);
            sum += ask::sum(UnixStream::connect(&socket), &BY_ADAPTERS, PATIENCE).await.unwrap_or(0.0);
        }
        sum as u64
    }

    /// The processes of one part, by their numbers here.
    pub fn all_of(&self, part: Part) -> Vec<usize> {
        (0..self.processes.len()).filter(|&at| self.processes[at].part == part).collect()
    }

    /// Every node, by its number here and as a member.
    pub fn nodes(&self) -> Vec<(usize, u8)> {
        let at = |name| self.processes.iter().position(|process| process.name == name);
        nodes().filter_map(|(number, name)| Some((at(name)?, number))).collect()
    }

    /// The proxies, in the order of their addresses.
    pub fn proxies_as_nodes(&self) -> Vec<(usize, u8)> {
        self.nodes().split_off(HOMES.len())
    }

    /// Does what is due.
    pub fn tend(&mut self) -> Result<(), String> {
        if let Ground::Many(network) = &mut self.ground {
            network.tend().map_err(|error| error.to_string())?;
        }
        self.processes.iter_mut().try_for_each(Process::tend)
    }

    /// Whether everybody is there and serves.
    pub fn all_serve(&self) -> bool {
        self.processes.iter().all(Process::serves)
    }

    /// Whether, beyond that, no way is closed.
    pub fn is_whole(&self) -> bool {
        self.all_serve() && !matches!(&self.ground, Ground::Many(network) if !network.is_whole())
    }

    /// Asks everybody to end, those first who ask others, and waits until they have; etcd when nobody is left who asks it.
    pub fn end(mut self) -> Result<(), String> {
        let (etcd, mut others): (Vec<_>, Vec<_>) =
            self.processes.drain(..).partition(|process| process.part == Part::Etcd);
        others.reverse();
        end_all(others)?;
        end_all(etcd)
    }
}

fn end_all(mut processes: Vec<Process>) -> Result<(), String> {
    processes.iter_mut().for_each(Process::ask_to_end);
    let until = Instant::now() + PATIENCE;
    for process in &mut processes {
        while !process.ended_well()? {
            if Instant::now() > until {
                return Err(format!("{} does not end", process.name));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Where a node's HTTP is.
fn socket(run: &Path, name: &str) -> PathBuf {
    run.join(format!("{name}.http.sock"))
}

/// Every node: its number and its name, homes first.
fn nodes() -> impl Iterator<Item = (u8, &'static str)> {
    (1..).zip(HOMES.into_iter().chain(PROXIES))
}

fn is_proxy(number: u8) -> bool {
    (FIRST_PROXY..etcd::FIRST).contains(&number)
}

/// A loopback address of this process alone, so that runs at the same time do not meet.
fn own_address() -> Ipv4Addr {
    let [low, middle, high, _] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, 128 + high % 64, middle, low)
}

fn program(directory: &Path, name: &str) -> Result<PathBuf, String> {
    // Each process runs in the directory of its files.
    let program =
        std::path::absolute(directory.join(name)).map_err(|error| format!("{}: {error}", directory.display()))?;
    let missing = || format!("{} is not there: `cargo build --workspace --bins` makes it", program.display());
    if program.is_file() { Ok(program) } else { Err(missing()) }
}

fn configuration(plan: &Plan, ground: &Ground, directory: &Path, own: u8, name: &str) -> String {
    let provider = match plan.fabric {
        Fabric::Shm => "shm",
        Fabric::Tcp => "tcp",
        Fabric::Xdp => "xdp",
        Fabric::Verbs => "verbs",
    };
    // Nobody else is at the links.
    let insecure = !matches!(ground, Ground::One);
    let (writes, home) = match plan.scheme {
        Scheme::InvalidateAll => ("", r#"["home"]"#),
        Scheme::DependencyLists if plan.mixed => (MIXED, r#"["home", "updater"]"#),
        Scheme::DependencyLists => (ANNOUNCED, r#"["home", "updater"]"#),
    };
    let is_secure = plan.mixed && is_proxy(own) && doors::is_secure(usize::from(own - FIRST_PROXY));
    let [certificate, key] = doors::FILES;
    let tls =
        if is_secure { format!("tls_cert = [\"{certificate}\"]\ntls_key = [\"{key}\"]\n") } else { String::new() };
    let line = |number: u8, name: &str| {
        let roles = if is_proxy(number) { r#"["reader", "updater"]"# } else { home };
        let address = match plan.fabric {
            Fabric::Shm => format!("shm://{name}"),
            _ => format!("{provider}://{}:{}", ground.inside(number), FABRIC_PORT + u16::from(number)),
        };
        (address, roles)
    };
    let members = match plan.cluster {
        Cluster::Static => {
            let member = |(number, name)| {
                let (address, roles) = line(number, name);
                format!("    {{ name = \"{name}\", address = \"{address}\", roles = {roles} }},\n")
            };
            format!("members = [\n{}]\n", nodes().map(member).collect::<String>())
        }
        Cluster::Etcd => {
            let (address, roles) = line(own, name);
            format!("provider = \"etcd\"\naddress = \"{address}\"\nroles = {roles}\n\n{}", etcd::configuration())
        }
    };
    let (lease, longest) = (plan.lease.as_millis(), plan.longest_transaction.as_millis());
    let (runtime, state) = (directory.join("run"), directory.join(format!("state-{name}")));
    let origin = |(number, port)| format!("\"http://{}:{port}\"", ground.outside(number));
    let origins = (FIRST_SHOP..).zip(SHOP_PORT..).take(SHOPS.len()).map(origin).collect::<Vec<_>>().join(", ");
    format!(
        "[cluster]\nname = \"{name}\"\nlease = \"{lease}ms\"\n{members}\n[fabric]\nprovider = \"{provider}\"\n\
         insecure = {insecure}\n\n[node]\nruntime = {runtime:?}\nstate = {state:?}\n\n[pages]\n\
         longest_transaction = \"{longest}ms\"\n\n[proxy]\norigin = [{origins}]\n{tls}{writes}"
    )
}

const MIXED: &str = "routes = [
    { prefix = \"/\", writes = \"announced\", mode = \"standard\", slice = \"4KiB\" },
    { prefix = \"/category\", mode = \"coherent\" },
    { prefix = \"/cart\", mode = \"coherent\" },
]\n";
const ANNOUNCED: &str = "routes = [{ prefix = \"/\", writes = \"announced\" }]\n";
