//! The members that a service reaches in one life of its node, and the region that it has of each.
//!
//! To open something may block a thread, so it happens elsewhere: [`Contacts::openings`] says what is to be opened, and [`Contacts::opened`] is told what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use crate::error::Result;
use crate::provider::{Address, Fabric, Peer};
use crate::region::{RegionKey, SharedRemote};

/// How long opening a region may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);
/// When a region that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// When a member whose address could not be used is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// Whom a service reaches, and what it has open.
pub struct Contacts {
    fabric: Arc<dyn Fabric>,
    peers: BTreeMap<Incarnation, Link>,
    regions: BTreeMap<Incarnation, Known>,
}

/// A member, as this node reaches it.
struct Link {
    address: Address,
    access: Access<Arc<dyn Peer>>,
}

/// A member's region, as this node has it.
struct Known {
    key: RegionKey,
    access: Access<SharedRemote>,
}

enum Access<T> {
    ToOpen(Time),
    Opening,
    Open(T),
}

impl<T> Access<T> {
    /// When it is to be opened.
    fn due(&self) -> Option<Time> {
        match self {
            Access::ToOpen(at) => Some(*at),
            Access::Opening | Access::Open(_) => None,
        }
    }

    fn open(&self) -> Option<&T> {
        match self {
            Access::Open(open) => Some(open),
            Access::ToOpen(_) | Access::Opening => None,
        }
    }
}

/// What is to be opened.
pub struct Opening {
    /// In whose life.
    me: Incarnation,
    what: ToOpen,
}

enum ToOpen {
    Peer { fabric: Arc<dyn Fabric>, member: Incarnation, address: Address },
    Region { peer: Arc<dyn Peer>, key: RegionKey, deadline: Time },
}

/// It is open, or cannot be opened.
pub struct Opened {
    me: Incarnation,
    what: IsOpen,
}

enum IsOpen {
    Peer(Incarnation, Result<Arc<dyn Peer>>),
    Region(RegionKey, Result<SharedRemote>),
}

impl Opening {
    /// Opens it. May block, for a second at most.
    pub fn run(self) -> Opened {
        let what = match self.what {
            ToOpen::Peer { fabric, member, address } => IsOpen::Peer(member, fabric.connect(member, &address)),
            ToOpen::Region { peer, key, deadline } => {
                let region = peer.open(&key, deadline);
                IsOpen::Region(key, region)
            }
        };
        Opened { me: self.me, what }
    }
}

impl Contacts {
    /// Of a life on this fabric. It knows nobody yet.
    pub fn new(fabric: Arc<dyn Fabric>) -> Self {
        Contacts { fabric, peers: BTreeMap::new(), regions: BTreeMap::new() }
    }

    /// A view has these members, this node among them. Regions of older views are open no longer.
    pub fn view(&mut self, members: impl Iterator<Item = (Incarnation, Address)>, now: Time) {
        let members: BTreeMap<_, _> = members.collect();
        self.regions.clear();
        self.peers.retain(|peer, _| members.contains_key(peer));
        let me = self.fabric.identity();
        for (peer, address) in members {
            let address = if peer == me { self.fabric.address() } else { address };
            self.peers.entry(peer).or_insert(Link { address, access: Access::ToOpen(now) });
        }
    }

    /// A member has said by which key its region is opened.
    pub fn learn(&mut self, key: RegionKey, now: Time) {
        self.regions.insert(key.owner, Known { key, access: Access::ToOpen(now) });
    }

    /// What is to be opened now: it is being opened from now on.
    pub fn openings(&mut self, now: Time) -> Vec<Opening> {
        let me = self.fabric.identity();
        let is_due = |due: Option<Time>| due.is_some_and(|at| at <= now);
        let mut openings = vec![];
        for (member, link) in &mut self.peers {
            if is_due(link.access.due()) {
                link.access = Access::Opening;
                let (fabric, address) = (self.fabric.clone(), link.address.clone());
                openings.push(Opening { me, what: ToOpen::Peer { fabric, member: *member, address } });
            }
        }
        for (owner, known) in &mut self.regions {
            if is_due(known.access.due())
                && let Some(peer) = self.peers.get(owner).and_then(|link| link.access.open())
            {
                known.access = Access::Opening;
                let (peer, key, deadline) = (peer.clone(), known.key.clone(), now + OPEN_DEADLINE);
                openings.push(Opening { me, what: ToOpen::Region { peer, key, deadline } });
            }
        }
        openings
    }

    /// Something was opened, or not. Gives the member that can be told something from now on.
    pub fn opened(&mut self, opened: Opened, now: Time) -> Option<Incarnation> {
        if opened.me != self.fabric.identity() {
            return None;
        }
        match opened.what {
            IsOpen::Peer(member, peer) => {
                let link = self.peers.get_mut(&member)?;
                let (is_open, address) = (peer.is_ok(), &link.address);
                link.access = peer.map(Access::Open).unwrap_or_else(|error| {
                    tracing::warn!(peer = %member, %address, %error, "a member cannot be reached on this fabric");
                    Access::ToOpen(now + CONNECT_AGAIN)
                });
                is_open.then_some(member)
            }
            IsOpen::Region(key, region) => {
                let known = self.regions.get_mut(&key.owner).filter(|known| known.key == key)?;
                known.access = region.map(Access::Open).unwrap_or_else(|error| {
                    tracing::debug!(owner = %key.owner, %error, "a member's region could not be opened");
                    Access::ToOpen(now + OPEN_AGAIN)
                });
                None
            }
        }
    }

    /// A member, if it is reached.
    pub fn peer(&self, member: Incarnation) -> Option<&Arc<dyn Peer>> {
        self.peers.get(&member)?.access.open()
    }

    /// A member's region, if it is open.
    pub fn region(&self, owner: Incarnation) -> Option<&SharedRemote> {
        self.regions.get(&owner)?.access.open()
    }

    /// When something is to be opened. Regions wait until their owner is reached: that is said by [`opened`](Self::opened).
    pub fn next_deadline(&self) -> Option<Time> {
        let of_reached = self.regions.iter().filter(|(owner, _)| self.peer(**owner).is_some());
        let regions = of_reached.filter_map(|(_, known)| known.access.due());
        self.peers.values().filter_map(|link| link.access.due()).chain(regions).min()
    }
}
