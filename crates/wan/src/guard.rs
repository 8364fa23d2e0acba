//! The guard: a process that ends what runs in the sites of a WAN when the process that made them ends, however it
//! ends. A process of its own, because a killed one does nothing any more. The signal that a parent's death sends
//! reaches its children alone, and not what these have started; and a network exists as long as a process is in it.
//!
//! It holds the sites until it ends, because the number of a network that is gone is used again.

use std::collections::BTreeSet;
use std::fs::{DirEntry, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, open, openat, stat, statat};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};

/// Among the arguments of every process that is a guard: it is where a site of another WAN is its place, and ends by itself.
pub const GUARD_ARGUMENT: &str = "--guard-networks";

/// How long each process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// Longer than a process takes to be gone that was killed.
const GONE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A network: device and inode of the file that stands for it (namespaces(7)).
type Network = (u64, u64);

fn network(file: &Stat) -> Network {
    (file.st_dev, file.st_ino)
}

/// Plays the guard in a process that `maker` has started for it, with these descriptors of its sites: waits until that
/// has ended, or until there is something to read on standard input, such as its end when no process has its other
/// side. During `first`, processes that were asked to end in another way may do so. After that the guard asks the
/// processes in the sites to end (SIGTERM), and kills those that are left after three seconds. `watches` is called once
/// nothing of that can fail any more.
///
/// # Errors
/// What the system said: no process got a signal.
pub fn guard(maker: u32, first: Duration, sites: &[u32], watches: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let held = |number: &u32| Ok(network(&stat(format!("/proc/self/fd/{number}"))?));
    let networks = sites.iter().map(held).collect::<io::Result<BTreeSet<Network>>>()?;
    wait(maker, watches)?;
    // A process that was on the way there has arrived by then.
    sleep(first);
    if all_in(&networks, Signal::TERM) && are_left(&networks, GRACE) {
        let began = Instant::now();
        while all_in(&networks, Signal::KILL) && began.elapsed() < GONE {
            sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// Until there is something to read, or the maker has ended: a process that it has forked may hold the other end of the pipe.
fn wait(maker: u32, watches: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let maker = Pid::from_raw(maker.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
    let process = match pidfd_open(maker, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    // Another one may have had its number since; a child of that one this is not.
    if getppid() != Some(maker) {
        return Ok(());
    }
    watches()?;
    let input = io::stdin();
    let mut ends = [PollFd::new(&input, PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
    loop {
        match poll(&mut ends, None) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return Ok(polled.map(drop)?),
        }
    }
}

/// Whether a process is left when `after` has passed.
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

/// Sends the signal to all processes in the networks. Returns whether there were any.
fn all_in(networks: &BTreeSet<Network>, signal: Signal) -> bool {
    let inside = inside(networks);
    for process in &inside {
        // A process that has ended needs no signal.
        let _ = pidfd_send_signal(process, signal);
    }
    !inside.is_empty()
}

/// The processes that are in one of these networks, but for guards of others, which end by themselves: by their
/// directories in /proc, each of which is one process's for good, even if another process has its number later. One
/// that has ended and was not yet waited for is in no network.
fn inside(networks: &BTreeSet<Network>) -> Vec<OwnedFd> {
    let found = |entry: DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let process =
            open(format!("/proc/{number}"), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        let is_there = networks.contains(&network(&statat(&process, "ns/net", AtFlags::empty()).ok()?));
        (is_there && !is_guard(&process)).then_some(process)
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(found).collect()
}

fn is_guard(process: &OwnedFd) -> bool {
    let mut words = vec![];
    let read = openat(process, "cmdline", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|file| File::from(file).read_to_end(&mut words));
    read.is_ok() && words.split(|byte| *byte == 0).any(|word| word == GUARD_ARGUMENT.as_bytes())
}
