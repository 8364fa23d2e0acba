//! What an owner does with its own regions: make them, work on them with its processor, make them anew, give them up.

use verbena_terms::{Incarnation, ViewNumber};

use crate::capability::AtomicScope;
use crate::error::{Error, Result};
use crate::memory::{check, check_range};
use crate::operation::Operation;
use crate::region::{RegionKey, Rights, Secret};

use super::memory::Memory;
use super::node::RegionState;
use super::state::State;
use super::trace::What;

impl State {
    pub(super) fn register(&mut self, owner: usize, bytes: u64, view: ViewNumber) -> Result<RegionKey> {
        if !self.nodes[owner].alive {
            return Err(Error::Closed);
        }
        if self.nodes[owner].is_short {
            return Err(Error::system("map memory", rustix::io::Errno::NOMEM));
        }
        let region = self.new_region(bytes, view)?;
        let number = self.nodes[owner].regions.len() as u32;
        let key = region.key(self.nodes[owner].incarnation, number, Rights::Read);
        self.nodes[owner].regions.push(Some(region));
        self.record_own(What::Register, owner, number.into(), bytes);
        Ok(key)
    }

    fn new_region(&mut self, bytes: u64, view: ViewNumber) -> Result<RegionState> {
        let memory = self.memories.insert(Memory::new(bytes)?);
        let secrets = [Secret(self.secrets.bytes()), Secret(self.secrets.bytes())];
        Ok(RegionState { memory, bytes, view, secrets })
    }

    pub(super) fn own_key(&self, owner: usize, region: u32, rights: Rights) -> Option<RegionKey> {
        let owned = self.nodes[owner].regions.get(region as usize)?.as_ref()?;
        Some(owned.key(self.nodes[owner].incarnation, region, rights))
    }

    /// Whether a node can open a region of a peer at this moment: the peer has to be reached, and to take the key.
    pub(super) fn may_open(&self, caller: usize, peer: Incarnation, key: &RegionKey) -> Result<()> {
        let caller = &self.nodes[caller];
        if !caller.alive {
            return Err(Error::Closed);
        }
        if key.owner != peer {
            return Err(Error::Revoked { target: key.owner, region: key.region, view: key.view });
        }
        let unreachable = |reason: &str| {
            let address = self.address(peer.rank).to_string();
            Err(Error::Unreachable { target: peer, address, reason: reason.to_owned() })
        };
        match self.newest_at(peer.rank).map(|node| &self.nodes[node]) {
            Some(owner) if owner.alive && owner.incarnation == peer => {
                let (here, there) = (self.machine(caller.incarnation.rank), self.machine(peer.rank));
                if self.is_cut(here, there) || self.is_cut(there, here) {
                    return unreachable("the link is cut");
                }
                if owner.paused_until.is_some() && !self.capabilities.target_cpu_free {
                    return unreachable("it stands still");
                }
                owner.admit(key).map(|_| ())
            }
            Some(owner) if owner.alive => unreachable("another incarnation lives there"),
            _ => unreachable("nobody lives there"),
        }
    }

    /// The memory of an own region, if the operation is inside.
    fn own(&self, owner: usize, region: u32, operation: &Operation) -> Result<usize> {
        let owned = self.nodes[owner].regions.get(region as usize).and_then(Option::as_ref).ok_or(Error::Closed)?;
        check(operation, owned.bytes)?;
        Ok(owned.memory)
    }

    pub(super) fn own_load(&self, owner: usize, region: u32, at: u64) -> Result<u64> {
        let memory = self.own(owner, region, &Operation::ReadWord { at })?;
        Ok(self.memories[memory].words.load(at))
    }

    pub(super) fn own_store(&mut self, owner: usize, region: u32, at: u64, value: u64) -> Result<()> {
        let memory = self.own(owner, region, &Operation::WriteWord { at, value })?;
        self.memories[memory].assert_plain(at, 8, &self.nodes[owner].incarnation);
        self.memories[memory].words.store(at, value);
        self.record_own(What::OwnerStore, owner, at, value);
        Ok(())
    }

    pub(super) fn own_fetch_add(&mut self, owner: usize, region: u32, at: u64, addend: u64) -> Result<u64> {
        let memory = self.own_atomic(owner, region, &Operation::FetchAdd { at, addend })?;
        self.memories[memory].mark_atomic(at);
        let found = self.memories[memory].words.fetch_add(at, addend);
        self.record_own(What::OwnerFetchAdd, owner, at, found);
        Ok(found)
    }

    pub(super) fn own_compare_swap(
        &mut self,
        owner: usize,
        region: u32,
        at: u64,
        (expected, desired): (u64, u64),
    ) -> Result<u64> {
        let memory = self.own_atomic(owner, region, &Operation::CompareSwap { at, expected, desired })?;
        self.memories[memory].mark_atomic(at);
        let found = self.memories[memory].words.compare_swap(at, expected, desired);
        self.record_own(What::OwnerCompareSwap, owner, at, found);
        Ok(found)
    }

    fn own_atomic(&self, owner: usize, region: u32, operation: &Operation) -> Result<usize> {
        let memory = self.own(owner, region, operation)?;
        match self.capabilities.atomic_scope {
            AtomicScope::Processor => Ok(memory),
            AtomicScope::Fabric => Err(Error::PostInstead),
        }
    }

    pub(super) fn own_read(&self, owner: usize, region: u32, at: u64, into: &mut [u8]) -> Result<()> {
        let memory = self.own_range(owner, region, at, into.len() as u64)?;
        self.memories[memory].words.copy_out(at, into);
        Ok(())
    }

    pub(super) fn own_write(&mut self, owner: usize, region: u32, at: u64, from: &[u8]) -> Result<()> {
        let length = from.len() as u64;
        let memory = self.own_range(owner, region, at, length)?;
        self.memories[memory].assert_plain(at, length, &self.nodes[owner].incarnation);
        self.memories[memory].words.copy_in(at, from);
        self.record_own(What::OwnerWrite, owner, at, length);
        Ok(())
    }

    fn own_range(&self, owner: usize, region: u32, at: u64, length: u64) -> Result<usize> {
        let owned = self.nodes[owner].regions.get(region as usize).and_then(Option::as_ref).ok_or(Error::Closed)?;
        check_range(at, length, false, owned.bytes)?;
        Ok(owned.memory)
    }

    /// Makes a region anew: other memory, other secrets. Requests that have begun keep the old memory until they end,
    /// and then it goes back to the system: it is never used for another region (F4).
    pub(super) fn remake(&mut self, owner: usize, region: u32, view: ViewNumber) -> Result<()> {
        let slot = self.nodes[owner].regions.get(region as usize).and_then(Option::as_ref).ok_or(Error::Closed)?;
        let (old, bytes) = (slot.memory, slot.bytes);
        let anew = self.new_region(bytes, view)?;
        self.nodes[owner].regions[region as usize] = Some(anew);
        self.let_go(old);
        self.record_own(What::Remake, owner, region.into(), view.0.into());
        Ok(())
    }

    pub(super) fn give_up(&mut self, owner: usize, region: u32) {
        if self.nodes[owner].leaves_memory {
            return;
        }
        let Some(owned) = self.nodes[owner].regions.get_mut(region as usize).and_then(Option::take) else { return };
        self.let_go(owned.memory);
        self.record_own(What::GiveUp, owner, region.into(), 0);
    }

    fn record_own(&mut self, what: What, owner: usize, a: u64, b: u64) {
        let incarnation = self.nodes[owner].incarnation;
        self.record(what, incarnation, incarnation, a, b);
    }
}
