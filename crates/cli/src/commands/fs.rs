//! `verbena fs`: a mount over any mounted file system.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_bank::BlockSize;
use verbena_mount::{MountOptions, Promise};
use verbena_terms::{Lapse, Size};

use super::running::{self, Signals, Told};
use crate::error::{Error, Result};
use crate::output::output;

/// Mount a directory of any file system once more, with what is read kept in the memory of memcached daemons.
#[derive(Debug, Subcommand)]
pub enum Command {
    Mount(Box<Mount>),
    Check(Check),
    Status(At),
    Umount(Umount),
}

/// Mount a directory at another place. An open there sees all that was closed before it, as far as the file system below shows it.
///
/// Without --bank every operation goes to the directory below, and nothing is kept. With it blocks of files come from the daemons under the promise. What is written goes through: a write, an
/// fsync or a close answers what the file system below answered. It serves until it is unmounted, or told to end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena fs mount /slow /fast
  verbena bank up --daemons 2 --memory 1GiB
  verbena fs mount --bank memcached://127.0.0.1:11301,127.0.0.1:11302 /slow /fast")]
pub struct Mount {
    /// The directory below.
    #[arg(value_name = "SLOW")]
    below: PathBuf,
    /// Where it is mounted: an empty directory.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// The daemons, as `verbena bank up` prints them.
    #[arg(long, value_name = "URL")]
    bank: Option<String>,
    /// open: an open sees all that was closed before it; sealed: files never change once they are closed; age=TIME: at most so old.
    #[arg(long, value_name = "PROMISE", default_value = "open")]
    promise: Promise,
    /// Bytes of a block: a power of two from 256 to 1MiB.
    #[arg(long, value_name = "SIZE", default_value_t = Size(64 << 10))]
    block: Size,
    /// The name of the volume: clients with the same name and secret share blocks.
    #[arg(long, value_name = "NAME", requires = "bank")]
    volume: Option<String>,
    /// A file with the volume's secret. Without it no other client finds a block.
    #[arg(long, value_name = "FILE", requires = "bank")]
    secret: Option<PathBuf>,
    /// Let all users use it, each with the own identity below. For root.
    #[arg(long)]
    allow_other: bool,
    /// How long a daemon may take before its blocks count as missing.
    #[arg(long, value_name = "TIME", value_parser = Lapse::or_seconds)]
    deadline: Option<Lapse>,
    /// Threads that serve the kernel.
    #[arg(long, value_name = "NUMBER", default_value_t = 8)]
    threads: usize,
}

/// Show what a file system can carry: what names a file there, and how far its times can be trusted. Measured on a scratch file where the directory can be written.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs check /slow")]
pub struct Check {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Show what a mount has counted.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs status /fast")]
pub struct At {
    /// Where it is mounted.
    #[arg(value_name = "FAST")]
    at: PathBuf,
}

/// Take a mount away.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs umount /fast")]
pub struct Umount {
    /// Where it is mounted.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// Although files are open there: it goes when the last one is closed.
    #[arg(long)]
    lazy: bool,
}

impl Command {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Mount(mount) => mount.run(),
            Command::Check(check) => check.run(),
            Command::Status(At { at }) => Ok(write!(output(), "{}", verbena_mount::status(&at)?)?),
            Command::Umount(Umount { at, lazy }) => Ok(verbena_mount::umount(&at, lazy)?),
        }
    }
}

impl Mount {
    fn run(self) -> Result<()> {
        let refused = |problem: String| Error::Refused { problem, exit_code: 2 };
        let block = u32::try_from(self.block.0)
            .map_err(|_| refused(format!("--block {}: a power of two from 256 to 1MiB", self.block)))?;
        let block = BlockSize::new(block).map_err(|error| refused(format!("--block: {error}")))?;
        let defaults = MountOptions::new(&self.below, &self.at);
        let options = MountOptions {
            bank: self.bank,
            promise: self.promise,
            block,
            volume: self.volume,
            secret: self.secret,
            allow_other: self.allow_other,
            deadline: self.deadline.map_or(defaults.deadline, |Lapse(deadline)| deadline.max(Duration::from_millis(1))),
            threads: self.threads,
            ..defaults
        };
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let mounted = verbena_mount::mount(&options)?;
            let mut out = output();
            writeln!(
                out,
                "mounted {} at {} (process {})",
                self.below.display(),
                mounted.at().display(),
                std::process::id()
            )?;
            for note in mounted.notes() {
                writeln!(out, "  {note}")?;
            }
            out.flush()?;
            let at = mounted.at().to_owned();
            let served = tokio::task::spawn_blocking(move || mounted.wait());
            tokio::pin!(served);
            let ended = loop {
                tokio::select! {
                    ended = &mut served => break ended,
                    told = signals.next() => if told == Told::End {
                        // Its files may be open: it goes when the last one is closed.
                        verbena_mount::umount(&at, true)?;
                    },
                }
            };
            let ended = ended.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            ended.map_err(|source| Error::System { doing: "serve the mount", source })?;
            Ok(writeln!(out, "ended")?)
        })
    }
}

impl Check {
    fn run(self) -> Result<()> {
        let below = verbena_mount::check(&self.directory)?;
        let mut out = output();
        let milliseconds = |time: i128| format!("{:.3} ms", time as f64 / 1e6);
        writeln!(out, "kind      {}", below.kind)?;
        writeln!(out, "identity  {:?}", below.identity)?;
        writeln!(
            out,
            "times     {}",
            if below.measured {
                "measured on a scratch file"
            } else {
                "not measured: the directory cannot be written, so the worst is taken"
            }
        )?;
        writeln!(out, "grain     {}", milliseconds(below.clocks.grain))?;
        writeln!(out, "ahead     {}", milliseconds(below.clocks.ahead))?;
        Ok(writeln!(out, "carries   open, sealed, age=TIME; not strong: writers below a mount announce nothing")?)
    }
}
