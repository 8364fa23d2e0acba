//! Real clients of MariaDB through the relay: the same as without, and brackets where they must be.

use std::path::{Path, PathBuf};
use std::process::Command;

use verbena_relay::mysql::Mysql;
use verbena_relay::{Limits, Rejection};

use crate::kit::{Logged, Relay};
use crate::tap::{Protocol, check, tap};
use crate::words::{Log, Words};
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::programs::{has, output};

const PYTHON: &str = "/usr/bin/python3";

/// A relay with a tap behind it, in a directory of its own.
pub struct Site {
    directory: tempfile::TempDir,
    relay: Relay,
    pub log: Log,
}

impl Site {
    pub fn new(server: &Mariadb, refuses: Option<(&'static str, Rejection)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::default();
        let tapped = directory.path().join("tap");
        tap(&tapped, server.socket(), Protocol::Mysql, log.clone());
        let words = Words::new(log.clone(), false);
        let bracket = Logged { log: log.clone(), refuses };
        let conversation = move || Mysql::new(words.clone(), Limits::default());
        let relay = Relay::start(&directory.path().join("relay"), &tapped, bracket, conversation);
        Self { directory, relay, log }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("relay")
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name)
}

fn same(direct: &str, relayed: &str) {
    for (direct, relayed) in direct.lines().zip(relayed.lines()) {
        assert_eq!(direct, relayed);
    }
    assert_eq!(direct.len(), relayed.len());
}

#[test]
fn pymysql_prints_the_same_and_each_write_is_bracketed() {
    let Some(server) = Mariadb::get() else { return };
    if !has(PYTHON, &["-c", "import pymysql"]) {
        return;
    }
    let file = server.directory.path().join("rows.tsv");
    std::fs::write(&file, (0..20_000).map(|row| format!("{row}\tline {row}\n")).collect::<String>()).unwrap();
    let run = |at: &str| {
        output(server.client().args(["-e", "create or replace database python"]));
        output(Command::new(PYTHON).arg(script("client.py")).args([at, "python"]).arg(&file))
    };
    let direct = run(&format!("unix:{}", server.socket().display()));
    assert!(direct.lines().count() > 50, "{direct}");
    let mut site = Site::new(&server, None);
    same(&direct, &run(&format!("unix:{}", site.socket().display())));
    site.relay.stop();
    let held = check(&site.log.lines(), Protocol::Mysql);
    let of = |start: &str| held.iter().filter(|write| write.starts_with(start)).count();
    // 16 of the 20 rows are committed; two tables, a procedure; the file is loaded once, and once not found.
    assert_eq!((of("commit"), of("create"), of("load"), of("alter"), of("call")), (16, 3, 2, 1, 1), "{held:#?}");
    assert_eq!(of("select 1; select b from t; update"), 1);
    assert_eq!(of("insert into t"), 2, "inside a transaction no insert is held: {held:#?}");
    assert_eq!(of("insert into files_myisam"), 1);
    eprintln!("{} brackets", held.len());
    // Over TCP the same.
    let site = Site::new(&server, None);
    same(&direct, &run(&format!("tcp:{}", site.relay.port)));
}

#[test]
fn the_client_mariadb_prints_the_same() {
    let Some(server) = Mariadb::get() else { return };
    let run = |socket: &Path| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uapp", "-psecret", "-t", "-v", "-v", "--force"]);
        command.arg(format!("--socket={}", socket.display()));
        let output = command.stdin(std::fs::File::open(script("client.sql")).unwrap()).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    output(server.client().args(["-e", "create database shell"]));
    let direct = run(&server.socket());
    assert!(direct.contains("three") && direct.contains("ERROR 1064"), "{direct}");
    let mut site = Site::new(&server, None);
    same(&direct, &run(&site.socket()));
    site.relay.stop();
    assert!(check(&site.log.lines(), Protocol::Mysql).len() > 8);
}

#[test]
fn a_refused_commit_is_rolled_back_in_the_database() {
    let Some(server) = Mariadb::get() else { return };
    let site = Site::new(&server, Some(("commit", Rejection::Retry)));
    output(server.client().args(["-e", "create or replace database refused; create table refused.t (a int)"]));
    let run = |statements: &str| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uapp", "-psecret", "refused", "-e", statements]);
        let output = command.arg(format!("--socket={}", site.socket().display())).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = run("begin; insert into t values (1); commit");
    assert!(error.contains("ERROR 1205 (HY000)"), "{error}");
    assert_eq!(run("insert into t values (2)"), "");
    assert_eq!(output(server.client().args(["-N", "-e", "select a from refused.t"])), "2\n");
}

#[test]
fn a_relay_that_stops_lets_a_transaction_end() {
    let Some(server) = Mariadb::get() else { return };
    output(server.client().args(["-e", "create or replace database stopping; create table stopping.t (a int)"]));
    let mut site = Site::new(&server, None);
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "-uapp", "-psecret", "stopping", "-e"]);
    command.arg("begin; insert into t values (1); select sleep(0.5); commit");
    let mut client = command.arg(format!("--socket={}", site.socket().display())).spawn().unwrap();
    verbena_testkit::programs::wait_for("the transaction", || {
        site.log.lines().iter().any(|line| line.contains("insert"))
    });
    site.relay.stop();
    assert!(client.wait().unwrap().success());
    assert_eq!(output(server.client().args(["-N", "-e", "select a from stopping.t"])), "1\n");
}
