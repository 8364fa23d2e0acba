//! What the verbs library tells of devices that need no adapter, what is chosen of them, and what is said where something is missing.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use verbena_fabric::verbs::{
    AtomicReach, Device, GidEntry, GidKind, LinkLayer, PortState, Transport, Wanted, addresses, choose, devices,
};
use verbena_testkit::machine;

const FIRST: &str = "10.77.0.1";
const SECOND: &str = "10.77.0.2";

#[test]
fn soft_roce() {
    machine::in_machine("rxe", "verbs_devices::inside_soft_roce");
}

#[test]
fn soft_iwarp() {
    machine::in_machine_at_length("siw", "verbs_devices::inside_soft_iwarp");
}

#[test]
fn inside_soft_roce() {
    if !machine::is_inside() {
        return;
    }
    let found = devices().unwrap();
    println!("{found:#?}");
    assert_eq!(found.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["rxe0", "rxe1"]);
    for (device, (address, interface)) in found.iter().zip([(FIRST, "v0"), (SECOND, "v1")]) {
        assert_eq!((device.transport, device.atomics), (Transport::InfiniBand, AtomicReach::Adapter));
        let limits = &device.limits;
        assert!(limits.queue_pairs > 100 && limits.work_requests > 100 && limits.completion_entries > 100);
        assert!(limits.regions > 100 && limits.region_bytes > 1 << 30 && limits.pieces > 1);
        assert!(limits.reads_as_target > 1 && limits.reads_as_initiator > 1);
        assert!(limits.shared_queues >= 2 && limits.shared_queue_buffers >= 256);
        let [port] = device.ports.as_slice() else { panic!("{device:?}") };
        assert_eq!((port.number, port.link_layer, port.state), (1, LinkLayer::Ethernet, PortState::Active));
        assert_eq!((port.mtu_bytes, port.lid), (4096, 0));
        let v4 = GidEntry {
            index: 1,
            gid: address.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped(),
            kind: GidKind::RoceV2,
            interface: Some(interface.into()),
        };
        assert!(port.gids.contains(&v4), "{port:?}");
    }
    let gids = as_in_sysfs(&found);

    let chosen = choose(&found, &addresses().unwrap(), &at(SECOND)).unwrap();
    assert_eq!((chosen.device.as_str(), chosen.port, chosen.gid_index, chosen.kind), ("rxe1", 1, 1, GidKind::RoceV2));
    assert_eq!(chosen.why, "it has 10.77.0.2, where the node listens");
    let chosen = choose(&found, &addresses().unwrap(), &Wanted::default()).unwrap();
    assert_eq!((chosen.device.as_str(), chosen.gid_index), ("rxe0", 1));
    assert_eq!(chosen.why, "it has an IPv4 address, 10.77.0.1; of rxe0/1, rxe1/1 the first by name");

    // An address that is taken away is a GID no more.
    run("ip", &["addr", "del", "10.77.0.2/24", "dev", "v1"]);
    let refused = choose(&devices().unwrap(), &addresses().unwrap(), &at(SECOND)).unwrap_err().to_string();
    assert!(refused.contains("no active port has the address 10.77.0.2"), "{refused}");
    run("ip", &["link", "set", "v0", "down"]);
    let found = devices().unwrap();
    assert!(found.iter().all(|device| device.ports[0].state == PortState::Down), "{found:#?}");
    let refused = choose(&found, &addresses().unwrap(), &Wanted::default()).unwrap_err().to_string();
    assert!(refused.contains("no port is active"), "{refused}");

    let missing = what_is_missing_is_said();
    println!("\ncounted: 2 devices of soft-RoCE, {gids} GIDs, {missing} refusals");
}

#[test]
fn inside_soft_iwarp() {
    if !machine::is_inside() {
        return;
    }
    let found = devices().unwrap();
    println!("{found:#?}");
    assert_eq!(found.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["siw0", "siw1"]);
    for (device, interface) in found.iter().zip(["v0", "v1"]) {
        assert_eq!((device.transport, device.atomics), (Transport::Iwarp, AtomicReach::None));
        assert_eq!(device.limits.pieces_of_a_read, 1);
        let [port] = device.ports.as_slice() else { panic!("{device:?}") };
        assert_eq!((port.link_layer, port.state), (LinkLayer::Ethernet, PortState::Active));
        let [gid] = port.gids.as_slice() else { panic!("{port:?}") };
        assert_eq!((gid.index, gid.interface.as_deref()), (0, Some(interface)));
    }
    let gids = as_in_sysfs(&found);
    for (address, device) in [(FIRST, "siw0"), (SECOND, "siw1")] {
        let chosen = choose(&found, &addresses().unwrap(), &at(address)).unwrap();
        assert_eq!((chosen.device.as_str(), chosen.address), (device, Some(address.parse().unwrap())));
    }
    let refused = choose(&found, &addresses().unwrap(), &at("10.77.0.3")).unwrap_err().to_string();
    assert!(refused.contains("no active port has the address 10.77.0.3"), "{refused}");
    println!("\ncounted: 2 devices of soft-iWARP, {gids} GIDs");
}

