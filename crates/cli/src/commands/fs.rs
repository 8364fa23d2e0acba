//! `verbena fs`: a mount over any mounted file system.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_bank::{BlockSize, Kind};
use verbena_mount::{MountOptions, Promise};
use verbena_terms::{Lapse, Size};

use super::at_least_one;
use super::running::{self, Signals, Told};
use crate::config::{self, Flags, Whose};
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Mount a directory of any file system once more, with what is read kept in memory of the helper, or of memcached daemons.
#[derive(Debug, Subcommand)]
pub enum Command {
    Mount(Box<Mount>),
    Check(Check),
    Status(Status),
    Top(Top),
    Warm(Warm),
    Purge(Purge),
    Umount(Umount),
}

/// Mount a directory at another place. An open there sees all that was closed before it, as far as the file system below shows it.
///
/// Blocks of files come from the bank under the promise, and so do names and attributes under age=TIME, where the file system tells times of birth. The bank is memory of the helper of this machine, which all mounts of the user share; while no helper runs every operation goes below. What is written
/// goes through: a write, an fsync or a close answers what the file system below answered. The command runs until the directory is unmounted, or SIGINT or SIGTERM ends it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena node
  verbena fs mount /slow /fast
  verbena fs mount --bank memory:1GiB /slow /fast     # with memory.share of the node above that
  verbena bank up --daemons 2 --memory 1GiB
  verbena fs mount --bank memcached://127.0.0.1:11301,127.0.0.1:11302 /slow /fast")]
pub struct Mount {
    /// The directory of the file system below, which is read through the bank.
    #[arg(value_name = "SLOW")]
    below: PathBuf,
    /// Where it is mounted: an empty directory.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// Where blocks and names are kept: `memory` or `memory:SIZE` of the local helper, `memcached://HOST:PORT,...` as `verbena bank up` prints them, or `none`.
    #[arg(long, value_name = "BANK", default_value = "memory")]
    bank: Kind,
    /// open: an open sees all that was closed before it; sealed: files never change once they are closed; age=TIME: what is read is at most
    /// that old, 1ms to 24h, such as age=10s.
    #[arg(long, value_name = "PROMISE", default_value = "open")]
    promise: Promise,
    /// Bytes of a block: a power of two from 256B to 1MiB.
    #[arg(long, value_name = "SIZE", default_value_t = Size(64 << 10))]
    block: Size,
    /// The name of the volume: clients with the same name and secret share blocks. Without it, the path of SLOW.
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// A file with the volume's secret, 64 hexadecimal digits (`openssl rand -hex 32`). Without it no client of another machine or user finds a block.
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Memory of the mount's own process for blocks, looked at before the bank; 0B: it keeps none.
    #[arg(long, value_name = "SIZE", default_value_t = Size(0))]
    near: Size,
    /// Seal blocks before they go into the bank (AES-256-GCM), so that only mounts with this secret and --encrypt can read them.
    #[arg(long)]
    encrypt: bool,
    /// Let all users use the mount, each under their own user and groups below. Needs root.
    #[arg(long)]
    allow_other: bool,
    /// How long a daemon, or the helper, may take before its blocks count as missing; without it 100ms.
    #[arg(long, value_name = "TIME", value_parser = Lapse::or_seconds)]
    deadline: Option<Lapse>,
    /// Threads that serve the kernel.
    #[arg(long, value_name = "NUMBER", default_value_t = 8, value_parser = at_least_one())]
    threads: usize,
    #[command(flatten)]
    flags: Flags,
}

