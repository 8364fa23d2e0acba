//! How loaded a machine is, from what its kernel counts.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use procfs_core::net::Snmp;
use procfs_core::{ExplicitSystemInfo, FromBufRead, FromBufReadSI, KernelStats, Meminfo};
use thiserror::Error;
use verbena_terms::{Load, Time};

/// Over how long means are taken: what was so long ago counts a third of what is now.
const MEMORY: Duration = Duration::from_secs(1);

/// What a kernel counts, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Ticks of all processors since the start.
    pub ticks: u64,
    /// Those in which they had nothing to do.
    pub idle_ticks: u64,
    /// Processors.
    pub cores: u32,
    /// Tasks that run or wait for a processor, the one that looks among them.
    pub running: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes that programs could still have.
    pub available_bytes: u64,
    /// TCP connections that are established.
    pub connections: u32,
}

/// Why there is no reading.
#[derive(Debug, Error)]
#[error("{path} does not say how the machine is: {reason}; is monitor.proc right?")]
pub struct Unreadable {
    path: String,
    reason: String,
}

impl Reading {
    /// What the kernel says there: in `stat`, `meminfo` and, where that is, `net/snmp`.
    ///
    /// # Errors
    /// Names the file.
    pub fn of(proc: &Path) -> Result<Reading, Unreadable> {
        // Only what times are divided by; the counts are as they are.
        let system =
            ExplicitSystemInfo { boot_time_secs: 0, ticks_per_second: 100, page_size: 4096, is_little_endian: true };
        let stat = parsed(proc, "stat", |file| KernelStats::from_buf_read(file, &system))?;
        let memory = parsed(proc, "meminfo", Meminfo::from_buf_read)?;
        let connections = parsed(proc, "net/snmp", Snmp::from_buf_read).map_or(0, |snmp| snmp.tcp_curr_estab);
        let all = &stat.total;
        let idle_ticks = all.idle + all.iowait.unwrap_or(0);
        // What guests had is in `user` and `nice` already.
        let others = [all.irq, all.softirq, all.steal].into_iter().flatten().sum::<u64>();
        Ok(Reading {
            ticks: all.user + all.nice + all.system + others + idle_ticks,
            idle_ticks,
            cores: stat.cpu_time.len() as u32,
            running: stat.procs_running.unwrap_or(0),
            memory_bytes: memory.mem_total,
            available_bytes: memory.mem_available.unwrap_or(memory.mem_free),
            connections: u32::try_from(connections).unwrap_or(u32::MAX),
        })
    }
}

fn parsed<T>(
    proc: &Path,
    name: &str,
    parse: impl FnOnce(BufReader<File>) -> procfs_core::ProcResult<T>,
) -> Result<T, Unreadable> {
    let path = proc.join(name);
    let refused = |reason: String| Unreadable { path: path.display().to_string(), reason };
    let file = File::open(&path).map_err(|error| refused(error.to_string()))?;
    parse(BufReader::new(file)).map_err(|error| refused(error.to_string()))
}

/// Takes readings, and says how loaded the machine is.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    /// When it was looked at last.
    looked: Option<Time>,
    /// The last reading in which time had passed by the kernel's ticks, and when that was.
    last: Option<(Time, Reading)>,
    busy: Mean,
    runnable: Mean,
}

/// A mean in which what is long ago counts less and less.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn take(&mut self, value: f64, after: Duration) {
        let weight = 1.0 - (-after.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.0 = Some(self.0.map_or(value, |mean| mean + (value - mean) * weight));
    }

    fn milli(self) -> u32 {
        (self.0.unwrap_or(0.0) * 1000.0).round() as u32
    }
}

