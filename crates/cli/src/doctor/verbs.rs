//! RDMA adapters: what the verbs library tells of them, and what a node of this configuration would take.

#[cfg(feature = "verbs")]
pub use with::Adapters;
#[cfg(feature = "verbs")]
pub(super) use with::look;
#[cfg(not(feature = "verbs"))]
pub(super) use without::look;

use verbena_fabric::Capabilities;

use super::{Check, Provider};

fn provider(in_build: bool, checks: Vec<Check>, capabilities: Option<Capabilities>) -> Provider {
    let usable = capabilities.is_some();
    Provider { name: "verbs", for_what: "InfiniBand, RoCE, iWARP", in_build, usable, capabilities, checks }
}

#[cfg(feature = "verbs")]
mod with {
    use std::fs;
    use std::net::{IpAddr, ToSocketAddrs};

    use serde::Serialize;
    use verbena_fabric::verbs::{
        AtomicReach, Chosen, Device, GidEntry, Limits, LinkLayer, Port, PortState, Transport, addresses, choose,
        devices, wanted,
    };
    use verbena_fabric::{Address, Provider as Named};

    use super::super::providers::{refused, tried};
    use super::super::{Check, Provider};
    use crate::config::Config;

    /// What a program finds that asks for them.
    #[derive(Debug, Serialize)]
    pub struct Adapters {
        /// By name.
        pub devices: Vec<Device>,
        /// What a node would take of them, if any fits.
        pub choice: Option<Chosen>,
    }

    pub(in super::super) fn look(config: &Config) -> (Provider, Option<Adapters>) {
        let found = devices();
        let mut checks: Vec<_> = loaded().map(|path| Check::good("library", path)).into_iter().collect();
        let mut capabilities = None;
        let adapters = match found {
            Err(error) => {
                checks.push(refused(if checks.is_empty() { "library" } else { "RDMA devices" }, error));
                None
            }
            Ok(devices) => {
                checks.extend(devices.iter().flat_map(of_device));
                let wanted = wanted(&config.fabric, listens_at(config));
                let choice = addresses().and_then(|addresses| choose(&devices, &addresses, &wanted));
                let (check, choice) = match choice {
                    Ok(choice) => (taken(&choice), Some(choice)),
                    Err(error) => (refused(TAKEN, error), None),
                };
                checks.push(check);
                if choice.is_some() {
                    capabilities = tried(Named::Verbs, config, &mut checks);
                }
                Some(Adapters { devices, choice })
            }
        };
        (super::provider(true, checks, capabilities), adapters)
    }

    const TAKEN: &str = "a node takes";

    fn taken(choice: &Chosen) -> Check {
        let Chosen { device, port, gid_index, gid, kind, why, .. } = choice;
        Check::good(TAKEN, format!("{device}/{port}, GID {gid_index} ({kind}, {gid}): {why}"))
    }

