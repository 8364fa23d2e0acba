//! `verbena ftp` and `verbena cp`: a server that an ordinary client reads, users with passwords, and trees that arrive whole.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::programs::{output, verbena, wait_for};

use crate::common::traffic::{Ended, started};

/// A server of a directory, and its URL.
fn serving(directory: &Path, more: &[&str]) -> (Ended, String) {
    let mut command = verbena(&["ftp", "serve", "--json", "--listen", "127.0.0.1:0", "--root", "served"]);
    command.args(more).current_dir(directory);
    let (process, line) = started(&mut command, |line| line.contains(r#""serving""#));
    let serving: Value = serde_json::from_str(&line).unwrap();
    (process, serving["url"].as_str().unwrap().to_owned())
}

fn with_user(directory: &Path, name: &str, password: &str) {
    let mut command = verbena(&["ftp", "passwd", "users.toml", name]);
    let mut process = command.current_dir(directory).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    writeln!(process.stdin.take().unwrap(), "{password}").unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn anybody_reads_and_nobody_writes_by_default() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("served")).unwrap();
    std::fs::write(directory.path().join("served/hello"), "good morning\n").unwrap();
    let (server, url) = serving(directory.path(), &[]);
    let curl =
        |arguments: &[&str]| Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments).output().unwrap();
    assert_eq!(curl(&[&format!("{url}hello")]).stdout, b"good morning\n");
    let upload = curl(&["-T", "/etc/hostname", &format!("{url}new")]);
    assert!(!upload.status.success() && !directory.path().join("served/new").exists(), "{upload:?}");
    // It ends in order.
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let mut server = server;
    wait_for("its end", || server.0.try_wait().unwrap().is_some());
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn a_tree_goes_there_and_back_and_the_second_time_nothing_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    for folder in ["served", "data/deep", "back"] {
        std::fs::create_dir_all(directory.path().join(folder)).unwrap();
    }
    let large: Vec<u8> = (0..3 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(directory.path().join("data/large"), &large).unwrap();
    std::fs::write(directory.path().join("data/deep/small"), "small").unwrap();
    std::fs::write(directory.path().join("data/empty"), "").unwrap();
    with_user(directory.path(), "alice", "secret");
    let users = std::fs::read_to_string(directory.path().join("users.toml")).unwrap();
    assert!(users.contains("argon2id") && !users.contains("secret"), "{users}");
    std::fs::write(directory.path().join("users.toml"), users + "rights = [\"read\", \"write\", \"delete\"]\n")
        .unwrap();
    let (_server, url) = serving(directory.path(), &["--users", "users.toml", "--no-anonymous"]);
    let there = url.replace("ftp://", "ftp://alice:secret@");
    let cp = |from: &str, to: &str| -> Value {
        serde_json::from_str(&output(verbena(&["cp", "--json", from, to]).current_dir(directory.path()))).unwrap()
    };
    let first = cp("data", &there);
    // Three files, and two directories.
    assert_eq!((&first["entries"], &first["failures"]), (&5.into(), &Value::Array(vec![])), "{first}");
    assert_eq!(std::fs::read(directory.path().join("served/large")).unwrap(), large);
    // Small files go ahead without a question; what is large and stands is not sent again.
    assert!(cp("data", &there)["bytes"].as_u64().is_some_and(|bytes| bytes < 100));
    let back = cp(&there, "back");
    assert_eq!(back["entries"], 5, "{back}");
    assert_eq!(std::fs::read(directory.path().join("back/large")).unwrap(), large);
    assert_eq!(std::fs::read_to_string(directory.path().join("back/deep/small")).unwrap(), "small");
    // A wrong password, and a server that is not there.
    for (from, to, why) in
        [(&*url.replace("ftp://", "ftp://alice:wrong@"), "back", "PASS"), ("ftp://127.0.0.1:1/", "back", "127.0.0.1:1")]
    {
        let said = verbena(&["cp", from, to]).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && text.contains(why) && !text.contains("wrong"), "{from} {to}: {text}");
    }
}

