//! Tests that run in a machine of their own, which has RDMA devices without an adapter (scripts/rdma-vm).
//!
//! A test is two functions: one starts the machine, with this very program in it, which there runs the other one alone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const INSIDE: &str = "VERBENA_INSIDE_MACHINE";
/// Seconds until a machine is given up, its start included.
const PATIENCE_SECONDS: &str = "300";
/// The same of two that run beside each other, and of one in the long runs.
const LONG_PATIENCE_SECONDS: &str = "600";

/// Whether this is such a machine: elsewhere the inner function of a test does nothing.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs function `test` of this program in a machine with devices of kind `rxe` or `siw`, and shows and gives back what it prints, which must have a
/// line that begins with `counted: `. `None` where no machine can be started: then it is said that the test is skipped.
pub fn in_machine(kind: &str, test: &str) -> Option<String> {
    in_machine_for(PATIENCE_SECONDS, kind, test)
}

fn in_machine_for(seconds: &str, kind: &str, test: &str) -> Option<String> {
    let _one = one_at_a_time()?;
    Some(Started::new(kind, test, &[("VM_TIMEOUT", seconds)]).ended())
}

/// Two at a time would take their processors from each other, so a test holds the lock of the script that starts them, whichever process runs it.
/// `None` where no machine can be started.
fn one_at_a_time() -> Option<File> {
    let emulator = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if !cfg!(target_arch = "x86_64") || emulator.is_err() {
        println!("skipped: no machine with RDMA devices can be started");
        return None;
    }
    let one = File::open(script()).unwrap();
    one.lock().unwrap();
    Some(one)
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rdma-vm")
}

/// A machine in which a function of this program runs.
struct Started {
    test: String,
    child: Child,
}

impl Started {
    fn new(kind: &str, test: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(script());
        command.args([kind, "--"]).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
        command.env(INSIDE, "1").env("VM_ENV", INSIDE).envs(variables.iter().copied());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Started { test: test.into(), child }
    }

    fn ended(self) -> String {
        let Started { test, child } = self;
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{text}");
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "the machine ended with {}", output.status);
        assert!(text.contains("test result: ok. 1 passed"), "{test} is no test of this program");
        assert!(text.lines().any(|line| line.starts_with("counted: ")), "{test} did nothing");
        text
    }
}

/// Runs one function in each of two machines that a cable joins: `near` in the first, 10.78.0.1, and `far` in the second, 10.78.0.2. In the long runs alone.
pub fn in_two_machines_at_length(kind: &str, near: &str, far: &str) {
    if std::env::var_os("VERBENA_LONG").is_none() {
        return;
    }
    let Some(_one) = one_at_a_time() else { return };
    let cable = tempfile::tempdir().unwrap();
    let cable = cable.path().to_str().unwrap();
    let start = |number, test| {
        let more = [("VM_LINK", cable), ("VM_NODE", number), ("VM_TIMEOUT", LONG_PATIENCE_SECONDS)];
        Started::new(kind, test, &more)
    };
    // The one that fails first is heard first; the other one ends when the far end of its cable is gone.
    let machines = [start("1", near), start("2", far)];
    for ended in machines.map(|machine| std::thread::spawn(move || machine.ended())) {
        ended.join().unwrap();
    }
}

/// As [`in_machine`], in the long runs alone.
pub fn in_machine_at_length(kind: &str, test: &str) {
    if std::env::var_os("VERBENA_LONG").is_some() {
        in_machine_for(LONG_PATIENCE_SECONDS, kind, test);
    }
}
