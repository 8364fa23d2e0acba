//! The servers of one directory in memory, and the commands that copy to and from them: on one machine, or from one network to another.

use std::fs::{self, Permissions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::content::{Running, free_addresses};
use crate::emulator;
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::FabricFound;
use crate::run::Plan;
use crate::web::PROGRAM;

/// Where files lie: in memory, so that no disk is measured.
const MEMORY: &str = "/dev/shm";

/// How a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `verbena cp` at `verbena ftp serve`, by this channel.
    Ours(&'static str),
    /// curl at `verbena ftp serve`.
    CurlAtOurs,
    /// globus-url-copy at globus-gridftp-server, with this many streams.
    GridFtp(u32),
    /// curl at vsftpd.
    Vsftpd,
    /// `cp`, which crosses nothing.
    Cp,
}

impl Way {
    pub(super) const ALL: [Way; 9] = [
        Way::Ours("descriptor"),
        Way::Ours("tcp"),
        Way::Ours("quic"),
        Way::Ours("udp"),
        Way::CurlAtOurs,
        Way::GridFtp(1),
        Way::GridFtp(4),
        Way::Vsftpd,
        Way::Cp,
    ];

    pub(super) fn name(self) -> String {
        match self {
            Way::Ours(channel) => format!("verbena cp, {channel}"),
            Way::CurlAtOurs => "curl at verbena ftp serve".into(),
            Way::GridFtp(1) => "GridFTP".into(),
            Way::GridFtp(streams) => format!("GridFTP -p {streams}"),
            Way::Vsftpd => "curl at vsftpd".into(),
            Way::Cp => "cp".into(),
        }
    }

    /// Of a product that is not ours, and goes over a network.
    pub(super) fn is_peer(self) -> bool {
        matches!(self, Way::GridFtp(_) | Way::Vsftpd)
    }
}

/// Which way a file goes, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Get,
    Put,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::Get, Direction::Put];

    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Get => "get",
            Direction::Put => "put",
        }
    }
}

/// What is between client and server.
pub(super) enum Between {
    /// Nothing: both are in one network.
    Nothing,
    /// A cable, or a link of the emulator.
    Path(Box<emulator::Path>),
}

/// The ports of servers in a network of their own.
const PORTS: [u16; 3] = [2121, 2811, 2112];

impl Between {
    /// Where servers listen: ours, GridFTP's, vsftpd's.
    fn addresses(&self) -> Result<[SocketAddr; 3], BenchError> {
        match self {
            Between::Nothing => free_addresses::<3>(),
            Between::Path(path) => {
                let [_, far] = path.sites()?;
                Ok(PORTS.map(|port| SocketAddr::new(far.address, port)))
            }
        }
    }

    /// Does this where the servers are.
    fn far<T>(&self, act: impl FnOnce() -> T) -> Result<T, BenchError> {
        match self {
            Between::Nothing => Ok(act()),
            Between::Path(path) => Ok(path.sites()?[1].network.visit(act)?),
        }
    }

    /// Does this where the client is.
    fn near<T>(&self, act: impl FnOnce() -> T) -> Result<T, BenchError> {
        match self {
            Between::Nothing => Ok(act()),
            Between::Path(path) => Ok(path.sites()?[0].network.visit(act)?),
        }
    }

    fn near_address(&self) -> Result<Option<IpAddr>, BenchError> {
        match self {
            Between::Nothing => Ok(None),
            Between::Path(path) => Ok(Some(path.sites()?[0].address)),
        }
    }

    /// From now on the way is so long, there and back.
    pub(super) fn set(&mut self, delay: Duration) -> Result<(), BenchError> {
        match self {
            Between::Nothing => Ok(()),
            Between::Path(path) => path.set(delay),
        }
    }
}

