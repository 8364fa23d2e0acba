//! Tests that run in a machine of their own, which has RDMA devices without an adapter (scripts/rdma-vm).
//!
//! A test is two functions: one starts the machine, with this very program in it, which there runs the other one alone.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses its part")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const INSIDE: &str = "VERBENA_INSIDE_MACHINE";
/// Seconds until a machine is given up, its start included.
const PATIENCE_SECONDS: &str = "300";

/// Whether this is such a machine: elsewhere the inner function of a test does nothing.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs function `test` of this program in a machine with devices of kind `rxe` or `siw`, and shows and gives back what it prints, which must have a
/// line that begins with `counted: `. `None` where no machine can be started: then it is said that the test is skipped.
pub fn in_machine(kind: &str, test: &str) -> Option<String> {
    // Two at a time would take their processors from each other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let emulator = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if !cfg!(target_arch = "x86_64") || emulator.is_err() {
        println!("skipped: no machine with RDMA devices can be started");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rdma-vm");
    let mut command = Command::new(script);
    command.args([kind, "--"]).arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    command.env(INSIDE, "1").env("VM_ENV", INSIDE).env("VM_TIMEOUT", PATIENCE_SECONDS);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the machine ended with {}", output.status);
    assert!(text.contains("test result: ok. 1 passed"), "{test} is no test of this program");
    assert!(text.lines().any(|line| line.starts_with("counted: ")), "{test} did nothing");
    Some(text)
}

/// The same in the long runs alone.
pub fn in_machine_at_length(kind: &str, test: &str) {
    if std::env::var_os("VERBENA_LONG").is_some() {
        in_machine(kind, test);
    }
}
