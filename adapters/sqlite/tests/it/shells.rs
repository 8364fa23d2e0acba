//! Debian's shell of SQLite, and Python.

use std::path::PathBuf;
use std::process::{Command, Output};

use verbena_testkit::nodes::{Cluster, Node, are_in};
use verbena_testkit::programs;

fn two() -> (Cluster, [Node; 2]) {
    let cluster = Cluster::on_shm("2s");
    let nodes = ["a", "b"].map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
    }
    (cluster, nodes)
}

fn extension() -> PathBuf {
    let extension = programs::folder().join("deps/libverbena_sqlite_extension.so");
    assert!(extension.is_file(), "{} is not built: cargo test --workspace --no-run", extension.display());
    extension
}

fn socket(cluster: &Cluster, node: &str) -> PathBuf {
    cluster.path().join(format!("run/{node}.sock"))
}

/// Runs statements in a shell that has loaded the extension, at this socket; nothing if there is no shell.
fn shell(socket: &PathBuf, statements: &str) -> Option<Output> {
    let commands =
        [format!(".load {}", extension().display()), ".open file:words?vfs=verbena".into(), statements.into()];
    let mut shell = Command::new("sqlite3");
    shell.env("VERBENA_SOCKET", socket).args(["-bail", ":memory:"]).args(commands);
    let output = shell.output();
    if output.is_err() {
        println!("skipped: sqlite3, the shell of SQLite, is not installed");
    }
    output.ok()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_shell_writes_and_others_read() {
    let (cluster, _nodes) = two();
    let [a, b] = ["a", "b"].map(|node| socket(&cluster, node));
    let fill = "CREATE TABLE words (word TEXT); BEGIN; INSERT INTO words VALUES ('one'), ('two'); COMMIT; SELECT count(*) FROM words;";
    let Some(written) = shell(&a, fill) else { return };
    assert_eq!(printed(&written), "2\n", "{written:?}");
    let list = "SELECT word FROM words ORDER BY rowid; PRAGMA integrity_check;";
    let read = shell(&b, list).unwrap();
    assert_eq!(printed(&read), "one\ntwo\nok\n", "{read:?}");
    // A transaction that fails leaves nothing behind.
    let failed = shell(&a, "BEGIN; DELETE FROM words; INSERT INTO nothing VALUES (1);").unwrap();
    assert!(!failed.status.success(), "{failed:?}");
    assert_eq!(printed(&shell(&b, list).unwrap()), "one\ntwo\nok\n");
    python(&a);
}

/// Debian's Python loads extensions; one that was built without cannot.
fn python(socket: &PathBuf) {
    let script = format!(
        "import sqlite3\nc = sqlite3.connect(':memory:')\nc.enable_load_extension(True)\nc.load_extension({:?})\n\
         d = sqlite3.connect('file:words?vfs=verbena', uri=True)\nd.execute(\"INSERT INTO words VALUES ('three')\")\nd.commit()\n\
         print([word for word, in d.execute('SELECT word FROM words ORDER BY rowid')])",
        extension().display().to_string()
    );
    let can = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let python =
        |text: &str| Command::new("/usr/bin/python3").args(["-c", text]).env("VERBENA_SOCKET", socket).output();
    if !python(can).is_ok_and(|output| output.status.success()) {
        println!("skipped: no Python that loads extensions of SQLite is installed");
        return;
    }
    let output = python(&script).unwrap();
    assert_eq!(printed(&output), "['one', 'two', 'three']\n", "{output:?}");
}

#[test]
fn a_helper_that_does_not_run_is_an_error_of_the_shell() {
    let nowhere = PathBuf::from("/nowhere/a.sock");
    let Some(output) = shell(&nowhere, "CREATE TABLE words (word TEXT);") else { return };
    assert!(String::from_utf8_lossy(&output.stderr).contains("unable to open database"), "{output:?}");
}
