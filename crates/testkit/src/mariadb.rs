//! A MariaDB server of the test's own, and clients of it with and without the relay.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

use tempfile::TempDir;

use crate::programs::{has, output, wait_for};

/// A server with a socket and no port. It is stopped when the last test lets go of it.
pub struct Mariadb {
    pub directory: TempDir,
    child: Child,
}

static RUNNING: Mutex<Weak<Mariadb>> = Mutex::new(Weak::new());

impl Mariadb {
    /// The server, or nothing where it is not installed.
    pub fn get() -> Option<Arc<Self>> {
        let mut running = RUNNING.lock().unwrap();
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        if !has("mariadbd", &["--version"]) || !has("mariadb", &["--version"]) {
            return None;
        }
        let server = Arc::new(Self::start(&[]));
        *running = Arc::downgrade(&server);
        Some(server)
    }

    /// One that is started with these options too, for a test that wants its own; nothing where it is not installed.
    pub fn with(options: &[&str]) -> Option<Self> {
        let is_there = has("mariadbd", &["--version"]) && has("mariadb", &["--version"]);
        is_there.then(|| Self::start(options))
    }

    fn start(options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("mariadb-").tempdir().unwrap();
        let data = directory.path().join("data");
        let user = output(Command::new("id").arg("-un"));
        // Many servers at once have not enough of the kernel's requests of asynchronous input.
        let aio = "--innodb-use-native-aio=0".to_owned();
        // A server that starts removes what others have there: all call their temporary tables `#sql-`.
        let temporary = directory.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let temporary = format!("--tmpdir={}", temporary.display());
        let common = [format!("--datadir={}", data.display()), format!("--user={}", user.trim()), temporary, aio];
        output(
            Command::new("mariadb-install-db")
                .arg("--no-defaults")
                .args(&common)
                .args(["--auth-root-authentication-method=normal", "--skip-test-db"]),
        );
        let log = File::create(directory.path().join("log")).unwrap();
        let child = Command::new("mariadbd")
            .arg("--no-defaults")
            .args(&common)
            .arg(format!("--socket={}", directory.path().join("server.sock").display()))
            .args(if options.is_empty() { &["--skip-networking"][..] } else { options })
            .args(["--local-infile=1", "--max-allowed-packet=1G", "--innodb-buffer-pool-size=32M"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=60"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let server = Self { directory, child };
        wait_for("mariadbd", || server.client().arg("-e").arg("select 1").output().unwrap().status.success());
        let users = "create user app identified by 'secret'; grant all on *.* to app; create user other identified by 'o'; \
                     grant all on *.* to other;";
        output(server.client().arg("-e").arg(users));
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("server.sock")
    }

    /// The client `mariadb` as root, at the server itself.
    pub fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uroot"]).arg(format!("--socket={}", self.socket().display()));
        command
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
