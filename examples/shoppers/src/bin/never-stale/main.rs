//! `never-stale`: the shop behind its proxies, as processes that are killed, paused and restarted, while shoppers check every answer.
//!
//! Two shops on one database, a home for each (the first is the keeper), and three proxies. Faults are drawn from a seed; shoppers read
//! through all proxies and write meanwhile. It fails when an answer was wrong, when too little happened, and when a process ended by
//! itself, badly or not at all. Then its files stay, and it says where.
//!
//! With `--network` each of them is in a network of its own, members are cut off from each other too, and one fault waits until service
//! is back after the one before: how long that takes is measured, and must not be too long.

mod ask;
mod back;
mod campaign;
mod deeds;
mod doors;
mod etcd;
mod faults;
mod judge;
mod network;
mod process;
mod told;
mod town;

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::sync::Notify;
use verbena_shoppers::{Options, Totals, run};

use crate::back::Reading;
use crate::campaign::Times;
use crate::deeds::{All, Order};
use crate::faults::{Fault, Kind, Lengths};
use crate::judge::{Happened, judge};
use crate::network::Network;
use crate::process::{PATIENCE, Part};
use crate::told::Told;
use crate::town::{Cluster, Fabric, Ground, Plan, Scheme, Town};

/// With `--mixed`: of so many pages one is asked for in two parts.
const PARTS_EVERY: u64 = 4;

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
    /// With --fabric verbs: addresses of two RDMA devices, for proxies and for all others; those of scripts/rdma-vm unless told otherwise.
    #[arg(long, num_args = 2, value_names = ["ADDRESS", "ADDRESS"], default_values = ["10.77.0.1", "10.77.0.2"])]
    at: Vec<Ipv4Addr>,
    /// Give each process a network of its own, and cut members off from each other. For root, and tcp.
    #[arg(long)]
    network: bool,
    /// Standard mode, TLS, HTTP/2 and parts, too: the front page and products go by lifetimes and come in slices, two of the proxies take TLS alone, half of their readers
    /// ask by HTTP/2, and readers ask for one page in four in two parts. With --scheme dependency-lists, without --network.
    #[arg(long, conflicts_with = "network")]
    mixed: bool,
    /// Who numbers the views. etcd is found by its name, and its members are killed, paused and cut off too, with --network.
    #[arg(long, value_enum, default_value = "static")]
    cluster: Cluster,
    /// How long shoppers shop.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Kills, pauses and restarts in that time. With --network there are as many faults as come to an end in it.
    #[arg(long, default_value_t = 5, conflicts_with = "network")]
    faults: usize,
    /// With --network: fewer faults are a failure.
    #[arg(long, default_value_t = 1, requires = "network")]
    min_faults: usize,
    /// With --network: service that is back later than so many leases after a fault is a failure. Where a home holds what a dead updater left
    /// open (rule P6), hits may be later by a lease and twice the longest transaction, and updates may not.
    #[arg(long, default_value_t = 3.0, requires = "network")]
    max_back_leases: f64,
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
    /// With --fabric verbs: fewer messages by adapters, of the nodes as they are at the end, are a failure.
    #[arg(long, default_value_t = 0)]
    min_by_adapters: u64,
}

impl Arguments {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    fn longest_transaction(&self) -> Duration {
        Duration::from_millis(self.longest_transaction_ms)
    }

    fn least_faults(&self) -> usize {
        if self.network { self.min_faults } else { self.faults }
    }

    fn max_back(&self) -> Duration {
        self.lease().mul_f64(self.max_back_leases)
    }

    /// Who ends a bracket may end with its updater's machine: it is given up after the longest transaction, and is open as long again.
    fn max_back_held(&self) -> Duration {
        self.max_back() + self.lease() + self.longest_transaction() * 2
    }

    fn is_too_late(&self, reading: &Reading) -> bool {
        let max = self.max_back();
        reading.back - reading.held > max || reading.back > self.max_back_held() || reading.accepted > max
    }

