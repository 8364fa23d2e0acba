//! What the tests of the command share.

#![allow(dead_code, reason = "each test binary uses a part of this module")]
#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

pub mod browser;
pub mod nodes;
pub mod traffic;

use std::path::Path;
use std::process::Command;

/// The command, with an environment in which no variable of ours is set.
pub fn verbena(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
    command.args(arguments);
    for variable in ["VERBENA_CONFIG", "VERBENA_LOG", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command
}

/// Runs it in `directory`; its exit code and the JSON that it printed.
pub fn json(arguments: &[&str], directory: &Path) -> (i32, serde_json::Value) {
    let output = verbena(arguments).current_dir(directory).output().expect("the command can be run");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stderr}"));
    (output.status.code().expect("not killed"), report)
}
