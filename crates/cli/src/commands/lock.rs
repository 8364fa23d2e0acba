//! `verbena lock`: locks that the whole cluster shares.

mod job;
pub mod ls;
pub mod rm;
pub mod run;
pub mod stress;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;

use crate::error::Result;

/// Take locks that the whole cluster shares.
#[derive(Debug, Subcommand)]
pub enum Command {
    Ls(ls::Command),
    Rm(rm::Command),
    Run(run::Command),
    Stress(stress::Command),
}

impl Command {
    /// Does what it says.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        match self {
            Command::Ls(ls) => ls.run(file).map(|()| ExitCode::SUCCESS),
            Command::Rm(rm) => rm.run(file),
            Command::Run(run) => run.run(file),
            Command::Stress(stress) => stress.run(file).map(|()| ExitCode::SUCCESS),
        }
    }
}
