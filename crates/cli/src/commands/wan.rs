//! `verbena wan`: a WAN in a box.

mod control;
mod down;
mod exec;
mod file;
mod guard;
mod names;
mod options;
mod report;
mod run;
mod set;
mod show;
mod start;
mod up;

use std::process::ExitCode;

use clap::Subcommand;

pub use self::file::try_bytes;
pub use self::guard::serve as guard;
use crate::error::Result;

/// Emulate networks that are far apart: delay, loss, order, duplicates, rates and queues between network namespaces of this machine.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<run::Command>),
    Up(up::Command),
    Exec(exec::Command),
    Set(set::Command),
    Show(show::Command),
    Down(down::Command),
}

impl Command {
    /// Does what it says.
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Command::Run(run) => run.run(),
            Command::Up(up) => up.run(),
            Command::Exec(exec) => exec.run(),
            Command::Set(set) => set.run().map(|()| ExitCode::SUCCESS),
            Command::Show(show) => show.run().map(|()| ExitCode::SUCCESS),
            Command::Down(down) => down.run().map(|()| ExitCode::SUCCESS),
        }
    }
}
