//! A file on a network file system: GlusterFS, of one brick, over TCP on loopback, mounted so that nothing is kept at the client.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::in_sqlite;
use crate::content::{Running, free_addresses};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::web::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(20);

/// A mounted file system with a database on it.
pub(super) struct Gluster {
    client: Running,
    _brick: Running,
    mount: PathBuf,
    /// Last: what the processes use is there until they have ended.
    _directory: TempDir,
}

impl Gluster {
    /// Mounts a volume with a copy of this file, or says why it cannot.
    pub(super) fn mount(file: &Path) -> Result<Gluster, String> {
        let programs = ["glusterfsd", "glusterfs", "umount"].map(in_path);
        let [Some(server), Some(client), Some(_)] = programs else {
            return Err("there is no GlusterFS (Debian: glusterfs-server, glusterfs-client)".to_owned());
        };
        if !rustix::process::geteuid().is_root() {
            return Err("mounting a file system takes root".to_owned());
        }
        Self::start(&server, &client, file).map_err(|error| error.to_string())
    }

    fn start(server: &Path, client: &Path, file: &Path) -> Result<Gluster, BenchError> {
        let directory = crate::run::directory()?;
        let place = directory.path();
        let [brick, mount, of_server, of_client] =
            ["brick", "mount", "server.vol", "client.vol"].map(|name| place.join(name));
        for folder in [&brick, &mount] {
            std::fs::create_dir(folder).map_err(|error| BenchError::io(folder, error))?;
        }
        std::fs::copy(file, brick.join("indices")).map_err(|error| BenchError::io(file, error))?;
        let [address] = free_addresses::<1>()?;
        let (host, port) = (address.ip(), address.port());
        let volume = |name: &str, kind: &str, options: &[String]| {
            let lines: String = options.iter().map(|option| format!("  {option}\n")).collect();
            format!("volume {name}\n  type {kind}\n{lines}end-volume\n")
        };
        let tcp = "option transport-type tcp".to_owned();
        let served = [
            volume("posix", "storage/posix", &[format!("option directory {}", brick.display())]),
            volume("brick", "features/locks", &["subvolumes posix".to_owned()]),
            volume(
                "server",
                "protocol/server",
                &[
                    tcp.clone(),
                    format!("option transport.socket.bind-address {host}"),
                    format!("option transport.socket.listen-port {port}"),
                    format!("option auth.addr.brick.allow {host}"),
                    "subvolumes brick".to_owned(),
                ],
            ),
        ];
        let seen = volume(
            "client",
            "protocol/client",
            &[
                tcp,
                format!("option remote-host {host}"),
                format!("option remote-port {port}"),
                "option remote-subvolume brick".to_owned(),
            ],
        );
        let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(|error| BenchError::io(path, error));
        write(&of_server, &served.concat())?;
        write(&of_client, &seen)?;
        let text = |path: &Path| path.display().to_string();
        // Without a daemon, and telling what is wrong on its output.
        let begin = |what: &str, program: &Path, volumes: &Path, rest: &[&str]| {
            let words = [text(program), "-N".into(), "-f".into(), text(volumes), "-l".into(), "/dev/stdout".into()];
            let words: Vec<&str> = words.iter().map(String::as_str).chain(rest.iter().copied()).collect();
            Running::begin(what, &[&[PROGRAM][..], &words].concat(), place)
        };
        let mut brick = begin("glusterfsd", server, &of_server, &[])?;
        brick.listens(address)?;
        let uncached = ["--direct-io-mode=enable", "--attribute-timeout=0", "--entry-timeout=0", &text(&mount)];
        let client = begin("glusterfs", client, &of_client, &uncached)?;
        let mut gluster = Gluster { client, _brick: brick, mount, _directory: directory };
        let until = Instant::now() + PATIENCE;
        while !gluster.mount.join("indices").exists() {
            gluster.client.look()?;
            if Instant::now() > until {
                return Err(gluster.client.failed(&format!("did not mount within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(gluster)
    }

    /// The database, by SQLite's own file system. It never changes, so it is neither locked nor checked for changes:
    /// what is left are pages.
    pub(super) fn open(&self) -> Result<Connection, BenchError> {
        let place = format!("file:{}?immutable=1", self.mount.join("indices").display());
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(place, flags).map_err(in_sqlite("open a database on GlusterFS"))
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // Before its client ends; afterwards the mount would never answer. If this fails the mount is gone already.
        let quietly = || Stdio::null();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).stdout(quietly()).stderr(quietly()).status();
    }
}