/// The servers, and a directory of the client beside the one that is served.
pub(super) struct Station {
    pub(super) between: Between,
    directory: TempDir,
    verbena: PathBuf,
    ours: SocketAddr,
    gridftp: Option<(SocketAddr, PathBuf)>,
    vsftpd: Option<SocketAddr>,
    curl: Option<PathBuf>,
    servers: Vec<(Way, Running)>,
}

impl Station {
    /// Starts those that are there. A peer that is not is left out, and the findings say so.
    pub(super) fn start(plan: &Plan, between: Between) -> Result<Station, BenchError> {
        let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?.to_owned();
        let failed = |error| BenchError::io(Path::new(MEMORY), error);
        let directory = tempfile::Builder::new().prefix("verbena-bench-").tempdir_in(MEMORY).map_err(failed)?;
        let place = directory.path();
        // The peers run as users of their own.
        for (name, mode) in [("", 0o755), ("served", 0o755), ("served/in", 0o777), ("empty", 0o755), ("here", 0o777)] {
            let at = place.join(name);
            fs::create_dir_all(&at).map_err(failed)?;
            fs::set_permissions(&at, Permissions::from_mode(mode)).map_err(failed)?;
        }
        let [ours, gridftp_at, vsftpd_at] = between.addresses()?;
        let shown = |path: &Path| path.display().to_string();
        let mut servers = Vec::new();
        let root = shown(&place.join("served"));
        let words = [shown(&verbena), "ftp".into(), "serve".into(), "--root".into(), root.clone(), "--listen".into()];
        let words = [&words[..], &[ours.to_string(), "--anonymous-write".into()]].concat();
        servers.push((Way::CurlAtOurs, between.far(|| listening("verbena", &words, place, ours))??));
        let gridftp = match (in_path("globus-gridftp-server"), in_path("globus-url-copy")) {
            (Some(server), Some(client)) => {
                let [host, port] = [gridftp_at.ip().to_string(), gridftp_at.port().to_string()];
                let words =
                    [&shown(&server), "-aa", "-p", &port, "-control-interface", &host, "-data-interface", &host]
                        .map(str::to_owned);
                let words = [&words[..], &["-anonymous-user", "nobody", "-no-detach"].map(str::to_owned)].concat();
                let words = [named(place, "far", gridftp_at.ip())?, words].concat();
                servers.push((Way::GridFtp(1), between.far(|| listening("gridftp", &words, place, gridftp_at))??));
                Some((gridftp_at, client))
            }
            _ => None,
        };
        let vsftpd = match in_path("vsftpd") {
            Some(program) => {
                let config = place.join("vsftpd.conf");
                let text = format!(
                    "listen=YES\nlisten_address={}\nlisten_port={}\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
                     anon_root={root}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
                     secure_chroot_dir={}\nftp_username=daemon\nlocal_enable=NO\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\n",
                    vsftpd_at.ip(),
                    vsftpd_at.port(),
                    shown(&place.join("empty"))
                );
                fs::write(&config, text).map_err(failed)?;
                let words = [shown(&program), shown(&config)];
                servers.push((Way::Vsftpd, between.far(|| listening("vsftpd", &words, place, vsftpd_at))??));
                Some(vsftpd_at)
            }
            None => None,
        };
        Ok(Station { between, verbena, ours, gridftp, vsftpd, curl: in_path("curl"), servers, directory })
    }

    /// What is there, and what is not and why.
    pub(super) fn found(&self, ways: &[Way]) -> Vec<FabricFound> {
        let told = |way: &Way| {
            let because = match way {
                Way::Ours(channel) => {
                    format!("`verbena cp --channel {channel}`, each file proved by the root of its tree")
                }
                _ if !self.has(*way) => match way {
                    Way::GridFtp(_) => "no globus-gridftp-server or globus-url-copy is installed".into(),
                    Way::Vsftpd => "no vsftpd or curl is installed".into(),
                    _ => "no curl is installed".into(),
                },
                Way::CurlAtOurs => "`verbena ftp serve --anonymous-write`, a connection for each file".into(),
                Way::GridFtp(_) => "anonymous, in clear, a process for each session".into(),
                Way::Vsftpd => "anonymous, a process for each session".into(),
                Way::Cp => "one copy within this machine: the least that there is".into(),
            };
            FabricFound { name: way.name(), measured: self.has(*way), because, capabilities: None }
        };
        ways.iter().map(told).collect()
    }

