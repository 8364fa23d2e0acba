//! Real clients of PostgreSQL through the relay: the same as without, and brackets where they must be.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use verbena_relay::postgres::Postgres;
use verbena_relay::{Limits, Rejection};

use crate::kit::{Logged, Relay};
use crate::tap::{Protocol, check, tap};
use crate::words::{Log, Words};
use verbena_testkit::postgresql::{Postgresql, SOCKET, psql};
use verbena_testkit::programs::{has, output, wait_for};

const PYTHON: &str = "/usr/bin/python3";

/// A relay with a tap behind it, in a directory of its own.
pub struct Site {
    pub directory: tempfile::TempDir,
    relay: Relay,
    pub log: Log,
}

impl Site {
    pub fn new(server: &Postgresql, refuses: Option<(&'static str, Rejection)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::default();
        let tapped = directory.path().join("tap");
        tap(&tapped, server.socket(), Protocol::Postgres, log.clone());
        let words = Words::of_postgres(log.clone(), false);
        let bracket = Logged { log: log.clone(), refuses };
        let conversation = move || Postgres::new(words.clone(), Limits::default());
        let relay = Relay::start(&directory.path().join(SOCKET), &tapped, bracket, conversation);
        Self { directory, relay, log }
    }
}

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name).display().to_string()
}

fn same(direct: &str, relayed: &str) {
    for (direct, relayed) in direct.lines().zip(relayed.lines()) {
        assert_eq!(direct, relayed);
    }
    assert_eq!(direct.len(), relayed.len());
}

#[test]
fn psql_prints_the_same_and_each_write_is_bracketed() {
    let Some(server) = Postgresql::get() else { return };
    let run = |directory: &Path| {
        // The notifications name the process of their server.
        let output = output(&mut psql(directory, &["-e", "-f", &script("client.psql")]));
        output.lines().filter(|line| !line.contains("received from server process")).collect::<Vec<_>>().join("\n")
    };
    output(&mut server.psql("create schema app authorization app"));
    let direct = run(server.directory.path());
    assert!(direct.contains("noticed") && direct.contains("22012") && direct.contains("eight"), "{direct}");
    let mut site = Site::new(&server, None);
    same(&direct, &run(site.directory.path()));
    site.relay.stop();
    let held = check(&site.log.lines(), Protocol::Postgres);
    eprintln!("{} brackets", held.len());
    let of = |start: &str| held.iter().filter(|write| write.starts_with(start)).count();
    // One in the middle is outside a block, `copy` is held twice outside and not inside a block.
    assert_eq!((of("commit"), of("copy"), of("insert"), of("create")), (4, 2, 1, 3), "{held:#?}");
    assert_eq!((of("commit prepared"), of("select 1 ; insert")), (1, 1));
}

#[test]
fn psycopg2_prints_the_same_and_each_write_is_bracketed() {
    let Some(server) = Postgresql::get() else { return };
    if !has(PYTHON, &["-c", "import psycopg2"]) {
        return;
    }
    let run = |directory: &Path| {
        output(&mut server.psql("drop table if exists by_psycopg"));
        output(Command::new(PYTHON).args([&script("client_psycopg2.py"), directory.to_str().unwrap(), "by_psycopg"]))
            .replace(directory.to_str().unwrap(), "")
    };
    let direct = run(server.directory.path());
    assert!(direct.lines().count() > 28, "{direct}");
    let mut site = Site::new(&server, None);
    same(&direct, &run(site.directory.path()));
    site.relay.stop();
    let held = check(&site.log.lines(), Protocol::Postgres);
    let of = |start: &str| held.iter().filter(|write| write.starts_with(start)).count();
    // The table, 16 of the 20 rows, a cursor, and an update; one insert and one COPY by themselves.
    assert_eq!((of("commit"), of("insert"), of("copy")), (1 + 16 + 1 + 1, 1, 1), "{held:#?}");
}

#[test]
fn pgbench_in_each_of_its_modes_keeps_the_balance() {
    let Some(server) = Postgresql::get() else { return };
    if !has("pgbench", &["--version"]) {
        return;
    }
    let mut site = Site::new(&server, None);
    let bench = |arguments: &[&str]| {
        let mut command = Command::new("pgbench");
        command.env("PGPASSWORD", "secret").arg("-h").arg(site.directory.path()).args(["-U", "app"]);
        output(command.args(arguments).arg("postgres"))
    };
    bench(&["-i", "-q"]);
    let pipeline = site.directory.path().join("pipeline");
    std::fs::write(
        &pipeline,
        "\\startpipeline\nselect 1;\ninsert into pgbench_history (tid, delta) values (0, 0);\nselect 2;\n\\endpipeline\n",
    )
    .unwrap();
    for mode in ["simple", "extended", "prepared"] {
        let told = bench(&["-n", "-c", "4", "-t", "20", "-M", mode]);
        assert!(told.contains("processed: 80/80"), "{told}");
        if mode != "simple" {
            let told = bench(&["-n", "-c", "4", "-t", "10", "-M", mode, "-f", pipeline.to_str().unwrap()]);
            assert!(told.contains("processed: 40/40"), "{told}");
        }
    }
    let sums = "select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), \
                (select count(*) from pgbench_history)";
    assert_eq!(output(&mut server.psql(sums)), "t|320\n");
    site.relay.stop();
    let lines = site.log.lines();
    let writes: Vec<_> =
        lines.iter().filter_map(|line| line.strip_prefix("begin ")).flat_map(|line| line.split(" + ")).collect();
    let of = |start: &str| writes.iter().filter(|write| write.starts_with(start)).count();
    assert_eq!((of("end"), of("commit")), (240, 1), "{writes:#?}");
    assert_eq!(of("sync after insert"), 80);
    let begins = lines.iter().filter(|line| line.starts_with("begin ")).count();
    eprintln!("{} commits shared {begins} brackets", writes.len());
    assert!(begins < writes.len(), "no commits shared a bracket");
}

#[test]
fn a_refused_commit_is_rolled_back_in_the_database() {
    let Some(server) = Postgresql::get() else { return };
    output(&mut server.psql("create table refused (a int)"));
    let site = Site::new(&server, Some(("commit", Rejection::Retry)));
    let run = |statement: &[&str]| {
        let arguments: Vec<_> = ["-v", "VERBOSITY=verbose", "-At"].iter().chain(statement).copied().collect();
        let output = psql(site.directory.path(), &arguments).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = run(&["-c", "begin", "-c", "insert into refused values (1)", "-c", "commit", "-c", "select 1"]);
    assert!(error.contains("ERROR:  40001"), "{error}");
    assert_eq!(run(&["-c", "insert into refused values (2)"]), "");
    assert_eq!(output(&mut server.psql("select a from refused")), "2\n");
}

#[test]
fn a_cancel_reaches_the_database() {
    let Some(server) = Postgresql::get() else { return };
    let site = Site::new(&server, None);
    let mut command = psql(site.directory.path(), &["-c", "select pg_sleep(600)"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let sleeping = "select count(*) from pg_stat_activity where query = 'select pg_sleep(600)'";
    wait_for("the query", || output(&mut server.psql(sleeping)) == "1\n");
    // libpq sends the cancel request when the signal comes; it may not have begun to wait.
    let asks = std::thread::spawn({
        let id = child.id().to_string();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            Command::new("kill").args(["-INT", &id]).status().unwrap()
        }
    });
    let output = child.wait_with_output().unwrap();
    assert!(asks.join().unwrap().success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("canceling statement due to user request"), "{error}");
}