/// A program of its own, for the library is loaded once.
#[test]
fn inside_say_what_is_missing() {
    if machine::is_inside() {
        println!("\nsaid: {}", devices().map_or_else(|error| error.to_string(), |_| "nothing".into()));
    }
}

fn at(address: &str) -> Wanted {
    Wanted { address: Some(address.parse::<IpAddr>().unwrap()), ..Wanted::default() }
}

/// Compares states and GIDs with the kernel's own account of them, and counts the GIDs.
fn as_in_sysfs(devices: &[Device]) -> usize {
    let mut count = 0;
    for (device, port) in devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port))) {
        let folder = Path::new("/sys/class/infiniband").join(&device.name).join(format!("ports/{}", port.number));
        let read = |name: String| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
        assert_eq!(read("state".into()).unwrap(), "4: ACTIVE");
        let mut expected: Vec<_> = fs::read_dir(folder.join("gids"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().parse::<u32>().unwrap())
            .filter_map(|index| {
                let gid: Ipv6Addr = read(format!("gids/{index}")).unwrap().parse().unwrap();
                let kind = match (read(format!("gid_attrs/types/{index}"))?.as_str(), device.transport) {
                    ("IB/RoCE v1", Transport::Iwarp) => GidKind::InfiniBand,
                    ("IB/RoCE v1", _) => GidKind::RoceV1,
                    ("RoCE v2", _) => GidKind::RoceV2,
                    (other, _) => panic!("{other}"),
                };
                (!gid.is_unspecified()).then_some((index, gid, kind, read(format!("gid_attrs/ndevs/{index}"))))
            })
            .collect();
        expected.sort_by_key(|(index, ..)| *index);
        let found: Vec<_> = port
            .gids
            .iter()
            .map(|one| {
                // The kernel does not say it of iWARP.
                let interface = one.interface.clone().filter(|_| device.transport != Transport::Iwarp);
                (one.index, one.gid, one.kind, interface)
            })
            .collect();
        assert_eq!(found, expected);
        assert!(!found.is_empty());
        count += found.len();
    }
    count
}

/// Takes one thing after the other away from a machine that has them all, and counts the refusals.
fn what_is_missing_is_said() -> usize {
    let here = std::env::current_exe().unwrap().display().to_string();
    let say = |before: &str, after: &str, by: &str, expected: &[&str]| {
        let script = format!(
            "{before} && {{ {by} {here} --exact verbs_devices::inside_say_what_is_missing --nocapture; }}; code=$?; {after}; exit $code"
        );
        let output = Command::new("sh").args(["-ec", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        let said = text.lines().find_map(|line| line.strip_prefix("said: ")).unwrap_or_default();
        for expected in expected {
            assert!(said.contains(expected), "{said:?} and not {expected:?}");
        }
    };
    let cases: [(&str, &str, &str, &[&str]); 6] = [
        ("true", "true", "", &["nothing"]),
        (
            "mv /usr/lib/x86_64-linux-gnu/libibverbs.so.1 /tmp",
            "mv /tmp/libibverbs.so.1 /usr/lib/x86_64-linux-gnu",
            "",
            &["libibverbs.so.1, is not there", "apt-get install libibverbs1 ibverbs-providers"],
        ),
        (
            "chmod 600 /dev/infiniband/uverbs*",
            "chmod 666 /dev/infiniband/uverbs*",
            "setpriv --reuid=65534 --regid=65534 --clear-groups",
            &["rxe0 may not be opened by this user: /dev/infiniband/uverbs0: Permission denied"],
        ),
        (
            "mv /dev/infiniband /dev/away",
            "mv /dev/away /dev/infiniband",
            "",
            &["rxe0 has no file in /dev/infiniband", "udev makes it"],
        ),
        (
            "mv /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so /tmp",
            "mv /tmp/librxe-rdmav34.so /usr/lib/x86_64-linux-gnu/libibverbs",
            "",
            &["the verbs library has no driver for rxe0", "apt-get install ibverbs-providers"],
        ),
        (
            "rdma link del rxe0; rdma link del rxe1",
            "true",
            "",
            &["this machine has no RDMA device", "modprobe rdma_rxe"],
        ),
    ];
    for (before, after, by, expected) in cases {
        say(before, after, by, expected);
    }
    // The first is the machine as it is.
    cases.len() - 1
}

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}
