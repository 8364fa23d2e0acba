//! The contract of this crate, kept by a world: each call is one visit to its state.

use std::sync::Arc;

use parking_lot::Mutex;
use verbena_terms::{Clock, Incarnation, Time, ViewNumber};

use crate::capability::Capabilities;
use crate::completion::Pending;
use crate::error::{Error, Result};
use crate::message::{Class, Inbox, InboxSender, Port, Views};
use crate::operation::{Batch, Completed, OperationId, Settled};
use crate::pool::Pool;
use crate::provider::{Address, Fabric, Peer};
use crate::region::{Region, RegionKey, Remote, Rights, SharedRemote};

use super::state::Shared;

/// What the buffers of one node may take together, in bytes.
const POOL_BYTES: usize = 64 << 20;

/// One incarnation's endpoint in a world.
pub(super) struct SimFabric {
    place: Place,
    identity: Incarnation,
    inboxes: InboxSender,
    clock: SimClock,
    pool: Pool,
}

/// A node of a world, by number.
#[derive(Clone)]
struct Place {
    world: Arc<Shared>,
    node: usize,
}

struct SimClock(Place);

impl Clock for SimClock {
    fn now(&self) -> Time {
        self.0.world.with(|state| state.local_time(self.0.node))
    }
}

impl SimFabric {
    pub(super) fn new(world: Arc<Shared>, node: usize, identity: Incarnation, inboxes: InboxSender) -> Self {
        let place = Place { world, node };
        SimFabric { clock: SimClock(place.clone()), place, identity, inboxes, pool: Pool::new(POOL_BYTES) }
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        self.place.world.with(|state| state.crash(self.place.node));
    }
}

impl Fabric for SimFabric {
    fn capabilities(&self) -> &Capabilities {
        &self.place.world.capabilities
    }

    fn identity(&self) -> Incarnation {
        self.identity
    }

    fn address(&self) -> Address {
        self.place.world.with(|state| state.address(self.identity.rank))
    }

    fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        let key = self.place.world.with(|state| state.register(self.place.node, bytes, view))?;
        Ok(Box::new(SimRegion { place: self.place.clone(), number: key.region, last_key: Mutex::new(key) }))
    }

    fn connect(&self, peer: Incarnation, at: &Address) -> Result<Arc<dyn Peer>> {
        if *at != self.place.world.with(|state| state.address(peer.rank)) {
            let reason = "a node of a simulated world lives at sim://MACHINE".to_owned();
            return Err(Error::Unreachable { target: peer, address: at.to_string(), reason });
        }
        Ok(Arc::new(SimPeer { place: self.place.clone(), peer }))
    }

    fn listen(&self, port: Port, views: Views) -> Result<Inbox> {
        self.inboxes.open(port, views).ok_or(Error::Full { what: "the port", most: 1 })
    }

    fn set_view(&self, view: ViewNumber) {
        self.inboxes.set_view(view);
    }
}

struct SimPeer {
    place: Place,
    peer: Incarnation,
}

impl Peer for SimPeer {
    fn incarnation(&self) -> Incarnation {
        self.peer
    }

    /// Waits for nothing, because time stands still: the peer answers at once, or it cannot be reached.
    fn open(&self, key: &RegionKey, _deadline: Time) -> Result<SharedRemote> {
        self.place.world.with(|state| state.may_open(self.place.node, self.peer, key))?;
        Ok(Arc::new(SimRemote { place: self.place.clone(), key: key.clone() }))
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        self.place.world.with(|state| state.send(self.place.node, self.peer, (class, view, port, number), body))
    }
}

struct SimRemote {
    place: Place,
    key: RegionKey,
}

impl Remote for SimRemote {
    fn key(&self) -> &RegionKey {
        &self.key
    }

    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.place.world.with(|state| state.post(self.place.node, &self.key, batch, class, deadline))
    }

    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled> {
        self.place.world.with(|state| state.settle(self.place.node, &self.key, operation, class, deadline))
    }
}

struct SimRegion {
    place: Place,
    number: u32,
    /// What a key of it looked like when it still was: a key of a node that is gone is asked for, and opens nothing.
    last_key: Mutex<RegionKey>,
}

impl Region for SimRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        let mut last_key = self.last_key.lock();
        if let Some(key) = self.place.world.with(|state| state.own_key(self.place.node, self.number, rights)) {
            *last_key = key;
        }
        RegionKey { rights, ..last_key.clone() }
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.place.world.with(|state| state.own_load(self.place.node, self.number, at))
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        self.place.world.with(|state| state.own_store(self.place.node, self.number, at, value))
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        self.place.world.with(|state| state.own_fetch_add(self.place.node, self.number, at, addend))
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        let values = (expected, desired);
        self.place.world.with(|state| state.own_compare_swap(self.place.node, self.number, at, values))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.place.world.with(|state| state.own_read(self.place.node, self.number, at, into))
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.place.world.with(|state| state.own_write(self.place.node, self.number, at, from))
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        self.place.world.with(|state| state.remake(self.place.node, self.number, view))
    }

    /// Nothing to do: here no memory is used twice.
    fn everyone_is_in(&self, _view: ViewNumber) {}
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        self.place.world.with(|state| state.give_up(self.place.node, self.number));
    }
}
