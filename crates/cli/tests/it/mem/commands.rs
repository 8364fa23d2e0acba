//! `verbena mem` as a user types it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use verbena_testkit::nodes::Cluster;
use verbena_testkit::programs::verbena;

use super::three;

/// A command at a node, with this on standard input.
pub fn mem(cluster: &Cluster, node: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = verbena(&["mem"]);
    command.args(arguments).args(["--cluster-name", node]).current_dir(cluster.path());
    ended(command, input)
}

/// What a command printed that had this on standard input.
pub fn ended(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read ends before it is all there.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

pub fn said(cluster: &Cluster, node: &str, arguments: &[&str], input: &[u8]) -> String {
    good(mem(cluster, node, arguments, input), arguments)
}

/// Standard output of what has to succeed.
pub fn good(output: Output, arguments: &[&str]) -> String {
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn json(cluster: &Cluster, node: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(cluster, node, &[arguments, &["--json"]].concat(), b"")).unwrap()
}

/// Its exit code, and what it complained of.
pub fn refused(cluster: &Cluster, arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let output = mem(cluster, "b", arguments, input);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_a_user_types() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let version =
        said(&cluster, "a", &["put", "greeting", "--new", "--coherence", "read", "--placement", "c"], b"hello");
    assert!(version.starts_with("version "), "{version}");
    assert_eq!(said(&cluster, "b", &["get", "greeting"], b""), "hello");
    assert_eq!(said(&cluster, "b", &["get", "greeting", "--offset", "1", "--length", "3"], b""), "ell");
    let big: Vec<u8> = (0..5_000_000u32).map(|at| (at * 7 % 253) as u8).collect();
    std::fs::write(cluster.path().join("big"), &big).unwrap();
    said(&cluster, "b", &["put", "big", "big", "--new", "--writers", "1"], b"");
    said(&cluster, "c", &["get", "big", "--out", "copy"], b"");
    assert!(std::fs::read(cluster.path().join("copy")).unwrap() == big);
    let stat = json(&cluster, "a", &["stat", "greeting"]);
    assert_eq!((&stat["home"], &stat["coherence"], &stat["bytes"]), (&"c".into(), &"read".into(), &5.into()));
    assert!(stat["put"].as_str().is_some_and(|put| put.ends_with('Z')), "{stat}");
    let (now, id) = (stat["version"].as_u64().unwrap(), stat["id"].as_str().unwrap());
    assert_eq!(said(&cluster, "a", &["get", "--id", id], b""), "hello");
    let got = json(&cluster, "a", &["get", "greeting"]);
    assert_eq!((&got["hex"], &got["version"]), (&"68656c6c6f".into(), &now.into()));
    // Over another version nothing is put, and it is said which there is.
    let output = mem(&cluster, "a", &["put", "greeting", "--over", &(now + 3).to_string(), "--json"], b"HELLO");
    let conflict: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &conflict["conflict"]), (Some(75), &now.into()));
    said(&cluster, "a", &["put", "greeting", "--over", &now.to_string(), "--offset", "4"], b"!");
    assert_eq!(said(&cluster, "c", &["get", "greeting"], b""), "hell!");
    let listed = json(&cluster, "c", &["ls"]);
    let names: Vec<_> =
        listed["segments"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["big", "greeting"]);
    let table = said(&cluster, "c", &["ls", "gree"], b"");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "BYTES", "COHERENCE", "HOMES", "TAKES", "USER", "ID"]);
    assert_eq!((lines.len(), &lines[1][..4]), (2, &["greeting", "5", "read", "c"][..]));
    said(&cluster, "b", &["rm", "greeting"], b"");
    assert_eq!(
        said(&cluster, "a", &["new", "greeting", "--size", "2KiB", "--placement", "local"], b"").split(':').next(),
        Some("greeting")
    );
    assert_eq!(json(&cluster, "b", &["stat", "greeting"])["put"], Value::Null);
}

#[test]
fn how_often_a_segment_is_written() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    let mut program = super::connect(&cluster, "a");
    for name in ["idle", "busy"] {
        program.allocate(verbena_client::NewSegment::of(64).named(name)).unwrap();
    }
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut puts = 0u64;
        while stopped.try_recv().is_err() {
            program.put("busy", &[1; 64]).unwrap();
            puts += 1;
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        puts
    });
    let look = json(&cluster, "b", &["top", "--count", "1", "--interval", "500ms"]);
    stop.send(()).unwrap();
    let puts = writer.join().unwrap();
    let rows = look["most_written"].as_array().unwrap();
    let rates: Vec<_> =
        rows.iter().map(|row| (row["name"].as_str().unwrap(), row["puts_per_second"].as_f64().unwrap())).collect();
    assert_eq!((rates[0].0, rates[1]), ("busy", ("idle", 0.0)));
    assert!(puts > 20 && rates[0].1 > 10.0, "{puts} puts, {rates:?}");
    let shown = said(&cluster, "b", &["top", "--count", "2", "--interval", "50ms"], b"");
    assert_eq!(shown.matches("2 segments, 128 bytes").count(), 2, "{shown}");
}

