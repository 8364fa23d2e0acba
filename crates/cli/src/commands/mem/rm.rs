//! `verbena mem rm`: a segment is not needed any more.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::At;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Remove a segment: its value is gone, its memory and its name are free.
///
/// This also frees the name of a segment that is lost because its home has ended.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem rm session/table
  verbena mem rm --id 1.7/3")]
pub struct Command {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Removed<'a> {
    removed: &'a str,
}

impl Command {
    /// Removes it.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        self.at.memory(file)?.release(self.at.which()?)?;
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &Removed { removed: &self.at.segment });
        }
        writeln!(out, "{}: removed", self.at.segment)?;
        Ok(())
    }
}
