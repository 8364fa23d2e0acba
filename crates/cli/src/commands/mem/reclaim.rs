//! `verbena mem reclaim`: a node needs its memory back.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use verbena_client::{Memory, Reclaims};
use verbena_terms::{Lapse, Size};

use crate::commands::reach::Reach;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Make this helper's node offer SIZE from now on, of the memory that it is configured to offer (`memory.share`).
///
/// From this moment no segment is placed there above SIZE. If the node's segments have more, some of them get notice: `verbena mem ls` and `stat` show in how
/// many seconds they move. Then the node takes their memory back, and they are at other nodes: programs that get and put go on. A segment for which no other
/// node has room is gone: its name is free, and a program that asks for it gets an error with the node that took its memory. Segments that are removed
/// meanwhile count.
///
/// The same command again changes nothing; another size, or a shorter notice, counts from then on. A larger size takes a reclaim back. It holds until the node
/// ends; the configuration says what the node offers when it starts. Only the user who runs the node, and root, can do it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem reclaim 16MiB
  verbena mem reclaim 0B --notice 5m
  verbena mem reclaim 64MiB --json")]
pub struct Command {
    /// What the node offers from now on: from 0B to its memory.share.
    #[arg(value_name = "SIZE")]
    size: Size,
    /// How long segments that have to move or go stay first.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = Lapse::or_seconds)]
    notice: Lapse,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    /// Bytes that it is configured to offer.
    share: u64,
    /// Bytes that it offers from now on.
    offered: u64,
    /// Bytes that segments have.
    taken: u64,
    /// Segments that have to go, and their bytes.
    segments: u32,
    bytes: u64,
    /// When the first of them goes; none if nothing has to.
    first_in_ms: Option<u64>,
}

impl Command {
    /// Asks, and says what has to go.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut memory = self.reach.by(file, Memory::connect)?;
        let Reclaims { share, offered, taken, segments, bytes, first_in_ms } =
            memory.reclaim(self.size.0, self.notice.0)?;
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &Shown { share, offered, taken, segments, bytes, first_in_ms });
        }
        writeln!(out, "offers {} of {}; segments have {}", Size(offered), Size(share), Size(taken))?;
        if let Some(first) = first_in_ms {
            let (bytes, first) = (Size(bytes), goes_in(first));
            writeln!(
                out,
                "segments that have to go: {segments}, with {bytes}; the first in {first} (verbena mem ls shows which)"
            )?;
        }
        Ok(())
    }
}

/// In whole seconds, as who waits counts them.
pub(super) fn goes_in(ms: u64) -> Lapse {
    Lapse(Duration::from_secs(ms.div_ceil(1000)))
}