#[test]
fn wrong_arguments_are_named() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    said(&cluster, "a", &["new", "x", "--size", "8B"], b"");
    let cases: [(&[&str], &[u8], i32, &str); 11] = [
        (&["get", "nothing"], b"", 1, "there is no segment nothing"),
        (&["get", "x", "--offset", "9"], b"", 1, "outside a segment of 8 bytes"),
        (&["put", "x"], b"", 1, "outside a segment of 8 bytes"),
        (&["put", "x", "no-such-file"], b"", 1, "cannot open no-such-file"),
        (&["put", "x", "--new"], b"8 bytes.", 1, "there is a segment x"),
        (&["put", "y", "--new", "--coherence", "string"], b"y", 2, "no coherence"),
        (&["put", "y", "--new", "--over", "3"], b"y", 2, "cannot be used with"),
        (&["new", "y", "--size", "0B"], b"", 1, "a segment of 0 bytes"),
        (&["new", "y", "--size", "many"], b"", 2, "many"),
        (&["new", "y", "--size", "8B", "--placement", "d"], b"", 1, "no node d"),
        (&["get", "--id", "x"], b"", 2, "identifies no segment"),
    ];
    for (arguments, input, code, text) in cases {
        let (exit, complaint) = refused(&cluster, arguments, input);
        assert_eq!(exit, Some(code), "{arguments:?}: {complaint}");
        assert!(complaint.contains(text), "{arguments:?}: {complaint}");
    }
}

#[test]
fn what_processes_save_together() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    said(&cluster, "a", &["checkpoint", "new", "run", "--processes", "2", "--size", "1KiB"], b"");
    let join = |process: &str| {
        let arguments = ["checkpoint", "join", "run", "--process", process, "--out", "state"];
        json(&cluster, "b", &arguments)
    };
    assert_eq!(join("0"), serde_json::json!({ "era": 1, "number": 0, "bytes": null }));
    assert_eq!(join("1")["era"], 1);
    let save = |process: &str, era: &str, part: &[u8]| {
        let which = ["--process", process, "--era", era, "--number", "1", "--json"];
        let output = mem(&cluster, "c", &[&["checkpoint", "save", "run"][..], &which].concat(), part);
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    assert_eq!(save("0", "1", b"half"), (Some(0), serde_json::json!({ "rolled_back": false, "complete": 0 })));
    assert_eq!(save("1", "1", b"other half"), (Some(0), serde_json::json!({ "rolled_back": false, "complete": 1 })));
    let wait = |era: &str, number: &str, timeout: &str| {
        let which = ["checkpoint", "wait", "run", "--era", era, "--number", number, "--timeout", timeout, "--json"];
        let output = mem(&cluster, "b", &which, b"");
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap()["complete"] == true)
    };
    assert_eq!((wait("1", "1", "9s"), wait("1", "2", "100ms")), ((Some(0), true), (Some(124), false)));
    let get = |number: &[&str]| {
        let which = ["checkpoint", "get", "run", "--process", "0", "--out", "part"];
        json(&cluster, "b", &[&which[..], number].concat())
    };
    for number in [&[][..], &["--number", "1"]] {
        assert_eq!(get(number), serde_json::json!({ "number": 1, "bytes": 4 }));
        assert_eq!(std::fs::read(cluster.path().join("part")).unwrap(), b"half");
    }
    let (code, complaint) =
        refused(&cluster, &["checkpoint", "get", "run", "--process", "0", "--number", "2", "--out", "none"], b"");
    assert!(code == Some(1) && complaint.contains("checkpoint 2"), "{complaint}");
    assert!(!cluster.path().join("none").exists());
    let again = join("1");
    assert_eq!(again, serde_json::json!({ "era": 2, "number": 1, "bytes": 10 }));
    assert_eq!(std::fs::read(cluster.path().join("state")).unwrap(), b"other half");
    assert_eq!(save("0", "1", b"more"), (Some(75), serde_json::json!({ "rolled_back": true, "complete": null })));
    assert_eq!(wait("1", "2", "9s"), (Some(75), false));
    let shown = said(&cluster, "a", &["checkpoint", "show", "run"], b"");
    let expected = "complete   1\nera        2\nprocess 0  has not joined\nprocess 1  has saved nothing yet\n";
    assert_eq!(shown, expected);
    said(&cluster, "a", &["checkpoint", "back", "run", "--number", "1"], b"");
    assert_eq!(json(&cluster, "a", &["checkpoint", "show", "run"])["era"], 3);
    said(&cluster, "a", &["checkpoint", "rm", "run"], b"");
    let (code, complaint) = refused(&cluster, &["checkpoint", "show", "run"], b"");
    assert!(code == Some(1) && complaint.contains("there is no segment run"), "{complaint}");
}

#[test]
fn standard_input_and_output_are_called_by_a_dash() {
    let cluster = Cluster::on_shm("2s");
    let _nodes = three(&cluster);
    said(&cluster, "a", &["put", "greeting", "-", "--new"], b"hello");
    assert_eq!(said(&cluster, "b", &["get", "greeting", "--out", "-"], b""), "hello");
    assert_eq!(json(&cluster, "b", &["get", "greeting", "--out", "-"])["hex"], "68656c6c6f");
    said(&cluster, "a", &["checkpoint", "new", "run", "--processes", "1", "--size", "8B"], b"");
    said(&cluster, "a", &["checkpoint", "join", "run", "--process", "0", "--out", "state"], b"");
    said(&cluster, "a", &["checkpoint", "save", "run", "-", "--process", "0", "--era", "1", "--number", "1"], b"part");
    said(&cluster, "a", &["checkpoint", "get", "run", "--process", "0", "--out", "state"], b"");
    assert_eq!(std::fs::read(cluster.path().join("state")).unwrap(), b"part");
    assert!(!cluster.path().join("-").exists());
}
