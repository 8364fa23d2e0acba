//! Our client against vsftpd, proftpd and pure-ftpd, each with a configuration and a port of its own, on loopback.
//!
//! Their packages exclude each other, so `VERBENA_FTP_SERVERS` may name a directory where they are unpacked
//! (`scripts/ftp-servers.sh`); else those in `/usr/sbin` are taken.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use verbena_testkit::programs::{output, verbena, wait_for};

use crate::common::traffic::Ended;

struct Server {
    directory: tempfile::TempDir,
    _process: Ended,
    /// Of the directory `served/pub`, without a slash at the end.
    url: String,
    /// Its path there.
    base: &'static str,
}

fn programs() -> PathBuf {
    std::env::var_os("VERBENA_FTP_SERVERS").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The program, unless the test is skipped.
fn program(name: &str) -> Option<PathBuf> {
    let path = programs().join("usr/sbin").join(name);
    if !rustix::process::geteuid().is_root() || !path.exists() {
        eprintln!("skipped: {name} is not in {}, or this is not root, which it needs", path.display());
        return None;
    }
    Some(path)
}

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", programs().join("usr/lib/x86_64-linux-gnu"));
    command
}

/// Runs what needs a password twice on its standard input.
fn with_password(mut command: Command) {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut process.stdin.take().unwrap(), b"secret\nsecret\n").unwrap();
    assert!(process.wait().unwrap().success());
}

/// A directory that another user may enter, with `served/pub` that everybody may write.
fn place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("served/pub")).unwrap();
    std::fs::create_dir(directory.path().join("empty")).unwrap();
    for (path, mode) in [("", 0o755), ("served", 0o755), ("served/pub", 0o777)] {
        std::fs::set_permissions(directory.path().join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    directory
}

/// Starts it at a port that was free a moment ago; another one, if it has been taken meanwhile.
fn started(directory: tempfile::TempDir, user: &str, start: impl Fn(&Path, u16) -> Command) -> Server {
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let mut command = start(directory.path(), port);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = Ended(command.spawn().unwrap());
        let mut has_ended = false;
        wait_for("the server", || {
            has_ended = process.0.try_wait().unwrap().is_some();
            has_ended || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        if !has_ended {
            let url = format!("ftp://{user}127.0.0.1:{port}/pub");
            return Server { directory, _process: process, url, base: "/pub" };
        }
    }
    panic!("it does not start: {}", std::fs::read_to_string(directory.path().join("log")).unwrap());
}

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl Server {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.path("served/pub").join(name)
    }

    fn said(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&output(verbena(arguments).arg("--json").current_dir(self.directory.path()))).unwrap()
    }

    fn done(&self, arguments: &[&str]) {
        output(verbena(arguments).current_dir(self.directory.path()));
    }

    fn copied(&self, from: &str, to: &str, more: &[&str]) -> usize {
        let said = self.said(&[&["cp", from, to], more].concat());
        assert_eq!(said["failures"], Value::Array(vec![]), "{said}");
        said["changes"].as_array().unwrap().len()
    }

    #[track_caller]
    fn same(&self, one: &str, other: &str) {
        let output = Command::new("diff").args(["-r", one, other]).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Everything that our client does. `keeps_times`: the server sets the time of a file.
    fn all(&self, keeps_times: bool) {
        let url = |path: &str| format!("{}/{path}", self.url);
        let bytes = content(3_000_001);
        for folder in ["data/deep/er", "back"] {
            std::fs::create_dir_all(self.path(folder)).unwrap();
        }
        for number in 0..20u32 {
            std::fs::write(self.path(&format!("data/deep/{number}")), content(1000 * number)).unwrap();
        }
        for name in ["data/large", "data/deep/er/a b \"c\"", "data/deep/er/n\u{e4}me", "data/-la"] {
            std::fs::write(self.path(name), &bytes).unwrap();
        }
        // Trees, both ways, and again.
        assert_eq!(self.copied("data", &url("in"), &[]), 26);
        self.same("data", "served/pub/in");
        assert_eq!(self.copied(&url("in"), "back", &[]), 26);
        self.same("data", "back");
        assert_eq!(self.copied(&url("in"), "back", &[]), 0);
        let again = if keeps_times { &[][..] } else { &["--update"] };
        assert_eq!(self.copied("data", &url("in"), again), 0);
        std::fs::remove_dir_all(self.path("data/deep/er")).unwrap();
        assert_eq!(self.copied("data", &url("in"), &[again, &["--delete"]].concat()), 3);
        self.same("data", "served/pub/in");
        // Files: what stands goes on, where its end is the same.
        assert_eq!(self.said(&["ftp", "put", "data/large", &url("up")])["kept"], 0);
        let half = std::fs::File::options().write(true).open(self.there("up")).unwrap();
        half.set_len(1_000_000).unwrap();
        assert_eq!(self.said(&["ftp", "put", "--resume", "data/large", &url("up")])["kept"], 1_000_000);
        assert!(std::fs::read(self.there("up")).unwrap() == bytes);
        assert_eq!(self.said(&["ftp", "get", &url("up"), "down"])["bytes"], 3_000_001);
        assert!(std::fs::read(self.path("down")).unwrap() == bytes);
        let sum = Command::new("sha256sum").arg(self.path("down")).output().unwrap().stdout;
        assert_eq!(self.said(&["ftp", "sha256", &url("up")])["sha256"], String::from_utf8_lossy(&sum[..64]).as_ref());
        self.done(&["ftp", "mv", &url("up"), &format!("{}/moved", self.base)]);
        let listed = self.said(&["ftp", "ls", &url("")]);
        let names: Vec<_> = listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["in", "moved"]);
        assert_eq!(listed[1]["size"], 3_000_001, "{listed}");
        self.done(&["ftp", "rm", &url("moved")]);
        self.done(&["cp", "data/large", &url("single")]);
        assert!(!self.there("moved").exists() && std::fs::read(self.there("single")).unwrap() == bytes);
    }
}