    /// The library that this process has loaded.
    fn loaded() -> Option<String> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let path = maps
            .lines()
            .find_map(|line| Some(&line[line.find('/')?..]).filter(|path| path.contains("/libibverbs.so")))?;
        Some(path.to_owned())
    }

    /// Where a node with this configuration listens, as far as it says so.
    fn listens_at(config: &Config) -> Option<IpAddr> {
        if let Some(listen) = config.fabric.listen {
            return Some(listen.ip());
        }
        let cluster = &config.cluster;
        let line = cluster.members.iter().find(|member| Some(&member.name) == cluster.name.as_ref());
        let own = Address(line.map(|member| &member.address).or(cluster.address.as_ref())?.clone());
        Some(own.rest().to_socket_addrs().ok()?.next()?.ip())
    }

    fn of_device(device: &Device) -> Vec<Check> {
        let Device { name, transport, firmware, limits, atomics, ports } = device;
        let roce = ports.iter().any(|port| port.link_layer == LinkLayer::Ethernet);
        let kind = if *transport == Transport::InfiniBand && roce { "RoCE".to_owned() } else { transport.to_string() };
        let firmware = if firmware.is_empty() { "none" } else { firmware };
        let atomics = match atomics {
            AtomicReach::None => "none: an agent of the owner executes what changes a region",
            AtomicReach::Adapter => "atomic against this device's own",
            AtomicReach::Global => "atomic against the processors' too",
        };
        let mut checks = vec![
            Check::good("device", format!("{name}: {kind}, firmware {firmware}")),
            Check::good("atomics", format!("{name}: {atomics}")),
            Check::good("limits", format!("{name}: {}", of_limits(limits))),
        ];
        for port in ports {
            checks.push(of_port(name, port));
            checks.extend(port.gids.iter().map(|gid| of_gid(name, port.number, gid)));
        }
        checks
    }

    fn of_limits(limits: &Limits) -> String {
        let Limits {
            queue_pairs,
            work_requests,
            completion_entries,
            regions,
            region_bytes,
            reads_as_target,
            reads_as_initiator,
            pieces,
            pieces_of_a_read,
            shared_queues,
            shared_queue_buffers,
        } = limits;
        let size = match *region_bytes {
            u64::MAX => "any size".to_owned(),
            bytes => format!("{bytes} bytes"),
        };
        format!(
            "{queue_pairs} queue pairs of {work_requests} requests, {completion_entries} completions a queue, \
             {regions} regions of {size}, {reads_as_target} reads as target and {reads_as_initiator} as initiator at a time, \
             {pieces} pieces a request, {pieces_of_a_read} a read, {shared_queues} receive queues to share of \
             {shared_queue_buffers} buffers"
        )
    }

    fn of_port(device: &str, port: &Port) -> Check {
        let Port { number, link_layer, state, mtu_bytes, lid, .. } = port;
        let mut found = format!("{device}/{number}: {state}, {link_layer}, MTU {mtu_bytes} bytes");
        if *link_layer == LinkLayer::InfiniBand {
            found = format!("{found}, LID {lid}");
        }
        match (state, link_layer) {
            (PortState::Active, _) => Check::good("port", found),
            (_, LinkLayer::Ethernet) => Check::missing("port", found, "A cable, and `ip link set INTERFACE up`"),
            (_, LinkLayer::InfiniBand) => Check::missing("port", found, "A cable, and a subnet manager in the network"),
        }
    }

    fn of_gid(device: &str, port: u8, gid: &GidEntry) -> Check {
        let GidEntry { index, gid, kind, interface } = gid;
        let interface = interface.as_ref().map_or_else(String::new, |name| format!(", of {name}"));
        Check::good("GID", format!("{device}/{port}, index {index}: {kind}, {gid}{interface}"))
    }
}

#[cfg(not(feature = "verbs"))]
mod without {
    use std::fs;
    use std::path::Path;

    use super::super::{Check, Provider};

    /// What there is for a program that had it.
    pub(in super::super) fn look() -> Provider {
        let left_out =
            "cargo build --release --features verbs, with cmake and libclang1 of Debian: docs/concepts/fabric.md";
        let checks = vec![Check::fair("in this program", "left out", left_out), devices(), files(), library()];
        super::provider(false, checks, None)
    }

    fn names(directory: &str) -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn devices() -> Check {
        let devices = names("/sys/class/infiniband");
        if devices.is_empty() {
            let soft = "An RDMA adapter; or soft-RoCE on any Ethernet: `rdma link add rxe0 type rxe netdev DEV` with the kernel module rdma_rxe";
            return Check::missing("RDMA devices", "none in /sys/class/infiniband", soft);
        }
        Check::good("RDMA devices", devices.join(", "))
    }

    fn files() -> Check {
        let nodes: Vec<_> = names("/dev/infiniband").into_iter().filter(|name| name.starts_with("uverbs")).collect();
        if nodes.is_empty() {
            return Check::missing("device files", "no /dev/infiniband/uverbs*", "The kernel module ib_uverbs");
        }
        Check::good("device files", nodes.join(", "))
    }

    fn library() -> Check {
        let library = ["/usr/lib", "/usr/lib64", "/lib"].iter().find_map(|root| {
            let within = names(root).into_iter().map(|name| Path::new(root).join(name));
            within
                .chain([Path::new(root).to_owned()])
                .map(|path| path.join("libibverbs.so.1"))
                .find(|path| path.exists())
        });
        match library {
            Some(path) => Check::good("library", path.display().to_string()),
            None => {
                Check::missing("library", "no libibverbs.so.1", "Debian: apt-get install ibverbs-providers libibverbs1")
            }
        }
    }
}
