//! What an interface receives, done on a core of one's choice: by threads of the kernel (threaded NAPI) that stay there, with a real-time
//! priority, so that they go before whatever else the core has to run.

use std::process::Command;

use rustix::process::Pid;
use rustix::thread::sched_setaffinity;

use crate::cores::only;
use crate::cpu;

/// Before threads of processes, and behind the kernel's own watchdogs.
const PRIORITY: &str = "50";

/// The threads that do what an interface receives.
pub(super) struct Receivers(Vec<Pid>);

impl Receivers {
    /// Makes them for `interface`, of this thread's network, and keeps them on `core`. The interface has a program already: a virtual one polls
    /// only then.
    pub(super) fn on_core(interface: &str, core: usize) -> Result<Self, String> {
        // What /sys shows is of the network in which it was mounted. This one is seen by the command alone, and goes
        // with it.
        let switch = format!("mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/{interface}/threaded");
        run("unshare", &["--mount", "sh", "-c", &switch])?;
        let found = threads_of(interface)?;
        let core = only(core)?;
        for thread in &found {
            let number = thread.as_raw_pid().to_string();
            sched_setaffinity(Some(*thread), &core)
                .map_err(|error| format!("the kernel's thread {number} cannot be kept on a core: {error}"))?;
            run("chrt", &["--fifo", "--pid", PRIORITY, &number])?;
        }
        Ok(Receivers(found))
    }

    /// Processor time that they took so far, in nanoseconds. Of those that are gone, none.
    pub(super) fn cpu_ns(&self) -> u64 {
        let taken = |thread: &Pid| cpu::taken_ns(thread.as_raw_pid().cast_unsigned()).ok();
        self.0.iter().filter_map(taken).sum()
    }
}

fn threads_of(interface: &str) -> Result<Vec<Pid>, String> {
    let named = format!("napi/{interface}-");
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let threads: Vec<Pid> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            // Others end while they are looked at.
            let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            name.starts_with(&named).then(|| Pid::from_raw(number))?
        })
        .collect();
    if threads.is_empty() {
        return Err(format!(
            "the kernel's threads {named}* are not to be seen: /proc shows them outside of containers only"
        ));
    }
    Ok(threads)
}

/// Runs a command of util-linux.
fn run(command: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(command)
        .args(words)
        .output()
        .map_err(|error| format!("the command {command} (Debian: util-linux): {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command} {}: {}", words.join(" "), said.trim()))
}
