//! The members that a service reaches in one incarnation of its node, and each member's regions.
//!
//! Opening a connection or a region may block, so another thread does it: [`Peers::open_tasks`] gives what is due, and [`Peers::opened`] takes the results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::{Address, Error, Fabric, Peer, RegionKey, Result, SharedRemote};
use verbena_terms::{Incarnation, Time, ViewNumber};

/// The view of regions that belong to none: they last as long as their owner's incarnation.
const NO_VIEW: ViewNumber = ViewNumber(0);
/// How long opening a region may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);
/// When a region that could not be opened is tried again.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// When a member whose address could not be used is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// What a member's region is for. A service whose members have several numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionUse(pub u8);

impl RegionUse {
    /// Of the only region that each member has.
    pub const ONLY: RegionUse = RegionUse(0);
}

/// A service's connections to members, and the members' regions that it has open.
pub struct Peers {
    fabric: Arc<dyn Fabric>,
    peers: BTreeMap<Incarnation, Link>,
    regions: BTreeMap<(Incarnation, RegionUse), Remote>,
}

/// The connection to a member.
struct Link {
    address: Address,
    access: Access<Arc<dyn Peer>>,
}

/// A member's region.
struct Remote {
    key: RegionKey,
    access: Access<SharedRemote>,
}

enum Access<T> {
    /// To be opened at this time.
    Closed(Time),
    Opening,
    Open(T),
}

impl<T> Access<T> {
    /// When to open it; `None` if it is open or being opened.
    fn due(&self) -> Option<Time> {
        match self {
            Access::Closed(at) => Some(*at),
            Access::Opening | Access::Open(_) => None,
        }
    }

    fn open(&self) -> Option<&T> {
        match self {
            Access::Open(open) => Some(open),
            Access::Closed(_) | Access::Opening => None,
        }
    }
}

/// A connection or a region to open.
pub struct OpenTask {
    /// The incarnation that asks.
    me: Incarnation,
    what: Target,
}

enum Target {
    Peer { fabric: Arc<dyn Fabric>, member: Incarnation, address: Address },
    Region { peer: Arc<dyn Peer>, key: RegionKey, of: RegionUse, deadline: Time },
}

/// What came of an [`OpenTask`].
pub struct OpenResult {
    me: Incarnation,
    what: Attempt,
}

enum Attempt {
    Peer(Incarnation, Result<Arc<dyn Peer>>),
    Region(RegionKey, RegionUse, Result<SharedRemote>),
}

/// What a result has changed.
pub enum Opened {
    /// Messages to this member go through from now on.
    Peer(Incarnation),
    /// A region of this member could not be opened. It is tried again.
    Failure(Incarnation, Error),
    /// Nothing that the service has to hear of.
    Nothing,
}

impl OpenTask {
    /// Opens it. May block, for a second at most.
    pub fn run(self) -> OpenResult {
        let what = match self.what {
            Target::Peer { fabric, member, address } => Attempt::Peer(member, fabric.connect(member, &address)),
            Target::Region { peer, key, of, deadline } => {
                let region = peer.open(&key, deadline);
                Attempt::Region(key, of, region)
            }
        };
        OpenResult { me: self.me, what }
    }
}

impl Peers {
    /// Of one incarnation, on its fabric. No member is known yet.
    pub fn new(fabric: Arc<dyn Fabric>) -> Self {
        Peers { fabric, peers: BTreeMap::new(), regions: BTreeMap::new() }
    }

    /// A view has these members, this node among them. Closes the regions of older views, and those of members that are none any more.
    pub fn view(&mut self, members: impl Iterator<Item = (Incarnation, Address)>, now: Time) {
        let members: BTreeMap<_, _> = members.collect();
        self.regions.retain(|(owner, _), known| known.key.view == NO_VIEW && members.contains_key(owner));
        self.peers.retain(|peer, _| members.contains_key(peer));
        let me = self.fabric.identity();
        for (peer, address) in members {
            let address = if peer == me { self.fabric.address() } else { address };
            self.peers.entry(peer).or_insert(Link { address, access: Access::Closed(now) });
        }
    }

