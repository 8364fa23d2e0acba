//! Running a row and writing what it found.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::error::BenchError;
use crate::figure;
use crate::machine::Machine;
use crate::report::{Findings, Report, Started};
use crate::rounds::ProgressSink;
use crate::rows::Row;

/// Fewer rounds than this say nothing about how far a ratio can be trusted.
pub const FEWEST_ROUNDS: u32 = 9;

/// The key trace that the repository carries, from its top.
pub const KEY_TRACE: &str = "testdata/twitter_cluster52_200k.csv.gz";

/// How long a quick run measures, in all: with what stands around it well within the 60 seconds that it may take.
const MEASURING: Duration = Duration::from_secs(24);

/// What every row can be asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Short rounds: any row within 60 seconds on two cores. Their number stays.
    pub quick: bool,
    /// Where randomness starts.
    pub seed: u64,
    /// How many rounds are counted; at least [`FEWEST_ROUNDS`], which is what `None` means.
    pub rounds: Option<u32>,
    /// How long to measure in all; `None` leaves it to `quick`: 24 seconds, or 24 for every round.
    pub measuring: Option<Duration>,
    /// The `verbena` command, for rows that start nodes and proxies; without it such a row is an error.
    pub verbena: Option<PathBuf>,
    /// The key trace that is replayed, a CSV with the columns `time_s`, `key` and `size_bytes`.
    pub trace: PathBuf,
    /// Where `NAME.json` and `NAME.svg` go; made if it is not there.
    pub out_dir: PathBuf,
}

/// What a row is given to run.
pub(crate) struct Plan<'a> {
    /// The row's name.
    pub(crate) name: &'static str,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    /// The `verbena` command, if there is one.
    pub(crate) verbena: Option<&'a Path>,
    /// The key trace.
    pub(crate) trace: &'a Path,
    /// How long it may measure, in all.
    pub(crate) measuring: Duration,
    pub(crate) progress: &'a mut ProgressSink<'a>,
}

/// Runs `row` and writes `NAME.json` and `NAME.svg` into `options.out_dir`. Both files appear whole or not at all; a
/// row that fails writes nothing.
pub fn run<'a>(row: &Row, options: &'a Options, progress: &'a mut ProgressSink<'a>) -> Result<Report, BenchError> {
    let rounds = options.rounds.unwrap_or(FEWEST_ROUNDS);
    if rounds < FEWEST_ROUNDS {
        return Err(BenchError::TooFewRounds { rounds });
    }
    std::fs::create_dir_all(&options.out_dir).map_err(|error| BenchError::io(&options.out_dir, error))?;

    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let before = Started { unix_s, machine: Machine::here() };
    let started = Instant::now();
    let usual = if options.quick { MEASURING } else { MEASURING * rounds };
    let measuring = options.measuring.unwrap_or(usual);
    let verbena = options.verbena.as_deref();
    let trace = options.trace.as_path();
    let plan = Plan { name: row.name, rounds, seed: options.seed, verbena, trace, measuring, progress };
    let findings: Findings = (row.measure)(plan)?;
    let report = Report::new(row, options, rounds, before, started.elapsed().as_secs_f64(), findings);

    let svg = figure::svg(&report)?;
    let mut json = serde_json::to_string_pretty(&report).expect("invariant: a report has string keys only");
    json.push('\n');
    let file = |ending: &str| options.out_dir.join(format!("{}.{ending}", row.name));
    write_whole(&file("json"), &json)?;
    write_whole(&file("svg"), &svg)?;
    Ok(report)
}

/// A directory for what an experiment starts, which goes with it.
pub(crate) fn directory() -> Result<TempDir, BenchError> {
    directory_in(&std::env::temp_dir())
}

/// The same, at a place.
pub(crate) fn directory_in(place: &Path) -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new().prefix("verbena-bench-").tempdir_in(place);
    made.map_err(|error| BenchError::io(place, error))
}

/// Writes a file so that it is there whole or not at all.
pub fn write_whole(path: &Path, content: &str) -> Result<(), BenchError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".bench-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(content.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error| BenchError::io(path, error))
}
