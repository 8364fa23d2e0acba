//! The conformance suite on the provider `verbs`, in a machine of Debian's kernel: on soft-RoCE, two devices whose packets go by a virtual link, and on
//! soft-iWARP, whose packets go by `lo`; there they can be lost. Messages go by relays, as those of `tcp` do.

#![cfg(feature = "verbs")]

#[path = "common/machine.rs"]
mod machine;
#[path = "common/network.rs"]
mod network;
#[path = "common/relay.rs"]
mod relay;
#[path = "common/relayed.rs"]
mod relayed;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use network::{Network, socket};
use parking_lot::Mutex;
use relay::Mode;
use verbena_fabric::conformance::{Able, CHECKS, Fault, Harness, Processes, Target, run_all, serve_if_asked};
use verbena_fabric::tcp::TcpConfig;
use verbena_fabric::verbs::{Completions, VerbsConfig, VerbsFabric};
use verbena_fabric::{Batch, Class, Done, Error, Fabric, Operation, Rights};
use verbena_terms::{Incarnation, Rank, ViewNumber};

/// What is lost, delayed and mixed up on the link between faults, as `tc qdisc` has it.
type Weather = &'static [&'static str];

#[test]
fn soft_roce() {
    machine::in_machine("rxe", "inside_told");
}

#[test]
fn soft_roce_polled() {
    machine::in_machine_at_length("rxe", "inside_polled");
}

#[test]
fn soft_roce_connected_by_the_manager() {
    machine::in_machine_at_length("rxe", "inside_managed");
}

#[test]
fn soft_roce_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("rxe", "inside_rough");
}

#[test]
fn soft_iwarp() {
    machine::in_machine_at_length("siw", "inside_siw");
}

#[test]
fn soft_iwarp_on_a_link_that_loses_and_reorders() {
    machine::in_machine_at_length("siw", "inside_siw_rough");
}

#[test]
fn inside_told() {
    check(ROCE, Completions::Told, &[]);
}

#[test]
fn inside_polled() {
    check(ROCE, Completions::Polled, &[]);
}

#[test]
fn inside_managed() {
    check(MANAGED, Completions::Told, &[]);
}

#[test]
fn inside_rough() {
    check(ROCE, Completions::Told, ROUGH);
}

#[test]
fn inside_siw() {
    check(IWARP, Completions::Told, &[]);
}

#[test]
fn inside_siw_rough() {
    check(IWARP, Completions::Told, ROUGH);
}

const ROUGH: Weather = &["loss", "2%", "delay", "1ms", "reorder", "95%"];

/// Of what kind the devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// What their names begin with.
    prefix: &'static str,
    gid_index: u32,
    rdma_cm: bool,
    /// The function of this program that is a target.
    target: &'static str,
    /// All that a device sends goes by the link of its number, and not by `lo`.
    has_links: bool,
}

const ROCE: Kind = Kind { prefix: "rxe", gid_index: 1, rdma_cm: false, target: "target", has_links: true };
const MANAGED: Kind = Kind { rdma_cm: true, target: "target_managed", ..ROCE };
const IWARP: Kind = Kind { prefix: "siw", gid_index: 0, rdma_cm: true, target: "target_siw", has_links: false };

fn check(kind: Kind, completions: Completions, weather: Weather) {
    if !machine::is_inside() {
        return;
    }
    let mut verbs = Verbs {
        kind,
        next_rank: 1,
        completions,
        network: Arc::default(),
        processes: Processes::default(),
        devices: Mutex::default(),
        weather,
        held: Mutex::default(),
    };
    if !kind.has_links {
        verbs.split_lo();
    }
    verbs.set_weather();
    let report = run_all(&mut verbs);
    let skipped: Vec<&str> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, SKIPPED);
    assert_eq!(report.ran, CHECKS.len() - SKIPPED.len());
    // By adapters of iWARP nothing goes that changes anything.
    if weather.is_empty() && kind.has_links {
        what_a_lost_connection_left_open_is_never_executed_later(&mut verbs);
    }
    for bytes in [64, 16 << 10] {
        let torn = what_is_larger_than_a_word_tears_under_a_writer(&mut verbs, bytes);
        println!("torn: {torn} reads of {bytes} bytes, no word");
    }
    let packets: u64 = [0, 1].map(|device| verbs.sent(device)).iter().sum();
    assert!(packets > 10_000, "{packets} packets went by the devices");
    println!("counted: {} checks on {kind:?}, {packets} packets", report.ran);
}

