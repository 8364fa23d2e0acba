//! `verbena mem checkpoint`: what several processes save together.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_client::{CheckpointOptions, CheckpointRecord, Error as Refusal, Memory, Placement};
use verbena_terms::{Lapse, Size};

use super::{read, write};
use crate::commands::reach::Reach;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// All processes begin again from a checkpoint.
const ROLLED_BACK: u8 = 75;
/// Not all have saved it in time: as timeout(1) says it.
const LATE: u8 = 124;

/// Save the state of several processes together, so that all can go on from the same point.
///
/// Each process joins, and gets its part of the newest complete checkpoint; then it saves its part of the next one, again and again. A checkpoint is complete
/// when all have saved. A process that joins a second time has crashed: the next save of each other process says so (exit code 75). They join again, and all go
/// on from one checkpoint.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes:
    0  done
   75  save, wait: a process began again; join again, and go on from what that gives
  124  wait: not all have saved it in that time
    1  2  3  as for all commands

Examples:
  verbena mem checkpoint new run-7 --processes 4 --size 1MiB
  verbena mem checkpoint join run-7 --process 2 --out state --json     # its era, and from which checkpoint it goes on
  verbena mem checkpoint save run-7 state --process 2 --era 1 --number 1
  verbena mem checkpoint wait run-7 --era 1 --number 1 --timeout 30s
  verbena mem checkpoint show run-7")]