    pub(super) fn has(&self, way: Way) -> bool {
        match way {
            Way::Ours(_) | Way::Cp => true,
            Way::CurlAtOurs => self.curl.is_some(),
            Way::GridFtp(_) => self.gridftp.is_some(),
            Way::Vsftpd => self.vsftpd.is_some() && self.curl.is_some(),
        }
    }

    /// Makes a file of so many bytes at both ends, which nothing compresses.
    pub(super) fn fill(&self, name: &str, bytes: u64) -> Result<(), BenchError> {
        self.make(name, bytes)?;
        let (from, to) = (self.served().join(name), self.here().join(name));
        fs::copy(&from, &to).map_err(|error| BenchError::io(&to, error))?;
        Ok(())
    }

    /// The same at the server alone.
    pub(super) fn make(&self, name: &str, bytes: u64) -> Result<(), BenchError> {
        let path = self.served().join(name);
        let mut number = bytes ^ 0x9E37_79B9_7F4A_7C15;
        let mut block = Vec::with_capacity(bytes as usize + 8);
        while (block.len() as u64) < bytes {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            block.extend_from_slice(&number.to_le_bytes());
        }
        block.truncate(bytes as usize);
        fs::write(&path, &block).map_err(|error| BenchError::io(&path, error))
    }

    /// Copies it once, to a place where nothing is. Gives the seconds that the client took.
    pub(super) fn copy(&self, way: Way, direction: Direction, name: &str, bytes: u64) -> Result<f64, BenchError> {
        let place = self.directory.path();
        let (from, to) = match direction {
            Direction::Get => (place.join("served").join(name), place.join("here/copy")),
            Direction::Put => (place.join("here").join(name), place.join("served/in/copy")),
        };
        let _ = fs::remove_file(&to);
        let mut command = self.command(way, direction, name)?;
        let began = Instant::now();
        self.done(&mut command, way)?;
        let seconds = began.elapsed().as_secs_f64();
        let length = fs::metadata(&to).map_err(|error| BenchError::io(&to, error))?.len();
        let is_first = |path: &Path| -> std::io::Result<Vec<u8>> {
            use std::io::Read;
            let mut head = vec![0; 4096.min(bytes as usize)];
            fs::File::open(path)?.read_exact(&mut head)?;
            Ok(head)
        };
        let is_same =
            length == bytes && matches!((is_first(&from), is_first(&to)), (Ok(one), Ok(other)) if one == other);
        if !is_same {
            return Err(BenchError::Target {
                doing: format!("{} {}", direction.name(), way.name()),
                reason: format!("{} has {length} bytes of {bytes}, or others", to.display()),
            });
        }
        Ok(seconds)
    }

