//! Where nodes are: the fabric that they are on, and what is below it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::verbs::VerbsFabric;
use verbena_fabric::xdp::{XdpConfig, XdpFabric};
use verbena_fabric::{Fabric, Pool, XdpMode};
use verbena_terms::Incarnation;

use crate::processes::child::Node;
use crate::processes::station::Station;
use verbena_testkit::adapters::{IWARP, Kind, ROCE};
use verbena_testkit::networks::Networks;

/// Soft-RoCE and soft-iWARP, of which a machine has two devices each.
const ROCE_NAME: &str = ROCE.prefix;
const IWARP_NAME: &str = IWARP.prefix;

pub struct Ground {
    provider: String,
    networks: Option<Networks>,
}

impl Ground {
    /// That of a provider: `shm`, `tcp`, `xdp`, or a kind of devices for `verbs`. `None` where it cannot be: then it is said that the test is skipped.
    pub fn of(provider: &str) -> Option<Ground> {
        let networks = if provider == "xdp" { Some(Networks::new()?) } else { None };
        Some(Ground { provider: provider.into(), networks })
    }

    pub fn name(&self) -> &str {
        &self.provider
    }

    /// Operations of each process. An emulated processor takes longer for each.
    pub fn operations(&self) -> u64 {
        if self.is_emulated() { 300 } else { 1500 }
    }

    fn is_emulated(&self) -> bool {
        [ROCE_NAME, IWARP_NAME].contains(&self.name())
    }

    /// Bytes of a value that two writers put without a pause. What is put in many frames, or by an emulated processor, takes long.
    pub fn large(&self) -> u64 {
        match (&self.networks, self.is_emulated()) {
            (Some(_), _) => 32 << 10,
            (None, true) => 128 << 10,
            (None, false) => 1 << 20,
        }
    }

    /// Bytes of a value that takes long to put.
    pub fn huge(&self) -> u64 {
        if self.networks.is_some() || self.is_emulated() { 512 << 10 } else { 8 << 20 }
    }

    /// How many writers are to be killed in the middle of a put.
    pub fn enough_killed(&self) -> u32 {
        if self.is_emulated() { 1 } else { 2 }
    }

    /// That what was asked of the station, or by it, was executed by a kernel or an adapter, where it is to be.
    pub fn is_used(&self, station: &Station) {
        if self.networks.is_some() {
            let frames = station.fabric.frames();
            assert!(frames.sent + frames.answered > 100, "{frames:?}");
        }
        if self.is_emulated() {
            let (connections, messages) = (station.fabric.connections(), station.fabric.messages());
            assert!(
                connections.made > 0 && connections.taken > 0 && messages.sent > 0,
                "{connections:?}, {messages:?}"
            );
        }
    }

    /// The node in this process, and in this thread.
    pub fn station(&self) -> Station {
        const RANK: u32 = 1;
        if let Some(networks) = &self.networks {
            networks.add(&name(RANK), address(RANK)).join().unwrap();
        }
        Station::open(&self.provider, RANK)
    }

    /// A node in a process of its own.
    pub fn node(&self, rank: u32) -> Node {
        let start = || Node::start(&self.provider, rank);
        match &self.networks {
            None => start(),
            Some(networks) => networks.add(&name(rank), address(rank)).enter(start).unwrap(),
        }
    }
}

fn name(rank: u32) -> String {
    format!("n{rank}")
}

/// Of the node of this rank that has a network of its own.
fn address(rank: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(rank).unwrap())
}

/// A node of a provider, where this thread is.
pub fn open(provider: &str, identity: Incarnation) -> Arc<dyn Fabric> {
    match provider {
        "shm" => Shm::open(Settings { identity, pool: Pool::new(64 << 20), allowed_users: vec![] }).unwrap(),
        "tcp" => Arc::new(TcpFabric::open(identity, TcpConfig::default()).unwrap()),
        "xdp" => {
            let listen = SocketAddr::from((address(identity.rank.0), 0));
            let tcp = TcpConfig { listen, insecure: true, ..TcpConfig::default() };
            Arc::new(XdpFabric::open(identity, XdpConfig { tcp, interfaces: vec![], mode: XdpMode::Native }).unwrap())
        }
        ROCE_NAME => on_device(ROCE, identity),
        IWARP_NAME => on_device(IWARP, identity),
        _ => panic!("{provider} is no provider"),
    }
}

/// On one of the two devices of a machine; those of even rank on the first.
fn on_device(kind: Kind, identity: Incarnation) -> Arc<dyn Fabric> {
    let device = (identity.rank.0 % 2) as u8;
    let mut config = kind.config(identity.rank, device, Ipv4Addr::new(10, 77, 0, 1 + device));
    config.tcp.handshake = Duration::from_secs(2);
    // One that is free: another life of this rank may have been here just now.
    config.rdma_cm_port = 0;
    Arc::new(VerbsFabric::open(identity, config).unwrap())
}
