//! `program`: becomes another program, which ends when the experiment does, on whatever core it was put.

use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Parser;

use super::threads;

pub(crate) const ROLE: &str = "program";

#[derive(Parser)]
struct Part {
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Returns only if it cannot.
pub(super) fn become_it(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    // What the starter has set for its own node is not for those of an experiment.
    let ours =
        std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_encoded_bytes().starts_with(b"VERBENA_"));
    let mut command = Command::new(&part.words[0]);
    for name in ours {
        command.env_remove(name);
    }
    let error = command.args(&part.words[1..]).exec();
    Err(format!("{}: {error}", part.words[0]))
}
