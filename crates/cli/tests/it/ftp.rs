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
    // A wrong password, a server that is not there, and two sides of one kind.
    for (from, to, why) in [
        (&*url.replace("ftp://", "ftp://alice:wrong@"), "back", "PASS"),
        ("ftp://127.0.0.1:1/", "back", "127.0.0.1:1"),
        ("data", "back", "neither side"),
        (&*there, &*there, "both sides"),
    ] {
        let said = verbena(&["cp", from, to]).current_dir(directory.path()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && text.contains(why) && !text.contains("wrong"), "{from} {to}: {text}");
    }
}