/// One file takes the channel that is named, both ways; what copies by plain FTP is refused beside it.
#[test]
fn a_single_file_takes_the_channel() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for folder in ["served/in", "here"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(at("a"), &bytes).unwrap();
    std::os::unix::fs::symlink("a", at("b")).unwrap();
    let (_server, url) = serving(directory.path(), &["--anonymous-write"]);
    let run =
        |words: &[&str]| verbena(&[&["cp", "--json"], words].concat()).current_dir(directory.path()).output().unwrap();
    let there = |path: &str| format!("{url}{path}");
    for (from, to, found) in [
        ("a", &*there("in/"), "served/in/a"),
        ("b", &there("in"), "served/in/b"),
        ("a", &there("other"), "served/other"),
        (&there("in/a"), "here", "here/a"),
        (&there("other"), "here/c", "here/c"),
    ] {
        let output = run(&["--channel", "quic", from, to]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(output.status.success() && said["notes"].to_string().contains("quic"), "{from} {to}: {output:?}");
        assert_eq!((&said["entries"], said["bytes"].as_u64()), (&1.into(), Some(3 << 20)), "{said}");
        assert!(
            std::fs::read(at(found)).unwrap() == bytes && !std::fs::symlink_metadata(at(found)).unwrap().is_symlink()
        );
        // What stands is not sent again.
        let again: Value = serde_json::from_slice(&run(&["--channel", "quic", from, to]).stdout).unwrap();
        assert_eq!(again["bytes"], 0, "{again}");
    }
    // The channel says what slows it down.
    for (from, to, found) in
        [("a", &*there("by-udp"), "served/by-udp"), (&there("by-udp"), "here/by-udp", "here/by-udp")]
    {
        let output = run(&["--channel", "udp", from, to]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert!(output.status.success() && said["channel"] == "udp", "{output:?}");
        // The side that sends knows it.
        let about = said["notes"].to_string().contains("udp with a rate of its own, which loss and delay lower");
        assert_eq!(about, from == "a", "{said}");
        assert!(std::fs::read(at(found)).unwrap() == bytes);
    }
    let mut explain = verbena(&["cp", "--explain", "--channel", "udp", "a", &there("by-udp")]);
    let explained = explain.current_dir(directory.path()).output().unwrap();
    let text = [explained.stdout, explained.stderr].concat();
    assert!(String::from_utf8_lossy(&text).contains("by udp to begin with"), "{}", String::from_utf8_lossy(&text));
    // Without a channel, what was chosen is said, and why.
    for (more, found, why) in [
        (&["--streams", "2"][..], "tcp", "quic or udp where packets are lost and it pays"),
        (&[], "descriptor", "both sides are on this machine and of one user"),
    ] {
        let chosen: Value = serde_json::from_slice(&run(&[more, &["a", &there(found)]].concat()).stdout).unwrap();
        assert!(chosen["channel"] == found && chosen["streams"].as_u64().unwrap() >= 1, "{chosen}");
        assert!(chosen["notes"].to_string().contains(why), "{chosen}");
        assert!(
            chosen["measured"].is_null() || chosen["measured"]["bytes_per_second"].as_u64().unwrap() > 0,
            "{chosen}"
        );
        assert!(std::fs::read(at(&format!("served/{found}"))).unwrap() == bytes);
    }
    for option in ["--plain", "--update", "--delete", "--dry-run", "--exclude=x"] {
        let refused = run(&["--channel", "quic", option, "a", &there("refused")]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("--channel"), "{option}: {said}");
    }
    assert!(!at("served/refused").exists());
    // A device stays what it is.
    let device = run(&[&there("in/a"), "/dev/null"]);
    assert!(!device.status.success() && !Path::new("/dev/null").is_file(), "{device:?}");
}

/// A directory with a link goes with it; one with what was left out stays, and neither is a failure.
#[test]
fn deleting_takes_links_along() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for folder in ["served/in/old/deep", "served/in/kept", "data/kept", "data/link.d", "back"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    std::fs::remove_dir(at("data/link.d")).unwrap();
    for (text, link) in [("/etc/passwd", "served/in/old/deep/l"), ("kept", "data/link.d"), ("kept", "served/in/kept/l")]
    {
        std::os::unix::fs::symlink(text, at(link)).unwrap();
    }
    for folder in ["served/in/held", "served/in/link.d"] {
        std::fs::create_dir_all(at(folder)).unwrap();
        std::fs::write(at(folder).join("keep.me"), "x").unwrap();
    }
    std::fs::write(at("served/in/held/other"), "x").unwrap();
    with_user(directory.path(), "alice", "secret");
    let users = std::fs::read_to_string(at("users.toml")).unwrap();
    std::fs::write(at("users.toml"), users + "rights = [\"read\", \"write\", \"delete\"]\n").unwrap();
    let (_server, url) = serving(directory.path(), &["--users", "users.toml"]);
    let url = url.replace("ftp://", "ftp://alice:secret@") + "in";
    let cp = |from: &str, to: &str| -> Value {
        let words = ["cp", "--json", "--delete", "--exclude", "keep.*", from, to];
        serde_json::from_str(&output(verbena(&words).current_dir(directory.path()))).unwrap()
    };
    let files: Vec<String> = cp("data", &url)["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["file"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(files, ["old/deep/l", "old/deep", "old", "held/other"]);
    assert!(!at("served/in/old").exists() && Path::new("/etc/passwd").exists());
    for stays in ["served/in/held/keep.me", "served/in/link.d/keep.me", "served/in/kept/l"] {
        assert!(std::fs::symlink_metadata(at(stays)).is_ok(), "{stays}");
    }
    assert_eq!(cp("data", &url)["changes"], Value::Array(vec![]));
    // And here.
    std::fs::create_dir(at("back/old")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("back/old/l")).unwrap();
    cp(&url, "back");
    assert!(!at("back/old").exists() && at("back/kept").is_dir());
}

/// What a server does not start with, what a login says, and what a client is told: where, and what to do.
#[test]
fn mistakes_are_told_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("served/a")).unwrap();
    std::fs::write(directory.path().join("served/file"), "x").unwrap();
    with_user(directory.path(), "alice", "secret");
    let users = std::fs::read_to_string(directory.path().join("users.toml")).unwrap();
    std::fs::write(directory.path().join("users.toml"), users + "home = \"missing\"\n").unwrap();
    let (_server, url) = serving(directory.path(), &["--users", "users.toml"]);
    let address = url.trim_start_matches("ftp://").trim_end_matches('/');
    let alice = url.replace("ftp://", "ftp://alice:secret@");
    for (words, needles) in [
        (&["ftp", "serve", "--root", "served", "--listen", address][..], &["another process", address][..]),
        (&["ftp", "serve", "--root", "served", "--listen", "192.0.2.1:0"], &["no interface"]),
        (&["ftp", "serve", "--root", "served", "--listen", "2121"], &["not IP:PORT", "127.0.0.1:2121"]),
        (&["ftp", "ls", "host"], &["ftp://HOST/PATH", "\"host\""]),
        (&["ftp", "ls", "http://u:hidden@host/"], &["ftp://HOST/PATH", "http"]),
        (&["ftp", "ls", "ftp://127.0.0.1:1/"], &["127.0.0.1:1", "no server listens there"]),
        (&["ftp", "ls", &alice], &["PASS", "530", "Your directory on this server"]),
        (&["ftp", "get", &format!("{url}none")], &["RETR /none", "550", "verbena ftp ls"]),
        (&["ftp", "rm", &format!("{url}a")], &["DELE /a", "550", "right", "--directory removes an empty one"]),
        (&["ftp", "rm", "--directory", &format!("{url}file")], &["RMD /file", "550", "leave out --directory"]),
        (&["ftp", "mv", &format!("{url}file"), "ftp://127.0.0.1:1/b"], &["another server", "verbena cp"]),
        (&["ftp", "mv", &format!("{url}file"), "http://u:hidden@host/b"], &["ftp://HOST/PATH", "http"]),
        (&["cp", &format!("{url}none"), "here"], &["MLST /none", "550"]),
        (&["cp", "none", &url], &["none", "No such file", "correct the path"]),
        (&["cp", &url, "none"], &["none", "No such file", "make the directory first"]),
        (&["cp", "--plain", &url, "none"], &["none", "No such file", "make the directory first"]),
        (&["cp", &format!("{url}file"), "none/"], &["none/", "No such file", "make the directory first"]),
        (&["cp", &format!("{url}file"), "none/b"], &["none", "No such file", "make the directory first"]),
        (&["ftp", "get", &format!("{url}file"), "none/"], &["none/", "No such file", "make the directory first"]),
        (&["cp", "--channel", "descriptor", "--streams", "4", "none", &url], &["--streams", "one connection"]),
        (&["ftp", "serve", "--root", "served", "--users", "none.toml"], &["none.toml", "verbena ftp passwd"]),
        (&["ftp", "ls", "--tls", &url], &["AUTH TLS", "502", "--tls"]),
    ] {
        let said = verbena(words).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && needles.iter().all(|needle| text.contains(needle)), "{words:?}: {text}");
        assert!(!text.contains("1024") && !text.contains("hidden") && !text.contains("secret"), "{words:?}: {text}");
    }
    // A directory that is not to be read, for a process that is not root.
    let closed = directory.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    allow(directory.path(), 0o755);
    allow(&closed, 0o711);
    let mut serve = verbena(&["ftp", "serve", "--listen", "127.0.0.1:0", "--root", closed.to_str().unwrap()]);
    if rustix::process::geteuid().is_root() {
        let program = serve.get_program().to_owned();
        let arguments: Vec<_> = serve.get_args().map(ToOwned::to_owned).collect();
        serve = Command::new("setpriv");
        serve.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program).args(arguments);
    }
    let mut serve = serve.current_dir("/").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("its end", || serve.try_wait().unwrap().is_some());
    let said = std::io::read_to_string(serve.stderr.take().unwrap()).unwrap();
    assert!(said.contains(closed.to_str().unwrap()) && said.contains("Permission denied"), "{said}");
}

