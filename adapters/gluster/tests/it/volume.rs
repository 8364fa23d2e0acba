//! A brick, two mounts of it and a bank, in a directory of their own; no glusterd.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;
use verbena_bank::{Running, StartOptions};
use verbena_testkit::programs;

const PROGRAMS: [&str; 3] = ["/usr/sbin/glusterfsd", "/usr/sbin/glusterfs", "/usr/bin/memcached"];

/// Both translators' options besides daemons and files; `without` names rules that are switched off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    pub scheme: &'static str,
    pub more: &'static [(&'static str, &'static str)],
    pub without: &'static str,
}

pub struct Volume {
    settings: Settings,
    port: u16,
    brick: Option<Child>,
    clients: Vec<Child>,
    daemons: Option<Running>,
    directory: TempDir,
}

/// What a client's translator counted.
#[derive(Debug, Default)]
pub struct Counters {
    pub hits: u64,
    pub misses: u64,
    pub stat_hits: u64,
}

/// Whether all is there that a volume needs; says what is not.
pub fn is_there() -> bool {
    let missing = PROGRAMS.into_iter().chain([
        "/usr/include/glusterfs/xlator.h",
        "/usr/include/x86_64-linux-gnu/urcu.h",
        "/dev/fuse",
    ]);
    let missing: Vec<&str> = missing.filter(|path| !Path::new(path).exists()).collect();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    if !missing.is_empty() || !is_root {
        eprintln!(
            "skipped: {missing:?} are missing (glusterfs-server, libglusterfs-dev, liburcu-dev, memcached), or not root"
        );
    }
    missing.is_empty() && is_root
}

/// The translators, with rules that can be switched off.
pub fn translators() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let out = programs::folder().join("deps").join(format!("gluster-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let mut make = Command::new("make");
        make.args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), "SWITCHES=-DVERBENA_SWITCHES"]);
        programs::output(make.arg(format!("OUT={}", out.display())));
        out
    };
    BUILT.get_or_init(build).clone()
}

impl Volume {
    pub fn start(settings: Settings) -> Volume {
        let directory = tempfile::tempdir().unwrap();
        for name in ["brick", "a", "b"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut label = Command::new("setfattr");
        label.args(["-n", "trusted.glusterfs.volume-id", "-v", "0x11111111111111111111111111111111"]);
        programs::output(label.arg(directory.path().join("brick")));
        let options = StartOptions { daemons: 2, memory: 64 << 20, ..StartOptions::default() };
        let daemons = Some(verbena_bank::start(&options).unwrap());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut volume = Volume { settings, port, brick: None, clients: vec![], daemons, directory };
        volume.start_brick();
        for client in ["a", "b"] {
            volume.start_client(client);
        }
        volume
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn start_brick(&mut self) {
        let plain = "option transport.address-family inet\noption transport-type socket";
        let bank = self.translator("smcache");
        let text = volumes(&[
            ("posix", "storage/posix", format!("option directory {}", self.path("brick").display())),
            ("access", "features/access-control", String::new()),
            ("locks", "features/locks", String::new()),
            ("threads", "performance/io-threads", String::new()),
            ("bank", &bank.0, bank.1),
            (
                "server",
                "protocol/server",
                format!(
                    "{plain}\noption transport.socket.listen-port {}\noption transport.socket.bind-address 127.0.0.1\noption auth.addr.bank.allow *",
                    self.port
                ),
            ),
        ]);
        self.brick = Some(self.run("/usr/sbin/glusterfsd", "brick", &text, &[]));
        let port = self.port;
        programs::wait_for("the brick", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// By SIGKILL.
    pub fn kill_brick(&mut self) {
        let mut brick = self.brick.take().unwrap();
        brick.kill().unwrap();
        brick.wait().unwrap();
    }

    fn start_client(&mut self, name: &str) {
        let bank = self.translator("cmcache");
        let remote = format!(
            "option transport.address-family inet\noption transport-type socket\noption remote-host 127.0.0.1\noption remote-port {}\noption remote-subvolume bank",
            self.port
        );
        let text = volumes(&[("remote", "protocol/client", remote), ("cache", &bank.0, bank.1)]);
        let place = self.path(name);
        let flags = ["--attribute-timeout=0", "--entry-timeout=0", "--negative-timeout=0", "--direct-io-mode=enable"];
        let flags: Vec<&str> = flags.into_iter().chain([place.to_str().unwrap()]).collect();
        let client = self.run("/usr/sbin/glusterfs", name, &text, &flags);
        self.clients.push(client);
        programs::wait_for("the mount", || {
            std::fs::read_to_string("/proc/self/mounts").unwrap().contains(place.to_str().unwrap())
                && std::fs::read_dir(&place).is_ok()
        });
    }

    /// Type and options.
    fn translator(&self, name: &str) -> (String, String) {
        let daemons = self.daemons.as_ref().unwrap().daemons.to_string();
        let list = daemons.strip_prefix("memcached://").unwrap();
        let here = self.directory.path().display();
        let mut options =
            format!("option daemons {list}\noption scheme {}\noption block-size 2KB\n", self.settings.scheme);
        write!(options, "option words {here}\noption starts {here}\noption deadline-ms 5000").unwrap();
        for (key, value) in self.settings.more {
            write!(options, "\noption {key} {value}").unwrap();
        }
        let up = "../".repeat(16);
        (format!("{up}{}", translators().join(name).strip_prefix("/").unwrap().display()), options)
    }

    fn run(&self, program: &str, name: &str, volumes: &str, arguments: &[&str]) -> Child {
        let [file, log] = ["vol", "log"].map(|kind| self.path(&format!("{name}.{kind}")));
        std::fs::write(&file, volumes).unwrap();
        let mut command = Command::new(program);
        command.arg("-N").arg("-f").arg(file).arg("-l").arg(log).args(arguments);
        command.env("VERBENA_WITHOUT", self.settings.without).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    pub fn counters(&self, client: &str) -> Counters {
        let mut ask = Command::new("getfattr");
        let text = programs::output(ask.args(["-n", "glusterfs.verbena.bank", "--only-values"]).arg(self.path(client)));
        let value = |name: &str| {
            let field =
                text.trim_end_matches('\0').split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            field.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
        };
        Counters { hits: value("hits"), misses: value("misses"), stat_hits: value("stat_hits") }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        for name in ["a", "b"] {
            _ = Command::new("umount").arg("-l").arg(self.path(name)).status();
        }
        for process in self.clients.iter_mut().chain(&mut self.brick) {
            _ = process.kill();
            _ = process.wait();
        }
        if let Some(daemons) = self.daemons.take() {
            daemons.end();
        }
    }
}

/// Each stands above the one before it.
fn volumes(list: &[(&str, &str, String)]) -> String {
    let mut text = String::new();
    let mut below = String::new();
    for (name, kind, options) in list {
        write!(text, "volume {name}\ntype {kind}\n{options}\n{below}end-volume\n").unwrap();
        below = format!("subvolumes {name}\n");
    }
    text
}
