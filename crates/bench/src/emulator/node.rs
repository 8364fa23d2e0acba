//! A node at one site: a fabric with a region, and what it has of the other site's.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_fabric::{
    Address, Choice, Error, Fabric, FabricConfig, Interconnect, Meeting, Peer, Provider, Region, RegionKey, Result,
    Rights, SharedRemote, XdpMode,
};
use verbena_terms::{Incarnation, Size, Time, ViewNumber};

use super::paths::Site;

/// No operation may take longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The only view there is.
const VIEW: ViewNumber = ViewNumber(1);
/// Nodes at the near site have ranks from here on.
pub(super) const NEAR: u32 = 1;
/// And at the far one.
pub(super) const FAR: u32 = 1_001;
/// Where a node of rank 0 would listen.
const PORT: u16 = 7_400;
/// For writes under way.
const POOL: Size = Size(64 << 20);
const POOL_OF_MANY: Size = Size(8 << 20);

/// Where a node is to be, and on what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seat {
    choice: Choice,
    rank: u32,
    own: String,
    interface: String,
    device: Option<String>,
    mode: XdpMode,
    /// Bytes of its region.
    bytes: u64,
    /// And of its memory for what is under way.
    pool: Size,
}

impl Seat {
    pub(super) fn new(provider: Provider, site: Site<'_>, rank: u32, bytes: u64) -> Self {
        let own = format!("{}://{}", provider.name(), SocketAddr::new(site.address, PORT + rank as u16));
        let (interface, device) = (site.interface.to_owned(), site.device.map(str::to_owned));
        Seat { choice: provider.choice(), rank, own, interface, device, mode: site.mode, bytes, pool: POOL }
    }

    /// One of many, which has little under way: adapters keep all of this from being paged out.
    pub(super) fn of_many(self) -> Self {
        Seat { pool: POOL_OF_MANY, ..self }
    }
}

/// How a node is reached, and its region opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Card {
    who: Incarnation,
    address: Address,
    key: RegionKey,
}

/// A node.
pub(super) struct Node {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) region: Box<dyn Region>,
}

impl Node {
    /// Opens it, by a thread that is at its site.
    pub(super) fn open(seat: &Seat) -> Result<Self> {
        let who = Incarnation::new(seat.rank, 1);
        let config = FabricConfig {
            provider: seat.choice,
            // The data is worthless, and no other host is on the experiment's own link; on a link of adapters any host
            // that reaches it can write.
            insecure: true,
            // The address of a site is not an address of its interface.
            xdp_interfaces: vec![seat.interface.clone()],
            xdp_mode: seat.mode,
            verbs_device: seat.device.clone(),
            pool: seat.pool,
            ..FabricConfig::default()
        };
        let meeting =
            Meeting { directory: PathBuf::new(), own: Address(seat.own.clone()), members: vec![seat.own.clone()] };
        let fabric = Interconnect::new(config, meeting)?.open(who)?.fabric;
        fabric.set_view(VIEW);
        let region = fabric.register(seat.bytes, VIEW)?;
        Ok(Node { fabric, region })
    }

    pub(super) fn card(&self) -> Card {
        Card { who: self.fabric.identity(), address: self.fabric.address(), key: self.region.key(Rights::Change) }
    }

    /// Opens the region of another one.
    pub(super) fn meet(&self, other: &Card) -> Result<Met> {
        let peer = self.fabric.connect(other.who, &other.address)?;
        let remote = peer.open(&other.key, self.deadline())?;
        Ok(Met { remote, _peer: peer })
    }

    /// For what is posted now.
    pub(super) fn deadline(&self) -> Time {
        self.fabric.clock().now() + PATIENCE
    }
}

/// Another node, as a node has it.
pub(super) struct Met {
    pub(super) remote: SharedRemote,
    _peer: Arc<dyn Peer>,
}

/// As processes tell each other.
pub(super) fn text(error: Error) -> String {
    error.to_string()
}
