//! `verbena ftp get` and its siblings against a foreign server and ours, in clear and by TLS; and peers that stop.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::programs::{output, verbena, wait_for};

use crate::common::traffic::{Ended, started};

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A server of pyftpdlib on `directory`/served, and its port.
pub fn foreign(directory: &Path, pem: &str, rate: &str) -> Option<(Ended, String)> {
    let has = Command::new("/usr/bin/python3").args(["-c", "import pyftpdlib"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3-pyftpdlib is not installed");
        return None;
    }
    std::fs::create_dir_all(directory.join("served")).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/pyftpd.py");
    let mut python = Command::new("/usr/bin/python3");
    python.arg(program).args(["served", pem, rate]).current_dir(directory);
    let (process, line) = started(&mut python, |line| line.starts_with("port "));
    Some((process, line["port ".len()..].trim().to_owned()))
}

/// A certificate for localhost that is its own authority: cert.pem, key.pem, and both in both.pem.
fn certificate(directory: &Path, more: &[&str]) -> bool {
    // The line of docs/reference/FTP.md.
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-days", "2"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(more)
        .current_dir(directory)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: openssl is not installed");
        return false;
    }
    let both = ["key.pem", "cert.pem"].map(|name| std::fs::read_to_string(directory.join(name)).unwrap()).concat();
    std::fs::write(directory.join("both.pem"), both).unwrap();
    true
}

struct Place {
    directory: tempfile::TempDir,
    more: Vec<String>,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap(), more: Vec::new() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = verbena(arguments);
        command.args(&self.more).current_dir(self.directory.path());
        command
    }

    fn said(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&output(self.command(arguments).arg("--json"))).unwrap()
    }

    fn all(&self, url: &str, sha256_by: &str) {
        let bytes = content(1_300_003);
        std::fs::write(self.path("a"), &bytes).unwrap();
        let there = format!("{url}/odd%20n%C3%A4me");
        assert_eq!(self.said(&["ftp", "put", "a", &there])["kept"], 0);
        assert_eq!(std::fs::read(self.path("served/odd n\u{e4}me")).unwrap(), bytes);
        // A name that ends with a slash takes the file's own.
        self.said(&["ftp", "put", "a", &format!("{url}/")]);
        let listed = self.said(&["ftp", "ls", &format!("{url}/")]);
        let names: Vec<_> = listed.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "odd n\u{e4}me"]);
        assert_eq!((&listed[0]["size"], &listed[0]["kind"]), (&1_300_003.into(), &"file".into()));
        assert_eq!(self.said(&["ftp", "get", &there, "b"])["bytes"], 1_300_003);
        assert_eq!(std::fs::read(self.path("b")).unwrap(), bytes);
        let digest = self.said(&["ftp", "sha256", &there]);
        let sum = String::from_utf8(Command::new("sha256sum").arg(self.path("a")).output().unwrap().stdout).unwrap();
        assert_eq!((digest["sha256"].as_str().unwrap(), digest["by"].as_str().unwrap()), (&sum[..64], sha256_by));
        output(&mut self.command(&["ftp", "mv", &there, "/moved"]));
        assert!(self.path("served/moved").exists());
        output(&mut self.command(&["ftp", "rm", &format!("{url}/moved")]));
        assert!(!self.path("served/moved").exists());
        std::fs::create_dir(self.path("served/folder")).unwrap();
        output(&mut self.command(&["ftp", "rm", "--directory", &format!("{url}/folder")]));
        // A single file by cp, both ways; and one that is not there.
        assert_eq!(self.said(&["cp", "a", &format!("{url}/c")])["entries"], 1);
        assert_eq!(self.said(&["cp", &format!("{url}/c"), "d"])["bytes"], 1_300_003);
        assert_eq!(std::fs::read(self.path("d")).unwrap(), bytes);
        let missing = self.command(&["ftp", "get", &format!("{url}/none"), "e"]).output().unwrap();
        assert!(!missing.status.success() && !self.path("e").exists());
        let left: Vec<_> =
            std::fs::read_dir(self.directory.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(!left.iter().any(|name| name.to_string_lossy().contains("part")), "{left:?}");
    }
}