    fn command(&self, way: Way, direction: Direction, name: &str) -> Result<Command, BenchError> {
        let place = self.directory.path();
        let here = |name: &str| place.join("here").join(name).display().to_string();
        let mut command = Command::new(&self.verbena);
        match way {
            Way::Ours(channel) => {
                command.args(["cp", "--channel", channel]);
                let at = |path: &str| format!("ftp://{}/{path}", self.ours);
                match direction {
                    Direction::Get => command.args([at(name), here("copy")]),
                    Direction::Put => command.args([here(name), at("in/copy")]),
                };
            }
            Way::CurlAtOurs => command = self.curl(self.ours, direction, name)?,
            Way::Vsftpd => command = self.curl(self.vsftpd.unwrap_or(self.ours), direction, name)?,
            Way::GridFtp(streams) => {
                let Some((at, client)) = &self.gridftp else { return Err(missing(way)) };
                let before = match self.between.near_address()? {
                    Some(address) => named(place, "near", address)?,
                    None => Vec::new(),
                };
                let words = [before, vec![client.display().to_string()]].concat();
                command = Command::new(&words[0]);
                command.args(&words[1..]);
                if streams > 1 {
                    command.args(["-p", &streams.to_string()]);
                }
                let far = |path: &str| format!("ftp://{at}{}", place.join("served").join(path).display());
                let near = |name: &str| format!("file://{}", here(name));
                match direction {
                    Direction::Get => command.args([far(name), near("copy")]),
                    Direction::Put => command.args([near(name), far("in/copy")]),
                };
            }
            Way::Cp => {
                command = Command::new("cp");
                match direction {
                    Direction::Get => command.args([place.join("served").join(name), place.join("here/copy")]),
                    Direction::Put => command.args([place.join("here").join(name), place.join("served/in/copy")]),
                };
            }
        }
        Ok(command)
    }

    fn curl(&self, at: SocketAddr, direction: Direction, name: &str) -> Result<Command, BenchError> {
        let Some(curl) = &self.curl else { return Err(missing(Way::CurlAtOurs)) };
        let place = self.directory.path();
        let mut command = Command::new(curl);
        command.args(["-sS", "--max-time", "300"]);
        match direction {
            Direction::Get => command.arg(format!("ftp://{at}/{name}")).arg("-o").arg(place.join("here/copy")),
            Direction::Put => command.arg("-T").arg(place.join("here").join(name)).arg(format!("ftp://{at}/in/copy")),
        };
        Ok(command)
    }

    /// The client's tree of files, to a new directory of the server.
    pub(super) fn here(&self) -> PathBuf {
        self.directory.path().join("here")
    }

    pub(super) fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    pub(super) fn verbena(&self) -> Command {
        Command::new(&self.verbena)
    }

    /// Where `verbena ftp serve` listens.
    pub(super) fn ours(&self) -> SocketAddr {
        self.ours
    }

    /// The number of the process of a server.
    pub(super) fn process(&self, way: Way) -> Option<u32> {
        let server = match way {
            Way::Ours(_) | Way::CurlAtOurs => Way::CurlAtOurs,
            Way::GridFtp(_) => Way::GridFtp(1),
            way => way,
        };
        self.servers.iter().find(|(of, _)| *of == server).map(|(_, running)| running.number())
    }

    pub(super) fn done(&self, command: &mut Command, way: Way) -> Result<(), BenchError> {
        let failed = |reason: String| BenchError::Target { doing: format!("copy by {}", way.name()), reason };
        let output = self.between.near(|| command.stdin(Stdio::null()).output())?;
        let output = output.map_err(|error| failed(error.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}

/// What stands before a program of GridFTP: it wants a name for the address that it is at, and in a network of its own the machine's is another's.
fn named(place: &Path, site: &str, address: IpAddr) -> Result<Vec<String>, BenchError> {
    if address.is_loopback() {
        return Ok(Vec::new());
    }
    let hosts = place.join(format!("hosts-{site}"));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!("127.0.0.1 localhost\n{address} {}\n", name.trim());
    fs::write(&hosts, text).map_err(|error| BenchError::io(&hosts, error))?;
    let binds = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    Ok(["unshare", "-m", "sh", "-c", binds, &hosts.display().to_string()].map(str::to_owned).to_vec())
}

fn missing(way: Way) -> BenchError {
    BenchError::Target { doing: format!("copy by {}", way.name()), reason: "it is not installed".into() }
}

fn listening(what: &str, words: &[String], place: &Path, at: SocketAddr) -> Result<Running, BenchError> {
    let words: Vec<&str> = [PROGRAM].into_iter().chain(words.iter().map(String::as_str)).collect();
    let mut running = Running::begin(what, &words, place)?;
    running.listens(at)?;
    Ok(running)
}
