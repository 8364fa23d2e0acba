//! The programs of this workspace, as they were built beside the test that runs them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The folder into which cargo put what it built with this test.
pub fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.parent().and_then(Path::parent).expect("a test is two folders deep").to_owned()
}

/// The path of a program of this workspace.
///
/// # Panics
/// If it is not there: it is built with the tests of all crates, and not with those of one that does not have it.
pub fn path(name: &str) -> PathBuf {
    let path = folder().join(name);
    assert!(path.exists(), "{} is not there: `cargo test --workspace --no-run` builds it", path.display());
    path
}

/// The command `verbena`, with an environment in which no variable of ours is set.
pub fn verbena(arguments: &[&str]) -> Command {
    let mut command = Command::new(path("verbena"));
    command.args(arguments);
    for variable in ["VERBENA_CONFIG", "VERBENA_LOG", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

/// Runs `verbena` in `directory`; its exit code and the JSON that it printed.
pub fn json(arguments: &[&str], directory: &Path) -> (i32, serde_json::Value) {
    let output = verbena(arguments).current_dir(directory).output().expect("the command can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stderr}"));
    (output.status.code().expect("not killed"), report)
}

/// Runs a test alone in a process: one that measures its process, or changes what all threads share. cargo-nextest gives each test a process; under
/// `cargo test` this program is started again, for the test of this name (with the modules that it is in) alone.
///
/// # Panics
/// If the test fails there, or is not found.
pub fn alone(test: &str, body: impl FnOnce()) {
    const ALONE: &str = "VERBENA_TEST_ALONE";
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some_and(|name| name == test) {
        return body();
    }
    let mut again = Command::new(std::env::current_exe().expect("a test knows its own path"));
    let output =
        again.args(["--exact", test, "--nocapture"]).env(ALONE, test).output().expect("it can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{test}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok. 1 passed"), "{test} is no test of this program");
}

/// Whether a program runs; if not, says so.
pub fn has(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: `{program} {}` does not run here", arguments.join(" "));
    }
    found
}

/// Waits for a condition.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Ends a program, and what it has started if it leads a group of its own.
pub fn end_with_group(program: &mut Child) {
    if let Some(leader) = i32::try_from(program.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
    let _ = program.kill();
    let _ = program.wait();
}

/// What a program printed, which must have succeeded.
pub fn output(command: &mut Command) -> String {
    let std::process::Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}