#[test]
fn files_of_a_foreign_server() {
    let place = Place::new();
    let Some((_server, port)) = foreign(place.directory.path(), "", "") else { return };
    let url = format!("ftp://alice:secret@127.0.0.1:{port}");
    place.all(&url, "download");
    // An empty file arrives, although a server says of it what it says of none.
    std::fs::write(place.path("empty"), "").unwrap();
    place.said(&["ftp", "put", "empty", &format!("{url}/empty")]);
    assert_eq!(std::fs::read(place.path("served/empty")).unwrap(), b"");
    // Another channel than tcp is not to be had there, and nothing goes by tcp instead.
    for more in [&["--channel", "quic"][..], &["--channel", "quic", "--plain"]] {
        let refused = place.command(&[&["cp", "a", &format!("{url}/in-clear")], more].concat()).output().unwrap();
        assert!(!refused.status.success() && !place.path("served/in-clear").exists(), "{refused:?}");
    }
    let trees = place.command(&["cp", "--update", "a", &format!("{url}/new")]).output().unwrap();
    assert!(trees.status.code() == Some(2) && !place.path("served/new").exists(), "{trees:?}");
}

#[test]
fn files_of_a_foreign_server_by_tls() {
    let mut place = Place::new();
    if !certificate(place.directory.path(), &["-addext", "basicConstraints=critical,CA:false"]) {
        return;
    }
    let Some((_server, port)) = foreign(place.directory.path(), "both.pem", "") else { return };
    let url = format!("ftp://alice:secret@localhost:{port}");
    // Nobody vouches for the certificate: nothing is sent. Nor in clear.
    for more in [&["--tls"][..], &[]] {
        let refused = place.command(&[&["ftp", "ls", &url], more].concat()).output().unwrap();
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("--ca") || more.is_empty(), "{why}");
        assert!(!refused.status.success() && !why.contains("secret"), "{why}");
        assert!(why.contains("certificate") || more.is_empty(), "{why}");
    }
    place.more = ["--tls", "--ca", "cert.pem"].map(str::to_owned).to_vec();
    place.all(&url, "download");
}

#[test]
fn files_of_our_server_by_tls() {
    let mut place = Place::new();
    // As openssl makes it: of the form of an authority's.
    if !certificate(place.directory.path(), &[]) {
        return;
    }
    std::fs::create_dir(place.path("served")).unwrap();
    std::fs::write(place.path("users.toml"), "").unwrap();
    let mut passwd = place.command(&["ftp", "passwd", "users.toml", "alice"]);
    let mut passwd = passwd.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut passwd.stdin.take().unwrap(), b"secret\n").unwrap();
    assert!(passwd.wait().unwrap().success());
    let users = std::fs::read_to_string(place.path("users.toml")).unwrap();
    std::fs::write(place.path("users.toml"), users + "rights = [\"read\", \"write\", \"delete\"]\n").unwrap();
    let mut serve = place.command(&["ftp", "serve", "--json", "--listen", "0.0.0.0:0", "--root", "served"]);
    serve.args([
        "--users",
        "users.toml",
        "--no-anonymous",
        "--tls",
        "cert.pem,key.pem",
        "--tls-required",
        "--tls-resumed",
    ]);
    let (_server, line) = started(&mut serve, |line| line.contains("serving"));
    let address =
        serde_json::from_str::<Value>(&line).unwrap()["address"].as_str().unwrap().replace("0.0.0.0", "127.0.0.1");
    // The certificate is its own authority, which is no server's form: what to do is said.
    let url = format!("ftp://alice:secret@{address}");
    let refused = place.command(&["ftp", "ls", "--tls", &url]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("--ca"), "{why}");
    place.more = ["--tls", "--ca", "cert.pem"].map(str::to_owned).to_vec();
    place.all(&url, "server");
    // A certificate counts for its names alone.
    let other = format!("ftp://alice:secret@{}/", address.replace("127.0.0.1", "127.0.0.2"));
    let named = place.command(&["ftp", "ls", &other]).output().unwrap();
    let why = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(!named.status.success() && why.contains("another name"), "{why}");
    // Trees go by TPRT, on one machine.
    std::fs::create_dir(place.path("back")).unwrap();
    assert_eq!(
        place.said(&["cp", &format!("ftp://alice:secret@{address}/"), "back"])["failures"],
        Value::Array(vec![])
    );
    assert_eq!(std::fs::read(place.path("back/c")).unwrap(), content(1_300_003));
}

