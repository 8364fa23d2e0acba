//! `verbena mem new`: a segment.

use std::io::Write;
use std::path::Path;

use clap::Args;
use verbena_client::Memory;
use verbena_terms::Size;

use super::{Kind, Shown};
use crate::commands::reach::Reach;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Make a segment, of zeros.
///
/// The segment stays in the memory of its home until it is removed or that node ends, also after the program that made it. It belongs to this user: other users
/// of the machine can see that it is there, and can neither read nor change it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem new session/table --size 1MiB
  verbena mem new price/eur --size 8B --coherence 'temporal(20ms)' --placement local")]
pub struct Command {
    /// The segment's name: 1 to 255 bytes of text.
    #[arg(value_name = "NAME")]
    name: String,
    /// The segment's size, 1B to 16MiB.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    #[command(flatten)]
    kind: Kind,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

impl Command {
    /// Makes it, and says where.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut memory = self.reach.by(file, Memory::connect)?;
        let made = Shown::of(&memory.allocate(self.kind.of(&self.name, self.size.0))?);
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &made);
        }
        writeln!(out, "{}: {} bytes at {}, {}", made.called(), made.bytes, made.homes(), made.id)?;
        Ok(())
    }
}
