//! `verbena traces`: makes the traces that experiments replay.

use clap::Args;
use verbena_bench::traces::{self, TracesArgs};

use crate::error::Result;

/// Generate a trace from a seed, or read one from a log, and write it as CSV.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena traces zipf --objects 1000 --alpha 0.8 --out zipf.csv
  verbena traces updates --rate 10 --seed 7
  verbena traces clf access.log.gz --out web.csv")]
pub struct Command {
    #[command(flatten)]
    traces: TracesArgs,
}

impl Command {
    /// Makes it.
    pub fn run(&self) -> Result<()> {
        let written = traces::run(&self.traces)?;
        if written.skipped > 0 {
            tracing::warn!(skipped = written.skipped, "entries of the log held no request");
        }
        tracing::info!(records = written.records, "the trace is complete");
        Ok(())
    }
}