    /// The networks that the system is in.
    fn ground(&self) -> Result<Ground, String> {
        let needs = "networks of their own take CAP_SYS_ADMIN, CAP_NET_ADMIN and the command ip";
        match (self.network, self.fabric, self.cluster) {
            (true, Fabric::Tcp, _) => Network::new().map(Ground::Many).map_err(|error| format!("{error}; {needs}")),
            (true, ..) => Err("--network goes with --fabric tcp".into()),
            (false, _, Cluster::Etcd) => Err("--cluster etcd goes with --network".into()),
            (false, Fabric::Verbs, _) => Ok(Ground::Devices([self.at[0], self.at[1]])),
            (false, Fabric::Xdp, _) => town::go_apart().map(Ground::Two),
            (false, Fabric::Shm | Fabric::Tcp, _) => Ok(Ground::One),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.longest_transaction_ms <= arguments.lease_ms * 2 {
        eprintln!(
            "never-stale: --longest-transaction-ms must be more than two leases, for a pause must be shorter (rule P10)"
        );
        return ExitCode::from(2);
    }
    if arguments.mixed && arguments.scheme != Scheme::DependencyLists {
        eprintln!(
            "never-stale: --mixed goes with --scheme dependency-lists: standard pages are found by what they name"
        );
        return ExitCode::from(2);
    }
    let ground = match arguments.ground() {
        Ok(ground) => ground,
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
        cluster: arguments.cluster,
        lease: arguments.lease(),
        longest_transaction: arguments.longest_transaction(),
        programs: told.or(beside).unwrap_or_default(),
        mixed: arguments.mixed,
    };
    let town = match Town::start(&plan, ground, directory.path()) {
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
        .and_then(|runtime| runtime.block_on(shop(&arguments, town)));
    match shopped {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let (seed, files) = (arguments.seed, directory.keep());
            eprintln!("never-stale: failed with --seed {seed}: {reason}; its files: {}", files.display());
            ExitCode::FAILURE
        }
    }
}

/// Shops, lets happen what is to happen, and judges.
async fn shop(arguments: &Arguments, mut town: Town) -> Result<(), String> {
    let options = Options {
        read: town.doors.clone(),
        write: town.doors.clone(),
        parts_every: if arguments.mixed { PARTS_EVERY } else { 0 },
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
    let mut happened = Happened::default();
    let happening = async {
        let came_back = if arguments.network {
            one_by_one(arguments, &mut town, &violated, &mut happened).await
        } else {
            as_planned(arguments, &mut town, &violated, &mut happened).await
        };
        happened.by_adapters = town.messages_by_adapters().await;
        enough.notify_one();
        came_back
    };
    let (totals, came_back) = tokio::join!(run(options, enough.notified(), tell, cry), happening);
    let totals: Totals = totals.map_err(|trouble| trouble.to_string())?;
    let judged = judge(arguments, &totals, &happened);
    came_back.and(judged)?;
    town.end()
}

/// One fault after the other, each measured.
async fn one_by_one(
    arguments: &Arguments,
    town: &mut Town,
    violated: &Cell<bool>,
    happened: &mut Happened,
) -> Result<(), String> {
    let (nodes, etcd) = (town.nodes(), town.all_of(Part::Etcd));
    // Who cannot reach the only keeper is cut off, which is another fault.
    let first = if arguments.cluster == Cluster::Static { 1 } else { 0 };
    let numbers: Vec<u8> = nodes.iter().skip(first).map(|(_, number)| *number).collect();
    let later = |one: u8| numbers.iter().filter(move |&&other| other > one).map(move |&other| (one, other));
    let pairs = numbers.iter().flat_map(|&one| later(one)).collect();
    let processes = (0..town.processes.len()).filter(|at| !etcd.contains(at)).collect();
    let all = All { processes, nodes, pairs, etcd };
    let order = Order::new(arguments.seed, all, arguments.lease());
    let times = Times {
        lease: arguments.lease(),
        shopping: Duration::from_secs(arguments.seconds),
        at_most: arguments.max_back_held() * 2,
    };
    campaign::run(town, order, &times, violated, happened).await
}

/// Faults as they were planned, and what had to come back.
async fn as_planned(
    arguments: &Arguments,
    town: &mut Town,
    violated: &Cell<bool>,
    happened: &mut Happened,
) -> Result<(), String> {
    let (shopping, lease) = (Duration::from_secs(arguments.seconds), arguments.lease());
    let lengths = Lengths { pause: lease * 11 / 10..lease * 16 / 10, down: Duration::ZERO..lease * 3 / 2 };
    // At the end there is time to come back.
    let over = Duration::from_secs(1).min(shopping / 8)..shopping.saturating_sub(lease * 2).max(shopping / 4);
    let faults = faults::plan(arguments.seed, town.processes.len(), arguments.faults, over, &lengths);
    happen(town, faults, shopping, violated, happened).await
}

/// Lets faults happen as they are due, until the time is over or something is wrong.
async fn happen(
    town: &mut Town,
    mut faults: VecDeque<Fault>,
    shopping: Duration,
    violated: &Cell<bool>,
    happened: &mut Happened,
) -> Result<(), String> {
    let mut told = Told::new()?;
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
            happened.done.push((fault.kind.name(), process.part));
        }
        told.nothing_for(Duration::from_millis(5)).await?;
    }
    let until = Instant::now() + PATIENCE;
    while !town.all_serve() {
        town.tend()?;
        if Instant::now() > until {
            return Err("not everybody came back".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
