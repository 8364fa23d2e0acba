//! The providers, one after the other.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::SystemTime;

use rustix::fs::{MemfdFlags, SealFlags};
use verbena_cluster::Provider as Membership;
use verbena_fabric::{Error, Provider as Named, authority_files, member_files, node_files, try_out};
use verbena_terms::Rank;

use super::{Check, Provider};
use crate::config::Config;
use crate::keys;

/// All but `verbs`.
pub(super) fn all(config: &Config) -> Vec<Provider> {
    vec![shm(config), xdp(config), tcp(config), sim()]
}

fn shm(config: &Config) -> Provider {
    let mut checks = vec![memory_files(), futex()];
    let tried = tried(Named::Shm, config, &mut checks);
    Provider {
        name: "shm",
        for_what: "processes of one machine",
        in_build: true,
        usable: tried.is_some(),
        capabilities: tried,
        checks,
    }
}

fn tcp(config: &Config) -> Provider {
    let mut checks = Vec::new();
    let tried = tried(Named::Tcp, config, &mut checks);
    checks.extend(certificates(config));
    Provider {
        name: "tcp",
        for_what: "everywhere",
        in_build: true,
        usable: tried.is_some(),
        capabilities: tried,
        checks,
    }
}

pub(super) fn tried(provider: Named, config: &Config, checks: &mut Vec<Check>) -> Option<verbena_fabric::Capabilities> {
    const WHAT: &str = "a word changed through it";
    match try_out(provider, &config.fabric) {
        Ok(capabilities) => {
            checks.push(Check::good(WHAT, "done"));
            Some(capabilities)
        }
        Err(error) => {
            checks.push(refused(WHAT, error));
            None
        }
    }
}

/// What a provider lacks.
pub(super) fn refused(what: &'static str, error: Error) -> Check {
    match error {
        // A table that may follow the remedy lists what was found about the devices.
        Error::Unusable { reason, remedy, .. } => {
            Check::missing(what, reason, remedy.lines().next().unwrap_or_default())
        }
        error => Check::missing(what, error.to_string(), "The system refuses something that the provider needs"),
    }
}

fn memory_files() -> Check {
    const WHAT: &str = "sealed memory files";
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let sealed = rustix::fs::memfd_create("verbena-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).and_then(
        |file: OwnedFd| {
            rustix::fs::ftruncate(&file, 4096)?;
            rustix::fs::fcntl_add_seals(&file, seals)?;
            rustix::fs::fcntl_get_seals(&file)
        },
    );
    match sealed {
        Ok(found) if found.contains(seals) => Check::good(WHAT, "memfd_create, sealed"),
        Ok(found) => Check::missing(WHAT, format!("only {found:?} stick"), "Linux 3.17 or later"),
        Err(error) => Check::missing(
            WHAT,
            error.to_string(),
            "Linux 3.17 or later, and a seccomp filter that allows memfd_create",
        ),
    }
}

fn futex() -> Check {
    let word = AtomicU32::new(0);
    match rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::empty(), 1) {
        Ok(0) => Check::good("futex", "shared wake-up works"),
        Ok(woken) => Check::missing(
            "futex",
            format!("{woken} were woken where no thread slept"),
            "This is a defect: please report it",
        ),
        Err(error) => Check::missing("futex", error.to_string(), "A seccomp filter that allows futex"),
    }
}

fn certificates(config: &Config) -> Vec<Check> {
    const WHAT: &str = "certificates";
    let Some(directory) = &config.fabric.keys else {
        let beyond = "Beyond loopback: `verbena keys`, and fabric.keys in the configuration";
        return vec![if config.fabric.insecure {
            Check::fair(WHAT, "insecure = true: in the clear everywhere", beyond)
        } else {
            Check::fair(WHAT, "fabric.keys is not set: in the clear, on loopback only", beyond)
        }];
    };
    let own = match (&config.cluster.name, config.cluster.provider) {
        (Some(name), Membership::Etcd) => member_files(directory, name),
        (name, _) => {
            let at = config.cluster.members.iter().position(|member| Some(&member.name) == name.as_ref());
            node_files(directory, Rank(at.map_or(1, |at| at as u32 + 1)))
        }
    };
    let now = SystemTime::now();
    let read = |file: &Path| match keys::read(file, now) {
        Ok(found) => {
            let text = format!("{}: until {}, {} days", file.display(), found.until, found.days_left);
            match found.remark {
                None => Check::good(WHAT, text),
                Some(remark) if found.good => Check::fair(WHAT, text, remark),
                Some(remark) => Check::missing(WHAT, text, remark),
            }
        }
        Err(error) => Check::missing(WHAT, error.to_string(), "`verbena keys init` and `verbena keys node` make them"),
    };
    let mut checks = vec![read(&authority_files(directory).certificate), read(&own.certificate)];
    if !own.key.exists() {
        checks.push(Check::missing(
            WHAT,
            format!("{}: there is no such file", own.key.display()),
            "It is made with its certificate",
        ));
    }
    checks
}

fn sim() -> Provider {
    Provider {
        name: "sim",
        for_what: "tests, in virtual time within one process",
        in_build: false,
        usable: false,
        capabilities: None,
        checks: vec![Check::fair(
            "in this program",
            "nothing runs on it: it carries no real node",
            "The tests of the source tree build it",
        )],
    }
}

/// What the one-sided fabric in the kernel's receive path needs.
fn xdp(config: &Config) -> Provider {
    let types = if Path::new("/sys/kernel/btf/vmlinux").exists() {
        Check::good("kernel type information", "/sys/kernel/btf/vmlinux")
    } else {
        Check::missing("kernel type information", "no /sys/kernel/btf/vmlinux", "A kernel with CONFIG_DEBUG_INFO_BTF")
    };
    let jit = match fs::read_to_string("/proc/sys/net/core/bpf_jit_enable") {
        Ok(text) if text.trim() != "0" => Check::good("eBPF compiler", format!("bpf_jit_enable is {}", text.trim())),
        Ok(_) => Check::fair("eBPF compiler", "off: programs are interpreted", "sysctl net.core.bpf_jit_enable=1"),
        // Some kernels have no such switch because it is always on; only root may read it on others.
        Err(error) => Check::fair("eBPF compiler", format!("bpf_jit_enable: {error}"), "Run as root to see it"),
    };
    let mut checks = vec![types, jit, privileges()];
    let tried = tried(Named::Xdp, config, &mut checks);
    Provider {
        name: "xdp",
        for_what: "any Ethernet, without an RDMA adapter",
        in_build: true,
        usable: tried.is_some(),
        capabilities: tried,
        checks,
    }
}

/// CAP_NET_ADMIN is bit 12, CAP_SYS_ADMIN 21, CAP_BPF 39 (include/uapi/linux/capability.h).
fn privileges() -> Check {
    const WHAT: &str = "privileges to load a program";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return Check::missing(WHAT, "/proc/self/status does not say", "A mounted /proc");
    };
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(12) && (has(39) || has(21)) {
        Check::good(WHAT, "CAP_NET_ADMIN and CAP_BPF")
    } else {
        Check::missing(WHAT, format!("effective capabilities {effective:016x}"), "CAP_NET_ADMIN and CAP_BPF, or root")
    }
}
