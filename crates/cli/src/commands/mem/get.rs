//! `verbena mem get`: a segment's value.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{At, is_standard, stat, write};
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Write a segment's value to standard output, or to a file.
///
/// The value is whole, and of one version (except with the coherence `null`).
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem get session/table > table
  verbena mem get price/eur --offset 4 --length 4 | od -t u4
  verbena mem get session/table --out table --json")]
pub struct Command {
    #[command(flatten)]
    at: At,
    /// The first byte, from 0.
    #[arg(long, value_name = "BYTE", default_value_t = 0)]
    offset: u64,
    /// How many bytes. Without it, all that follow.
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
    /// The file for the value; an existing file is replaced when the value has arrived. With -, or without it, standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Got {
    version: u64,
    /// In UTC, by the writer's clock; none if nothing was put.
    put: Option<String>,
    bytes: usize,
    /// The value, unless a file has it.
    hex: Option<String>,
}

impl Command {
    /// Gets it.
    pub fn run(mut self, file: Option<&Path>) -> Result<()> {
        self.out = self.out.take().filter(|path| !is_standard(path));
        let value = self.at.memory(file)?.get_part(self.at.which()?, self.offset, self.length)?;
        if let Some(path) = &self.out {
            write(path, &value.bytes)?;
        }
        if self.format.json {
            let hex = || value.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let got = Got {
                version: value.version,
                put: (value.stamp_ns > 0).then(|| stat::moment(value.stamp_ns)),
                bytes: value.bytes.len(),
                hex: self.out.is_none().then(hex),
            };
            return write_json(&mut output(), &got);
        }
        if self.out.is_none() {
            // As they are: what takes colours out would take out bytes.
            let mut out = std::io::stdout().lock();
            out.write_all(&value.bytes)?;
            out.flush()?;
        }
        Ok(())
    }
}