    /// A member has told the key of its region.
    pub fn learn(&mut self, key: RegionKey, now: Time) {
        self.learn_of(RegionUse::ONLY, key, now);
    }

    /// A member has told the key of one of its regions.
    pub fn learn_of(&mut self, of: RegionUse, key: RegionKey, now: Time) {
        self.regions.insert((key.owner, of), Remote { key, access: Access::Closed(now) });
    }

    /// What is due to be opened at `now`. Each is given once until its result comes.
    pub fn open_tasks(&mut self, now: Time) -> Vec<OpenTask> {
        let me = self.fabric.identity();
        let is_due = |due: Option<Time>| due.is_some_and(|at| at <= now);
        let mut tasks = vec![];
        for (member, link) in &mut self.peers {
            if is_due(link.access.due()) {
                link.access = Access::Opening;
                let (fabric, address) = (self.fabric.clone(), link.address.clone());
                tasks.push(OpenTask { me, what: Target::Peer { fabric, member: *member, address } });
            }
        }
        for ((owner, of), known) in &mut self.regions {
            if is_due(known.access.due())
                && let Some(peer) = self.peers.get(owner).and_then(|link| link.access.open())
            {
                known.access = Access::Opening;
                let (peer, key, deadline) = (peer.clone(), known.key.clone(), now + OPEN_DEADLINE);
                tasks.push(OpenTask { me, what: Target::Region { peer, key, of: *of, deadline } });
            }
        }
        tasks
    }

    /// Takes the result of a task. A result of an earlier incarnation counts for nothing.
    pub fn opened(&mut self, result: OpenResult, now: Time) -> Opened {
        if result.me != self.fabric.identity() {
            return Opened::Nothing;
        }
        match result.what {
            Attempt::Peer(member, peer) => {
                let Some(link) = self.peers.get_mut(&member) else { return Opened::Nothing };
                let (is_open, address) = (peer.is_ok(), &link.address);
                link.access = peer.map(Access::Open).unwrap_or_else(|error| {
                    tracing::warn!(peer = %member, %address, %error, "a member cannot be reached on this fabric");
                    Access::Closed(now + CONNECT_AGAIN)
                });
                if is_open { Opened::Peer(member) } else { Opened::Nothing }
            }
            Attempt::Region(key, of, region) => {
                let known = self.regions.get_mut(&(key.owner, of)).filter(|known| known.key == key);
                let Some(known) = known else { return Opened::Nothing };
                match region {
                    Ok(region) => {
                        known.access = Access::Open(region);
                        Opened::Nothing
                    }
                    Err(error) => {
                        tracing::debug!(owner = %key.owner, %error, "a member's region could not be opened");
                        known.access = Access::Closed(now + OPEN_AGAIN);
                        Opened::Failure(key.owner, error)
                    }
                }
            }
        }
    }

    /// The connection to a member, once it is open.
    pub fn peer(&self, member: Incarnation) -> Option<&Arc<dyn Peer>> {
        self.peers.get(&member)?.access.open()
    }

    /// A member's region, once it is open.
    pub fn region(&self, owner: Incarnation) -> Option<&SharedRemote> {
        self.region_of(owner, RegionUse::ONLY)
    }

    /// One of a member's regions, once it is open.
    pub fn region_of(&self, owner: Incarnation, of: RegionUse) -> Option<&SharedRemote> {
        self.regions.get(&(owner, of))?.access.open()
    }

    /// When the next connection or region is due to be opened. A region waits until its owner is connected, which [`opened`](Self::opened) reports.
    pub fn next_deadline(&self) -> Option<Time> {
        let of_reached = self.regions.iter().filter(|((owner, _), _)| self.peer(*owner).is_some());
        let regions = of_reached.filter_map(|(_, known)| known.access.due());
        self.peers.values().filter_map(|link| link.access.due()).chain(regions).min()
    }
}
