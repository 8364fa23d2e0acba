//! Runs a scenario over many seeds, and says how to see a failing one again.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::trace::Log;

/// The seed of one run, and how much it is to tell. A plain number is a seed that tells nothing.
#[derive(Clone, Copy, Debug)]
pub struct Seed {
    number: u64,
    log: Log,
}

impl Seed {
    /// A seed that keeps a log.
    pub const fn with_log(number: u64, log: Log) -> Self {
        Seed { number, log }
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.number
    }

    pub(super) const fn log(self) -> Log {
        self.log
    }
}

impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        Seed::with_log(number, Log::Off)
    }
}

/// Runs `scenario` with the seeds 0 to `count - 1`. One that panics is run again with a log, to print its last
/// events, and named with the command that replays it; then the test fails.
///
/// `test` is the name by which cargo knows the test, with its modules. The environment can ask for other seeds:
/// `VERBENA_SEED=7` for this one, `VERBENA_SEEDS=10000` for that number, `VERBENA_SEEDS=5000..10000` for a part of
/// them; `VERBENA_TRACE=1` prints everything that happens. Gives back how many seeds were run.
pub fn check_seeds(test: &str, count: u64, scenario: impl FnMut(Seed)) -> u64 {
    check(test, asked_seeds(count), scenario)
}

fn check(test: &str, seeds: std::ops::Range<u64>, mut scenario: impl FnMut(Seed)) -> u64 {
    let print = std::env::var("VERBENA_TRACE").is_ok_and(|value| value != "0");
    let log = if print { Log::Print } else { Log::Off };
    for number in seeds.clone() {
        let run = |log| catch_unwind(AssertUnwindSafe(|| scenario(Seed::with_log(number, log))));
        let Err(panic) = run_twice(run, log) else { continue };
        eprintln!("seed {number} fails. This replays it:\n{}", replay_command(test, number));
        resume_unwind(panic);
    }
    seeds.end.saturating_sub(seeds.start)
}

/// From this number of seeds on, tests check averages over seeds. `make test` runs 60, each commit others.
pub const MANY_SEEDS: u64 = 50;

/// Runs once, and once more with a log if that panics and kept none.
fn run_twice(mut run: impl FnMut(Log) -> std::thread::Result<()>, log: Log) -> std::thread::Result<()> {
    let first = run(log);
    if first.is_err() && log == Log::Off && run(Log::Tail).is_ok() {
        eprintln!("and does not fail when it is run again: something in it does not come from the seed");
    }
    first
}

fn asked_seeds(count: u64) -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok();
    parse_seeds(read("VERBENA_SEED").as_deref(), read("VERBENA_SEEDS").as_deref(), count)
}

fn parse_seeds(one: Option<&str>, many: Option<&str>, count: u64) -> std::ops::Range<u64> {
    let number = |text: &str| {
        text.trim()
            .parse()
            .unwrap_or_else(|_| panic!("VERBENA_SEED and VERBENA_SEEDS take numbers or N..M, not {text:?}"))
    };
    match (one, many.map(|many| many.split_once(".."))) {
        (Some(one), _) => number(one)..number(one) + 1,
        (None, Some(Some((from, to)))) => number(from)..number(to),
        (None, Some(None)) => 0..many.map_or(count, number),
        (None, None) => 0..count,
    }
}

fn replay_command(test: &str, seed: u64) -> String {
    // Cargo names the package to the tests it runs, and the test binary TARGET-HASH.
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".into());
    let binary = std::env::current_exe().unwrap_or_default();
    let stem = binary.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let target = stem.rsplit_once('-').map_or(stem.as_str(), |(target, _)| target);
    let target = if target == package.replace('-', "_") { "--lib".to_owned() } else { format!("--test {target}") };
    format!("VERBENA_SEED={seed} VERBENA_TRACE=1 cargo test -p {package} {target} {test} -- --exact --nocapture")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_can_be_asked_for() {
        assert_eq!(parse_seeds(None, None, 5), 0..5);
        assert_eq!(parse_seeds(None, Some("100"), 5), 0..100);
        assert_eq!(parse_seeds(None, Some("100..200"), 5), 100..200);
        assert_eq!(parse_seeds(Some("7"), Some("100"), 5), 7..8);
    }

    #[test]
    fn a_failing_seed_is_run_once_more_and_named() {
        let mut runs = Vec::new();
        let failure = catch_unwind(AssertUnwindSafe(|| {
            check("sim::seeds", 0..10, |seed| {
                runs.push((seed.number(), seed.log()));
                assert!(seed.number() != 3, "as intended");
            });
        }));
        assert!(failure.is_err());
        let expected = [(0, Log::Off), (1, Log::Off), (2, Log::Off), (3, Log::Off), (3, Log::Tail)];
        assert_eq!(runs, expected);
        let command = replay_command("sim::seeds", 3);
        assert!(
            command.starts_with("VERBENA_SEED=3 VERBENA_TRACE=1 cargo test -p verbena-fabric --lib sim::seeds"),
            "{command}"
        );
    }
}