/// What happens to what a device sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    Lose,
    Double,
    Hold,
}

/// F2: when the transport has given up, the target destroys its end before there is another: what comes by the former one then changes nothing.
fn what_a_lost_connection_left_open_is_never_executed_later(verbs: &mut Verbs) {
    let (owner, caller) = (verbs.node(), verbs.node());
    let view = ViewNumber(1);
    let region = owner.register(64, view).expect("a node registers memory");
    let soon = |seconds| caller.clock().now() + Duration::from_secs(seconds);
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let remote = peer.open(&region.key(Rights::Change), soon(10)).expect("a key opens its region");
    let write = |value| Batch::one(Operation::WriteWord { at: 0, value });

    if verbs.kind.has_links {
        // Whoever connects looks for the other's link address first, and nothing leaves the device then.
        for (address, last, link) in [("10.77.0.2", "02", "v0"), ("10.77.0.1", "01", "v1")] {
            let there = format!("02:00:00:00:77:{last}");
            run("ip", ["neigh", "replace", address, "lladdr", &there, "dev", link, "nud", "permanent"].iter());
        }
    }
    remote.post(write(1), Class::Control, soon(10)).wait().expect("the link is sound");
    verbs.happen(verbs.device_of(caller.identity()), Fate::Hold);
    let lost = remote.post(write(2), Class::Control, soon(20)).wait().expect_err("nothing leaves the device");
    let Error::Unknown { first: Some(id), .. } = lost else { panic!("{lost}") };
    // By message, which is not held, the former end is taken away. The manager's calls are held too, until it is: then they come behind what was held before.
    let settling = remote.settle(id, Class::Control, soon(20));
    if verbs.kind.rdma_cm {
        std::thread::sleep(Duration::from_secs(1));
        verbs.set_weather();
    }
    let settled = settling.wait().expect_err("nobody has kept what became of it");
    assert!(matches!(settled, Error::Forgotten { operation, .. } if operation == id), "{settled}");
    verbs.set_weather();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(region.load(0), Ok(1), "what was held has arrived, and was executed");
    remote.post(write(3), Class::Control, soon(10)).wait().expect("the link is sound");
    assert_eq!(region.load(0), Ok(3));
}

/// Words that their owner writes over and over are read with some of one time and some of another, and each word whole: what is larger carries versions. How many
/// reads were.
fn what_is_larger_than_a_word_tears_under_a_writer(verbs: &mut Verbs, bytes: usize) -> u32 {
    const PATTERNS: [u8; 2] = [0x00, 0xff];
    let (owner, caller) = (verbs.node(), verbs.node());
    let region = owner.register(bytes as u64, ViewNumber(1)).expect("a node registers memory");
    let soon = || caller.clock().now() + Duration::from_secs(10);
    let peer = caller.connect(owner.identity(), &owner.address()).expect("a node connects");
    let remote = peer.open(&region.key(Rights::Read), soon()).expect("a key opens its region");
    let (is_over, give_up) = (AtomicBool::new(false), soon());
    let patterns = PATTERNS.map(|byte| vec![byte; bytes]);
    let mut torn = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in (0..2).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                region.write(0, &patterns[turn]).expect("an owner writes");
            }
        });
        // However this ends.
        let _over = Over(&is_over);
        while torn < 10 && caller.clock().now() < give_up {
            let into = caller.pool().take(bytes).expect("the pool has room");
            let read = remote.post(Batch::one(Operation::Read { at: 0, into }), Class::Control, soon()).wait();
            let Done::Buffer(buffer) = read.expect("the link is sound").remove(0) else {
                panic!("a read gives a buffer")
            };
            let words: Vec<_> = buffer.bytes().as_chunks::<8>().0.iter().collect();
            let torn_word = words.iter().find(|word| !PATTERNS.map(|byte| [byte; 8]).contains(word));
            assert!(torn_word.is_none(), "of {bytes} bytes a word is torn: {torn_word:x?}");
            torn += u32::from(words.iter().any(|word| *word != words[0]));
        }
    });
    assert!(torn >= 10, "only {torn} reads were torn");
    torn
}

