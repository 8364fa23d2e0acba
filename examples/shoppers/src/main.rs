//! `shoppers`: readers and writers of the shop, who check every answer.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use verbena_shoppers::{Door, Line, Options, Totals, run};

/// Read and change the shop through its proxies, and check every answer.
///
/// Ends on its own after --seconds, or on SIGINT and SIGTERM, and says what was counted. The exit code is 0 when every answer was one
/// that the shop could have given, 1 when one was not or when too little happened, 2 when it could not begin.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Where readers go, in turn.
    #[arg(required = true, value_name = "URL", value_parser = address)]
    proxies: Vec<SocketAddr>,
    /// Where writers go, in turn [default: where readers go].
    #[arg(long, value_name = "URL", value_parser = address)]
    write_through: Vec<SocketAddr>,
    /// Readers; each has a connection, and asks again as soon as it is answered.
    #[arg(long, default_value_t = 12)]
    readers: usize,
    /// Writers, who take turns.
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Milliseconds between two updates.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    every_ms: u64,
    /// Milliseconds that a request may take.
    #[arg(long, default_value_t = 10_000)]
    patience_ms: u64,
    /// End after so many seconds; 0: on a signal.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// What random choices begin with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print what was counted as one line of JSON on standard output; each second's line then goes to standard error.
    #[arg(long)]
    json: bool,
    /// Fewer checked answers are a failure.
    #[arg(long, default_value_t = 1)]
    min_answers: u64,
    /// Fewer answers from a cache are a failure.
    #[arg(long, default_value_t = 0)]
    min_hits: u64,
    /// Fewer acknowledged updates are a failure.
    #[arg(long, default_value_t = 1)]
    min_updates: u64,
}

fn address(url: &str) -> Result<SocketAddr, String> {
    let address = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    address.parse().map_err(|_| format!("{url} is not http://ADDRESS:PORT with an address in numbers"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match shop(&arguments) {
        Ok(totals) => judge(&arguments, &totals),
        Err(error) => {
            eprintln!("shoppers: {error}");
            ExitCode::from(2)
        }
    }
}

fn shop(arguments: &Arguments) -> Result<Totals, Box<dyn std::error::Error>> {
    let read = arguments.proxies.clone();
    let write = if arguments.write_through.is_empty() { read.clone() } else { arguments.write_through.clone() };
    let doors = |addresses: Vec<SocketAddr>| addresses.into_iter().map(Door::from).collect();
    let options = Options {
        read: doors(read),
        write: doors(write),
        parts_every: 0,
        readers: arguments.readers,
        writers: arguments.writers,
        every: Duration::from_millis(arguments.every_ms),
        patience: Duration::from_millis(arguments.patience_ms),
        seed: arguments.seed,
    };
    // One thread: the order of sending and receiving is the order of the program.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let json = arguments.json;
    // Whoever reads may have gone: the checking goes on.
    let tell = move |line: &Line| {
        let _ = if json { writeln!(io::stderr(), "{line}") } else { writeln!(io::stdout(), "{line}") };
    };
    runtime.block_on(async {
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = async {
            let over = async {
                match arguments.seconds {
                    0 => std::future::pending().await,
                    seconds => tokio::time::sleep(Duration::from_secs(seconds)).await,
                }
            };
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
                () = over => {}
            }
        };
        Ok(run(options, stop, tell, |violation| eprintln!("shoppers: {violation}")).await?)
    })
}

fn judge(arguments: &Arguments, totals: &Totals) -> ExitCode {
    if arguments.json {
        println!("{}", serde_json::to_string(totals).expect("invariant: numbers and names make JSON"));
    } else {
        println!(
            "{} answers checked, {} of them hits, {} within 50 ms after an update; {} updates; {} errors\n\
             stale {}, backwards {}, mixed {}, malformed {}",
            totals.answers,
            totals.hits,
            totals.soon_after_update,
            totals.updates.acknowledged,
            totals.errors.sum(),
            totals.stale,
            totals.backwards,
            totals.mixed,
            totals.malformed,
        );
    }
    let mut passed = totals.violations() == 0;
    for (what, counted, least) in [
        ("answers", totals.answers, arguments.min_answers),
        ("hits", totals.hits, arguments.min_hits),
        ("updates", totals.updates.acknowledged, arguments.min_updates),
    ] {
        if counted < least {
            eprintln!("shoppers: too little happened: {counted} {what}, and {least} were wanted");
            passed = false;
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
