//! `verbena fs`: a mount over any mounted file system.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_bank::{BlockSize, Kind};
use verbena_mount::{MountOptions, Promise};
use verbena_terms::{Lapse, Size};

use super::running::{self, Signals, Told};
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};
use crate::output::output;

/// Mount a directory of any file system once more, with what is read kept in memory of the helper, or of memcached daemons.
#[derive(Debug, Subcommand)]
pub enum Command {
    Mount(Box<Mount>),
    Check(Check),
    Status(At),
    Umount(Umount),
}

/// Mount a directory at another place. An open there sees all that was closed before it, as far as the file system below shows it.
///
/// Blocks of files come from the bank under the promise. The bank is memory of the helper of this machine, which all mounts of the user share; while no helper runs every operation goes below. What is written
/// goes through: a write, an fsync or a close answers what the file system below answered. It serves until it is unmounted, or told to end.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena node
  verbena fs mount /slow /fast
  verbena fs mount --bank memory:1GiB /slow /fast     # with memory.share of the node above that
  verbena bank up --daemons 2 --memory 1GiB
  verbena fs mount --bank memcached://127.0.0.1:11301,127.0.0.1:11302 /slow /fast")]
pub struct Mount {
    /// The directory below.
    #[arg(value_name = "SLOW")]
    below: PathBuf,
    /// Where it is mounted: an empty directory.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// Where blocks are kept: `memory` or `memory:SIZE` of the local helper, `memcached://HOST:PORT,...` as `verbena bank up` prints them, or `none`.
    #[arg(long, value_name = "BANK", default_value = "memory")]
    bank: Kind,
    /// open: an open sees all that was closed before it; sealed: files never change once they are closed; age=TIME: at most so old.
    #[arg(long, value_name = "PROMISE", default_value = "open")]
    promise: Promise,
    /// Bytes of a block: a power of two from 256 to 1MiB.
    #[arg(long, value_name = "SIZE", default_value_t = Size(64 << 10))]
    block: Size,
    /// The name of the volume: clients with the same name and secret share blocks.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// A file with the volume's secret. Without it no client of another machine or user finds a block.
    #[arg(long, value_name = "FILE")]
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
    #[command(flatten)]
    flags: Flags,
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
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self {
            Command::Mount(mount) => mount.run(file),
            Command::Check(check) => check.run(),
            Command::Status(At { at }) => Ok(write!(output(), "{}", verbena_mount::status(&at)?)?),
            Command::Umount(Umount { at, lazy }) => Ok(verbena_mount::umount(&at, lazy)?),
        }
    }
}

impl Mount {
    fn run(self, file: Option<&Path>) -> Result<()> {
        let refused = |problem: String| Error::Refused { problem, exit_code: 2 };
        let block = u32::try_from(self.block.0)
            .map_err(|_| refused(format!("--block {}: a power of two from 256 to 1MiB", self.block)))?;
        let block = BlockSize::new(block).map_err(|error| refused(format!("--block: {error}")))?;
        let defaults = MountOptions::new(&self.below, &self.at);
        let helpers = match self.bank {
            Kind::Memory(_) => config::load(file, &self.flags.0, Whose::Running)?.config.settings().sockets()?,
            Kind::None | Kind::Memcached(_) => vec![],
        };
        let options = MountOptions {
            bank: self.bank,
            helpers,
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
