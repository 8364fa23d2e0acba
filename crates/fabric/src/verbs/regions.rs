//! The memory of a node's regions, and the keys by which adapters reach it.
//!
//! Each making of a region is registered for peers that may only read and, if the adapter changes anything, for peers
//! that may change it, at addresses that no other making ever has. What an adapter checks of a key is 32 bits and the
//! bounds; that is why only a peer that has shown the region's secret gets the keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sideway::ibverbs::AccessFlags;

use super::adapter::{Adapter, Reached};
use super::arena::Arena;
use super::batches::Place;
use crate::capability::AtomicScope;
use crate::ending::RegionId;
use crate::error::{Error, Result};
use crate::region::Rights;
use crate::supply::{Life, Numbers, Part, Supply};

pub(super) struct Registered {
    adapter: Arc<Adapter>,
    arena: Arena,
    numbers: Numbers,
    /// None when the fabric is closed.
    live: Mutex<Option<HashMap<u32, Keys>>>,
}

/// Both registrations of one making. Dropped before the memory is.
struct Keys {
    life: Life,
    address: u64,
    change: Reached,
    read: Reached,
}

impl Registered {
    pub(super) fn new(adapter: Arc<Adapter>) -> Result<Self> {
        Ok(Registered {
            adapter,
            arena: Arena::new()?,
            numbers: Numbers::default(),
            live: Mutex::new(Some(HashMap::new())),
        })
    }

    /// Where a region is, for a peer that has this secret of its present making.
    pub(super) fn place(&self, id: &RegionId) -> Option<Place> {
        let live = self.live.lock();
        let keys = live.as_ref()?.get(&id.region)?;
        let reached = match keys.life.rights(id.view, &id.secret)? {
            Rights::Change => &keys.change,
            Rights::Read => &keys.read,
        };
        Some(Place { remote_key: reached.rkey(), address: keys.address, bytes: keys.life.bytes })
    }

    /// No adapter reaches any of it any more.
    pub(super) fn close(&self) {
        *self.live.lock() = None;
    }

    /// Memory with keys of its own, in the place of those that the region had.
    fn register(&self, number: u32, life: &Life) -> Result<Part> {
        let memory = self.arena.take(life.bytes)?;
        let (address, bytes) = (memory.0.address(), life.bytes.next_multiple_of(8).max(8));
        // SAFETY: the memory is a region's, which takes its keys back before it lets it go: `make_anew` replaces them, `take_back` and `close` drop them.
        let reach = |access| unsafe { self.adapter.reach(address, bytes, access) };
        let read = reach(AccessFlags::RemoteRead)?;
        // Where the adapter only reads both keys say the same.
        let everything = self.adapter.everything();
        let change = if everything == AccessFlags::RemoteRead { read.clone() } else { reach(everything)? };
        let keys = Keys { life: *life, address, change, read };
        let mut live = self.live.lock();
        let former = live.as_mut().ok_or(Error::Closed)?.insert(number, keys);
        drop(live);
        // When this returns the adapter has ended what it did with the former keys (F4).
        drop(former);
        Ok(Part::sealed(memory))
    }
}

impl Supply for Registered {
    fn make(&self, life: &Life) -> Result<(u32, Part)> {
        let number = self.numbers.next()?;
        Ok((number, self.register(number, life)?))
    }

    fn make_anew(&self, number: u32, life: &Life) -> Result<Part> {
        self.register(number, life)
    }

    fn take_back(&self, number: u32) {
        let keys = self.live.lock().as_mut().and_then(|live| live.remove(&number));
        drop(keys);
    }

    fn atomics(&self) -> AtomicScope {
        self.adapter.scope
    }
}
