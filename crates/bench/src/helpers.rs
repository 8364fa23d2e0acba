//! Nodes started as users start them, each a process, for programs at their helpers.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use verbena_client::{Helper, Socket};
use verbena_fabric::Provider;
use verbena_namespaces::Namespace;

use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::web::PROGRAM;

/// Nodes of one cluster, at the most.
const MOST: usize = 5;
/// A node is ready within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// From one look for a helper to the next.
const LOOK: Duration = Duration::from_millis(20);

/// A network that a node is in, and where others reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) network: &'a Namespace,
    pub(crate) address: IpAddr,
}

/// How a member is found that has this name, and listens here where the provider has addresses.
pub(crate) fn member_address(provider: Provider, name: &str, at: SocketAddr) -> String {
    match provider {
        Provider::Shm => format!("shm://{name}"),
        Provider::Verbs | Provider::Xdp | Provider::Tcp => format!("{}://{at}", provider.name()),
    }
}

/// Homes, which no program is at, and nodes beside them.
pub(crate) struct Helpers {
    running: Vec<Running>,
    names: Vec<String>,
    /// Of programs.
    core: Option<String>,
    /// Last: what the processes use is there until they have ended.
    directory: TempDir,
}

impl Helpers {
    /// Starts `homes` homes and `count` other nodes; homes on the first of `cores`, all else on the other, if there are any.
    pub(crate) fn start(
        verbena: &Path,
        provider: Provider,
        homes: usize,
        count: usize,
        cores: Option<[usize; 2]>,
    ) -> Result<Self, BenchError> {
        Helpers::start_at(verbena, provider, homes, count, cores, &[])
    }

    /// The same, each node in the network of its seat, homes first; without seats all of them here. Programs reach helpers by files, in whichever network these are.
    pub(crate) fn start_at(
        verbena: &Path,
        provider: Provider,
        homes: usize,
        count: usize,
        cores: Option<[usize; 2]>,
        seats: &[Seat<'_>],
    ) -> Result<Self, BenchError> {
        assert!(seats.is_empty() || seats.len() == homes + count, "invariant: all nodes have seats, or none has");
        let directory = crate::run::directory()?;
        let place = directory.path();
        let (mut nodes, apis) = (free_addresses::<MOST>()?, free_addresses::<MOST>()?);
        // In these networks no other process takes ports.
        nodes.iter_mut().zip(seats).for_each(|(node, seat)| node.set_ip(seat.address));
        let names: Vec<String> =
            (1..=homes).map(|nth| format!("home-{nth}")).chain((1..=count).map(|nth| format!("node-{nth}"))).collect();
        let member = |at: usize| {
            let (name, node) = (&names[at], nodes[at]);
            let address = member_address(provider, name, node);
            let role = if at < homes { "home" } else { "reader" };
            format!("{{ name = \"{name}\", address = \"{address}\", roles = [\"{role}\"] }},\n")
        };
        let members: String = (0..names.len()).map(member).collect();
        // Without keys a node speaks beyond loopback only with `insecure`. No other host is in the experiment's
        // networks.
        let insecure = !seats.is_empty();
        let content = format!(
            "[cluster]\nlease = \"10s\"\nmembers = [\n{members}]\n[fabric]\nprovider = \"{}\"\ninsecure = {insecure}\n[node]\nruntime = \"{}\"\n",
            provider.name(),
            place.join("run").display(),
        );
        let config = place.join("verbena.toml");
        std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;
        let start = |at: usize, api: SocketAddr| {
            let text = |path: &Path| path.display().to_string();
            let (name, api) = (names[at].as_str(), api.to_string());
            let (verbena, config, state) = (text(verbena), text(&config), text(&place.join(name)));
            let words = [&verbena, "node", "--config", &config, "--cluster-name", name, "--node-state", &state];
            let words = [&[PROGRAM][..], &words, &["--node-api", &api]].concat();
            let core = cores.map(|[first, other]| if at < homes { first } else { other }.to_string());
            let begin = || match core {
                Some(core) => Running::start(name, &core, &words, place),
                None => Running::begin(name, &words, place),
            };
            match seats.get(at) {
                Some(seat) => seat.network.visit(begin)?,
                None => begin(),
            }
        };
        let running = (0..names.len()).map(|at| start(at, apis[at])).collect::<Result<_, _>>()?;
        Ok(Helpers { running, names, core: cores.map(|[_, other]| other.to_string()), directory })
    }

    /// The directory of the helpers' sockets, and what the node of this number is called, from 0 on and homes first, when it takes programs.
    pub(crate) fn ready(&mut self, at: usize) -> Result<(PathBuf, &str), BenchError> {
        let run = self.directory.path().join("run");
        let until = Instant::now() + PATIENCE;
        while !run.join(format!("{}.sock", self.names[at])).exists() {
            self.look()?;
            if Instant::now() > until {
                return Err(self.failed(at, &format!("was not ready within {PATIENCE:?}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok((run, &self.names[at]))
    }

    /// Where programs reach the node of this number, when all nodes are in its view.
    pub(crate) fn socket(&mut self, at: usize) -> Result<Socket, BenchError> {
        let (run, name) = self.ready(at)?;
        let socket = Socket::new(Some(&run), Some(name)).map_err(|error| error.to_string());
        let socket = socket.map_err(|why| self.failed(at, &why))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let report = Helper::connect(&socket, PATIENCE).and_then(|mut helper| helper.report());
            if report.is_ok_and(|report| {
                report.members.len() == self.names.len() && report.status.in_effect == report.status.view
            }) {
                return Ok(socket);
            }
            if Instant::now() > until {
                return Err(self.failed(at, "did not see the others in time"));
            }
            self.look()?;
            std::thread::sleep(LOOK);
        }
    }

    /// On which core programs are, if they are on one.
    pub(crate) fn core(&self) -> Option<&str> {
        self.core.as_deref()
    }

    /// The node of this number was of no use.
    pub(crate) fn failed(&mut self, at: usize, why: &str) -> BenchError {
        self.running[at].failed(why)
    }

    /// An error if any has ended.
    pub(crate) fn look(&mut self) -> Result<(), BenchError> {
        self.running.iter_mut().try_for_each(Running::look)
    }
}
