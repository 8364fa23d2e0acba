//! A cluster of four real nodes, what can be done to one of them, and which locks it is the home of.

use std::net::Ipv4Addr;
use std::time::Duration;

use rustix::process::Signal;
use verbena_client::{Helper, Socket};
use verbena_cluster::{Member, Roles, View};
use verbena_lock::Name;
use verbena_namespaces::{Block, Crossing, Namespace};
use verbena_terms::{Incarnation, Rank, ViewNumber};
use verbena_testkit::nodes::{Cluster, Node, are_in};

use super::session::Place;

pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The first one grants the leases of all.
pub const KEEPER: usize = 0;

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// Its helper is killed, and started again when everything has been looked at.
    Kill,
    /// Its helper is stopped for three leases.
    Stop,
    /// Nothing comes from it or to it.
    CutOff,
    /// Nothing comes to it.
    Deaf,
    /// Nothing comes from it.
    Mute,
}

/// What nodes have logged is shown where a test fails.
pub struct Stage {
    pub cluster: Cluster,
    pub lease: Duration,
    /// What counts that kernels execute what nodes ask of each other's memory, or adapters carry it, where they are to.
    counter: Option<&'static str>,
    nodes: [Option<Node>; 4],
    networks: Option<Networks>,
    /// As all nodes see it when all are in, but for lives and number: those do not tell where homes are.
    view: View,
}

struct Networks {
    crossing: Crossing,
    each: [Namespace; 4],
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 82, 1, node as u8 + 1)
}

impl Networks {
    /// Of the four nodes, who reach each other through one in the middle.
    fn new(middle: Namespace) -> Networks {
        let crossing = Crossing::new(middle, Ipv4Addr::new(10, 82, 0, 1)).unwrap();
        let each = std::array::from_fn(|node| {
            let network = Namespace::new().unwrap();
            crossing.connect(&format!("to-{node}"), &network, &[address(node)]).unwrap();
            network
        });
        Networks { crossing, each }
    }

    fn ways(blow: Blow, node: usize) -> Vec<(Block, Block)> {
        let (one, all) = (Block::from(address(node)), Block::new(Ipv4Addr::new(10, 82, 1, 0), 24));
        match blow {
            Blow::CutOff => vec![(one, all), (all, one)],
            Blow::Deaf => vec![(all, one)],
            Blow::Mute => vec![(one, all)],
            Blow::Kill | Blow::Stop => vec![],
        }
    }
}

impl Stage {
    pub fn on_shm(lease: Duration) -> Stage {
        Stage::new(lease, NAMES.map(|name| (name, format!("shm://{name}"))), None, "")
    }

    /// On loopback.
    pub fn on_tcp(lease: Duration) -> Stage {
        let host = Cluster::own_host();
        // Beside those of `Cluster::on_tcp`.
        let mut port = 6100;
        let members = NAMES.map(|name| {
            port += 1;
            (name, format!("tcp://{host}:{port}"))
        });
        Stage::new(lease, members, None, "")
    }

    /// Each in a network of its own.
    pub fn on_networks(lease: Duration, middle: Namespace) -> Stage {
        Stage::linked(lease, "tcp", middle)
    }

    /// The same, where kernels execute what is asked.
    pub fn on_xdp(lease: Duration, middle: Namespace) -> Stage {
        let mut stage = Stage::linked(lease, "xdp", middle);
        stage.counter = Some("verbena_fabric_frames_answered_total");
        stage
    }

    /// On the two RDMA devices of a machine of scripts/rdma-vm, by turns.
    pub fn on_adapters(lease: Duration) -> Stage {
        let members = std::array::from_fn(|node| {
            let (host, port) = (Ipv4Addr::new(10, 77, 0, node as u8 % 2 + 1), 7001 + node);
            (NAMES[node], format!("verbs://{host}:{port}"))
        });
        let mut stage = Stage::new(lease, members, None, "[fabric]\ninsecure = true\n");
        stage.counter = Some("verbena_fabric_messages_arrived_total");
        stage
    }

    fn linked(lease: Duration, provider: &str, middle: Namespace) -> Stage {
        let members = std::array::from_fn(|node| (NAMES[node], format!("{provider}://{}:7001", address(node))));
        // A virtual link hands on what a driver sends back only to who has a program too: the network in the middle has none.
        let set = "[fabric]\ninsecure = true\nxdp_mode = \"generic\"\n";
        Stage::new(lease, members, Some(Networks::new(middle)), set)
    }

