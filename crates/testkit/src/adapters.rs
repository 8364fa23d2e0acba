//! Devices without an adapter, of either kind: how a node is opened on one, and what can happen to what it sends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use verbena_fabric::conformance::serve_if_asked;
use verbena_fabric::tcp::TcpConfig;
use verbena_fabric::verbs::{Completions, VerbsConfig, VerbsFabric};
use verbena_terms::{Incarnation, Rank};

/// What is lost, delayed and mixed up on the link between faults, as `tc qdisc` has it.
pub type Weather = &'static [&'static str];

pub const ROUGH: Weather = &["loss", "2%", "delay", "1ms", "reorder", "95%"];

/// What the suite asks that no provider on adapters can arrange, or promises.
pub const SKIPPED: [&str; 3] = [
    "batches_keep_their_order_where_promised",
    "synchronous_means_complete_on_return",
    "another_version_is_refused_by_name",
];

/// Of what kind the devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What their names begin with.
    pub prefix: &'static str,
    pub gid_index: u32,
    pub rdma_cm: bool,
    /// The function that is a target, in the module of the test.
    pub target: &'static str,
    /// All that a device sends goes by the link of its number, and not by `lo`.
    pub has_links: bool,
}

pub const ROCE: Kind = Kind { prefix: "rxe", gid_index: 1, rdma_cm: false, target: "target", has_links: true };
pub const MANAGED: Kind = Kind { rdma_cm: true, target: "target_managed", ..ROCE };
pub const IWARP: Kind = Kind { prefix: "siw", gid_index: 0, rdma_cm: true, target: "target_siw", has_links: false };

/// Where the manager takes calls: the packets of connections are known by it.
const CALLS: u16 = 0x6000;
const CALLS_MASK: u16 = 0xf000;
/// Where adapters of RoCE v2 listen (IBTA Annex A17).
const ROCE_PORT: u16 = 4791;

impl Kind {
    /// On the device of this number, whose interface has this address.
    pub fn config(self, rank: Rank, device: u8, address: Ipv4Addr) -> VerbsConfig {
        let address = IpAddr::V4(address);
        let tcp = TcpConfig { listen: SocketAddr::new(address, 0), insecure: true, ..TcpConfig::default() };
        VerbsConfig {
            tcp,
            device: format!("{}{device}", self.prefix),
            port: 1,
            gid_index: self.gid_index,
            gid: None,
            rdma_cm: self.rdma_cm,
            address: Some(address),
            rdma_cm_port: CALLS + (rank.0 % u32::from(!CALLS_MASK)) as u16,
            service_levels: [0, 0],
            sends: true,
            completions: Completions::Told,
        }
    }
}

/// Serves a region until standard input ends, if this process was started for it.
pub fn serve(config: impl FnOnce(Incarnation) -> VerbsConfig) {
    serve_if_asked(|incarnation| {
        Arc::new(VerbsFabric::open(incarnation, config(incarnation)).expect("a fabric on a device"))
    });
}

/// What happens to what a device sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Lose,
    Double,
    Hold,
}

impl Fate {
    /// As `tc qdisc` has it.
    pub fn way(self, weather: Weather) -> Vec<&'static str> {
        match self {
            Fate::Pass if weather.is_empty() => vec!["pfifo"],
            Fate::Pass => [&["netem"], weather].concat(),
            Fate::Lose => vec!["netem", "loss", "100%"],
            Fate::Double => vec!["netem", "duplicate", "100%"],
            Fate::Hold => vec!["plug", "limit", "10000000"],
        }
    }
}

/// Makes three bands of what goes by an interface, of which the first takes all that [`split`] does not give to another one.
pub fn make_bands(link: &str) {
    let root = ["qdisc", "replace", "dev", link, "root", "handle", "1:", "prio", "bands", "3", "priomap"];
    run("tc", root.iter().chain(&["0"; 16]));
}

/// Gives what adapters of this kind send by an interface, as far as it is `from` there, a band of its own.
pub fn split(link: &str, from: &[&str], kind: Kind, band: &str) {
    let (protocol, port, mask) = if kind.has_links { ("17", ROCE_PORT, u16::MAX) } else { ("6", CALLS, CALLS_MASK) };
    let (port, mask) = (format!("{port:#x}"), format!("{mask:#x}"));
    for side in ["sport", "dport"] {
        let filter = ["filter", "add", "dev", link, "parent", "1:", "protocol", "ip", "prio", "1", "u32"];
        let matches = ["match", "ip", "protocol", protocol, "0xff", "match", "ip", side, &port, &mask, "flowid", band];
        run("tc", filter.iter().chain(from).chain(&matches));
    }
}

/// Gives what each of two devices of iWARP sends by connections that the manager makes a band of its own on `lo`.
pub fn split_lo() {
    make_bands("lo");
    for device in [0, 1] {
        let (from, band) = (format!("10.77.0.{}/32", 1 + device), band_of(device));
        split("lo", &["match", "ip", "src", &from], IWARP, &band);
    }
}

fn band_of(device: u8) -> String {
    format!("1:{}", 2 + device)
}

/// Sets what one of two devices sends by: its link's own, or a band of `lo`.
pub fn queue(kind: Kind, action: &str, device: u8, way: &[&str]) {
    let (link, band) = (format!("v{device}"), band_of(device));
    let at: &[&str] = if kind.has_links { &[&link, "root"] } else { &["lo", "parent", &band] };
    run("tc", ["qdisc", action, "dev"].iter().chain(at).chain(way));
}

/// Packets that the link has lost since it was last set: in bad weather some.
pub fn lost(link: &str) -> u64 {
    let shown = Command::new("tc").args(["-s", "qdisc", "show", "dev", link]).output().expect("iproute2 is there");
    let text = String::from_utf8(shown.stdout).expect("a text");
    let dropped = text.split("(dropped ").skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok());
    dropped.max().expect("it counts what it drops")
}

/// Packets that a device has sent: its own, or where it does not count them those of the interface.
pub fn sent(kind: Kind, device: u8, link: &str) -> u64 {
    let counter = if kind.has_links {
        format!("/sys/class/infiniband/{}{device}/ports/1/hw_counters/sent_pkts", kind.prefix)
    } else {
        format!("/sys/class/net/{link}/statistics/tx_packets")
    };
    std::fs::read_to_string(counter).expect("a device counts").trim().parse().expect("a number")
}

pub fn run<'a>(program: &str, arguments: impl Iterator<Item = &'a &'a str>) {
    let mut command = Command::new(program);
    assert!(command.args(arguments).status().expect("iproute2 is there").success(), "{command:?}");
}
