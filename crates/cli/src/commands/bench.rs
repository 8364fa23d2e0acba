//! `verbena bench`: runs the papers' experiments.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::Args;
use clap::error::ErrorKind;
use serde::Serialize;
use verbena_bench::{
    BenchError, KEY_TRACE, Options, Progress, Report, Row, Verdict, list, report_html, row, rows, run, write_whole,
};

use crate::error::Result;
use crate::output::{Format, Output, output, write_json};

/// The rows that read a key trace.
const REPLAY: [&str; 2] = ["content.keys", "locks.trace"];

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const OPEN: Style = AnsiColor::Yellow.on_default();

/// Run an experiment of the papers, and write its figures.
///
/// Each variant is measured in turn, in several rounds, and the medians are compared. NAME.json and NAME.svg are
/// written, and report.html with all experiments of the run.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena bench --list
  verbena bench fabric.primitives --quick
  verbena bench all --out results")]
pub struct Command {
    /// The experiment, or `all` for every one; `all` leaves out experiments whose programs are not installed.
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Print the table of experiments.
    #[arg(long, conflicts_with = "name")]
    list: bool,
    /// Short rounds: any experiment within 60 seconds on two cores.
    #[arg(long)]
    quick: bool,
    /// The seed of all random choices.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// How many rounds are counted, at least 9. Without it, as few as are enough.
    #[arg(long, value_name = "NUMBER")]
    rounds: Option<u32>,
    /// The key trace of `content.keys` and `locks.trace`, instead of testdata/twitter_cluster52_200k.csv.gz: a CSV with the columns time_s, key and
    /// size_bytes, packed by gzip or not.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The directory for these files; it is made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "bench-out")]
    out: PathBuf,
    #[command(flatten)]
    format: Format,
}

/// A row as `--list --json` prints it.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    paper: &'static str,
    variants: &'static str,
    found: &'static str,
}

impl Command {
    /// Runs what was named.
    pub fn run(self) -> Result<()> {
        let mut out = output();
        if self.list {
            return self.print_list(&mut out);
        }
        let reports = self.measure()?;
        let page = self.out.join("report.html");
        write_whole(&page, &report_html(&reports)?)?;
        if self.format.json {
            return write_json(&mut out, &reports);
        }
        for report in &reports {
            print(&mut out, report, &self.out)?;
        }
        Ok(writeln!(out, "{}", page.display())?)
    }

    fn print_list(&self, out: &mut Output) -> Result<()> {
        if self.format.json {
            let listed =
                |row: &Row| Listed { name: row.name, paper: row.paper, variants: row.variants, found: row.found };
            return write_json(out, &rows().iter().map(listed).collect::<Vec<_>>());
        }
        Ok(write!(out, "{}", list(terminal_columns()))?)
    }

    fn measure(&self) -> Result<Vec<Report>> {
        let name = self.name.as_deref().unwrap_or_default();
        let chosen: Vec<&Row> = match name {
            "all" => rows().iter().collect(),
            name => vec![row(name)?],
        };
        if self.trace.is_some() && !chosen.iter().any(|row| REPLAY.contains(&row.name)) {
            let wrong = format!("--trace is for `{}`, and `{name}` replays no keys\n", REPLAY.join("` and `"));
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, wrong).into());
        }
        let options = Options {
            quick: self.quick,
            seed: self.seed,
            rounds: self.rounds,
            measuring: None,
            // Nodes and proxies of an experiment are this program too.
            verbena: std::env::current_exe().ok(),
            trace: self.trace.clone().unwrap_or_else(|| KEY_TRACE.into()),
            out_dir: self.out.clone(),
        };
        let mut reports = Vec::with_capacity(chosen.len());
        for row in chosen {
            let mut shown = Shown::new(row.name);
            let report = run(row, &options, &mut |progress| shown.show(progress));
            shown.end();
            match report {
                // Of all rows, some are about programs that are not installed here.
                Err(error @ BenchError::NothingToMeasure { .. }) if name == "all" => {
                    anstream::eprintln!("verbena: {error}");
                }
                report => reports.push(report?),
            }
        }
        Ok(reports)
    }
}

/// Progress on standard error: one line that changes on a terminal, a line for each step otherwise.
struct Shown {
    name: &'static str,
    terminal: bool,
}

impl Shown {
    fn new(name: &'static str) -> Self {
        Shown { name, terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, progress: &Progress) {
        let Progress { done, of, doing, elapsed, left } = progress;
        let left = left.map_or_else(String::new, |left| format!(", {} left", seconds(left)));
        let line = format!("{} {done}/{of} {doing} ({}{left})", self.name, seconds(*elapsed));
        // If standard error is gone, the progress has no reader left.
        let _ = if self.terminal { write!(io::stderr(), "\r\x1b[K{line}") } else { writeln!(io::stderr(), "{line}") };
    }

    fn end(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn print(out: &mut Output, report: &Report, directory: &Path) -> Result<()> {
    writeln!(out, "{} ({})", report.row, report.paper)?;
    for fabric in &report.findings.fabrics {
        let measured = if fabric.measured { "measured" } else { "not measured" };
        writeln!(out, "  {} {measured}: {}", fabric.name, fabric.because)?;
    }
    for ratio in &report.findings.ratios {
        writeln!(out, "  {} ({}): {}", ratio.what, ratio.under, ratio.spread)?;
        if let Some(claim) = &ratio.claim {
            let (style, verdict) = match claim.verdict {
                Verdict::Holds => (GOOD, "holds"),
                Verdict::DoesNotHold => (BAD, "does not hold here"),
                Verdict::RoundsDisagree => (OPEN, "rounds disagree: run it longer, or on a quieter machine"),
            };
            let reason = claim.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
            writeln!(out, "    {} {style}{verdict}{style:#}{reason}", claim.text)?;
        }
    }
    let file = |ending: &str| directory.join(format!("{}.{ending}", report.row)).display().to_string();
    Ok(writeln!(out, "  {} {}", file("json"), file("svg"))?)
}

fn seconds(duration: Duration) -> String {
    format!("{:.0}s", duration.as_secs_f64())
}

fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(100)
}