/// A file that is copied alone has its name, a quota is called one, and what cannot be read is named.
#[test]
fn what_fails_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for folder in ["served/way/a", "here/a", "data"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    for name in ["a", "served/a", "data/a", "data/b"] {
        std::fs::write(at(name), vec![7; 60_000]).unwrap();
    }
    std::fs::write(at("served/way/a/x"), "x").unwrap();
    std::fs::write(at("here/a/x"), "x").unwrap();
    with_user(directory.path(), "alice", "secret");
    let users = std::fs::read_to_string(at("users.toml")).unwrap();
    let limits = "rights = [\"read\", \"write\", \"delete\"]\nquota = \"170KiB\"\n";
    std::fs::write(at("users.toml"), users + limits).unwrap();
    let (_server, url) = serving(directory.path(), &["--users", "users.toml"]);
    let url = url.replace("ftp://", "ftp://alice:secret@");
    let run = |words: &[&str]| {
        let output = verbena(words).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    // A directory is in the way of the file.
    let (there, way) = (format!("{url}a"), format!("{url}way/"));
    for words in [["cp", "a", &way], ["cp", &there, "here"], ["cp", "a", "here"], ["cp", &there, &way]] {
        let (is_done, text) = run(&words);
        assert!(!is_done && text.lines().any(|line| line.starts_with("a: ")), "{words:?}: {text}");
    }
    assert!(run(&["cp", "--dry-run", "a", "new"]).1.contains(
        "copy a
"
    ));
    // One of the two fits.
    for (more, plain) in [("--no-sync", false), ("--plain", true)] {
        let (is_done, text) = run(&["cp", more, "data", &format!("{url}in{plain}")]);
        assert!(!is_done && text.contains("quota") && !text.contains("No space"), "{more}: {text}");
        std::fs::remove_dir_all(at(&format!("served/in{plain}"))).unwrap();
    }
    let moved = |name: &str| at("served").join(name).exists();
    assert_eq!(run(&["ftp", "mv", &format!("{url}a"), &format!("{url}b")]), (true, String::new()));
    assert!(moved("b") && !moved("a"));
    // The user of the first address counts.
    let nameless = url.replace("alice:secret@", "");
    assert!(run(&["ftp", "mv", &format!("{url}b"), &format!("{nameless}c")]).0 && moved("c"));
}

/// A directory that cannot be read is a failure, whichever way the tree goes: here, one that lies too deep.
#[test]
fn a_directory_that_cannot_be_read_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let deep = vec!["d"; 260].join("/");
    for folder in ["served/tree".to_owned(), "back".into(), format!("served/tree/{deep}"), format!("data/{deep}")] {
        std::fs::create_dir_all(directory.path().join(folder)).unwrap();
    }
    let (_server, url) = serving(directory.path(), &["--anonymous-write"]);
    let (tree, to) = (format!("{url}tree"), format!("{url}to"));
    for words in [["data", &to], [&tree, "back"], ["data", "here"], [&tree, &format!("{url}third")]] {
        let said = verbena(&["cp", words[0], words[1]]).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(
            said.status.code() == Some(1) && text.contains("could not be read") | text.contains("cannot be read"),
            "{words:?}: {text}"
        );
    }
}

