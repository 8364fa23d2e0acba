//! What the numbers belong to: the machine that they were measured on.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// A machine, as far as it matters for its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: u32,
    /// Whether it is a virtual machine, as the processor says.
    pub virtual_machine: bool,
    /// Main memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel, by name and release.
    pub kernel: String,
    /// The processor's architecture.
    pub architecture: String,
    /// How many threads wanted to run in the minute before the experiment, on average: near 0 on a quiet machine.
    pub load: f64,
}

impl Machine {
    /// The one this runs on. What it does not tell stays `unknown`.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        Machine {
            cpu: cpu_model(&cpuinfo),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            virtual_machine: is_virtual(&cpuinfo),
            memory_bytes: memory_bytes(&meminfo),
            kernel: format!("{} {}", text(system.sysname()), text(system.release())),
            architecture: text(system.machine()),
            load: load(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        }
    }
}

/// This process may have so many files open.
///
/// # Errors
/// If the system's limit is lower.
pub(crate) fn raise_open_files(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|error| format!("{needed} files: {error}; raise `ulimit -n`"))
}

fn cpu_model(cpuinfo: &str) -> String {
    // x86 says `model name`, other architectures `Model`, `cpu` or nothing.
    let model = ["model name", "Model", "cpu"].into_iter().find_map(|key| field(cpuinfo, key));
    model.unwrap_or("unknown").to_owned()
}

fn is_virtual(cpuinfo: &str) -> bool {
    field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn memory_bytes(meminfo: &str) -> u64 {
    let kib = field(meminfo, "MemTotal").and_then(|size| size.strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn load(loadavg: &str) -> f64 {
    loadavg.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.5GHz\nflags\t\t: fpu hypervisor lm\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2.5GHz");
        assert!(is_virtual(cpuinfo));
        assert!(!is_virtual("flags: fpu nohypervisor\n"));
        assert_eq!(cpu_model(""), "unknown");
        assert_eq!(load("14.72 15.1 12.9 3/700 4711\n"), 14.72);
        assert_eq!(memory_bytes("MemTotal:        8123456 kB\n"), 8_123_456 * 1024);
    }

    #[test]
    fn this_machine_is_some_machine() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(machine.kernel.len() > "Linux ".len(), "{}", machine.kernel);
    }
}
