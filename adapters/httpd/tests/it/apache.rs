//! Debian's Apache with the module, in a directory of its own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use verbena_client::{Pages, Scope, Socket};
use verbena_testkit::nodes::{Cluster, Node, are_in};
use verbena_testkit::programs;

use crate::application::Application;

const MODULES: &str = "/usr/lib/apache2/modules";

/// Two nodes of one cluster, and an application.
pub struct Site {
    pub application: Application,
    pub nodes: [Mutex<Option<Node>>; 2],
    pub cluster: Cluster,
}

/// An Apache before it, which asks one of the nodes.
pub struct Apache {
    process: Child,
    pub port: u16,
    directory: TempDir,
}

/// Whether Apache and what builds modules for it are there; says so if not.
pub fn is_there() -> bool {
    let is_there = |program: &str, argument: &str| Command::new(program).arg(argument).output().is_ok();
    let all = is_there("apache2", "-v") && is_there("apxs", "-q") && Path::new(MODULES).is_dir();
    if !all {
        eprintln!("skipped: apache2-bin and apache2-dev are not installed");
    }
    all
}

/// The module, as the tests build it: rules can be switched off.
fn module() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let libraries = programs::folder().join("deps");
        let out = libraries.join(format!("httpd-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let module = out.join("mod_verbena.so");
        let mut make = Command::new("make");
        make.args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), "SWITCHES=-DVERBENA_SWITCHES"]);
        make.arg(format!("OUT={}", out.display())).arg(format!("LIBRARY={}", libraries.display()));
        programs::output(make.arg(&module));
        module
    };
    BUILT.get_or_init(build).clone()
}

/// A port that no other test takes before Apache does: below those that the system chooses, and each process has its own four.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let own = 10_240 + 4 * (std::process::id() % 5_000);
    let mut ports = std::iter::repeat_with(|| own + NEXT.fetch_add(1, Ordering::Relaxed) % 4).map(|port| port as u16);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.by_ref().take(64).find(is_free).expect("one of its ports is free")
}

impl Site {
    pub fn start() -> Site {
        Site::with_lease("10s")
    }

    /// For tests that wait for the end of it.
    pub fn with_lease(lease: &str) -> Site {
        let cluster = Cluster::on_shm(lease);
        let nodes = ["a", "b"].map(|name| cluster.start(name));
        for node in &nodes {
            node.wait_until("two in", |status| are_in(status, &[1, 2]));
        }
        Site { application: Application::start(), nodes: nodes.map(|node| Mutex::new(Some(node))), cluster }
    }

    fn socket(&self, node: usize) -> PathBuf {
        self.cluster.path().join("run").join(["a.sock", "b.sock"][node])
    }

    /// A connection for what Apache itself does.
    pub fn pages(&self, node: usize) -> Pages {
        Pages::connect(&Socket::at(&self.socket(node)), Duration::from_secs(10)).unwrap()
    }

    /// Ends a node as a crash does.
    pub fn kill(&self, node: usize) {
        self.nodes[node].lock().unwrap().take().unwrap().kill();
    }

    /// A write in the database, announced at the second node.
    pub fn write(&self, name: &str) -> u64 {
        let mut pages = self.pages(1);
        let update = pages.begin(&Scope::of([name])).unwrap();
        let version = self.application.write(name);
        pages.end(update, verbena_client::Outcome::Done).unwrap();
        version
    }

    /// Takes pages out of all caches at the second node: `pages` by their address, `prefixes` all below it.
    pub fn purge(&self, kind: &str, address: &str) {
        let mut stream = UnixStream::connect(self.cluster.path().join("run/b.http.sock")).unwrap();
        let body = format!("{{\"{kind}\": [\"{address}\"]}}");
        let length = body.len();
        write!(
            stream,
            "POST /v1/purge HTTP/1.1\r\nHost: b\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Apache beside a node, with its copies in this store, and without this rule.
    pub fn apache(&self, node: usize, store: &str, without: &str) -> Apache {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let at = directory.path().display();
        let loaded =
            ["mpm_event", "authz_core", "proxy", "proxy_http", "cache", "cache_socache", "socache_shmcb", "cache_disk"];
        let load: String =
            loaded.iter().map(|name| format!("LoadModule {name}_module {MODULES}/mod_{name}.so\n")).collect();
        let configuration = format!(
            "ServerRoot {at}\nListen 127.0.0.1:{port}\nServerName shop.example\nPidFile {at}/pid\nDefaultRuntimeDir {at}\n\
             ErrorLog {at}/log\nLogLevel warn verbena:debug\nUser www-data\nGroup www-data\n{load}\
             LoadModule verbena_module {module}\n\
             StartServers 2\nServerLimit 2\nThreadsPerChild 8\nMaxRequestWorkers 16\nMinSpareThreads 1\nMaxSpareThreads 16\n\
             Mutex file:{at}\nCacheSocache shmcb:{at}/cache(33554432)\nCacheRoot {at}/disk\nCacheHeader on\n\
             CacheEnable verbena /\nVerbenaStore {store}\nVerbenaHelper {socket}\nVerbenaTimeout 2000\n\
             ProxyPass / http://127.0.0.1:{origin}/\nProxyPassReverse / http://127.0.0.1:{origin}/\n\
             <Location /announced>\nVerbenaWrites announced\n</Location>\n<Location /writing>\nVerbenaWrites always\n</Location>\n<Location /database>\nVerbenaWrites database\n</Location>\n",
            module = module().display(),
            socket = self.socket(node).display(),
            origin = self.application.port(),
        );
        let at_path = directory.path().to_owned();
        std::fs::create_dir(directory.path().join("disk")).unwrap();
        let file = directory.path().join("apache.conf");
        std::fs::write(&file, configuration).unwrap();
        // Apache does not work as root, and the helper answers its own user alone: it is another user for itself.
        let mut command = Command::new("unshare");
        command.args(["-U", "--map-user=33", "--map-group=33", "apache2", "-DFOREGROUND", "-f"]).arg(&file);
        let process = command
            .env_remove("LD_LIBRARY_PATH")
            .env("VERBENA_WITHOUT", without)
            .env("VERBENA_SWITCHED", at_path)
            .spawn()
            .unwrap();
        let mut apache = Apache { process, port, directory };
        programs::wait_for("Apache", || {
            let ended = apache.process.try_wait().unwrap();
            assert!(ended.is_none(), "Apache ended: {}", apache.log());
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        apache
    }
}

impl Apache {
    /// Kills the processes that answer; Apache starts others.
    pub fn kill_children(&self) {
        let pid = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        assert!(!children.trim().is_empty());
        let killed = Command::new("kill").arg("-KILL").args(children.split_whitespace()).status().unwrap();
        assert!(killed.success(), "{children}");
    }

    /// The first answer from now on that is registered is not stored until this is released.
    pub fn hold_commit(&self) {
        std::fs::write(self.directory.path().join("commit"), "").unwrap();
    }

    pub fn is_commit_held(&self) -> bool {
        self.directory.path().join("commit-here").exists()
    }

    pub fn release_commit(&self) {
        std::fs::remove_file(self.directory.path().join("commit")).unwrap();
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        // It takes its children with it.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}