/// A tree into a place that cannot be written is one line.
#[test]
fn one_cause_is_said_once() {
    let directory = tempfile::tempdir().unwrap();
    for folder in ["served", "data/deep"] {
        std::fs::create_dir_all(directory.path().join(folder)).unwrap();
    }
    for nth in 0..30 {
        std::fs::write(directory.path().join(format!("data/{nth}")), "x").unwrap();
        std::fs::write(directory.path().join(format!("data/deep/{nth}")), "x").unwrap();
    }
    let (_server, url) = serving(directory.path(), &[]);
    for more in ["--plain", "--no-sync"] {
        let said = verbena(&["cp", more, "data", &format!("{url}in")]).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && text.lines().count() <= 3 && text.contains("right"), "{more}: {text}");
    }
}

/// The administrator sees who is there and ends a session; SIGHUP reads the users again; the port has metrics.
#[test]
fn the_administrator_of_a_server() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("served")).unwrap();
    with_user(directory.path(), "alice", "secret");
    let more = ["--users", "users.toml", "--no-anonymous", "--control", "control.sock", "--metrics", "127.0.0.1:0"];
    let mut command = verbena(&["ftp", "serve", "--json", "--listen", "127.0.0.1:0", "--root", "served"]);
    command.args(more).current_dir(directory.path());
    let (server, line) = started(&mut command, |line| line.contains(r#""serving""#));
    let serving: Value = serde_json::from_str(&line).unwrap();
    let run = |words: &[&str]| verbena(words).current_dir(directory.path()).output().unwrap();
    let who = || -> Vec<Value> {
        let output = run(&["ftp", "who", "--json", "--control", "control.sock"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let mut client = std::net::TcpStream::connect(serving["address"].as_str().unwrap()).unwrap();
    client.write_all(b"USER alice\r\nPASS secret\r\n").unwrap();
    wait_for("a login", || who().iter().any(|one| one["user"] == "alice"));
    let id = who()[0]["id"].to_string();
    let shown = run(&["ftp", "who", "--control", "control.sock"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("alice"), "{shown:?}");
    assert!(run(&["ftp", "kick", "--control", "control.sock", &id]).status.success());
    let said = std::io::read_to_string(client).unwrap();
    assert!(said.lines().last().unwrap().starts_with("421"), "{said}");
    wait_for("the end of the session", || who().is_empty());
    assert_eq!(run(&["ftp", "kick", "--control", "control.sock", &id]).status.code(), Some(1));
    assert_eq!(run(&["ftp", "who", "--control", "none.sock"]).status.code(), Some(3));
    let metrics = format!("http://{}/metrics", serving["metrics"].as_str().unwrap());
    let metrics = Command::new("curl").args(["-sS", "--max-time", "60", &metrics]).output().unwrap();
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("verbena_ftp_kicked_total 1"), "{metrics:?}");
    // A user who was not there at the start.
    with_user(directory.path(), "bob", "new");
    let bob = serving["url"].as_str().unwrap().replace("ftp://", "ftp://bob:new@");
    assert!(!run(&["ftp", "ls", &bob]).status.success());
    kill_process(Pid::from_child(&server.0), Signal::HUP).unwrap();
    wait_for("bob", || run(&["ftp", "ls", &bob]).status.success());
}