/// Says when it is dropped that it is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const SKIPPED: [&str; 3] = [
    "batches_keep_their_order_where_promised",
    "synchronous_means_complete_on_return",
    "another_version_is_refused_by_name",
];

#[test]
fn target() {
    serve(ROCE);
}

#[test]
fn target_managed() {
    serve(MANAGED);
}

#[test]
fn target_siw() {
    serve(IWARP);
}

fn serve(kind: Kind) {
    serve_if_asked(|incarnation| {
        Arc::new(VerbsFabric::open(incarnation, config(kind, incarnation.rank, 1)).expect("a fabric on a device"))
    });
}

/// Where the manager takes calls: the packets of connections are known by it.
const CALLS: u16 = 0x6000;
const CALLS_MASK: u16 = 0xf000;

/// On one of the two devices.
fn config(kind: Kind, rank: Rank, device: u8) -> VerbsConfig {
    let address = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1 + device));
    let tcp = TcpConfig {
        listen: SocketAddr::new(address, 0),
        insecure: true,
        handshake: Duration::from_millis(500),
        ..TcpConfig::default()
    };
    VerbsConfig {
        tcp,
        device: format!("{}{device}", kind.prefix),
        port: 1,
        gid_index: kind.gid_index,
        gid: None,
        rdma_cm: kind.rdma_cm,
        address: Some(address),
        rdma_cm_port: CALLS + (rank.0 % u32::from(!CALLS_MASK)) as u16,
        service_levels: [0, 0],
        completions: Completions::Told,
    }
}

struct Verbs {
    kind: Kind,
    next_rank: u32,
    completions: Completions,
    network: Arc<Network>,
    processes: Processes,
    /// Which device a node is at.
    devices: Mutex<HashMap<Incarnation, u8>>,
    weather: Weather,
    /// Devices whose packets are held.
    held: Mutex<Vec<u8>>,
}

