//! Long results and long files in constant memory: the relay runs in a process of its own, whose peak is read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use verbena_relay::mysql::Mysql;
use verbena_relay::{Limits, Verdict};

use crate::kit::{Logged, Relay};
use crate::words::Log;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::programs::{output, wait_for};

const SOCKETS: &str = "VERBENA_TEST_RELAY";

/// Holds what begins with a `load`, and looks at every row.
struct Loads;

impl verbena_relay::Judge for Loads {
    type Write = String;

    fn judge(&mut self, command: &verbena_relay::Command<'_>, _: Option<&verbena_relay::State>) -> Verdict<String> {
        if command.bytes.starts_with(b"load") { Verdict::Hold("load".into()) } else { Verdict::Tell }
    }
}

/// No test: the process that the test below starts.
#[test]
fn the_relay_of_another_test() {
    let Ok(sockets) = std::env::var(SOCKETS) else { return };
    let (listen, upstream) = sockets.split_once(' ').unwrap();
    let bracket = Logged { log: Log::default(), refuses: None };
    let conversation = || Mysql::new(Loads, Limits::default());
    let relay = Relay::start(Path::new(listen), Path::new(upstream), bracket, conversation);
    // Until the test closes our input.
    std::io::read_to_string(std::io::stdin()).unwrap();
    drop(relay);
}

struct Process {
    child: Child,
    directory: tempfile::TempDir,
}

impl Process {
    fn start(upstream: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sockets = format!("{} {}", directory.path().join("relay").display(), upstream.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory::the_relay_of_another_test"])
            .env(SOCKETS, sockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Self { child, directory };
        wait_for("the relay", || process.socket().exists());
        process
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("relay")
    }

    /// The most memory that it has had, in KiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn results_and_files_of_64_mib_in_constant_memory() {
    let Some(server) = Mariadb::get() else { return };
    let process = Process::start(&server.socket());
    let file = server.directory.path().join("long.tsv");
    let mut rows = BufWriter::new(File::create(&file).unwrap());
    let line = "x".repeat(1023);
    (0..64 << 10).for_each(|_| writeln!(rows, "{line}").unwrap());
    drop(rows.into_inner().unwrap());
    output(
        server
            .client()
            .args(["-e", "create or replace database long_rows; create table long_rows.t (a text) engine=aria"]),
    );
    let client = |statement: &str| {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uapp", "-psecret", "--local-infile=1", "--max-allowed-packet=1G", "--quick"]);
        command.args(["-N", "long_rows", "-e", statement]);
        command.arg(format!("--socket={}", process.socket().display()));
        let count = Command::new("wc")
            .arg("-c")
            .stdin(command.stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap())
            .output();
        String::from_utf8(count.unwrap().stdout).unwrap().trim().parse::<usize>().unwrap()
    };
    assert_eq!(client("select 1"), 2);
    let before = process.peak();
    // A million short rows, rows of 1 MiB, one value of 64 MiB, which takes four packets.
    assert!(client("select seq, repeat('y', 56) from seq_1_to_1000000") > 60 << 20);
    assert_eq!(client("select repeat('y', 1 << 20) from seq_1_to_64"), 64 * ((1 << 20) + 1));
    assert_eq!(client("select repeat('y', 64 << 20)"), (64 << 20) + 1);
    assert_eq!(client(&format!("load data local infile '{}' into table t", file.display())), 0);
    assert_eq!(output(server.client().args(["-N", "-e", "select count(*) from long_rows.t"])), "65536\n");
    let grown = process.peak() - before;
    eprintln!("256 MiB through a relay that had {before} KiB: {grown} KiB more");
    assert!(grown < 4 << 10, "{grown} KiB more than before");
}