pub struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make room for checkpoints.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint new run-7 --processes 4 --size 1MiB --copies 2")]
    New {
        /// The name of the checkpoints.
        name: String,
        /// How many processes save, 1 to 65536.
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536))]
        processes: u32,
        /// Bytes that the part of one process may have.
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// How many checkpoints have room, 2 to 64: the one that is being saved, and the newest complete ones.
        #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
        kept: u32,
        /// How many nodes hold each part, 1 to 4.
        #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
        copies: u8,
        /// Where the parts are: `most-free`, `local`, `spread`, or a node's name.
        #[arg(long, value_name = "WHERE", default_value_t = Placement::Spread)]
        placement: Placement,
        #[command(flatten)]
        reach: Reach,
    },
    /// Begin, or begin again: get a process's part of the newest complete checkpoint.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint join run-7 --process 2 --out state --json")]
    Join {
        /// The name of the checkpoints.
        name: String,
        /// The number of the process, from 0.
        #[arg(long, value_name = "NUMBER")]
        process: u32,
        /// Where its part is written, if there is one.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        reach: Reach,
        #[command(flatten)]
        format: Format,
    },
    /// Save a process's part of a checkpoint: a file, or standard input.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint save run-7 state --process 2 --era 1 --number 1")]
    Save {
        /// The name of the checkpoints.
        name: String,
        /// The part. Without it, or with -, standard input.
        from: Option<PathBuf>,
        /// The number of the process, from 0.
        #[arg(long, value_name = "NUMBER")]
        process: u32,
        /// The era that `join` has printed.
        #[arg(long, value_name = "NUMBER")]
        era: u64,
        /// The number of the checkpoint: the next after the newest complete one.
        #[arg(long, value_name = "NUMBER")]
        number: u64,
        #[command(flatten)]
        reach: Reach,
        #[command(flatten)]
        format: Format,
    },
    /// Wait until all processes have saved a checkpoint.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint wait run-7 --era 1 --number 1 --timeout 30s")]
    Wait {
        /// The name of the checkpoints.
        name: String,
        /// The era that `join` has printed.
        #[arg(long, value_name = "NUMBER")]
        era: u64,
        /// The number of the checkpoint.
        #[arg(long, value_name = "NUMBER")]
        number: u64,
        /// How long to wait.
        #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(60), value_parser = Lapse::or_seconds)]
        timeout: Lapse,
        #[command(flatten)]
        reach: Reach,
        #[command(flatten)]
        format: Format,
    },
    /// Get a process's part of a complete checkpoint, without joining: the newest one, or an older one that is there yet.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint get run-7 --process 2 --number 3 --out state")]
    Get {
        /// The name of the checkpoints.
        name: String,
        /// The number of the process, from 0.
        #[arg(long, value_name = "NUMBER")]
        process: u32,
        /// The number of the checkpoint. Without it the newest complete one.
        #[arg(long, value_name = "NUMBER")]
        number: Option<u64>,
        /// Where its part is written.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        reach: Reach,
        #[command(flatten)]
        format: Format,
    },
    /// Show which checkpoints there are, and how far each process is.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint show run-7")]
    Show {
        /// The name of the checkpoints.
        name: String,
        #[command(flatten)]
        reach: Reach,
        #[command(flatten)]
        format: Format,
    },
    /// Make all processes begin again from an older complete checkpoint.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint back run-7 --number 3")]
    Back {
        /// The name of the checkpoints.
        name: String,
        /// The number of that checkpoint.
        #[arg(long, value_name = "NUMBER")]
        number: u64,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove all checkpoints of a name.
    #[command(after_long_help = "Example:\n  verbena mem checkpoint rm run-7")]
    Rm {
        /// The name of the checkpoints.
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// What `join --json` prints.
#[derive(Debug, Serialize)]
struct Joined {
    era: u64,
    /// 0: no checkpoint is complete yet.
    number: u64,
    /// Of the part.
    bytes: Option<usize>,
}

/// What `save --json` prints.
#[derive(Debug, Serialize)]
struct Saved {
    rolled_back: bool,
    /// The newest complete checkpoint.
    complete: Option<u64>,
}

/// What `wait --json` prints.
#[derive(Debug, Serialize)]
struct Waited {
    rolled_back: bool,
    /// Whether all have saved it.
    complete: bool,
}

/// What `get --json` prints.
#[derive(Debug, Serialize)]
struct Got {
    number: u64,
    bytes: usize,
}

/// What `show --json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    era: u64,
    oldest: u64,
    complete: u64,
    kept: u32,
    bytes: u64,
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct Process {
    has_joined: bool,
    /// In this era; 0 if it has saved none.
    saved: u64,
}

impl Command {
    /// Does what it says.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        let connect = |reach: &Reach| reach.by(file, Memory::connect);
        let mut out = output();
        match self.what {
            What::New { name, processes, size, kept, copies, placement, reach } => {
                let options = CheckpointOptions { processes, bytes: size.0, kept, copies, placement };
                connect(&reach)?.make_checkpoints(&name, &options)?;
                writeln!(out, "{name}: room for {kept} checkpoints of {processes} processes")?;
            }
            What::Join { name, process, out: path, reach, format } => {
                let (joined, part) = connect(&reach)?.join_checkpoints(&name, process)?;
                if let Some(part) = &part {
                    write(&path, part)?;
                }
                let joined = Joined { era: joined.era, number: joined.number, bytes: part.map(|part| part.len()) };
                if format.json {
                    write_json(&mut out, &joined)?;
                } else {
                    let Joined { era, number, .. } = joined;
                    let whence = if number == 0 { "the beginning".into() } else { format!("checkpoint {number}") };
                    writeln!(out, "process {process} is in era {era} and goes on from {whence}")?;
                }
            }
            What::Save { name, from, process, era, number, reach, format } => {
                let part = read(from.as_deref())?;
                let complete =
                    unless_rolled_back(connect(&reach)?.save_checkpoint(&name, process, era, number, &part))?;
                let saved = Saved { rolled_back: complete.is_none(), complete };
                if format.json {
                    write_json(&mut out, &saved)?;
                } else if saved.rolled_back {
                    writeln!(out, "not saved: {}", Refusal::RolledBack)?;
                } else {
                    writeln!(out, "saved; {} is the newest complete one", saved.complete.unwrap_or_default())?;
                }
                return Ok(if saved.rolled_back { ExitCode::from(ROLLED_BACK) } else { ExitCode::SUCCESS });
            }
            What::Wait { name, era, number, timeout, reach, format } => {
                let complete = unless_rolled_back(connect(&reach)?.wait_for_checkpoint(&name, era, number, timeout.0))?;
                let (said, code) = match complete {
                    None => (Refusal::RolledBack.to_string(), ROLLED_BACK),
                    Some(true) => (format!("{name}: all have saved checkpoint {number}"), 0),
                    Some(false) => (format!("{name}: not all have saved checkpoint {number} after {timeout}"), LATE),
                };
                if format.json {
                    let waited = Waited { rolled_back: complete.is_none(), complete: complete == Some(true) };
                    write_json(&mut out, &waited)?;
                } else {
                    writeln!(out, "{said}")?;
                }
                return Ok(ExitCode::from(code));
            }
            What::Get { name, process, number, out: path, reach, format } => {
                let mut memory = connect(&reach)?;
                let (number, part) = match number {
                    Some(number) => (number, memory.checkpoint_part(&name, process, number)?),
                    None => memory.newest_checkpoint_part(&name, process)?,
                };
                write(&path, &part)?;
                let got = Got { number, bytes: part.len() };
                if format.json {
                    write_json(&mut out, &got)?;
                } else {
                    writeln!(out, "process {process}: {} bytes of checkpoint {number}", got.bytes)?;
                }
            }
            What::Show { name, reach, format } => {
                let shown = Shown::of(connect(&reach)?.checkpoints(&name)?);
                if format.json {
                    write_json(&mut out, &shown)?;
                } else {
                    shown.print(&mut out)?;
                }
            }
            What::Back { name, number, reach } => {
                connect(&reach)?.roll_back(&name, number)?;
                writeln!(out, "{name}: all go on from checkpoint {number}")?;
            }
            What::Rm { name, reach } => {
                connect(&reach)?.remove_checkpoints(&name)?;
                writeln!(out, "{name}: removed")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `None` if a process has begun again: that is not an error to a process that is to join again.
fn unless_rolled_back<T>(done: verbena_client::Result<T>) -> Result<Option<T>> {
    match done {
        Err(Refusal::RolledBack) => Ok(None),
        done => Ok(Some(done?)),
    }
}

impl Shown {
    fn of(record: CheckpointRecord) -> Shown {
        let CheckpointRecord { era, oldest, complete, kept, bytes, processes } = record;
        let process = |(has_joined, saved)| Process { has_joined, saved };
        Shown { era, oldest, complete, kept, bytes, processes: processes.into_iter().map(process).collect() }
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        match self.complete {
            0 => writeln!(out, "complete   none")?,
            complete if complete == self.oldest => writeln!(out, "complete   {complete}")?,
            complete => writeln!(out, "complete   {} to {complete}", self.oldest)?,
        }
        writeln!(out, "era        {}", self.era)?;
        for (nth, process) in self.processes.iter().enumerate() {
            let says = match process {
                Process { has_joined: false, .. } => "has not joined".into(),
                Process { saved: 0, .. } => "has saved nothing yet".into(),
                Process { saved, .. } => format!("has saved {saved}"),
            };
            writeln!(out, "process {nth:<3}{says}")?;
        }
        Ok(())
    }
}
