//! `verbena wan`: a WAN in a box.

mod options;
mod report;
pub mod run;
mod start;

use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// Emulate networks that are far apart: delay, loss, order, duplicates, rates and queues between network namespaces of this machine.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<run::Command>),
}

impl Command {
    /// Does what it says.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Command::Run(run) => run.run(),
        }
    }
}
