//! `verbena lock`: locks that the whole cluster shares.

mod job;
pub mod ls;
pub mod rm;
pub mod run;
pub mod stress;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use verbena_client::MAX_NAME_BYTES;

use crate::error::{Error, Result};

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

/// Looks whether a lock can have this name.
fn check_name(name: &OsStr) -> Result<()> {
    match name.len() {
        1..=MAX_NAME_BYTES => Ok(()),
        bytes => {
            let problem = format!("a lock's name of {bytes} bytes: it must have 1 to {MAX_NAME_BYTES} bytes");
            Err(Error::Refused { problem, exit_code: 2 })
        }
    }
}
