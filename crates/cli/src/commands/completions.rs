//! `verbena completions`: what a shell needs to complete our command lines.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::error::Result;
use crate::output::output;

/// Print the completion script of a shell.
#[derive(Args, Debug)]
#[command(
    after_long_help = "Example:\n  verbena completions bash > ~/.local/share/bash-completion/completions/verbena"
)]
pub struct Command {
    /// The shell.
    shell: Shell,
}

impl Command {
    /// Prints it.
    pub fn run(&self) -> Result<()> {
        // Made in memory first: the generator panics where writing fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Command::command(), "verbena", &mut script);
        Ok(output().write_all(&script)?)
    }
}