/// A get that was killed goes on; one of another version does not; a put goes on where that is proven, or asked for.
#[test]
fn transfers_go_on() {
    let place = Place::new();
    let Some((_server, port)) = foreign(place.directory.path(), "", "1500000") else { return };
    let url = format!("ftp://alice:secret@127.0.0.1:{port}/a");
    let bytes = content(6_000_001);
    std::fs::write(place.path("served/a"), &bytes).unwrap();
    std::fs::create_dir(place.path("here")).unwrap();
    let part = || {
        let found = std::fs::read_dir(place.path("here")).unwrap().flatten();
        found.filter(|entry| entry.file_name().to_string_lossy().ends_with(".data")).map(|entry| entry.path()).next()
    };
    let killed = || {
        let mut get = place.command(&["ftp", "get", &url, "here"]).stdout(Stdio::null()).spawn().unwrap();
        wait_for("a megabyte", || {
            part().is_some_and(|part| std::fs::metadata(part).is_ok_and(|data| data.len() > 1_000_000))
        });
        kill_process(Pid::from_child(&get), Signal::KILL).unwrap();
        get.wait().unwrap();
        assert!(!place.path("here/a").exists());
    };
    killed();
    let kept = std::fs::metadata(part().unwrap()).unwrap().len();
    assert_eq!(place.said(&["ftp", "get", &url, "here"])["kept"], kept);
    assert!(std::fs::read(place.path("here/a")).unwrap() == bytes && part().is_none());
    // Flipped bytes in the part, where they are compared: it begins anew.
    std::fs::remove_file(place.path("here/a")).unwrap();
    killed();
    let kept = std::fs::metadata(part().unwrap()).unwrap().len();
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::OpenOptions::new().write(true).open(part().unwrap()).unwrap(),
        b"flipped",
        kept - 100,
    )
    .unwrap();
    assert_eq!(place.said(&["ftp", "get", &url, "here"])["kept"], 0);
    assert!(std::fs::read(place.path("here/a")).unwrap() == bytes);
    // Another version of the same size.
    std::fs::remove_file(place.path("here/a")).unwrap();
    killed();
    let other: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    std::fs::write(place.path("served/a"), &other).unwrap();
    let old = std::fs::File::options().write(true).open(place.path("served/a")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
    assert_eq!(place.said(&["ftp", "get", &url, "here"])["kept"], 0);
    assert!(std::fs::read(place.path("here/a")).unwrap() == other);
    // Put: pyftpdlib has no hashes, so it goes on only if it is told to, and only behind equal bytes.
    let url = format!("{}/up", url.trim_end_matches("/a"));
    std::fs::write(place.path("up"), &bytes).unwrap();
    for (stands, option, kept) in [
        (&bytes[..2_000_000], "--resume", 2_000_000),
        (&other[..2_000_000], "--resume", 0),
        (&bytes[..2_000_000], "--timeout=30s", 0),
    ] {
        std::fs::write(place.path("served/up"), stands).unwrap();
        assert_eq!(place.said(&["ftp", "put", option, "up", &url])["kept"], kept, "{option}");
        assert!(std::fs::read(place.path("served/up")).unwrap() == bytes);
    }
}