#[test]
fn vsftpd() {
    let Some(path) = program("vsftpd") else { return };
    let start = |directory: &Path, port: u16| {
        let shown = directory.display();
        // A user whose home is there, to which the server goes first.
        let text = format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\n\
             no_anon_password=YES\nanon_root={shown}/served\nwrite_enable=YES\nanon_upload_enable=YES\n\
             anon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_world_readable_only=NO\nanon_umask=022\n\
             secure_chroot_dir={shown}/empty\nftp_username=daemon\nlocal_enable=NO\nseccomp_sandbox=NO\nisolate=NO\n\
             isolate_network=NO\n"
        );
        let file = directory.join("vsftpd.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = command(&path);
        command.arg(file);
        command
    };
    started(place(), "", start).all(false);
}

#[test]
fn proftpd() {
    let Some(path) = program("proftpd") else { return };
    let directory = place();
    let users = directory.path().join("users");
    let mut passwd = command("perl");
    passwd
        .arg(path.with_file_name("ftpasswd"))
        .args(["--passwd", "--name", "alice", "--uid", "65534", "--gid", "65534"]);
    passwd.arg("--home").arg(directory.path().join("served")).args(["--shell", "/bin/false", "--stdin", "--file"]);
    passwd.arg(&users);
    with_password(passwd);
    let start = |directory: &Path, port: u16| {
        let (shown, modules) = (directory.display(), programs().join("usr/lib/proftpd"));
        let text = format!(
            "ModulePath {}\nServerName peer\nServerType standalone\nDefaultAddress 127.0.0.1\nSocketBindTight on\n\
             Port {port}\nUser nobody\nGroup nogroup\nAuthUserFile {shown}/users\nAuthOrder mod_auth_file.c\n\
             RequireValidShell off\nUseReverseDNS off\nPidFile {shown}/pid\nScoreboardFile {shown}/score\n\
             DelayTable {shown}/delay\nWtmpLog off\nTransferLog none\nSystemLog none\nDefaultRoot ~\n\
             AllowOverwrite on\nAllowStoreRestart on\nAllowRetrieveRestart on\nUseFtpUsers off\n",
            modules.display()
        );
        let file = directory.join("proftpd.conf");
        std::fs::write(&file, text).unwrap();
        let mut command = command(&path);
        command.arg("-n").arg("-c").arg(file);
        command
    };
    started(directory, "alice:secret@", start).all(true);
}

#[test]
fn pure_ftpd() {
    let Some(path) = program("pure-ftpd") else { return };
    let directory = place();
    let mut passwd = command(programs().join("usr/bin/pure-pw"));
    passwd.args(["useradd", "alice", "-u", "nobody", "-m", "-d"]).arg(directory.path().join("served"));
    passwd.arg("-f").arg(directory.path().join("passwd")).arg("-F").arg(directory.path().join("users.pdb"));
    with_password(passwd);
    let start = |directory: &Path, port: u16| {
        let mut command = command(&path);
        let shown = directory.display();
        command.args(["-S", &format!("127.0.0.1,{port}"), "-l", &format!("puredb:{shown}/users.pdb")]);
        command.args(["-u", "1", "-U", "022:022", "-g", &format!("{shown}/pid")]);
        command
    };
    started(directory, "alice:secret@", start).all(true);
}
