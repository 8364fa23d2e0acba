//! Two devices of soft-RoCE at the ends of one virtual link: the fabric of the papers, without an adapter.
//!
//! Their frames are the kernel's and cross no emulator of this program, so netem delays them, at either end of the
//! link. Both devices must exist in the network of this process, because a network of its own would have none
//! (`scripts/rdma-vm` starts a machine with two).

use std::fs::{self, File};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use verbena_fabric::{Provider, XdpMode};
use verbena_namespaces::{Namespace, tc};
use verbena_wan::pin;

use super::paths::Site;
use crate::error::BenchError;
use crate::report::FabricFound;

const DEVICES: &str = "/sys/class/infiniband";
const INTERFACES: &str = "/sys/class/net";
/// By this number what a run that was killed has left is known to be of such a run.
const HANDLE: &str = "7662:";
/// Packets, more than there ever are on the way: netem drops what is beyond this limit, which is 1000 by default.
const LIMIT: &str = "1000000";

/// One device, and what it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    device: String,
    interface: String,
    address: IpAddr,
    /// Numbers of the interface and of the other end of its link.
    numbers: [u32; 2],
}

/// Both, and the link between them. When it ends the link is as it was.
pub(crate) struct Adapters {
    network: Namespace,
    ends: [End; 2],
    /// Which processors received what came to them.
    receivers: [String; 2],
    /// No other run has them as long as this is open.
    _taken: File,
}

impl Adapters {
    /// The adapters of this network; what comes to either of them interrupts its core. An error says why they cannot be
    /// used.
    pub(super) fn find(cores: [usize; 2]) -> Result<Self, String> {
        let ends = joined(ends(Path::new(DEVICES), Path::new(INTERFACES))).ok_or(
            "no two devices of soft-RoCE with addresses of IPv4 are at the ends of one virtual link here, where netem could delay what they \
             send: the frames of an adapter do not cross the emulator. `scripts/rdma-vm rxe` starts a machine that has them",
        )?;
        let taken = taken(&ends[0].device)?;
        let mut has_left = false;
        for End { interface, .. } in &ends {
            let queues = tc(&["qdisc", "show", "dev", interface, "root"]).map_err(|error| error.to_string())?;
            if !is_free(&queues) {
                return Err(format!("{interface} has a queue of somebody else: {}", queues.trim()));
            }
            has_left |= queues.contains(HANDLE);
        }
        // A run that was killed has left these too: then they were as they usually are.
        let received = |end: &End| fs::read_to_string(end.receivers()).ok().filter(|_| !has_left);
        let receivers = ends.each_ref().map(|end| received(end).unwrap_or_else(|| "0".to_owned()));
        let network = Namespace::here().map_err(|error| error.to_string())?;
        let adapters = Adapters { network, ends, receivers, _taken: taken };
        adapters.set(Duration::ZERO).and_then(|()| adapters.park()).map_err(|error| error.to_string())?;
        for (end, core) in adapters.ends.iter().zip(cores) {
            let steered = adapters.network.enter(|| pin([end.interface.clone()].into_iter(), core));
            steered.map_err(|error| error.to_string())?;
        }
        Ok(adapters)
    }

    /// What `open` makes of them, if there are any and they work; and what to say of them.
    pub(super) fn with<T>(
        cores: [usize; 2],
        open: impl FnOnce(Adapters) -> Result<(T, FabricFound), BenchError>,
    ) -> (Option<T>, FabricFound) {
        let opened = Adapters::find(cores).and_then(|adapters| open(adapters).map_err(|error| error.to_string()));
        match opened {
            Ok((opened, found)) => (found.measured.then_some(opened), found),
            Err(because) => (None, FabricFound::missing(Provider::Verbs, because)),
        }
    }

    /// What is said of them where they are measured.
    pub(super) fn name(&self) -> String {
        let [near, far] = &self.ends;
        format!(
            "{} on {} and {} on {} of one machine, soft-RoCE, whose adapter is the kernel; the delay is netem's",
            near.device, near.interface, far.device, far.interface
        )
    }

    /// The near one and the far one.
    pub(super) fn sites(&self) -> [Site<'_>; 2] {
        self.ends.each_ref().map(|end| Site {
            network: &self.network,
            address: end.address,
            interface: &end.interface,
            device: Some(&end.device),
            mode: XdpMode::Auto,
        })
    }

    /// From now on the link is so long, there and back.
    pub(super) fn set(&self, delay: Duration) -> Result<(), BenchError> {
        let delay = format!("{}us", delay.as_micros());
        for End { interface, .. } in &self.ends {
            let queue = ["qdisc", "replace", "dev", interface, "root", "handle", HANDLE, "netem"];
            tc(&[&queue[..], &["limit", LIMIT, "delay", &delay]].concat())?;
        }
        Ok(())
    }

    /// From now on nothing but the link is between them.
    pub(super) fn park(&self) -> Result<(), BenchError> {
        for End { interface, .. } in &self.ends {
            if tc(&["qdisc", "show", "dev", interface, "root"])?.contains(HANDLE) {
                tc(&["qdisc", "del", "dev", interface, "root"])?;
            }
        }
        Ok(())
    }
}

