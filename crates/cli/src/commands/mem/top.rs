//! `verbena mem top`: which segments are written how often.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde::Serialize;
use verbena_client::{Error as Refusal, Memory, SegmentInfo};
use verbena_terms::{Lapse, SegmentId};

use super::{Shown, columns};
use crate::commands::reach::Reach;
use crate::commands::status::rounded;
use crate::error::Result;
use crate::output::{Format, output, write_json};

/// Segments that are looked at each time: each takes a round trip.
const MOST: usize = 1000;
/// Back to the first place, and nothing below it.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show the most written segments and how often they are written, again and again.
///
/// The rates come from the segments' versions, which are read one-sidedly: their homes do nothing for it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena mem top
  verbena mem top session/ --interval 250ms --rows 10
  verbena mem top --count 3 --json")]
pub struct Command {
    /// Show only segments whose names begin with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Time between two readings.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(1), value_parser = Lapse::or_seconds)]
    interval: Lapse,
    /// How many segments are shown.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    rows: usize,
    /// End after this many readings; without it, until Ctrl-C.
    #[arg(long, value_name = "NUMBER", alias = "times", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints each time.
#[derive(Debug, Serialize)]
struct Look {
    /// Of all segments, those that are not shown too.
    segments: usize,
    bytes: u64,
    takes: u64,
    /// The most written ones.
    most_written: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    segment: Shown,
    version: u64,
    puts_per_second: f64,
    /// Since the last put, by the writer's clock and this one's; none if nothing was put.
    age_ms: Option<u64>,
}

impl Command {
    /// Looks, and prints what has changed.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut memory = self.reach.by(file, Memory::connect)?;
        let every = self.interval.0.max(Duration::from_millis(50));
        let mut before = HashMap::new();
        self.look(&mut memory, &mut before)?;
        let mut out = output();
        let clears = !self.format.json && std::io::stdout().is_terminal();
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            std::thread::sleep(every);
            let look = self.look(&mut memory, &mut before)?;
            if self.format.json {
                write_json(&mut out, &look)?;
            } else {
                write!(out, "{}", if clears { CLEAR } else { "" })?;
                look.print(&mut out)?;
            }
            out.flush()?;
        }
        Ok(())
    }

    fn look(&self, memory: &mut Memory, before: &mut HashMap<SegmentId, (u64, Instant)>) -> Result<Look> {
        let list = memory.list(&self.prefix)?;
        let sum = |of: &dyn Fn(&SegmentInfo) -> u64| list.segments.iter().map(of).sum();
        let (segments, bytes, takes) = (list.segments.len(), sum(&|one| one.bytes), sum(&|one| one.takes));
        let mut rows = vec![];
        let mut now = HashMap::new();
        for segment in list.segments.iter().take(MOST) {
            let stat = match memory.stat(segment.id) {
                Ok(stat) => stat,
                // It has gone meanwhile.
                Err(Refusal::Memory { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let at = Instant::now();
            let puts_per_second = before.get(&segment.id).map_or(0.0, |(version, then)| {
                stat.version.saturating_sub(*version) as f64 / (at - *then).as_secs_f64().max(1e-6)
            });
            now.insert(segment.id, (stat.version, at));
            let age = |stamp| (SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp)).elapsed().unwrap_or_default();
            let age_ms = (stat.stamp_ns > 0).then(|| age(stat.stamp_ns).as_millis() as u64);
            rows.push(Row { segment: Shown::of(segment), version: stat.version, puts_per_second, age_ms });
        }
        *before = now;
        rows.sort_by(|a, b| b.puts_per_second.total_cmp(&a.puts_per_second).then(a.age_ms.cmp(&b.age_ms)));
        rows.truncate(self.rows);
        Ok(Look { segments, bytes, takes, most_written: rows })
    }
}

impl Look {
    fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "{} segments, {} bytes, which take {}", self.segments, self.bytes, self.takes)?;
        let head = ["PUTS/S", "VERSION", "AGE", "BYTES", "COHERENCE", "HOMES", "NAME"].map(String::from).to_vec();
        let line = |row: &Row| {
            let age = row.age_ms.map_or_else(|| "-".into(), |age| rounded(age).to_string());
            let Shown { bytes, coherence, .. } = &row.segment;
            let (rate, name) = (format!("{:.1}", row.puts_per_second), row.segment.called().to_owned());
            vec![rate, row.version.to_string(), age, bytes.to_string(), coherence.clone(), row.segment.homes(), name]
        };
        let lines: Vec<_> = [head].into_iter().chain(self.most_written.iter().map(line)).collect();
        columns(out, &[0, 1, 2, 3], &lines)
    }
}
