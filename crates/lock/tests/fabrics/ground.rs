//! Where nodes are: the fabric that they are on, and what is below it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::xdp::{XdpConfig, XdpFabric, interface};
use verbena_fabric::{Fabric, Pool, XdpMode};
use verbena_lock::Scheme;
use verbena_namespaces::{Crossing, Namespace};
use verbena_terms::Incarnation;

use crate::namespaces;
use crate::station::Station;

/// Where networks cross.
const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);

pub struct Ground {
    provider: String,
    networks: Option<Networks>,
}

/// Networks of one node each, which cross in a network in their middle.
struct Networks {
    middle: Namespace,
    crossing: Crossing,
    /// At the ends of links in the middle: answers of the kernel's come by them only to who has a program that receives.
    passing: Mutex<Vec<OwnedFd>>,
}

impl Ground {
    /// That of a provider: `shm`, `tcp` or `xdp`. `None` where it cannot be: then it is said that the test is skipped.
    pub fn of(provider: &str) -> Option<Ground> {
        let networks = if provider == "xdp" { Some(Networks::new()?) } else { None };
        Some(Ground { provider: provider.into(), networks })
    }

    /// A life of the node of this rank, where its network is.
    pub fn station(&self, rank: u32, life: u32, scheme: Scheme) -> Station {
        let identity = Incarnation::new(rank, life);
        let start = || Station::start(open(&self.provider, identity), scheme);
        match &self.networks {
            None => start(),
            Some(networks) => networks.add(rank, life).enter(start).unwrap(),
        }
    }

    /// That what changed words was executed by a kernel, where it is to be.
    pub fn is_used(&self, stations: &[Station]) {
        if self.networks.is_some() {
            let frames = stations.iter().map(|station| station.fabric.frames());
            let count: u64 = frames.map(|frames| frames.sent + frames.answered).sum();
            assert!(count > 200, "{count} frames");
        }
    }
}

impl Networks {
    fn new() -> Option<Networks> {
        let middle = namespaces::own(IpAddr::V4(MIDDLE))?;
        let crossing = Crossing::new(Namespace::here().unwrap(), MIDDLE).unwrap();
        Some(Networks { middle, crossing, passing: Mutex::default() })
    }

    fn add(&self, rank: u32, life: u32) -> Namespace {
        let (network, name) = (Namespace::new().unwrap(), format!("n{rank}l{life}"));
        self.crossing.connect(&name, &network, &[address(Incarnation::new(rank, life))]).unwrap();
        let passing = self.middle.enter(|| interface::pass_all(&name).unwrap()).unwrap();
        self.passing.lock().unwrap().push(passing);
        network
    }
}

/// Of a node that has a network of its own.
fn address(who: Incarnation) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, who.start as u8, who.rank.0 as u8)
}

fn open(provider: &str, identity: Incarnation) -> Arc<dyn Fabric> {
    match provider {
        "shm" => Shm::open(Settings { identity, pool: Pool::new(64 << 20), allowed_users: vec![] }).unwrap(),
        "tcp" => Arc::new(TcpFabric::open(identity, TcpConfig::default()).unwrap()),
        "xdp" => {
            let listen = SocketAddr::from((address(identity), 0));
            let tcp = TcpConfig { listen, insecure: true, ..TcpConfig::default() };
            Arc::new(XdpFabric::open(identity, XdpConfig { tcp, interfaces: vec![], mode: XdpMode::Native }).unwrap())
        }
        _ => panic!("{provider} is no provider"),
    }
}
