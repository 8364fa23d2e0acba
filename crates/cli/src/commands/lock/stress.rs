//! `verbena lock stress`: how fast a lock goes round, and whether it is ever held by two.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use verbena_bench::jains_index;
use verbena_client::Locks;
use verbena_client::wire::LockMode;
use verbena_metrics::Latency;
use verbena_terms::Lapse;

use crate::commands::reach::Reach;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// A writer counts as this many readers.
const WRITER: i64 = 1 << 32;
/// The longest wait for one lock.
const AT_MOST: Duration = Duration::from_secs(60);

/// Take and release a lock again and again, from several connections to this machine's node at once, and report how fast that goes.
///
/// Each connection checks each time that no other of them holds the lock where it must not, and that the token has grown. Run it at several nodes at once to
/// see the lock go from machine to machine; each run checks its own connections. Times are those that a client waits: through the node's helper, to the lock's
/// home and back.
///
/// Exit code 0 if no two held the lock that must not, and no lock was lost; 1 otherwise.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena lock stress
  verbena lock stress busy --clients 8 --shared 90 --hold 1ms --seconds 10 --json")]
pub struct Command {
    /// The lock's name.
    #[arg(value_name = "NAME", default_value = "verbena-stress")]
    name: OsString,
    /// How many connections take it at the same time, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// How many of a hundred times it is taken in shared (reader) mode.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    shared: u8,
    /// How long it is held each time.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(0), value_parser = Lapse::or_seconds)]
    hold: Lapse,
    /// How long to go on, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What came of it.
#[derive(Serialize)]
struct Report {
    seconds: f64,
    /// Times that it was taken.
    taken: u64,
    per_second: f64,
    /// From asking to having it, microseconds.
    median_us: f64,
    p99_us: f64,
    longest_us: f64,
    /// Jain's index of how often each client had it: 1 if all as often, 1/clients if one alone.
    fairness: f64,
    /// Times that a client was beside a writer, or a token had not grown: 0.
    broken: u64,
    /// Times that it was lost while it was held.
    lost: u64,
}

/// What the clients of one run share.
struct Shared {
    start: Barrier,
    holders: AtomicI64,
    /// The largest token of a writer.
    token: AtomicU64,
    broken: AtomicU64,
    lost: AtomicU64,
    waits: Latency,
}

impl Command {
    /// Takes and releases, and says how that went.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let clients = usize::from(self.clients);
        let connect = |_| self.reach.by(file, Locks::connect);
        let connections: Vec<Locks> = (0..clients).map(connect).collect::<Result<_>>()?;
        let shared = Shared {
            start: Barrier::new(clients),
            holders: AtomicI64::new(0),
            token: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            waits: Latency::new(),
        };
        let began = Instant::now();
        let counts: Vec<verbena_client::Result<(u64, Duration)>> = std::thread::scope(|scope| {
            let threads = connections.into_iter().enumerate().map(|(nth, locks)| {
                let (shared, command) = (&shared, &self);
                scope.spawn(move || command.client(nth, locks, shared))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("invariant: a client does not panic")).collect()
        });
        let seconds = began.elapsed().as_secs_f64();
        let counts: Vec<(u64, Duration)> = counts.into_iter().collect::<verbena_client::Result<_>>()?;
        let report = self.report(&shared, &counts, seconds);
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &report)?;
        } else {
            let Report { taken, per_second, median_us, p99_us, longest_us, fairness, broken, lost, .. } = &report;
            writeln!(out, "taken    {taken} times in {seconds:.1} s, {per_second:.0} a second")?;
            writeln!(out, "wait     median {median_us:.1} us, p99 {p99_us:.1} us, longest {longest_us:.0} us")?;
            writeln!(out, "fairness {fairness:.3} (Jain's index over {clients} clients)")?;
            writeln!(out, "broken   {broken}, lost {lost}")?;
        }
        if report.broken == 0 && report.lost == 0 { Ok(()) } else { Err(Error::No) }
    }

    fn client(&self, nth: usize, mut locks: Locks, shared: &Shared) -> verbena_client::Result<(u64, Duration)> {
        shared.start.wait();
        let until = Instant::now() + Duration::from_secs(self.seconds.into());
        let (mut taken, mut longest, mut dice) = (0, Duration::ZERO, nth as u64 + 1);
        while Instant::now() < until {
            // Knuth's multiplier for 64 bits: which is shared need not be chance, only mixed.
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mode = if (dice >> 33) % 100 < self.shared.into() { LockMode::Shared } else { LockMode::Exclusive };
            let asked = Instant::now();
            let hold = locks.acquire(self.name.as_bytes(), mode, Some(AT_MOST))?;
            let waited = asked.elapsed();
            shared.waits.record(waited);
            longest = longest.max(waited);
            taken += 1;
            shared.held(mode, hold.token());
            if !self.hold.0.is_zero() {
                std::thread::sleep(self.hold.0);
            }
            shared.released(mode);
            if matches!(locks.release(hold), Err(verbena_client::Error::Lost)) {
                shared.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok((taken, longest))
    }

    fn report(&self, shared: &Shared, counts: &[(u64, Duration)], seconds: f64) -> Report {
        let taken: u64 = counts.iter().map(|(taken, _)| taken).sum();
        let waits = shared.waits.snapshot();
        let quantile = |q| waits.quantile(q).unwrap_or_default().as_secs_f64() * 1e6;
        let longest = counts.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
        Report {
            seconds,
            taken,
            per_second: taken as f64 / seconds,
            median_us: quantile(0.5),
            p99_us: quantile(0.99),
            longest_us: longest.as_secs_f64() * 1e6,
            fairness: jains_index(counts.iter().map(|(taken, _)| *taken)),
            broken: shared.broken.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    fn held(&self, mode: LockMode, token: u64) {
        let is_right = match mode {
            LockMode::Shared => {
                self.holders.fetch_add(1, Ordering::SeqCst) < WRITER && token > self.token.load(Ordering::SeqCst)
            }
            LockMode::Exclusive => {
                let is_alone = self.holders.fetch_add(WRITER, Ordering::SeqCst) == 0;
                token > self.token.fetch_max(token, Ordering::SeqCst) && is_alone
            }
        };
        if !is_right {
            self.broken.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn released(&self, mode: LockMode) {
        let weight = match mode {
            LockMode::Shared => 1,
            LockMode::Exclusive => WRITER,
        };
        self.holders.fetch_sub(weight, Ordering::SeqCst);
    }
}
