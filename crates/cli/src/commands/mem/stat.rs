//! `verbena mem stat`: what is known of a segment.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use super::reclaim::goes_in;
use super::{At, Shown};
use crate::date::exact_moment;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Show a segment, its version, and when that version was put.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem stat session/table
  verbena mem stat --id 1.7/3 --json")]
pub struct Command {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Stat {
    #[serde(flatten)]
    segment: Shown,
    version: u64,
    /// In UTC, by the writer's clock; none if nothing was put.
    put: Option<String>,
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let stat = self.at.memory(file)?.stat(self.at.which()?)?;
        let put = (stat.stamp_ns > 0).then(|| moment(stat.stamp_ns));
        let shown = Stat { segment: Shown::of(&stat.segment), version: stat.version, put };
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &shown);
        }
        let Shown { id, bytes, coherence, writers, takes, owner, home, copies, backups, .. } = &shown.segment;
        writeln!(out, "name       {}", shown.segment.called())?;
        writeln!(out, "id         {id}")?;
        writeln!(out, "bytes      {bytes}; {takes} at each home")?;
        writeln!(out, "coherence  {coherence}, for {writers} writers at a time")?;
        writeln!(out, "home       {home}")?;
        if *copies > 1 {
            let others = if backups.is_empty() { "no node at the moment".into() } else { backups.join(", ") };
            writeln!(out, "copies     {} of {copies}; besides its home at {others}", backups.len() + 1)?;
        }
        writeln!(out, "user       {owner}")?;
        writeln!(out, "version    {}", shown.version)?;
        if let Some(ms) = shown.segment.goes_in_ms {
            writeln!(out, "goes       in {}: its home takes its memory back", goes_in(ms))?;
        }
        writeln!(out, "put        {}", shown.put.as_deref().unwrap_or("nothing yet"))?;
        Ok(())
    }
}

/// The time `stamp_ns` nanoseconds after the start of 1970, in UTC.
pub(super) fn moment(stamp_ns: u64) -> String {
    exact_moment(SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp_ns))
}