impl Verbs {
    fn open(&self, incarnation: Incarnation, device: u8, listen: Option<SocketAddr>) -> Arc<dyn Fabric> {
        let mut config = config(self.kind, incarnation.rank, device);
        config.completions = self.completions;
        config.tcp.listen = listen.unwrap_or(config.tcp.listen);
        let inner = VerbsFabric::open(incarnation, config).expect("a fabric on a device");
        self.devices.lock().insert(incarnation, device);
        self.network.join(inner)
    }

    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        self.next_rank
    }

    /// What happens to what a device sends, from now on.
    fn happen(&self, device: u8, fate: Fate) {
        let way: &[&str] = match fate {
            Fate::Pass if self.weather.is_empty() => &["pfifo"],
            Fate::Pass => &["netem"],
            Fate::Lose => &["netem", "loss", "100%"],
            Fate::Double => &["netem", "duplicate", "100%"],
            Fate::Hold => &["plug", "limit", "10000000"],
        };
        let weather = if way == ["netem"] { self.weather } else { &[] };
        if fate == Fate::Double {
            self.calm();
        }
        self.queue("replace", device, &[way, weather].concat());
        self.held.lock().retain(|held| *held != device);
        if fate == Fate::Hold {
            self.queue("change", device, &["plug", "block"]);
            self.held.lock().push(device);
        }
    }

    /// Sets what a device sends by: its link's own, or a band of `lo`.
    fn queue(&self, action: &str, device: u8, way: &[&str]) {
        let (link, band) = (format!("v{device}"), format!("1:{}", 2 + device));
        let at: &[&str] = if self.kind.has_links { &[&link, "root"] } else { &["lo", "parent", &band] };
        run("tc", ["qdisc", action, "dev"].iter().chain(at).chain(way));
    }

    /// Gives what each device sends by connections that the manager makes a band of its own on `lo`.
    fn split_lo(&self) {
        let all_first = ["0"; 16];
        let root = ["qdisc", "replace", "dev", "lo", "root", "handle", "1:", "prio", "bands", "3", "priomap"];
        run("tc", root.iter().chain(&all_first));
        let (port, mask) = (format!("{CALLS:#x}"), format!("{CALLS_MASK:#x}"));
        for device in [0, 1] {
            let (from, band) = (format!("10.77.0.{}/32", 1 + device), format!("1:{}", 2 + device));
            for side in ["sport", "dport"] {
                let filter = ["filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1", "u32"];
                let matches = ["match", "ip", "src", &from, "match", "ip", side, &port, &mask, "flowid", &band];
                run("tc", filter.iter().chain(&matches));
            }
        }
    }

    /// Packets that a device has sent.
    fn sent(&self, device: u8) -> u64 {
        let counter = if self.kind.has_links {
            format!("/sys/class/infiniband/{}{device}/ports/1/hw_counters/sent_pkts", self.kind.prefix)
        } else {
            "/sys/class/net/lo/statistics/tx_packets".into()
        };
        std::fs::read_to_string(counter).expect("a device counts").trim().parse().expect("a number")
    }

    /// Beside a netem that doubles there can be no other one on an interface.
    fn calm(&self) {
        if !self.kind.has_links {
            [0, 1].into_iter().for_each(|device| self.queue("replace", device, &["pfifo"]));
        }
    }

    fn set_weather(&self) {
        for device in std::mem::take(&mut *self.held.lock()) {
            self.queue("change", device, &["plug", "release_indefinite"]);
            std::thread::sleep(Duration::from_millis(20));
        }
        self.calm();
        [0, 1].into_iter().for_each(|device| self.happen(device, Fate::Pass));
    }

    fn device_of(&self, node: Incarnation) -> u8 {
        self.devices.lock()[&node]
    }
}

fn run<'a>(program: &str, arguments: impl Iterator<Item = &'a &'a str>) {
    let mut command = Command::new(program);
    assert!(command.args(arguments).status().expect("iproute2 is there").success(), "{command:?}");
}

impl Harness for Verbs {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        // One after the other at either end of the link: a device sends nothing to itself by it.
        self.open(Incarnation::new(rank, 1), (rank % 2) as u8, None)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        let way = self.network.between(from, to);
        let ends = [self.device_of(from), self.device_of(to)];
        assert_ne!(ends[0], ends[1], "nothing can happen between a device and itself");
        match fault {
            Fault::Cut => {
                way.up(Mode::Lose);
                self.network.between(to, from).down(Mode::Lose);
                self.happen(ends[0], Fate::Lose);
            }
            Fault::LoseAnswers => {
                way.down(Mode::Lose);
                self.happen(ends[1], Fate::Lose);
            }
            Fault::Hold => {
                way.up(Mode::Hold);
                self.happen(ends[0], Fate::Hold);
            }
            Fault::Repeat => self.happen(ends[0], Fate::Double),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        let (way, back) = (self.network.between(from, to), self.network.between(to, from));
        way.up(Mode::Pass);
        way.down(Mode::Pass);
        back.down(Mode::Pass);
        self.set_weather();
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        Ok(self.processes.start(self.kind.target, incarnation, bytes))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let (address, Incarnation { rank, start }) = (socket(&former.address()), former.identity());
        let device = self.device_of(former.identity());
        drop(former);
        Ok(self.open(Incarnation { rank, start: start + 1 }, device, Some(address)))
    }
}