impl Meter {
    /// One reading more. How it is by now; what the kernel does not know is left as it is by default.
    pub fn take(&mut self, reading: Reading, now: Time) -> Load {
        let Reading { ticks, idle_ticks, cores, running, memory_bytes, available_bytes, connections } = reading;
        let before = self.looked.replace(now).unwrap_or(now);
        // The task that looks is no load.
        self.runnable.take(f64::from(running.saturating_sub(1)), now.since(before));
        let (since, last) = *self.last.get_or_insert((now, reading));
        // Idle time may seem to go back where processors are counted one after the other.
        let (all, idle) = (ticks.saturating_sub(last.ticks), idle_ticks.saturating_sub(last.idle_ticks));
        if all > 0 {
            let share = 1.0 - idle.min(all) as f64 / all as f64;
            self.busy.take(share * f64::from(cores), now.since(since));
            self.last = Some((now, reading));
        }
        Load {
            cores,
            busy_milli: self.busy.milli(),
            runnable_milli: self.runnable.milli(),
            connections,
            memory_bytes,
            available_bytes,
            ..Load::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn reading(ticks: u64, idle_ticks: u64, running: u32) -> Reading {
        let (cores, memory_bytes, available_bytes, connections) = (4, 100, 50, 7);
        Reading { ticks, idle_ticks, cores, running, memory_bytes, available_bytes, connections }
    }

    #[test]
    fn busy_is_what_was_not_idle_in_between_and_who_looks_is_no_load() {
        let mut meter = Meter::default();
        let first = meter.take(reading(1_000_000, 0, 3), at(0));
        assert_eq!((first.busy_milli, first.runnable_milli), (0, 2000), "one reading says nothing of time");
        let mut load = first;
        for n in 1..=100 {
            // Of 40 ticks in 100 ms, 10 were idle on each of four processors' sum.
            load = meter.take(reading(1_000_000 + 40 * n, 10 * n, 3), at(100 * n));
        }
        assert_eq!((load.busy_milli, load.runnable_milli, load.cores), (3000, 2000, 4));
        assert_eq!((load.memory_bytes, load.available_bytes, load.connections), (100, 50, 7));
    }

    #[test]
    fn a_burst_shows_within_a_second_and_is_forgotten_within_some() {
        let mut meter = Meter::default();
        meter.take(reading(0, 0, 1), at(0));
        let mut run = |from: u64, running: u32| {
            (1..=10).map(|n| meter.take(reading(0, 0, running), at(from + 100 * n)).runnable_milli).last().unwrap()
        };
        let burst = run(0, 9);
        assert!((4_800..=5_300).contains(&burst), "1 - 1/e of 8: {burst}");
        let calm = [run(1_000, 1), run(2_000, 1), run(3_000, 1)];
        assert!(calm[0] < 2_100 && calm[2] < 300, "{calm:?}");
    }

    #[test]
    fn what_is_read_more_often_than_ticks_pass_is_not_lost() {
        let mut meter = Meter::default();
        let mut load = meter.take(reading(0, 0, 1), at(0));
        for n in 1..=1000 {
            // A tick every tenth time, never an idle one.
            load = meter.take(reading(n / 10, 0, 1), at(n));
        }
        assert_eq!(load.busy_milli, 4000);
    }

    #[test]
    fn this_machine_says_how_it_is() {
        let reading = Reading::of(Path::new("/proc")).unwrap();
        assert!(reading.cores >= 1 && reading.ticks > reading.idle_ticks && reading.running >= 1, "{reading:?}");
        assert!(reading.memory_bytes > reading.available_bytes && reading.available_bytes > 0, "{reading:?}");
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let clients: Vec<_> =
            (0..20).map(|_| std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap()).collect();
        let more = Reading::of(Path::new("/proc")).unwrap();
        assert!(more.connections >= 40, "both ends of {} connections are here: {more:?}", clients.len());
    }

    #[test]
    fn what_says_nothing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = Reading::of(directory.path()).unwrap_err().to_string();
        assert!(error.contains("stat does not say") && error.contains("monitor.proc"), "{error}");
        std::fs::write(directory.path().join("stat"), "cpu  1 2 3\n").unwrap();
        assert!(Reading::of(directory.path()).is_err());
    }
}
