//! Nodes as anybody starts them, each a process, and programs that take locks at their helpers.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use tempfile::TempDir;
use verbena_fabric::Provider;

use super::client::{LOOK, PATIENCE, ROLE};
use crate::child::{ON_CORE, Target};
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::web::PROGRAM;

/// Nodes that programs are at, at the most.
const MOST: usize = 4;

/// A home of locks, and nodes beside it.
pub(super) struct Helpers {
    running: Vec<Running>,
    /// Of programs.
    core: Option<String>,
    /// Last: what the processes use is there until they have ended.
    directory: TempDir,
}

impl Helpers {
    /// Starts a home, which no program is at, and `count` other nodes; the home on the first of `cores`, all else on the other, if there are any.
    pub(super) fn start(
        verbena: &Path,
        provider: Provider,
        count: usize,
        cores: Option<[usize; 2]>,
    ) -> Result<Self, BenchError> {
        let directory = tempfile::Builder::new().prefix("verbena-bench-").tempdir();
        let directory = directory.map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
        let place = directory.path();
        let (nodes, apis) = (free_addresses::<{ MOST + 1 }>()?, free_addresses::<{ MOST + 1 }>()?);
        let member = |at: usize| {
            let (name, node) = (name(at), nodes[at]);
            let address = if provider == Provider::Shm { format!("shm://{name}") } else { format!("tcp://{node}") };
            let role = if at == 0 { "home" } else { "reader" };
            format!("{{ name = \"{name}\", address = \"{address}\", roles = [\"{role}\"] }},\n")
        };
        let members: String = (0..=count).map(member).collect();
        let content = format!(
            "[cluster]\nlease = \"10s\"\nmembers = [\n{members}]\n[fabric]\nprovider = \"{}\"\n[node]\nruntime = \"{}\"\n",
            provider.name(),
            place.join("run").display(),
        );
        let config = place.join("verbena.toml");
        std::fs::write(&config, content).map_err(|error| BenchError::io(&config, error))?;
        let start = |at: usize, api: SocketAddr| {
            let text = |path: &Path| path.display().to_string();
            let (verbena, config, state, api) =
                (text(verbena), text(&config), text(&place.join(name(at))), api.to_string());
            let words = [&verbena, "node", "--config", &config, "--cluster-name", &name(at), "--node-state", &state];
            let words = [&[PROGRAM][..], &words, &["--node-api", &api]].concat();
            let core = cores.map(|[first, other]| if at == 0 { first } else { other }.to_string());
            match core {
                Some(core) => Running::start(&name(at), &core, &words, place),
                None => Running::begin(&name(at), &words, place),
            }
        };
        let running = (0..=count).map(|at| start(at, apis[at])).collect::<Result<_, _>>()?;
        Ok(Helpers { running, core: cores.map(|[_, other]| other.to_string()), directory })
    }

    /// A program at the node of this number, from 1 on, when that has taken it in.
    pub(super) fn client(&mut self, at: usize) -> Result<Target, BenchError> {
        let run = self.directory.path().join("run");
        let until = Instant::now() + PATIENCE;
        while !run.join(format!("{}.sock", name(at))).exists() {
            self.look()?;
            if Instant::now() > until {
                return Err(self.running[at].failed(&format!("was not ready within {PATIENCE:?}")));
            }
            std::thread::sleep(LOOK);
        }
        let place = format!("{}#{}", run.display(), name(at));
        let connect = || {
            let before = self.core.iter().flat_map(|core| [ON_CORE, core.as_str()]);
            let mut client = Target::start(&before.chain([ROLE, "verbena", &place]).collect::<Vec<_>>())?;
            let () = client.answer("connect to a node's helper")?;
            Ok(client)
        };
        connect().map_err(|error: BenchError| self.running[at].failed(&format!("was of no use: {error}")))
    }

    /// An error if any has ended.
    pub(super) fn look(&mut self) -> Result<(), BenchError> {
        self.running.iter_mut().try_for_each(Running::look)
    }
}

fn name(at: usize) -> String {
    if at == 0 { "home".to_owned() } else { format!("node-{at}") }
}
