//! `verbena mem ls`: which segments there are.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use verbena_client::Memory;

use super::reclaim::goes_in;
use super::{Shown, columns};
use crate::commands::reach::Reach;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Show the segments of all nodes.
///
/// Exit code 0; 1 if a home did not answer, so that its segments may be missing.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem ls
  verbena mem ls session/ --json")]
pub struct Command {
    /// Show only segments whose names begin with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Listed {
    segments: Vec<Shown>,
    /// Homes that did not answer.
    silent: BTreeSet<String>,
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let list = self.reach.by(file, Memory::connect)?.list(&self.prefix)?;
        let mut segments: Vec<Shown> = list.segments.iter().map(Shown::of).collect();
        segments.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.id.cmp(&b.id)));
        let listed = Listed { segments, silent: list.silent };
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &listed)?;
        } else {
            let goes = listed.segments.iter().any(|shown| shown.goes_in_ms.is_some());
            let mut head = ["NAME", "BYTES", "COHERENCE", "HOMES", "TAKES", "USER", "ID"].map(String::from).to_vec();
            head.extend(goes.then(|| "GOES IN".into()));
            let line = |shown: &Shown| {
                let Shown { bytes, coherence, takes, owner, id, .. } = shown;
                let (bytes, takes, owner) = (bytes.to_string(), takes.to_string(), owner.to_string());
                let mut line =
                    vec![shown.called().into(), bytes, coherence.clone(), shown.homes(), takes, owner, id.clone()];
                line.extend(goes.then(|| shown.goes_in_ms.map_or_else(|| "-".into(), |ms| goes_in(ms).to_string())));
                line
            };
            if !listed.segments.is_empty() {
                let lines: Vec<_> = [head].into_iter().chain(listed.segments.iter().map(line)).collect();
                columns(&mut out, &[1, 4, 5], &lines)?;
            }
            if !listed.silent.is_empty() {
                let silent: Vec<&str> = listed.silent.iter().map(String::as_str).collect();
                writeln!(out, "no answer from {}: what they have is not shown", silent.join(", "))?;
            }
        }
        if listed.silent.is_empty() { Ok(()) } else { Err(Error::No) }
    }
}
