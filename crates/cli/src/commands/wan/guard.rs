//! Who sees to it that what runs in the sites of a WAN ends with the process that made them, however that ends: a process of its own, for one that is
//! killed does nothing any more. The signal that a parent's death sends reaches its children alone, and not what these have started; and a network is
//! there for as long as somebody is in it.
//!
//! It holds the sites until it ends: the number of a network that is gone is the next one's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use verbena_wan::Wan;

use crate::commands::child::{Watch, system};
use crate::error::Result;

/// What it is asked for by.
pub const ARGUMENT: &str = "--guard-networks";

/// How long whoever is there has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// Longer than a process takes to be gone that was killed.
const GONE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A network: device and inode of the file that stands for it (namespaces(7)).
type Network = (u64, u64);

/// The process, as who starts it has it.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Of all sites. When this process has ended, whoever is there has `first` to end before anybody is told to.
    pub fn start(wan: &Wan, first: Duration) -> Result<Self> {
        let sites = wan.plan().sites.iter().map(|site| Ok(wan.site(&site.name)?.as_fd()));
        let sites = sites.collect::<Result<Vec<BorrowedFd<'_>>>>()?;
        let numbers: Vec<RawFd> = sites.iter().map(AsRawFd::as_raw_fd).collect();
        // This program, also if there is another one by now where it was started from.
        let mut process = Process::new("/proc/self/exe");
        process
            .arg0("verbena")
            .arg(ARGUMENT)
            .arg(first.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        process.args(numbers.iter().map(RawFd::to_string));
        let before = move || {
            // What the terminal says is not for it, nor what is said to all of a group.
            setsid()?;
            for number in &numbers {
                // SAFETY: the process that is forked has all that this one has open, and `wan` keeps these until it has been.
                fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: setsid(2) and fcntl(2) take no lock and allocate nothing.
        unsafe { process.pre_exec(before) };
        Ok(Guard(process.spawn().map_err(system("start the process that watches this one"))?))
    }

    /// Ends what still runs there, and returns when it has.
    pub fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        self.0.wait().map(drop).map_err(system("watch the process that watches this one"))
    }
}

/// Plays the guard, which is told what [`Guard::start`] tells it: waits until nobody has the other end of its standard input, and ends who is there.
pub fn serve(told: &[OsString]) -> ExitCode {
    let network = |number: &OsString| {
        let number: u32 = number.to_str()?.parse().ok()?;
        let network = std::fs::metadata(format!("/proc/self/fd/{number}")).ok()?;
        Some((network.dev(), network.ino()))
    };
    let read = |(first, networks): (&OsString, &[OsString])| {
        let networks = networks.iter().map(network).collect::<Option<BTreeSet<Network>>>()?;
        Some((Duration::from_millis(first.to_str()?.parse().ok()?), networks))
    };
    let Some((first, networks)) = told.split_first().and_then(read) else { return ExitCode::from(2) };
    // Who ends all that bears this program's name, or all that is in a network where another WAN was made, does not end this.
    let _heard = Watch::new();
    let mut nothing = [0];
    while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
    // Whoever was on the way there has arrived by then.
    sleep(first);
    if all_in(&networks, Signal::TERM) && are_left(&networks, GRACE) {
        let began = Instant::now();
        while all_in(&networks, Signal::KILL) && began.elapsed() < GONE {
            sleep(LOOK_EVERY);
        }
    }
    ExitCode::SUCCESS
}

/// Whether somebody is there after so long.
fn are_left(networks: &BTreeSet<Network>, after: Duration) -> bool {
    let began = Instant::now();
    loop {
        let is_empty = inside(networks).is_empty();
        if is_empty || began.elapsed() >= after {
            return !is_empty;
        }
        sleep(LOOK_EVERY);
    }
}

/// Sends it to all that are there; whether there was anybody.
fn all_in(networks: &BTreeSet<Network>, signal: Signal) -> bool {
    let inside = inside(networks);
    for process in &inside {
        // Whoever has ended needs none.
        let _ = pidfd_send_signal(process, signal);
    }
    !inside.is_empty()
}

/// The processes that are in one of these networks, but for guards of others, which end by themselves. One that has ended, and that nobody has waited for
/// yet, is in none.
fn inside(networks: &BTreeSet<Network>) -> Vec<OwnedFd> {
    let is_there = |pid: i32| {
        let network = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        network.is_ok_and(|network| networks.contains(&(network.dev(), network.ino())))
    };
    let found = |name: OsString| {
        let pid: i32 = name.to_str()?.parse().ok()?;
        let process = is_there(pid).then(|| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok())??;
        let is_guard = std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words.split(|byte| *byte == 0).nth(1) == Some(ARGUMENT.as_bytes()));
        // The number may be another's by now: it is this one's, if it was there when the descriptor was open.
        (!is_guard && is_there(pid)).then_some(process)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| found(entry.file_name())).collect()
}
