//! `never-stale`: the shop behind its proxies, as processes that are killed, paused and restarted, while shoppers check every answer.
//!
//! Two shops on one database, a home beside each (the first is the keeper), and three proxies. Faults are drawn from a seed; shoppers read
//! through all proxies and write meanwhile. It fails when an answer was wrong, when too little happened, and when a process ended by
//! itself, badly or not at all. Then its files stay, and it says where.

mod faults;
mod process;
mod town;

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use verbena_shoppers::{Options, Totals, run};

use crate::faults::{Fault, Kind, Lengths};
use crate::process::{PATIENCE, Part};
use crate::town::{Fabric, Plan, Scheme, Town};

/// Kill, pause and restart the parts of a running system, and check that no answer is stale.
///
/// The exit code is 0 when every answer was one that the shop could have given and enough happened, 1 when not, 2 when it could not begin.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The interconnect.
    #[arg(long, value_enum)]
    fabric: Fabric,
    /// How updates are begun.
    #[arg(long, value_enum)]
    scheme: Scheme,
    /// How long shoppers shop.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Kills, pauses and restarts in that time.
    #[arg(long, default_value_t = 5)]
    faults: usize,
    /// What random choices begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `cluster.lease`, milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..))]
    lease_ms: u64,
    /// `pages.longest_transaction`, milliseconds: longer than pauses, which are at most 1.6 leases.
    #[arg(long, default_value_t = 3000)]
    longest_transaction_ms: u64,
    /// Milliseconds between two updates.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: u64,
    /// Readers; each has a connection, and asks again as soon as it is answered.
    #[arg(long, default_value_t = 12)]
    readers: usize,
    /// Writers, who take turns.
    #[arg(long, default_value_t = 6)]
    writers: usize,
    /// Where `verbena` and `shop` are [default: beside this program].
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Fewer checked answers are a failure.
    #[arg(long, default_value_t = 1)]
    min_answers: u64,
    /// A smaller part from a cache is a failure.
    #[arg(long, default_value_t = 0.0)]
    min_hits_percent: f64,
    /// Fewer answers within 50 ms after an update are a failure.
    #[arg(long, default_value_t = 0)]
    min_soon: u64,
    /// Fewer acknowledged updates are a failure.
    #[arg(long, default_value_t = 1)]
    min_updates: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.longest_transaction_ms <= arguments.lease_ms * 2 {
        eprintln!(
            "never-stale: --longest-transaction-ms must be more than two leases, for a pause must be shorter (rule P10)"
        );
        return ExitCode::from(2);
    }
    let there = match (arguments.fabric == Fabric::Xdp).then(town::go_apart).transpose() {
        Ok(there) => there,
        Err(reason) => {
            eprintln!("never-stale: {reason}");
            return ExitCode::from(2);
        }
    };
    let directory = match tempfile::Builder::new().prefix("never-stale.").tempdir() {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("never-stale: no directory for its files: {error}");
            return ExitCode::from(2);
        }
    };
    let told = arguments.programs.clone();
    let beside = std::env::current_exe().ok().and_then(|own| own.parent().map(PathBuf::from));
    let plan = Plan {
        fabric: arguments.fabric,
        scheme: arguments.scheme,
        lease: Duration::from_millis(arguments.lease_ms),
        longest_transaction: Duration::from_millis(arguments.longest_transaction_ms),
        programs: told.or(beside).unwrap_or_default(),
        there,
    };
    let town = match Town::start(&plan, directory.path()) {
        Ok(town) => town,
        Err(reason) => {
            eprintln!("never-stale: {reason}; its files: {}", directory.keep().display());
            return ExitCode::from(2);
        }
    };
    // One thread, as shoppers want it.
    let shopped = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(shop(&arguments, &plan, town)));
    let wrong = shopped.and_then(|seen| judge(&arguments, &seen));
    match wrong {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let (seed, files) = (arguments.seed, directory.keep());
            eprintln!("never-stale: failed with --seed {seed}: {reason}; its files: {}", files.display());
            ExitCode::FAILURE
        }
    }
}

/// What happened.
struct Seen {
    totals: Totals,
    happened: Vec<(Kind, Part)>,
}