/// This run has the device, and no other one until the file is closed: by the system, if it is killed.
fn taken(device: &str) -> Result<File, String> {
    let path = Path::new(DEVICES).join(device);
    let taken = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    match flock(&taken, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(format!("another run has {device}")),
        locked => locked.map(|()| taken).map_err(|error| format!("lock {}: {error}", path.display())),
    }
}

/// Whether the interface has no queue, or one of this program, by what `tc` shows.
fn is_free(queues: &str) -> bool {
    queues.trim().is_empty() || queues.contains("qdisc noqueue ") || queues.contains(&format!("qdisc netem {HANDLE} "))
}

impl Drop for Adapters {
    fn drop(&mut self) {
        // Where it is not done now the next run does it.
        let _ = self.park();
        for (end, receivers) in self.ends.iter().zip(&self.receivers) {
            let _ = fs::write(end.receivers(), receivers);
        }
    }
}

impl End {
    fn receivers(&self) -> PathBuf {
        [INTERFACES, &self.interface, "queues/rx-0/rps_cpus"].iter().collect()
    }
}

/// All devices of soft-RoCE that have an address of IPv4: they alone name the interface that they are on.
fn ends(devices: &Path, interfaces: &Path) -> Vec<End> {
    let text = |path: PathBuf| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let end = |device: PathBuf| {
        let interface = text(device.join("parent"))?;
        let number = |what| text(interfaces.join(&interface).join(what))?.parse().ok();
        let gids = fs::read_dir(device.join("ports/1/gids")).ok()?.flatten();
        let mapped = gids.filter_map(|gid| text(gid.path())?.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped());
        Some(End {
            device: device.file_name()?.to_str()?.to_owned(),
            address: mapped.min()?.into(),
            numbers: [number("ifindex")?, number("iflink")?],
            interface,
        })
    };
    let all = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut ends: Vec<End> = all.filter_map(|device| end(device.path())).collect();
    ends.sort_by(|one, other| one.device.cmp(&other.device));
    ends
}

/// The first two of them that are the ends of one link.
fn joined(ends: Vec<End>) -> Option<[End; 2]> {
    ends.iter().enumerate().find_map(|(at, near)| {
        let [own, other] = near.numbers;
        let far = ends[at + 1..].iter().find(|far| far.numbers == [other, own])?;
        Some([near.clone(), far.clone()])
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// A device on an interface, as the system shows them.
    fn show(folder: &Path, device: &str, parent: Option<&str>, numbers: [u32; 2], gids: &[&str]) {
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        for (number, gid) in gids.iter().enumerate() {
            write(&format!("devices/{device}/ports/1/gids/{number}"), gid);
        }
        if let Some(parent) = parent {
            write(&format!("devices/{device}/parent"), parent);
            write(&format!("interfaces/{parent}/ifindex"), &numbers[0].to_string());
            write(&format!("interfaces/{parent}/iflink"), &numbers[1].to_string());
        }
    }

    #[test]
    fn two_are_found_that_are_the_ends_of_one_link() {
        let folder = tempfile::tempdir().unwrap();
        let find = || joined(ends(&folder.path().join("devices"), &folder.path().join("interfaces")));
        assert_eq!(find(), None);
        let gids = |last: u8| {
            let mapped = format!("0000:0000:0000:0000:0000:ffff:0a4d:00{last:02x}");
            ["fe80:0000:0000:0000:0000:77ff:fe00:0001".to_owned(), mapped, Ipv6Addr::UNSPECIFIED.to_string()]
        };
        let show = |device, parent, numbers, last| {
            let gids = gids(last);
            show(folder.path(), device, parent, numbers, &gids.each_ref().map(String::as_str));
        };
        // An adapter, which does not say; one on a card, which is its own other end; one end of a link.
        show("mlx5_0", None, [0, 0], 8);
        show("rxe9", Some("e0"), [2, 2], 9);
        show("rxe1", Some("v1"), [5, 4], 2);
        assert_eq!(find(), None);
        show("rxe0", Some("v0"), [4, 5], 1);
        let found = find().unwrap().map(|end| (end.device, end.interface, end.address.to_string()));
        let expected = [("rxe0", "v0", "10.77.0.1"), ("rxe1", "v1", "10.77.0.2")];
        assert_eq!(
            found,
            expected.map(|(device, interface, address)| (device.into(), interface.into(), address.into()))
        );
    }

    #[test]
    fn a_queue_of_somebody_else_stays() {
        assert!(is_free("qdisc noqueue 0: root refcnt 2 \n"));
        assert!(is_free("qdisc netem 7662: root refcnt 2 limit 1000000 delay 10ms\n"));
        assert!(!is_free("qdisc netem 8001: root refcnt 2 limit 1000 loss 2%\n"));
        assert!(!is_free("qdisc tbf 7662: root refcnt 2 rate 1Mbit\n"));
    }
}