    /// With this in the file that all nodes share.
    fn new(lease: Duration, members: [(&'static str, String); 4], networks: Option<Networks>, set: &str) -> Stage {
        let cluster = Cluster::new(&format!("{}ms", lease.as_millis()), &members);
        cluster.set(set);
        let member = |(name, address): &(&str, String), rank| Member {
            incarnation: Incarnation::new(rank, 1),
            name: (*name).to_owned(),
            address: address.clone(),
            roles: Roles::ALL,
        };
        let members = members.iter().zip(1..).map(|(listed, rank)| member(listed, rank)).collect();
        let view = View::new(ViewNumber(1), members, vec![]).unwrap();
        let mut stage = Stage { cluster, lease, counter: None, nodes: [const { None }; 4], networks, view };
        (0..4).for_each(|node| stage.start(node));
        stage.wait_until_all_in();
        stage
    }

    pub fn place(&self) -> Place {
        Place::of(self.cluster.path())
    }

    fn start(&mut self, node: usize) {
        let start = || self.cluster.start(NAMES[node]);
        let started = match &self.networks {
            Some(networks) => networks.each[node].enter(start).unwrap(),
            None => start(),
        };
        self.nodes[node] = Some(started);
    }

    fn node(&self, node: usize) -> &Node {
        self.nodes[node].as_ref().expect("it runs")
    }

    pub fn strike(&mut self, node: usize, blow: Blow) {
        match blow {
            Blow::Kill => self.nodes[node].take().expect("it runs").kill(),
            Blow::Stop => self.node(node).signal(Signal::STOP),
            _ => self.each_way(node, blow, |crossing, from, to| crossing.close(from, to)),
        }
    }

    /// Takes that back.
    pub fn heal(&mut self, node: usize, blow: Blow) {
        match blow {
            Blow::Kill => self.start(node),
            Blow::Stop => self.node(node).signal(Signal::CONT),
            _ => self.each_way(node, blow, |crossing, from, to| crossing.open(from, to)),
        }
    }

    fn each_way(
        &self,
        node: usize,
        blow: Blow,
        act: impl Fn(&Crossing, Block, Block) -> Result<(), verbena_namespaces::Error>,
    ) {
        let networks = self.networks.as_ref().expect("only networks are cut");
        Networks::ways(blow, node).into_iter().try_for_each(|(from, to)| act(&networks.crossing, from, to)).unwrap();
    }

    pub fn wait_until_all_in(&self) {
        self.wait_until_in(&[0, 1, 2, 3]);
    }

    /// Until these, and no others, are in by the word of each of them.
    pub fn wait_until_in(&self, nodes: &[usize]) {
        let ranks: Vec<u64> = nodes.iter().map(|node| *node as u64 + 1).collect();
        for node in nodes {
            self.node(*node).wait_until("those in", |status| are_in(status, &ranks));
        }
    }

    /// That kernels or adapters did what they were to do, in the lives that nodes have now.
    pub fn is_used(&self) {
        let Some(counter) = self.counter else { return };
        let used = |node: &&str| -> u64 {
            let socket = Socket::new(Some(&self.place().runtime), Some(node)).unwrap();
            let metrics = Helper::connect(&socket, self.lease).unwrap().metrics().unwrap();
            let found = metrics.lines().find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
            found.expect("it is counted").parse().unwrap()
        };
        let used: u64 = NAMES.iter().map(used).sum();
        assert!(used > 100, "{counter} is {used}");
    }

    /// A lock whose home is this node when all are in.
    pub fn lock_of(&self, home: usize, name: &str) -> String {
        let names = (0..).map(|nth| format!("{name}-{nth}"));
        let rank = Rank(home as u32 + 1);
        let is_there = |name: &String| {
            let owner = Name::new(name.as_bytes()).unwrap().home(&self.view);
            owner.is_some_and(|owner| owner.rank == rank)
        };
        names.take(10_000).find(is_there).expect("each node is the home of some")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (node, name) in self.nodes.iter().zip(NAMES) {
                println!("{name}: {}", node.as_ref().map_or("not running".into(), Node::log));
            }
        }
    }
}
