//! The conformance suite on the provider `xdp`, between network namespaces.
//!
//! The nodes of the checks are in one namespace, where the program is generic on `lo`; targets are processes in another one, on the
//! other end of a virtual link, where it is native or generic. Every node reaches every other through a relay of its own, for
//! datagrams and for connections, so that a fault can be between any two of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::datagrams::{Datagrams, Fate};
use crate::common::relayed::Relayed;
use parking_lot::Mutex;
use verbena_fabric::conformance::{Able, Fault, Harness, Processes, Target, run_all, serve_if_asked};
use verbena_fabric::tcp::TcpConfig;
use verbena_fabric::xdp::{XdpConfig, XdpFabric, interface};
use verbena_fabric::{Address, Fabric, XdpMode};
use verbena_namespaces::{End, Namespace};
use verbena_terms::Incarnation;
use verbena_testkit::namespaces;
use verbena_testkit::relay::{Mode, Relay, Relays};

/// Where the checks' nodes are.
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// The end of the virtual link that a target is at.
const FAR: &str = "far";

/// The addresses of the two ends of the virtual link to a target.
fn ends(nth: u8) -> [IpAddr; 2] {
    [1, 2].map(|end| IpAddr::V4(Ipv4Addr::new(10, 77, nth, end)))
}

#[test]
fn generic() {
    check("conformance_xdp::generic_target", Fate::Pass);
}

#[test]
fn native() {
    check("conformance_xdp::native_target", Fate::Pass);
}

#[test]
fn over_a_network_that_loses_and_reorders() {
    check("conformance_xdp::native_target", Fate::Rough);
}

fn check(target: &'static str, fate: Fate) {
    let Some(own) = namespaces::own(NEAR) else { return };
    let network = Arc::new(Network::new(fate));
    let mut xdp = Xdp { next_rank: 1, target, own, links: Vec::new(), network, processes: Processes::default() };
    let report = run_all(&mut xdp);
    let skipped: Vec<&str> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, SKIPPED);
    assert_eq!(report.ran, 43 - SKIPPED.len());
    let carried: u64 = xdp.network.by_pair.lock().values().map(|way| way.datagrams.carried()).sum();
    assert!(carried > 1_000, "{carried} datagrams");
}

const SKIPPED: [&str; 4] = [
    "what_is_handed_on_shows_the_region",
    "batches_keep_their_order_where_promised",
    "synchronous_means_complete_on_return",
    "another_version_is_refused_by_name",
];

#[test]
fn generic_target() {
    serve_if_asked(|incarnation| target(incarnation, XdpMode::Generic));
}

#[test]
fn native_target() {
    serve_if_asked(|incarnation| target(incarnation, XdpMode::Native));
}

fn target(incarnation: Incarnation, mode: XdpMode) -> Arc<dyn Fabric> {
    let address = (1..=u8::MAX).map(|nth| ends(nth)[1]).find(|end| interface::Interface::name_of(*end).is_ok());
    let address = address.expect("a target is at the end of a virtual link");
    let fabric = XdpFabric::open(incarnation, XdpConfig { interfaces: Vec::new(), mode, ..config(address) });
    Arc::new(fabric.expect("a fabric on a virtual link"))
}

fn config(ip: IpAddr) -> XdpConfig {
    let tcp = TcpConfig { listen: SocketAddr::new(ip, 0), insecure: true, ..TcpConfig::default() };
    XdpConfig { tcp, interfaces: vec!["lo".into()], mode: XdpMode::Generic }
}

struct Xdp {
    next_rank: u32,
    target: &'static str,
    own: Namespace,
    /// To targets. Each has a program that receives: without one native answers do not come back.
    links: Vec<OwnedFd>,
    network: Arc<Network>,
    processes: Processes,
}