async fn shop(arguments: &Arguments, plan: &Plan, mut town: Town) -> Result<Seen, String> {
    let shopping = Duration::from_secs(arguments.seconds);
    let lengths =
        Lengths { pause: plan.lease * 11 / 10..plan.lease * 16 / 10, down: Duration::ZERO..plan.lease * 3 / 2 };
    // At the end there is time to come back.
    let over = Duration::from_secs(1).min(shopping / 8)..shopping.saturating_sub(plan.lease * 2).max(shopping / 4);
    let faults = faults::plan(arguments.seed, town.processes.len(), arguments.faults, over, &lengths);
    let options = Options {
        read: town.proxies.clone(),
        write: town.proxies.clone(),
        readers: arguments.readers,
        writers: arguments.writers,
        every: Duration::from_millis(arguments.every_ms),
        patience: Duration::from_secs(10),
        seed: arguments.seed,
    };
    let (enough, violated) = (Rc::new(Notify::new()), Rc::new(Cell::new(false)));
    let crying = violated.clone();
    let began = Instant::now();
    let tell = |line: &verbena_shoppers::Line| eprintln!("{line}");
    let cry = move |violation: &str| {
        eprintln!("never-stale: {:.3} s: {violation}", began.elapsed().as_secs_f64());
        crying.set(true);
    };
    let happening = async {
        let happened = happen(&mut town, faults, shopping, &violated).await;
        enough.notify_one();
        happened
    };
    let (totals, happened) = tokio::join!(run(options, enough.notified(), tell, cry), happening);
    let happened = happened?;
    let totals = totals.map_err(|trouble| trouble.to_string())?;
    town.end()?;
    Ok(Seen { totals, happened })
}

/// Lets faults happen as they are due, until the time is over or something is wrong.
async fn happen(
    town: &mut Town,
    mut faults: VecDeque<Fault>,
    shopping: Duration,
    violated: &Cell<bool>,
) -> Result<Vec<(Kind, Part)>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    let mut happened = Vec::new();
    let began = Instant::now();
    // After a wrong answer the files are of more use than a longer run.
    while began.elapsed() < shopping && !violated.get() {
        town.tend()?;
        // One whose process is not there yet lets others pass. Who has only begun to live does not know yet how to end in good order.
        let ready = |fault: &Fault| {
            let process = &town.processes[fault.target];
            fault.at <= began.elapsed()
                && match fault.kind {
                    Kind::Kill | Kind::Pause => process.is_running(),
                    Kind::Restart => process.serves(),
                }
        };
        if let Some(fault) = faults.iter().position(ready).and_then(|at| faults.remove(at)) {
            let process = &mut town.processes[fault.target];
            eprintln!(
                "{:8.3} s  {:?} {} {} ms",
                began.elapsed().as_secs_f64(),
                fault.kind,
                process.name,
                fault.lasts.as_millis()
            );
            let done = match fault.kind {
                Kind::Kill => process.kill(fault.lasts),
                Kind::Pause => process.pause(fault.lasts),
                Kind::Restart => process.restart(),
            };
            done.map_err(|error| format!("{}: {error}", process.name))?;
            happened.push((fault.kind, process.part));
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
            _ = interrupted.recv() => return Err("interrupted".into()),
            _ = terminated.recv() => return Err("terminated".into()),
        }
    }
    let until = Instant::now() + PATIENCE;
    while !town.all_serve() {
        town.tend()?;
        if Instant::now() > until {
            return Err("not everybody came back".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(happened)
}

/// Says what was counted, and whether it was enough and right.
fn judge(arguments: &Arguments, seen: &Seen) -> Result<(), String> {
    let Seen { totals, happened } = seen;
    let percent = if totals.answers == 0 { 0.0 } else { totals.hits as f64 * 100.0 / totals.answers as f64 };
    let of = |kind: Kind| happened.iter().filter(|(other, _)| *other == kind).count();
    let at = |part: Part| happened.iter().filter(|(_, other)| *other == part).count();
    let name = |value: Option<PossibleValue>| value.map_or_else(String::new, |value| value.get_name().to_owned());
    println!(
        "counted: fabric={} scheme={} seed={} seconds={:.0} answers={} hits={} hits%={percent:.1} soon={} soon_hits={} updates={} \
         kills={} pauses={} restarts={} at_proxies={} at_shops={} at_homes={} at_keeper={} errors={} \
         stale={} backwards={} mixed={} malformed={}",
        name(arguments.fabric.to_possible_value()),
        name(arguments.scheme.to_possible_value()),
        arguments.seed,
        totals.seconds,
        totals.answers,
        totals.hits,
        totals.soon_after_update,
        totals.hits_soon_after_update,
        totals.updates.acknowledged,
        of(Kind::Kill),
        of(Kind::Pause),
        of(Kind::Restart),
        at(Part::Proxy),
        at(Part::Shop),
        at(Part::Home),
        at(Part::Keeper),
        totals.errors.sum(),
        totals.stale,
        totals.backwards,
        totals.mixed,
        totals.malformed,
    );
    if totals.violations() > 0 {
        return Err(format!("{} answers were wrong", totals.violations()));
    }
    let enough = [
        ("answers", totals.answers, arguments.min_answers),
        ("answers within 50 ms after an update", totals.soon_after_update, arguments.min_soon),
        ("updates", totals.updates.acknowledged, arguments.min_updates),
        ("kills, pauses and restarts", happened.len() as u64, arguments.faults as u64),
    ];
    for (what, counted, least) in enough {
        if counted < least {
            return Err(format!("too little happened: {counted} {what}, and {least} were wanted"));
        }
    }
    if percent < arguments.min_hits_percent {
        let least = arguments.min_hits_percent;
        return Err(format!("too little happened: {percent:.1} % hits, and {least} % were wanted"));
    }
    Ok(())
}
