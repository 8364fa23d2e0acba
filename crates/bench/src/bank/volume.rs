//! A brick, mounts of it, and daemons of a bank, in a directory of their own. There is no glusterd.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::FabricFound;
use crate::run::Plan;
use crate::web::PROGRAM;

/// What stands in the volume beside the file system itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Nothing: each call goes to the brick.
    Plain,
    /// GlusterFS's own cache of metadata.
    Metadata,
    /// The bank: the scheme, the daemons, and bytes of a block.
    Bank(&'static str, usize, &'static str),
}

impl Cache {
    pub(super) fn name(self) -> String {
        match self {
            Cache::Plain => "plain".into(),
            Cache::Metadata => "md-cache".into(),
            Cache::Bank(scheme, 1, block) => format!("{scheme}, 1 daemon, {block}"),
            Cache::Bank(scheme, daemons, block) => format!("{scheme}, {daemons} daemons, {block}"),
        }
    }
}

/// How long a mount or the brick may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);
/// Memory of a daemon, in MiB.
const DAEMON_MEMORY: &str = "128";

/// A volume that is mounted so many times.
pub(super) struct Volume {
    pub(super) cache: Cache,
    mounts: Vec<PathBuf>,
    _clients: Vec<Running>,
    _brick: Running,
    _daemons: Vec<Running>,
    _directory: TempDir,
}

/// What is needed, and where it is; or what is missing.
pub(super) struct Programs {
    brick: PathBuf,
    client: PathBuf,
    memcached: PathBuf,
}

impl Programs {
    pub(super) fn find(plan: &Plan) -> Result<Programs, BenchError> {
        let missing =
            |what: &str| BenchError::NothingToMeasure { name: plan.name, reason: format!("there is no {what}") };
        let brick = in_path("glusterfsd").ok_or_else(|| missing("glusterfsd (Debian: glusterfs-server)"))?;
        let client = in_path("glusterfs").ok_or_else(|| missing("glusterfs (Debian: glusterfs-client)"))?;
        let memcached = in_path("memcached").ok_or_else(|| missing("memcached"))?;
        let installed = fs::read_dir("/usr/lib").into_iter().flatten().flatten().any(|machine| {
            let versions = fs::read_dir(machine.path().join("glusterfs")).into_iter().flatten().flatten();
            versions.into_iter().any(|version| version.path().join("xlator/user/cmcache.so").exists())
        });
        if !installed {
            return Err(missing("translator of the bank: `make -C adapters/gluster install` puts them there"));
        }
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            return Err(missing("right to mount: GlusterFS takes root and /dev/fuse"));
        }
        Ok(Programs { brick, client, memcached })
    }
}

impl Volume {
    pub(super) fn start(programs: &Programs, cache: Cache, mounts: usize) -> Result<Volume, BenchError> {
        let failed = |error| BenchError::io(&std::env::temp_dir(), error);
        let directory = tempfile::Builder::new().prefix("verbena-bench-").tempdir().map_err(failed)?;
        let place = directory.path().to_owned();
        let brick_at = place.join("brick");
        fs::create_dir(&brick_at).map_err(failed)?;
        let label = ["-n", "trusted.glusterfs.volume-id", "-v", "0x11111111111111111111111111111111"];
        run(Command::new("setfattr").args(label).arg(&brick_at), "label a brick")?;
        let [listen] = free_addresses::<1>()?;
        let daemons = match cache {
            Cache::Bank(_, count, _) => {
                (0..count).map(|at| daemon(programs, at, &place)).collect::<Result<Vec<_>, _>>()?
            }
            _ => Vec::new(),
        };
        let list: Vec<String> = daemons.iter().map(|(_, at)| at.to_string()).collect();
        let bank = |name: &str| match cache {
            Cache::Bank(scheme, _, block) => {
                let here = place.display();
                let options = format!(
                    "option daemons {}\noption scheme {scheme}\noption block-size {block}\noption words {here}\noption starts {here}",
                    list.join(",")
                );
                Some((format!("user/{name}"), options))
            }
            _ => None,
        };
        let plain = "option transport.address-family inet\noption transport-type socket";
        let server = format!(
            "{plain}\noption transport.socket.listen-port {}\noption transport.socket.bind-address 127.0.0.1\noption auth.addr.{{top}}.allow *",
            listen.port()
        );
        let mut below = vec![
            ("posix".to_owned(), "storage/posix".to_owned(), format!("option directory {}", brick_at.display())),
            ("access".into(), "features/access-control".into(), String::new()),
            ("locks".into(), "features/locks".into(), String::new()),
            ("threads".into(), "performance/io-threads".into(), String::new()),
        ];
        below.extend(bank("smcache").map(|(kind, options)| ("bank".to_owned(), kind, options)));
        let top = below.last().map(|(name, ..)| name.clone()).unwrap_or_default();
        below.push(("server".into(), "protocol/server".into(), server.replace("{top}", &top)));
        let brick = gluster(&programs.brick, "brick", &below, &[], &place)?;
        let mut volume = Volume {
            cache,
            mounts: Vec::new(),
            _clients: Vec::new(),
            _brick: brick,
            _daemons: daemons.into_iter().map(|(running, _)| running).collect(),
            _directory: directory,
        };
        volume._brick.listens(listen)?;
        for number in 0..mounts {
            let remote = format!(
                "{plain}\noption remote-host 127.0.0.1\noption remote-port {}\noption remote-subvolume {top}",
                listen.port()
            );
            let mut graph = vec![("remote".to_owned(), "protocol/client".to_owned(), remote)];
            graph.extend(bank("cmcache").map(|(kind, options)| ("cache".to_owned(), kind, options)));
            if cache == Cache::Metadata {
                let options = "option md-cache-timeout 600\noption cache-invalidation off".to_owned();
                graph.push(("metadata".into(), "performance/md-cache".into(), options));
            }
            let mount = place.join(format!("mount-{number}"));
            fs::create_dir(&mount).map_err(|error| BenchError::io(&mount, error))?;
            let shown = mount.display().to_string();
            let flags =
                ["--attribute-timeout=0", "--entry-timeout=0", "--negative-timeout=0", "--direct-io-mode=enable"];
            let flags: Vec<&str> = flags.into_iter().chain([shown.as_str()]).collect();
            volume._clients.push(gluster(&programs.client, &format!("client-{number}"), &graph, &flags, &place)?);
            volume.mounts.push(mount);
        }
        volume.are_there()?;
        Ok(volume)
    }