/// The relays, by who calls and where to.
struct Network {
    relays: Relays,
    fate: Fate,
    by_pair: Mutex<HashMap<(Incarnation, SocketAddr), Arc<Between>>>,
    addresses: Mutex<HashMap<Incarnation, SocketAddr>>,
}

/// The relays of one pair of nodes, one way.
struct Between {
    connections: Relay,
    datagrams: Datagrams,
}

impl Network {
    fn new(fate: Fate) -> Self {
        Network { relays: Relays::default(), fate, by_pair: Mutex::default(), addresses: Mutex::default() }
    }

    fn relay(&self, from: Incarnation, to: SocketAddr) -> Arc<Between> {
        self.by_pair.lock().entry((from, to)).or_insert_with(|| Arc::new(self.make(to))).clone()
    }

    /// Both at one port.
    fn make(&self, to: SocketAddr) -> Between {
        let made = (0..100).find_map(|_| {
            let connections = self.relays.at(SocketAddr::new(NEAR, 0), to);
            let here = UdpSocket::bind(connections.address).ok()?;
            Some(Between { datagrams: Datagrams::to(here, to, self.fate), connections })
        });
        made.expect("a port that is free for both")
    }

    fn between(&self, from: Incarnation, to: Incarnation) -> Arc<Between> {
        let address = self.addresses.lock()[&to];
        self.relay(from, address)
    }
}

impl Xdp {
    fn open(&self, incarnation: Incarnation, listen: Option<SocketAddr>) -> Arc<dyn Fabric> {
        let mut config = config(NEAR);
        config.tcp.listen = listen.unwrap_or(config.tcp.listen);
        let inner = XdpFabric::open(incarnation, config).expect("a fabric on loopback");
        self.network.addresses.lock().insert(incarnation, socket(&inner.address()));
        let network = self.network.clone();
        let way = move |to: &Address| {
            let relay = network.relay(incarnation, socket(to));
            Address(format!("xdp://{}", relay.connections.address))
        };
        Arc::new(Relayed { inner, way })
    }

    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        self.next_rank
    }
}

impl Harness for Xdp {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        self.open(Incarnation::new(rank, 1), None)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        let way = self.network.between(from, to);
        match fault {
            Fault::Cut => {
                way.connections.up(Mode::Lose);
                way.datagrams.up(Fate::Lose);
                self.network.between(to, from).connections.down(Mode::Lose);
                self.network.between(to, from).datagrams.down(Fate::Lose);
            }
            Fault::LoseAnswers => {
                way.connections.down(Mode::Lose);
                way.datagrams.down(Fate::Lose);
            }
            Fault::Hold => {
                way.connections.up(Mode::Hold);
                way.datagrams.up(Fate::Hold);
            }
            Fault::Repeat => way.datagrams.up(Fate::Double),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        let (way, back) = (self.network.between(from, to), self.network.between(to, from));
        way.connections.up(Mode::Pass);
        way.connections.down(Mode::Pass);
        back.connections.down(Mode::Pass);
        way.datagrams.up(self.network.fate);
        way.datagrams.down(self.network.fate);
        back.datagrams.down(self.network.fate);
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        let nth = self.links.len() as u8 + 1;
        let ([near, far], near_name) = (ends(nth), format!("near{nth}"));
        let namespace = Namespace::new().expect("a network for a target");
        self.own.link(End::new(&near_name, near), &namespace, End::new(FAR, far)).expect("a virtual link");
        self.links.push(interface::pass_all(&near_name).expect("a program on an interface of ours"));
        let (processes, name) = (&mut self.processes, self.target);
        Ok(namespace.enter(move || processes.start(name, incarnation, bytes)).expect("a network of ours"))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let (address, Incarnation { rank, start }) = (socket(&former.address()), former.identity());
        drop(former);
        Ok(self.open(Incarnation { rank, start: start + 1 }, Some(address)))
    }
}

fn socket(address: &Address) -> SocketAddr {
    address.rest().parse().expect("a node in a namespace of ours has a numeric address")
}