/// A tree to and from a server without TPRT: what stands is not sent again, and the options hold.
#[test]
fn trees_of_a_foreign_server() {
    let place = Place::new();
    let Some((_server, port)) = foreign(place.directory.path(), "", "") else { return };
    let url = format!("ftp://alice:secret@127.0.0.1:{port}/in");
    for folder in ["data/deep/er", "back"] {
        std::fs::create_dir_all(place.path(folder)).unwrap();
    }
    for number in 0..20u32 {
        std::fs::write(place.path(&format!("data/deep/{number}")), content(1000 * number + 3)).unwrap();
    }
    std::fs::write(place.path("data/deep/er/n\u{e4}me"), "x").unwrap();
    std::fs::write(place.path("data/skip.tmp"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.path("data/link")).unwrap();
    let number = |said: &Value, key: &str| said[key].as_u64().unwrap();
    let changes = |said: &Value| said["changes"].as_array().unwrap().len();
    // Dry: nothing is made. Two directories, twenty files and one.
    let dry = place.said(&["cp", "--dry-run", "--exclude", "*.tmp", "data", &url]);
    assert!(changes(&dry) == 23 && !place.path("served/in").exists(), "{dry}");
    let first = place.said(&["cp", "--exclude", "*.tmp", "data", &url]);
    assert_eq!((number(&first, "entries"), changes(&first)), (23, 23), "{first}");
    assert_eq!(std::fs::read(place.path("served/in/deep/19")).unwrap(), content(19_003));
    assert!(!place.path("served/in/skip.tmp").exists() && !place.path("served/in/link").exists());
    // No option: the server does not know TPRT, and what stands stands by its size and time.
    let second = place.said(&["cp", "data", &url]);
    assert_eq!((changes(&second), number(&second, "bytes")), (1, 1), "{second}");
    let back = place.said(&["cp", "--streams", "3", &url, "back"]);
    assert_eq!((number(&back, "entries"), &back["failures"]), (24, &Value::Array(vec![])), "{back}");
    assert_eq!(std::fs::read(place.path("back/deep/19")).unwrap(), content(19_003));
    assert_eq!(changes(&place.said(&["cp", &url, "back"])), 0);
    // What is newer stays with --update, and is replaced without.
    std::fs::write(place.path("back/deep/3"), "newer").unwrap();
    let newer = std::fs::File::options().write(true).open(place.path("back/deep/3")).unwrap();
    newer.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60)).unwrap();
    assert_eq!(changes(&place.said(&["cp", "--update", &url, "back"])), 0);
    assert_eq!(changes(&place.said(&["cp", &url, "back"])), 1);
    assert_eq!(std::fs::read(place.path("back/deep/3")).unwrap(), content(3_003));
    // --delete removes what the source does not have, not what is left out, and not by default.
    std::fs::create_dir(place.path("back/old")).unwrap();
    for name in ["back/old/file", "back/keep.me"] {
        std::fs::write(place.path(name), "x").unwrap();
    }
    assert_eq!(changes(&place.said(&["cp", &url, "back"])), 0);
    assert_eq!(changes(&place.said(&["cp", "--delete", "--exclude", "keep.*", &url, "back"])), 2);
    assert!(!place.path("back/old").exists() && place.path("back/keep.me").exists());
    std::fs::remove_dir_all(place.path("data/deep/er")).unwrap();
    assert_eq!(changes(&place.said(&["cp", "--delete", "data", &url])), 2);
    assert!(!place.path("served/in/deep/er").exists());
}

fn threads(process: &Ended) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", process.0.id())).unwrap().count()
}

fn sockets(process: &Ended) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.0.id())).unwrap().flatten();
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket")))
        .count()
}

/// Clients that are stopped in the middle of a download, of an upload, of a tree, and between commands: the server ends
/// them, and has as many threads and sockets as before.
#[test]
fn stopped_clients_free_what_they_held() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("served/tree")).unwrap();
    std::fs::create_dir_all(place.path("back")).unwrap();
    std::fs::File::create(place.path("served/large")).unwrap().set_len(8 << 30).unwrap();
    std::fs::File::create(place.path("served/tree/large")).unwrap().set_len(8 << 30).unwrap();
    let mut serve = place.command(&["ftp", "serve", "--json", "--listen", "127.0.0.1:0", "--root", "served"]);
    serve.args(["--anonymous-write", "--stall", "2s", "--session-stall", "2s", "--idle", "3s"]);
    let (server, line) = started(&mut serve, |line| line.contains("serving"));
    let url = serde_json::from_str::<Value>(&line).unwrap()["url"].as_str().unwrap().to_owned();
    let (threads_before, sockets_before) = (threads(&server), sockets(&server));
    let clients: [(&str, Vec<String>); 3] = [
        (
            "curl",
            vec![
                "-sS".into(),
                "-o".into(),
                "/dev/null".into(),
                "--limit-rate".into(),
                "50M".into(),
                format!("{url}large"),
            ],
        ),
        (
            "curl",
            vec!["-sS".into(), "-T".into(), "/dev/zero".into(), "--limit-rate".into(), "5M".into(), format!("{url}up")],
        ),
        ("cp", vec!["cp".into(), format!("{url}tree/"), "back".into()]),
    ];
    for (program, arguments) in clients {
        let mut command = match program {
            "cp" => verbena(&[]),
            program => Command::new(program),
        };
        let mut client = command
            .args(&arguments)
            .current_dir(place.directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("a transfer", || threads(&server) > threads_before && sockets(&server) >= sockets_before + 2);
        kill_process(Pid::from_child(&client), Signal::STOP).unwrap();
        wait_for("the sockets of before", || sockets(&server) == sockets_before);
        // Threads of the runtime rest for a while before they end.
        wait_for("the threads of before", || threads(&server) <= threads_before);
        client.kill().unwrap();
        client.wait().unwrap();
    }
    // One that says nothing.
    let silent = std::net::TcpStream::connect(url.trim_start_matches("ftp://").trim_end_matches('/')).unwrap();
    wait_for("a connection", || sockets(&server) > sockets_before);
    wait_for("its end", || sockets(&server) == sockets_before);
    drop(silent);
}