    fn are_there(&mut self) -> Result<(), BenchError> {
        let until = Instant::now() + PATIENCE;
        let is_mounted = |mount: &Path| {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            mounts.contains(&*mount.to_string_lossy()) && fs::read_dir(mount).is_ok()
        };
        while !self.mounts.iter().all(|mount| is_mounted(mount)) {
            for client in &mut self._clients {
                client.look()?;
            }
            if Instant::now() > until {
                return Err(BenchError::Target {
                    doing: format!("mount a volume, {}", self.cache.name()),
                    reason: format!("it is not there after {PATIENCE:?}"),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The mount of a client; there may be more clients than mounts.
    pub(super) fn mount(&self, client: usize) -> &Path {
        &self.mounts[client % self.mounts.len()]
    }

    pub(super) fn found(&self) -> FabricFound {
        let because = match self.cache {
            Cache::Plain => "the brick alone",
            Cache::Metadata => "GlusterFS's own performance/md-cache, with a timeout of 600 s",
            Cache::Bank("imca", ..) => "the paper's scheme, which is not coherent",
            Cache::Bank(..) => "coherent, by words in shared memory",
        };
        FabricFound { name: self.cache.name(), measured: true, because: because.into(), capabilities: None }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        for mount in &self.mounts {
            // What is not mounted any more is not.
            let _ = Command::new("umount").arg("-l").arg(mount).output();
        }
    }
}

fn run(command: &mut Command, doing: &str) -> Result<(), BenchError> {
    let failed = |reason: String| BenchError::Target { doing: doing.to_owned(), reason };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn daemon(programs: &Programs, number: usize, place: &Path) -> Result<(Running, SocketAddr), BenchError> {
    let [at] = free_addresses::<1>()?;
    let (program, port) = (programs.memcached.display().to_string(), at.port().to_string());
    let words =
        [PROGRAM, &program, "-u", "nobody", "-l", "127.0.0.1", "-p", &port, "-m", DAEMON_MEMORY, "-I", "2m", "-t", "1"];
    let mut running = Running::begin(&format!("memcached-{number}"), &words, place)?;
    running.listens(at)?;
    Ok((running, at))
}

/// Each volume stands above the one before it.
fn gluster(
    program: &Path,
    name: &str,
    volumes: &[(String, String, String)],
    flags: &[&str],
    place: &Path,
) -> Result<Running, BenchError> {
    let (mut text, mut below) = (String::new(), String::new());
    for (name, kind, options) in volumes {
        // Writing to a string does not fail.
        let _ = write!(text, "volume {name}\ntype {kind}\n{options}\n{below}end-volume\n");
        below = format!("subvolumes {name}\n");
    }
    let file = place.join(format!("{name}.vol"));
    fs::write(&file, text).map_err(|error| BenchError::io(&file, error))?;
    let (program, file) = (program.display().to_string(), file.display().to_string());
    let log = place.join(format!("{name}.gluster.log")).display().to_string();
    let words = [&[PROGRAM, program.as_str(), "-N", "-f", &file, "-l", &log], flags].concat();
    Running::begin(name, &words, place)
}
