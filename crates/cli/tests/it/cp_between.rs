//! `verbena cp` from one server to another one, as processes: who connects, what is said of it, and that the trees are equal.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Ended, started};
use crate::ftp_files::foreign;

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A server of a directory, and its URL.
fn serving(directory: &Path, root: &str, host: &str) -> (Ended, String) {
    std::fs::create_dir_all(directory.join(root)).unwrap();
    let mut command = verbena(&["ftp", "serve", "--json", "--anonymous-write", "--root", root]);
    command.args(["--listen", &format!("{host}:0")]).current_dir(directory);
    let (process, line) = started(&mut command, |line| line.contains(r#""serving""#));
    let serving: Value = serde_json::from_str(&line).unwrap();
    (process, serving["url"].as_str().unwrap().to_owned())
}

fn run(directory: &Path, words: &[&str]) -> Output {
    verbena(&[&["cp"], words].concat()).current_dir(directory).output().unwrap()
}

#[track_caller]
fn said(directory: &Path, words: &[&str]) -> Value {
    let output = run(directory, &[&["--json"], words].concat());
    assert!(output.status.success(), "{words:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fill(root: &Path) {
    std::fs::create_dir_all(root.join("data/deep")).unwrap();
    std::fs::write(root.join("data/large"), content(3 << 20)).unwrap();
    std::fs::write(root.join("data/deep/small"), "small").unwrap();
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let output = Command::new("diff").arg("-r").args([one, other]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn trees_go_between_two_of_our_servers() {
    let directory = tempfile::tempdir().unwrap();
    let (here, at) = (directory.path(), |name: &str| directory.path().join(name));
    let ((_one, one), (_two, two)) = (serving(here, "one", "127.0.0.1"), serving(here, "two", "127.0.0.1"));
    fill(&at("one"));
    // Both have the client's own address, to which each may connect.
    let (from, to) = (format!("{one}data"), format!("{two}in"));
    let first = said(here, &["-r", "--channel", "tcp", &from, &to]);
    assert_eq!(
        (&first["way"], &first["entries"], &first["channel"]),
        (&"token".into(), &4.into(), &"tcp".into()),
        "{first}"
    );
    same(&at("one/data"), &at("two/in"));
    let explained = run(here, &["--explain", &from, &to]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.status.success() && text.contains("token: ") && text.contains("no byte goes through"), "{text}");
    // A rate is kept here, so bytes go through here; and without sessions, directly.
    let limited = said(here, &["--limit", "800mbit", &from, &format!("{two}limited")]);
    assert!(limited["way"] == "client" && limited["notes"].to_string().contains("--limit"), "{limited}");
    let plain = said(here, &["--plain", &from, &format!("{two}plain")]);
    assert_eq!((&plain["way"], &plain["entries"]), (&"fxp".into(), &3.into()), "{plain}");
    for name in ["two/limited", "two/plain"] {
        same(&at("one/data"), &at(name));
    }
    let dry = run(here, &["--dry-run", &from, &format!("{two}dry")]);
    assert!(String::from_utf8_lossy(&dry.stdout).contains("copy large\n") && !at("two/dry").exists(), "{dry:?}");
    // One file, into a directory and under another name.
    for (words, found) in [
        (&[&*format!("{one}data/large"), &*format!("{two}in/")][..], "two/in/large"),
        (&[&*format!("{one}data/large"), &*format!("{two}x")], "two/x"),
        (&["--plain", &*format!("{one}data/large"), &*format!("{two}plain/")], "two/plain/large"),
    ] {
        assert_eq!(said(here, words)["entries"], 1);
        assert_eq!(std::fs::read(at(found)).unwrap(), content(3 << 20), "{found}");
    }
    let missing = run(here, &[&format!("{one}none"), &to]);
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(1) && text.contains("MLST /none"), "{text}");
}

#[test]
fn servers_that_may_not_connect_are_joined_here() {
    let directory = tempfile::tempdir().unwrap();
    let (here, at) = (directory.path(), |name: &str| directory.path().join(name));
    let ((_one, one), (_two, two)) = (serving(here, "one", "127.0.0.2"), serving(here, "two", "127.0.0.3"));
    fill(&at("one"));
    let (from, to) = (format!("{one}data"), format!("{two}in"));
    let first = said(here, &[&from, &to]);
    let notes = first["notes"].to_string();
    assert!(
        first["way"] == "client"
            && notes.contains("fxp lists")
            && notes.contains("PORT") | notes.contains("own address"),
        "{first}"
    );
    same(&at("one/data"), &at("two/in"));
    let again = said(here, &["--explain", &from, &to]);
    assert_eq!((&again["changes"], &again["bytes"]), (&Value::Array(vec![]), &0.into()), "{again}");
    // A channel that was named is used, or nothing is sent.
    let named = run(here, &["--channel", "quic", &from, &format!("{two}named")]);
    let text = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(named.status.code() == Some(1) && text.contains("fxp") && !at("two/named").exists(), "{text}");
}

#[test]
fn a_server_of_another_kind_sends_directly_or_through_here() {
    let directory = tempfile::tempdir().unwrap();
    let (here, at) = (directory.path(), |name: &str| directory.path().join(name));
    let Some((_foreign, port)) = foreign(here, "", "") else { return };
    let (_near, near) = serving(here, "near", "127.0.0.1");
    let (_far, far) = serving(here, "far", "127.0.0.2");
    fill(&at("served"));
    let there = format!("ftp://alice:secret@127.0.0.1:{port}/");
    // One connection: where another one ends meanwhile, pyftpdlib connects as PORT says, and may forget to answer.
    let said = |words: &[&str]| said(here, &[&["--streams", "1"], words].concat());
    let direct = said(&[&format!("{there}data"), &format!("{near}in")]);
    assert!(direct["way"] == "fxp" && direct["notes"].to_string().contains("TCON"), "{direct}");
    same(&at("served/data"), &at("near/in"));
    let back = said(&[&format!("{near}in"), &format!("{there}back")]);
    assert_eq!(back["way"], "fxp", "{back}");
    same(&at("near/in"), &at("served/back"));
    let through = said(&[&format!("{there}data"), &format!("{far}in")]);
    assert_eq!(through["way"], "client", "{through}");
    same(&at("served/data"), &at("far/in"));
}
