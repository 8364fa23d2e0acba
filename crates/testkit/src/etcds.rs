//! Three members of etcd on loopback, to be paused, killed and held back.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The longest wait for anything that must happen.
pub const SOON: Duration = Duration::from_secs(30);

/// A cluster of etcd. Its members end with the thread that started them, or when this is dropped.
pub struct Etcds {
    folder: TempDir,
    members: Vec<Member>,
    tls: Option<Tls>,
}

struct Member {
    client_port: u16,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Child>,
}

/// The files by which members and their clients know each other.
#[derive(Clone, Debug)]
pub struct Tls {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

const MEMBERS: usize = 3;

impl Etcds {
    /// Three members with a leader; none, and says why, where etcd is not installed.
    pub fn start() -> Option<Self> {
        Etcds::start_with(None)
    }

    /// As `start`, with members that speak with clients by TLS and demand certificates of them.
    pub fn start_with(tls: Option<Tls>) -> Option<Self> {
        for program in ["etcd", "etcdctl", "setpriv"] {
            if Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                println!("skipped: there is no {program} (packages etcd-server, etcd-client, util-linux)");
                return None;
            }
        }
        // Each durable write is one more wait for the disc, and what survives a loss of power is not what is tested.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let ports = free_ports(2 * MEMBERS);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let initial: Vec<String> =
            (0..MEMBERS).map(|nth| format!("m{nth}=http://127.0.0.1:{}", ports[MEMBERS + nth])).collect();
        let member = |nth: usize| {
            let client = format!("{scheme}://127.0.0.1:{}", ports[nth]);
            let peer = format!("http://127.0.0.1:{}", ports[MEMBERS + nth]);
            let directory = folder.path().join(format!("m{nth}"));
            let mut arguments: Vec<String> = [
                ("name", format!("m{nth}")),
                ("data-dir", directory.display().to_string()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", initial.join(",")),
                ("heartbeat-interval", "50".into()),
                ("election-timeout", "500".into()),
            ]
            .map(|(name, value)| format!("--{name}={value}"))
            .into();
            if let Some(tls) = &tls {
                arguments.push(format!("--cert-file={}", tls.certificate.display()));
                arguments.push(format!("--key-file={}", tls.key.display()));
                arguments.push(format!("--trusted-ca-file={}", tls.authority.display()));
                arguments.push("--client-cert-auth".into());
            }
            let log = folder.path().join(format!("m{nth}.log"));
            Member { client_port: ports[nth], arguments, log, process: None }
        };
        let members = (0..MEMBERS).map(member).collect();
        let mut cluster = Etcds { folder, members, tls };
        for nth in 0..MEMBERS {
            cluster.begin(nth);
        }
        cluster.leader();
        Some(cluster)
    }

    /// Where the tests may leave files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn port(&self, nth: usize) -> u16 {
        self.members[nth].client_port
    }

    pub fn endpoint(&self, nth: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port(nth))
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..MEMBERS).map(|nth| self.endpoint(nth)).collect()
    }

    /// Which member leads, as one that runs and is led says; waits until there is one.
    pub fn leader(&self) -> usize {
        self.leader_but(None)
    }

    /// As `leader`, waiting until it is another than this one, which is not asked.
    pub fn leader_but(&self, not: Option<usize>) -> usize {
        let mut found = None;
        self.wait("a leader", || {
            found = (0..MEMBERS).filter(|nth| Some(*nth) != not).find_map(|nth| {
                let said = self.control(nth, &["endpoint", "status", "--write-out=fields"]);
                let said = String::from_utf8_lossy(&said.stdout).into_owned();
                let field = |name: &str| {
                    let line = said.lines().find(|line| line.starts_with(&format!("{name:?} :")))?;
                    Some(line.split(" : ").nth(1)?.to_owned())
                };
                (field("Leader")? == field("MemberID")?).then_some(nth)
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Runs etcdctl at one member; gives up after two seconds.
    pub fn control(&self, nth: usize, arguments: &[&str]) -> Output {
        self.command(nth, arguments).output().unwrap()
    }

    /// Runs etcdctl, which must succeed.
    pub fn controlled(&self, nth: usize, arguments: &[&str]) {
        let output = self.control(nth, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Puts bytes under a key, past every rule.
    pub fn put(&self, key: &str, value: &[u8]) {
        let file = self.folder.path().join("value");
        std::fs::write(&file, value).unwrap();
        let status = self.command(0, &["put", key]).stdin(File::open(file).unwrap()).output().unwrap().status;
        assert!(status.success(), "{key}");
    }

    pub fn pause(&self, nth: usize) {
        self.signal(nth, Signal::STOP);
    }

    pub fn resume(&self, nth: usize) {
        self.signal(nth, Signal::CONT);
    }

    pub fn kill(&mut self, nth: usize) {
        if let Some(mut process) = self.members[nth].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts a member, again if it was killed.
    pub fn begin(&mut self, nth: usize) {
        let member = &mut self.members[nth];
        let log = File::options().create(true).append(true).open(&member.log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd"]).args(&member.arguments);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        member.process =
            Some(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < SOON, "waited {SOON:?} for {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn command(&self, nth: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("ETCDCTL_API", "3");
        command.args(["--command-timeout=2s", "--dial-timeout=2s", "--endpoints"]).arg(self.endpoint(nth));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.authority);
            command.arg("--cert").arg(&tls.certificate).arg("--key").arg(&tls.key);
        }
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn signal(&self, nth: usize, signal: Signal) {
        kill_process(Pid::from_child(self.members[nth].process.as_ref().unwrap()), signal).unwrap();
    }

    fn logs(&self) -> String {
        let last = |member: &Member| {
            let text = std::fs::read_to_string(&member.log).unwrap_or_default();
            text.lines().rev().take(5).collect::<Vec<_>>().join("\n")
        };
        self.members.iter().map(last).collect::<Vec<_>>().join("\n--\n")
    }
}

impl Drop for Etcds {
    fn drop(&mut self) {
        for nth in 0..MEMBERS {
            self.kill(nth);
        }
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