/// Show which promises a file system can keep: what identifies a file there, and how far its times can be trusted. It is measured on a scratch file
/// where the directory can be written.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs check /slow")]
pub struct Check {
    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Show what a mount has counted, or why the last access of a file missed.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  verbena fs status /fast\n  verbena fs status --explain /fast/data/words")]
pub struct Status {
    /// The directory where it is mounted.
    #[arg(value_name = "FAST", required_unless_present = "explain")]
    at: Option<PathBuf>,
    /// A file on a mount: what became of its last open or read, and why.
    #[arg(long, value_name = "PATH", conflicts_with = "at")]
    explain: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

/// Show each second what a mount does: opens, reads by what answered them, names and attributes that the bank had or the file system below was asked for, blocks that were missing by cause, and the hit ratio.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs top /fast --count 3")]
pub struct Top {
    /// The directory where it is mounted.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// How many lines to print; without it, until Ctrl-C.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Time between two lines.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(1), value_parser = Lapse::or_seconds)]
    every: Lapse,
}

/// List each directory of a tree on a mount and read each file once, so that its bank has names, attributes and bytes before they are needed.
///
/// Links are not followed. Files that changed too recently for the bank are read and not kept.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs warm /fast/data")]
pub struct Warm {
    /// A file or directory on a mount.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Files read at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = at_least_one())]
    threads: usize,
    #[command(flatten)]
    format: Format,
}

/// Drop what a mount keeps of a file or a tree. The next open reads it from the file system below.
///
/// For what a promise cannot see: a restored file with its old size and time, a sealed file that was replaced. Its blocks are taken out of the bank too, so that other mounts do not find them.
/// What the kernel keeps of a mount is dropped at that mount alone. Links inside the tree are not followed. Only the user who mounted it, and root, can purge.
#[derive(Args, Debug)]
#[command(after_long_help = "Examples:\n  verbena fs purge /fast\n  verbena fs purge /fast/data/words --json")]
pub struct Purge {
    /// A file or directory on a mount, or the mount.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// Unmount a directory that `verbena fs mount` has mounted.
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  verbena fs umount /fast")]
pub struct Umount {
    /// The directory where it is mounted.
    #[arg(value_name = "FAST")]
    at: PathBuf,
    /// Unmount although files are open there: the mount ends when the last one is closed.
    #[arg(long)]
    lazy: bool,
}

impl Command {
    /// Runs it.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        match self {
            Command::Mount(mount) => mount.run(file),
            Command::Check(check) => check.run(),
            Command::Status(status) => status.run(),
            Command::Top(top) => top.run(),
            Command::Warm(warm) => warm.run(),
            Command::Purge(purge) => purge.run(),
            Command::Umount(Umount { at, lazy }) => Ok(verbena_mount::umount(&at, lazy)?),
        }
    }
}

impl Mount {
    fn run(self, file: Option<&Path>) -> Result<()> {
        let refused = |problem: String| Error::Refused { problem, exit_code: 2 };
        let block = u32::try_from(self.block.0)
            .map_err(|_| refused(format!("--block {}: choose a power of two from 256B to 1MiB", self.block)))?;
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
            encrypt: self.encrypt,
            near: self.near.0,
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
        let names = match (below.has_births, below.clocks.has_changed) {
            (true, true) => "from the bank under open and age=TIME",
            (true, false) => "from the bank under age=TIME alone: the change time of directories was not measured",
            (false, _) => {
                "all asked here: files have no time of birth by this machine's clock, so a name alone tells no file from the next"
            }
        };
        writeln!(out, "names     {names}")?;
        Ok(writeln!(out, "carries   open, sealed, age=TIME; not strong: writers below a mount announce nothing")?)
    }
}

/// What a mount has counted, by name.
fn counts(at: &Path) -> Result<BTreeMap<String, u64>> {
    let text = verbena_mount::status(at)?;
    let count =
        |line: &str| line.split_once(' ').and_then(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    Ok(text.lines().filter_map(count).collect())
}

impl Status {
    fn run(self) -> Result<()> {
        let mut out = output();
        match (self.explain, self.at) {
            (Some(path), _) => {
                let said = verbena_mount::explain(&path)?;
                if self.format.json {
                    return write_json(&mut out, &serde_json::json!({ "path": path, "last": said }));
                }
                Ok(writeln!(out, "{said}")?)
            }
            (None, Some(at)) if self.format.json => write_json(&mut out, &counts(&at)?),
            (None, Some(at)) => Ok(write!(out, "{}", verbena_mount::status(&at)?)?),
            (None, None) => Ok(()),
        }
    }
}

impl Top {
    fn run(self) -> Result<()> {
        const COLUMNS: [(&str, &[&str]); 11] = [
            ("opens", &["cached_opens"]),
            (
                "direct",
                &[
                    "direct_opens_kind",
                    "direct_opens_direct",
                    "direct_opens_writer",
                    "direct_opens_identity",
                    "direct_opens_unsettled",
                    "direct_opens_lock",
                ],
            ),
            ("whole", &["whole_reads"]),
            ("partial", &["partial_reads"]),
            ("below", &["below_reads"]),
            ("names", &["name_hits", "missing_hits", "attribute_hits", "listing_hits", "link_hits", "xattr_hits"]),
            (
                "asked",
                &["name_misses", "missing_misses", "attribute_misses", "listing_misses", "link_misses", "xattr_misses"],
            ),
            ("near", &["near_hits"]),
            ("absent", &["bank_absent"]),
            ("down", &["bank_daemon_down"]),
            (
                "wrong",
                &["bank_wrong_length", "bank_wrong_format", "bank_wrong_key", "bank_wrong_checksum", "bank_wrong_seal"],
            ),
        ];
        let mut out = output();
        let mut before = counts(&self.at)?;
        for (name, _) in COLUMNS {
            write!(out, "{name:>9}")?;
        }
        writeln!(out, "{:>9}", "hits %")?;
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            std::thread::sleep(self.every.0.max(Duration::from_millis(10)));
            let now = counts(&self.at)?;
            let more = |name: &str| {
                let count = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
                count(&now).saturating_sub(count(&before))
            };
            let sum = |names: &[&str]| names.iter().map(|name| more(name)).sum::<u64>();
            for (_, names) in COLUMNS {
                write!(out, "{:>9}", sum(names))?;
            }
            let hits = more("bank_hits") + more("near_hits");
            let misses = COLUMNS[8..].iter().map(|(_, names)| sum(names)).sum::<u64>();
            match hits + misses {
                0 => writeln!(out, "{:>9}", "-")?,
                all => writeln!(out, "{:>9.1}", 100.0 * hits as f64 / all as f64)?,
            }
            out.flush()?;
            before = now;
        }
        Ok(())
    }
}

impl Warm {
    fn run(self) -> Result<()> {
        let warmed = verbena_mount::warm(&self.path, self.threads)?;
        let mut out = output();
        if self.format.json {
            let report = serde_json::json!({ "files": warmed.files, "bytes": warmed.bytes, "failed": warmed.failed });
            write_json(&mut out, &report)?;
        } else {
            writeln!(out, "{} files, {} bytes read; {} could not be read", warmed.files, warmed.bytes, warmed.failed)?;
        }
        if warmed.failed > 0 {
            return Err(Error::Refused {
                problem: format!("{} files or directories could not be read", warmed.failed),
                exit_code: 1,
            });
        }
        Ok(())
    }
}

impl Purge {
    fn run(self) -> Result<()> {
        let purged = verbena_mount::purge(&self.path)?;
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &purged.named().into_iter().collect::<BTreeMap<_, _>>())?;
        } else {
            writeln!(out, "{} files purged; {} blocks were taken out of the bank", purged.files, purged.blocks)?;
            for (count, what) in [
                (purged.unreached, "blocks may still be in the bank, which did not answer in time"),
                (purged.large, "files have too many blocks to be taken out of the bank"),
            ] {
                if count > 0 {
                    writeln!(out, "  {count} {what}: other mounts may use them, this one does not")?;
                }
            }
        }
        if purged.failed > 0 {
            return Err(Error::Refused {
                problem: format!("{} files or directories could not be looked at", purged.failed),
                exit_code: 1,
            });
        }
        Ok(())
    }
}
