//! A PostgreSQL server of the test's own, and `psql` with and without the relay.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;

use crate::programs::{has, output, wait_for};

/// A server with a socket and no port. It is stopped when the last test lets go of it.
pub struct Postgresql {
    pub directory: TempDir,
    port: String,
    child: Child,
}

static RUNNING: Mutex<Weak<Postgresql>> = Mutex::new(Weak::new());

impl Postgresql {
    /// The server, or nothing where it is not installed.
    pub fn get() -> Option<Arc<Self>> {
        let mut running = RUNNING.lock().unwrap();
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let programs = programs()?;
        if !has("psql", &["--version"]) {
            return None;
        }
        let server = Arc::new(Self::start(&programs, "", &["listen_addresses="]));
        *running = Arc::downgrade(&server);
        Some(server)
    }

    /// One with these rules of who may log in, and these settings, for a test that wants its own; nothing where it is not installed.
    pub fn with(rules: &str, settings: &[&str]) -> Option<Self> {
        let programs = programs()?;
        has("psql", &["--version"]).then(|| Self::start(&programs, rules, settings))
    }

    fn start(programs: &Path, more: &str, settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("postgresql-").tempdir().unwrap();
        // The server refuses to run as root, and its user must find its files.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let data = directory.path().join("data");
        let password = directory.path().join("password");
        fs::write(&password, "secret\n").unwrap();
        let mut initdb = as_postgres(&programs.join("initdb"));
        initdb.args(["-U", "app", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C"]);
        output(initdb.arg(format!("--pwfile={}", password.display())).arg("-D").arg(&data));
        let rules = directory.path().join("rules");
        fs::write(&rules, format!("local all raw trust\nlocal all all scram-sha-256\n{more}")).unwrap();
        let log = File::create(directory.path().join("log")).unwrap();
        let child = as_postgres(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .args(["-c", "fsync=off", "-c", "max_prepared_transactions=5", "-k"])
            .arg(directory.path())
            .arg("-c")
            .arg(format!("hba_file={}", rules.display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let port = settings.iter().find_map(|setting| setting.strip_prefix("port=")).unwrap_or("5432").to_owned();
        let server = Self { directory, port, child };
        wait_for("postgres", || server.psql("select 1").output().unwrap().status.success());
        output(&mut server.psql("create role raw superuser login"));
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// psql at the server itself.
    pub fn psql(&self, statement: &str) -> Command {
        psql(self.directory.path(), &["-At", "-p", &self.port, "-c", statement])
    }
}

/// The name that libpq gives the socket of port 5432 in a directory.
pub const SOCKET: &str = ".s.PGSQL.5432";

/// psql at the socket in a directory.
pub fn psql(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("psql");
    command.arg("-X").arg("-h").arg(directory).args(["-U", "app", "-d", "postgres"]).args(arguments);
    command.env("PGPASSWORD", "secret");
    command
}

/// The newest version that Debian has installed.
fn programs() -> Option<PathBuf> {
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    versions.sort();
    if versions.is_empty() {
        eprintln!("skipped: no PostgreSQL server in /usr/lib/postgresql");
    }
    versions.pop()
}

fn as_postgres(program: &Path) -> Command {
    if output(Command::new("id").arg("-u")).trim() != "0" {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command.current_dir("/");
    command
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg("-QUIT").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
