//! Limits, clocks and directories.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_getres};
use verbena_terms::{BootClock, Clock};

use super::Check;
use crate::config::Config;

/// Below this a helper with its clients can run out of descriptors: each takes three.
const ENOUGH_FILES: u64 = 4096;
/// Below this an adapter cannot pin its memory.
const ENOUGH_LOCKED: u64 = 64 << 20;

pub(super) fn checks(config: &Config) -> Vec<Check> {
    let mut checks = vec![cores(), kernel(), open_files(), locked_memory(), boot_clock()];
    let settings = config.settings();
    checks.push(match settings.socket() {
        Ok(socket) => directory("runtime directory", socket.directory(), true),
        Err(error) => Check::missing("runtime directory", error.to_string(), "Set node.runtime"),
    });
    checks.push(match settings.state_directory() {
        Ok(state) => directory("state directory", &state, false),
        Err(error) => Check::missing("state directory", error.to_string(), "Set node.state"),
    });
    checks
}

fn cores() -> Check {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => Check::good("cores", cores.to_string()),
        Ok(_) => Check::fair("cores", "1", "With two, a program and its helper do not take turns"),
        Err(error) => Check::fair("cores", error.to_string(), "The number of cores cannot be told"),
    }
}

fn kernel() -> Check {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    Check::good("kernel", format!("{} {} {}", text(name.sysname()), text(name.release()), text(name.machine())))
}

fn open_files() -> Check {
    let most = getrlimit(Resource::Nofile).current;
    let found = most.map_or_else(|| "unlimited".into(), |most| most.to_string());
    match most {
        Some(most) if most < ENOUGH_FILES => {
            Check::fair("open files", found, format!("ulimit -n {ENOUGH_FILES} or more"))
        }
        _ => Check::good("open files", found),
    }
}

fn locked_memory() -> Check {
    let most = getrlimit(Resource::Memlock).current;
    let found = most.map_or_else(|| "unlimited".into(), |bytes| format!("{} KiB", bytes / 1024));
    match most {
        Some(bytes) if bytes < ENOUGH_LOCKED => {
            Check::fair("locked memory", found, "Only RDMA adapters need more: ulimit -l unlimited")
        }
        _ => Check::good("locked memory", found),
    }
}

fn boot_clock() -> Check {
    let resolution = clock_getres(ClockId::Boottime);
    let before = BootClock.now();
    let found = format!("{before} since the start, steps of {} ns", resolution.tv_nsec);
    if BootClock.now() < before {
        return Check::missing("CLOCK_BOOTTIME", "it goes back", "Leases rest on it: another kernel, or hypervisor");
    }
    if resolution.tv_sec > 0 || resolution.tv_nsec > 1_000_000 {
        return Check::fair("CLOCK_BOOTTIME", found, "A kernel with high-resolution timers");
    }
    Check::good("CLOCK_BOOTTIME", found)
}

/// A directory, or what is above it where it is not made yet.
fn directory(what: &'static str, path: &Path, private: bool) -> Check {
    let mut there = path;
    while !there.exists() {
        match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => there = parent,
            _ => there = Path::new("."),
        }
    }
    let made = if there == path { "" } else { ", made when it is needed" };
    if let Err(error) = rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        return Check::missing(what, format!("{}: {error}", there.display()), "A directory of this user");
    }
    match fs::metadata(there) {
        Ok(found) if private && made.is_empty() && found.mode() & 0o022 != 0 => Check::missing(
            what,
            format!("{}: others may write into it", path.display()),
            format!("chmod 700 {}", path.display()),
        ),
        Ok(_) => Check::good(what, format!("{}{made}", path.display())),
        Err(error) => Check::missing(what, format!("{}: {error}", there.display()), "A directory of this user"),
    }
}
