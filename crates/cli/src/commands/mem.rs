//! `verbena mem`: segments of memory that nodes share.

pub mod checkpoint;
pub mod get;
pub mod ls;
pub mod new;
pub mod put;
pub mod reclaim;
pub mod rm;
pub mod stat;
pub mod top;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_client::{Memory, NewSegment, Placement, SegmentInfo, Which};
use verbena_memory::MAX_SEGMENT_BYTES;
use verbena_terms::{Coherence, SegmentId};

use crate::commands::reach::Reach;
use crate::error::{Error, Result};

/// Use memory that the whole cluster shares.
#[derive(Debug, Subcommand)]
pub enum Command {
    New(new::Command),
    Put(put::Command),
    Get(get::Command),
    Stat(stat::Command),
    Ls(ls::Command),
    Rm(rm::Command),
    Top(top::Command),
    Reclaim(reclaim::Command),
    Checkpoint(checkpoint::Command),
}

impl Command {
    /// Does what it says.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        match self {
            Command::New(new) => new.run(file),
            Command::Put(put) => return put.run(file),
            Command::Checkpoint(checkpoint) => return checkpoint.run(file),
            Command::Get(get) => get.run(file),
            Command::Stat(stat) => stat.run(file),
            Command::Ls(ls) => ls.run(file),
            Command::Rm(rm) => rm.run(file),
            Command::Top(top) => top.run(file),
            Command::Reclaim(reclaim) => reclaim.run(file),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

/// Which segment, and which helper is asked.
#[derive(Args, Debug)]
pub struct At {
    /// The segment's name.
    #[arg(value_name = "SEGMENT")]
    segment: String,
    /// SEGMENT is not the name, but the identity that `verbena mem ls` shows, such as 1.7/3.
    #[arg(long)]
    id: bool,
    #[command(flatten)]
    reach: Reach,
}

impl At {
    fn memory(&self, file: Option<&Path>) -> Result<Memory> {
        self.reach.by(file, Memory::connect)
    }

    fn which(&self) -> Result<Which> {
        if !self.id {
            return Ok(Which::from(&self.segment));
        }
        let error = |error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n"));
        Ok(self.segment.parse::<SegmentId>().map_err(error)?.into())
    }
}

/// What a new segment is to be.
#[derive(Args, Debug)]
pub struct Kind {
    /// What readers are promised: `null`, `read`, `write`, `strict`, `version`, `delta(VERSIONS)` or `temporal(TIME)`; docs/concepts/memory.md says what each means.
    #[arg(long, value_name = "COHERENCE", default_value = "strict")]
    coherence: Coherence,
    /// Nodes that can write at a time, 1 to 62; further ones wait for them. Each takes the segment's bytes once more. Of `null`, any number says nothing.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    writers: u8,
    /// Nodes that hold its value, 1 to 4: the value is lost when all of them are.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: u8,
    /// Where it is: `most-free`, `local`, `spread` (in turn at all nodes), or a node's name. Further copies are where most memory is free.
    #[arg(long, value_name = "WHERE", default_value_t = Placement::MostFree)]
    placement: Placement,
}

impl Kind {
    fn of(self, name: &str, bytes: u64) -> NewSegment {
        let Kind { coherence, writers, copies, placement } = self;
        NewSegment { name: Some(name.into()), bytes, coherence, writers, copies, placement }
    }
}

/// What `--json` prints of a segment.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    name: Option<String>,
    bytes: u64,
    coherence: String,
    writers: u8,
    /// Bytes that it takes at each home.
    takes: u64,
    /// The user's number.
    owner: u32,
    home: String,
    /// How many homes are to hold it.
    copies: u8,
    /// Those that do besides.
    backups: Vec<String>,
    /// Until its home takes its memory back, if that has given notice.
    goes_in_ms: Option<u64>,
}

impl Shown {
    fn of(segment: &SegmentInfo) -> Shown {
        let SegmentInfo { id, name, bytes, coherence, writers, takes, owner, home, copies, backups, goes_in_ms } =
            segment.clone();
        let (id, coherence) = (id.to_string(), coherence.to_string());
        Shown { id, name, bytes, coherence, writers, takes, owner, home, copies, backups, goes_in_ms }
    }

    /// Its home, and the nodes that hold backups of it.
    fn homes(&self) -> String {
        [std::slice::from_ref(&self.home), &self.backups].concat().join(",")
    }

    /// Its name, or how it is known without one.
    fn called(&self) -> &str {
        self.name.as_deref().unwrap_or("(no name)")
    }
}

/// Lines in columns, as wide as they have to be; numbers to the right.
fn columns(out: &mut impl Write, numbers: &[usize], lines: &[Vec<String>]) -> Result<()> {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
            if numbers.contains(&at) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Whether a user has named standard input or output where a file could be named.
fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What is to be put: a file, or standard input to its end, which is called - or nothing. One byte more than a segment can have is enough to know that they are too many.
fn read(from: Option<&Path>) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let (from, path): (Box<dyn Read>, PathBuf) = match from.filter(|path| !is_standard(path)) {
        Some(path) => {
            let error = |source| Error::File { doing: "open", path: path.to_owned(), source };
            (Box::new(File::open(path).map_err(error)?), path.to_owned())
        }
        None => (Box::new(std::io::stdin()), "standard input".into()),
    };
    let error = |source| Error::File { doing: "read", path, source };
    from.take(MAX_SEGMENT_BYTES + 1).read_to_end(&mut bytes).map_err(error)?;
    Ok(bytes)
}

/// What was got: into this file.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|source| Error::File { doing: "write", path: path.to_owned(), source })
}
