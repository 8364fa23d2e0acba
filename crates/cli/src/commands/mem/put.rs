//! `verbena mem put`: a value in a segment's place.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use verbena_client::{Error as Refusal, Failure, PutOptions};

use super::{At, Kind, read};
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Another version is there than the one that was to be replaced.
const CONFLICT: u8 = 75;

/// Write a file, or standard input, into a segment.
///
/// A reader sees the value before or this one, whole (except with the coherence `null`). Fewer bytes than the segment has replace a part of it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes:
    0  put
   75  --over: there is another version, and nothing has changed
    1  2  3  as for all commands

Examples:
  verbena mem put session/table table --new
  date | verbena mem put greeting - --new --coherence read
  verbena mem put session/table table --over 17")]
pub struct Command {
    #[command(flatten)]
    at: At,
    /// The file to write into the segment. Without it, or with -, standard input to its end.
    #[arg(value_name = "FILE")]
    from: Option<PathBuf>,
    /// The first byte of the segment that is replaced, from 0.
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    offset: u64,
    /// Put only if the segment has this version now. Required where the coherence is `version`.
    #[arg(long, value_name = "VERSION")]
    over: Option<u64>,
    /// Make the segment first, of as many bytes as are put.
    #[arg(long, conflicts_with_all = ["offset", "over", "id"])]
    new: bool,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Put {
    /// The new one, if it was put.
    version: Option<u64>,
    bytes: usize,
    /// The version that there is, if that is not the one that was to be replaced.
    conflict: Option<u64>,
}

impl Command {
    /// Puts it.
    pub fn run(self, file: Option<&Path>) -> Result<ExitCode> {
        let bytes = read(self.from.as_deref())?;
        let mut memory = self.at.memory(file)?;
        let (mut which, mut over) = (self.at.which()?, self.over);
        if self.new {
            let made = memory.allocate(self.kind.of(&self.at.segment, bytes.len() as u64))?;
            // By its identity: if another one comes to have the name, it is not this one. Its first version is what is there.
            over = Some(memory.stat(made.id)?.version);
            which = made.id.into();
        }
        let put = match memory.put_with(which, &bytes, PutOptions { offset: self.offset, over }) {
            Ok(version) => Put { version: Some(version), bytes: bytes.len(), conflict: None },
            Err(Refusal::Memory { why: Failure::Conflict { current }, .. }) => {
                Put { version: None, bytes: bytes.len(), conflict: Some(current) }
            }
            Err(error) => return Err(error.into()),
        };
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &put)?;
        } else {
            match (put.version, put.conflict) {
                (Some(version), _) => writeln!(out, "version {version}")?,
                (None, current) => {
                    writeln!(out, "not put: there is version {}", current.unwrap_or_default())?;
                }
            }
        }
        Ok(if put.version.is_some() { ExitCode::SUCCESS } else { ExitCode::from(CONFLICT) })
    }
}
