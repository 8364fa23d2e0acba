//! Where nodes are: the fabric that they are on, and what is below it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::xdp::{XdpConfig, XdpFabric};
use verbena_fabric::{Fabric, Pool, XdpMode};
use verbena_lock::Scheme;
use verbena_terms::Incarnation;

use crate::fabrics::station::Station;
use verbena_testkit::networks::Networks;

pub struct Ground {
    provider: String,
    networks: Option<Networks>,
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
            Some(networks) => networks.add(&format!("n{rank}l{life}"), address(identity)).enter(start).unwrap(),
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
