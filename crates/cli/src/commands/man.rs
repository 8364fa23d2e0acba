//! `verbena man`: the manual pages, for authors of packages.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::error::Result;

/// Write the manual pages, one for each command.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena man /usr/share/man/man1")]
pub struct Command {
    /// Into which directory, which is there.
    directory: PathBuf,
}

impl Command {
    /// Writes them.
    pub fn run(&self) -> Result<()> {
        Ok(clap_mangen::generate_to(crate::Command::command(), &self.directory)?)
    }
}
