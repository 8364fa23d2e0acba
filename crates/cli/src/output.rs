//! Reports on standard output: for people, or as JSON.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::error::Result;

/// How to report. For every command that reports something.
#[derive(Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print JSON for programs instead of text for people.
    #[arg(long)]
    pub json: bool,
}

/// Standard output. Takes colours out where they would not be seen.
pub type Output = anstream::AutoStream<io::Stdout>;

/// Standard output as it is.
pub fn output() -> Output {
    anstream::AutoStream::auto(io::stdout())
}

/// Writes a report as one JSON document.
pub fn write_json(to: &mut impl Write, report: &impl Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *to, report)?;
    writeln!(to)?;
    Ok(())
}
