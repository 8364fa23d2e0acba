//! `verbena bank`: daemons of memcached that keep blocks of files.

mod gluster;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_bank::StartOptions;
use verbena_terms::Size;

use super::running::{self, Signals, say};
use crate::error::Result;
use crate::output::Format;

/// Run a cache bank: memcached daemons that keep blocks of files for mounts.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(Up),
    #[command(subcommand)]
    Gluster(gluster::Command),
}

/// Start memcached daemons with the options that a bank needs, and print their list. SIGINT or SIGTERM ends them.
///
/// The daemons hold copies alone, and a mount checks each block that it gets. A daemon that ends costs reads of the slow file system, and nothing else.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena bank up --daemons 4 --memory 1GiB")]
pub struct Up {
    /// How many daemons, 1 to 64.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    daemons: usize,
    /// Memory for blocks, of all daemons together; each has at least 4MiB.
    #[arg(long, value_name = "SIZE", default_value_t = Size(1 << 30))]
    memory: Size,
    /// A directory, which exists, for the daemons' unix sockets; without it they listen on free ports of loopback.
    #[arg(long, value_name = "DIR")]
    sockets: Option<PathBuf>,
    /// The program of memcached: a name in PATH, or a file.
    #[arg(long, value_name = "FILE", default_value = "memcached")]
    program: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Serving { event: &'static str, bank: String, pids: Vec<u32> },
    Ended { event: &'static str },
}

/// A line, for people.
fn words(line: &Line) -> String {
    match line {
        Line::Serving { bank, .. } => format!("bank {bank}\nverbena fs mount --bank {bank} SLOW FAST"),
        Line::Ended { .. } => "ended".into(),
    }
}

impl Command {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        let up = match self {
            Command::Up(up) => up,
            Command::Gluster(gluster) => return gluster.run(),
        };
        let Up { daemons, memory, sockets, program, format } = up;
        // The list of daemons has absolute paths alone, because mounts are started elsewhere.
        let sockets = sockets.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let running = verbena_bank::start(&StartOptions { daemons, memory: memory.0, sockets, program })?;
            let (bank, pids) = (running.daemons.to_string(), running.pids());
            say(format.json, &Line::Serving { event: "serving", bank, pids }, words);
            signals.until_told_to_end().await;
            running.end();
            say(format.json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
    }
}
