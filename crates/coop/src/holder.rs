//! A node's share of the memory: what lies where, what goes when room is needed, what expired.
//!
//! Replacement is S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak, SOSP 2023): new objects enter a *small* queue of a tenth of the memory; those that were
//! hit there go on to the *main* queue, others leave, and their hashes stay for a while among the *ghosts*; a ghost that comes again enters main
//! at once. A hit counts up to three and moves nothing: so hits that other nodes report late, sampled and in batches, serve as well as
//! own ones. Redundant copies go before all others if the scheme wants that (7.2.2).
//!
//! An object is *filling* from [`reserve`](Holder::reserve) to [`publish`](Holder::publish): it has room, and is not evicted. One that is *held* is being sent
//! without a copy, so its memory is not used again until it is released (rule K3). Memory of any other is used again at once; nobody is
//! told, because an object that is read says itself which version it is.
//!
//! Each tenant has queues of its own. Where room is needed the object goes that would go next in its tenant's queues and has been there longest, but
//! none of a tenant that has no more than is guaranteed to it; one at its limit lets its own go.
//!
//! The schemes of chapter 7 let the least recently used go: their figures rest on that.
//!
//! What a holder does to its memory it does through [`Memory`], which a driver gives: a region that others read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::extents::Extents;
use crate::ghosts::Ghosts;
use crate::object::{FILLING, Object};
use crate::tenant::{Share, Tenant, Usage};
use crate::version::Version;

mod memory;
mod queues;

pub use memory::{Memory, OwnMemory};
use queues::Queues;

/// How far a hit counts.
const MOST_HITS: u8 = 3;
/// The small queue's part of the memory.
const SMALL_PART: u32 = 10;
/// Within that many seconds the memory of an expired object is free.
const SWEEP_SECONDS: u64 = 30;

/// What room may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// Free memory alone.
    Free,
    /// Redundant copies too.
    Redundant,
    /// Any object, redundant ones first.
    Any,
    /// Any object, as the replacement has them, redundant or not.
    Next,
}

/// An object that left: its home is told if the place word names it (rule K11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Of its key.
    pub hash: u64,
    /// Which version it was.
    pub version: Version,
    /// Where it was.
    pub unit: u32,
    /// How many units it had.
    pub units: u32,
    /// Another copy is known of.
    pub is_redundant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Filling,
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    units: u32,
    /// Another for each object that begins here: queues name objects that are gone.
    serial: u32,
    state: State,
    hits: u8,
    is_redundant: bool,
    tenant: Tenant,
    /// Sends in flight.
    held: u16,
    /// When it came here or was spared last, in milliseconds of the holder's clock.
    since: u32,
}

/// A node's share of the memory.
#[derive(Debug)]
pub struct Holder<M> {
    memory: M,
    units: u32,
    free: Extents,
    slots: BTreeMap<u32, Slot>,
    tenants: BTreeMap<Tenant, Queues>,
    shares: BTreeMap<Tenant, Share>,
    redundant_units: u32,
    ghosts: Ghosts,
    serial: u32,
    swept: Option<(u32, u64)>,
    now_ms: u32,
    /// The least recently used goes, in place of S3-FIFO's choice.
    is_lru: bool,
}

impl<M: Memory> Holder<M> {
    /// Over `units` units of memory, all free.
    pub fn new(memory: M, units: u32) -> Holder<M> {
        Holder {
            memory,
            units,
            free: Extents::new(units),
            slots: BTreeMap::new(),
            tenants: BTreeMap::new(),
            shares: BTreeMap::new(),
            redundant_units: 0,
            ghosts: Ghosts::default(),
            serial: 0,
            swept: None,
            now_ms: 0,
            is_lru: false,
        }
    }

    /// What tenants may have from now on. Of one that is not named nothing is guaranteed, and nothing refused.
    pub fn set_shares(&mut self, shares: BTreeMap<Tenant, Share>) {
        self.shares = shares;
    }

    /// What each tenant has that has had anything.
    pub fn usage(&self) -> impl Iterator<Item = Usage> + '_ {
        self.tenants.iter().map(|(tenant, Queues { units, objects, evicted, .. })| Usage {
            tenant: *tenant,
            units: *units,
            objects: *objects,
            evicted: *evicted,
        })
    }

    /// What others read.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Units that are free.
    pub fn free_units(&self) -> u32 {
        self.free.units
    }

    /// Units of redundant copies.
    pub fn redundant_units(&self) -> u32 {
        self.redundant_units
    }

    /// Objects, those that fill among them.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Those that are whole, in the order of their places.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let whole = self.slots.iter().filter(|(_, slot)| slot.state != State::Filling);
        whole.filter_map(|(unit, slot)| Some(Object::decode(&self.memory.read(*unit, slot.units))?.1))
    }

    /// Objects that would go next, of so many units altogether, at most so many: of each its place, its units and its version. None of a tenant that
    /// has no more than is guaranteed to it.
    pub fn coldest(&self, mut units: u32, most: usize) -> Vec<(u32, u32, Version)> {
        let mut coldest = vec![];
        let above = self.tenants.iter().filter(|(tenant, queues)| queues.units > self.share(**tenant).guaranteed);
        for (unit, serial) in above.flat_map(|(_, queues)| queues.small.iter().chain(&queues.main)) {
            let slot = self.slots.get(unit).filter(|slot| slot.serial == *serial && slot.state != State::Filling);
            let Some(slot) = slot.filter(|slot| slot.held == 0 && slot.hits == 0 && !slot.is_redundant) else {
                continue;
            };
            if slot.units > units || coldest.len() >= most {
                break;
            }
            units -= slot.units;
            coldest.push((*unit, slot.units, Version(self.memory.read_word(*unit))));
        }
        coldest
    }

    /// The time, in milliseconds from any moment.
    pub fn set_now(&mut self, ms: u32) {
        self.now_ms = ms;
    }

    /// The least recently used goes from now on, or what S3-FIFO lets go.
    pub fn set_lru(&mut self, is_lru: bool) {
        self.is_lru = is_lru;
    }

    /// For how many milliseconds the object that would go next has been here without being spared.
    pub fn age_of_next(&self) -> u32 {
        self.tenants.keys().filter_map(|tenant| self.age_of(*tenant)).max().unwrap_or(0)
    }

    fn age_of(&self, tenant: Tenant) -> Option<u32> {
        let since = self.tenants.get(&tenant)?.since(&self.slots, self.is_lru, self.units_of(tenant))?;
        Some(self.now_ms.wrapping_sub(since))
    }

    /// Units that a tenant's queues are parts of: of one that is alone all memory.
    fn units_of(&self, tenant: Tenant) -> u32 {
        let queues = self.tenants.get(&tenant).filter(|_| self.tenants.len() > 1);
        queues.map_or(self.units, |queues| queues.units)
    }

    fn share(&self, tenant: Tenant) -> Share {
        self.shares.get(&tenant).copied().unwrap_or_default()
    }

    /// What the replacement would let go for an object of this tenant, and another node is to have: its place, its units and its version. It stays here, and is
    /// next again last.
    pub fn give_away(&mut self, tenant: Tenant) -> Option<(u32, u32, Version)> {
        let unit = self.victim(tenant, 1, false)?;
        let slot = self.slots.get(&unit)?;
        self.tenants.entry(slot.tenant).or_default().put_back(unit, slot, false, false);
        Some((unit, slot.units, Version(self.memory.read_word(unit))))
    }

    /// Room for an object of so many units and of no tenant, with what had to leave for it. `None`: no room can be made of that.
    pub fn reserve(&mut self, units: u32, room: Room, evicted: &mut Vec<Evicted>) -> Option<u32> {
        self.reserve_beside(Tenant::DEFAULT, units, 0, room, evicted)
    }

    /// The same for a tenant, with `kept` units that stay free: the buffer. It is used too where nothing else can leave any more.
    pub fn reserve_beside(
        &mut self,
        tenant: Tenant,
        units: u32,
        kept: u32,
        room: Room,
        evicted: &mut Vec<Evicted>,
    ) -> Option<u32> {
        if units > self.units || units > self.share(tenant).most {
            return None;
        }
        let mut kept = kept.min(self.units - units);
        loop {
            let is_over = self.is_over(tenant, units);
            if !is_over
                && self.free.units >= units + kept
                && let Some(unit) = self.free.take(units)
            {
                self.begin(unit, units, tenant);
                return Some(unit);
            }
            let victim = match room {
                Room::Free => None,
                Room::Redundant => self.victim(tenant, units, true),
                Room::Any => self.victim(tenant, units, true).or_else(|| self.victim_for_good(tenant, units)),
                Room::Next => self.victim_for_good(tenant, units),
            };
            match victim {
                Some(victim) => {
                    if let Some(slot) = self.slots.get(&victim) {
                        self.tenants.entry(slot.tenant).or_default().evicted += 1;
                    }
                    evicted.push(self.evict(victim));
                }
                None if kept > 0 && !is_over && matches!(room, Room::Any | Room::Next) => kept = 0,
                None => return None,
            }
        }
    }

    /// Whether an object of so many units is more than the tenant may have beside what it has.
    fn is_over(&self, tenant: Tenant, units: u32) -> bool {
        let (Some(queues), share) = (self.tenants.get(&tenant), self.share(tenant)) else { return false };
        queues.units.saturating_add(units) > share.most || queues.objects >= share.objects
    }

    fn begin(&mut self, unit: u32, units: u32, tenant: Tenant) {
        // Head first: nothing that lies here counts from now on.
        self.memory.write_word(unit, FILLING.0);
        self.serial = self.serial.wrapping_add(1);
        let (serial, state, since) = (self.serial, State::Filling, self.now_ms);
        self.slots.insert(unit, Slot { units, serial, state, hits: 0, is_redundant: false, tenant, held: 0, since });
        let queues = self.tenants.entry(tenant).or_default();
        queues.units += units;
        queues.objects += 1;
    }

    /// Writes an object into the room reserved for it, all but its version.
    pub fn fill(&mut self, unit: u32, object: &Object) {
        debug_assert!(self.slots.get(&unit).is_some_and(|slot| slot.state == State::Filling));
        self.memory.write(unit, &object.encode(FILLING));
    }

    /// The object is whole and its home gave this version: readers may find it.
    pub fn publish(&mut self, unit: u32, version: Version, is_redundant: bool) {
        let Some(slot) = self.slots.get_mut(&unit).filter(|slot| slot.state == State::Filling) else { return };
        self.memory.write_word(unit, version.0);
        slot.is_redundant = is_redundant;
        let (entry, units) = ((unit, slot.serial), slot.units);
        let hash = Object::decode(&self.memory.read(unit, slot.units)).map(|(_, object)| object.hash());
        let queues = self.tenants.entry(slot.tenant).or_default();
        if self.is_lru || hash.is_some_and(|hash| self.ghosts.take(hash)) {
            slot.state = State::Main;
            queues.main.push_back(entry);
        } else {
            slot.state = State::Small;
            queues.small_units += units;
            queues.small.push_back(entry);
        }
        if is_redundant {
            self.redundant_units += units;
            queues.redundant.push_back(entry);
        }
        queues.compact(&self.slots);
    }

    /// Gives the room back, whatever is in it.
    pub fn drop_object(&mut self, unit: u32) {
        if self.slots.get(&unit).is_some_and(|slot| slot.held == 0) {
            self.evict(unit);
        }
    }

    /// As [`drop_object`](Self::drop_object), if this version lies there.
    pub fn drop_version(&mut self, unit: u32, version: Version) -> bool {
        let is_there = self.version_at(unit) == Some(version);
        if is_there {
            self.drop_object(unit);
        }
        is_there
    }

    /// The version of the object that begins here; `None` if none does or it is not whole.
    pub fn version_at(&self, unit: u32) -> Option<Version> {
        let slot = self.slots.get(&unit).filter(|slot| slot.state != State::Filling)?;
        let _ = slot;
        Some(Version(self.memory.read_word(unit)))
    }

    /// Units of the object that begins here.
    pub fn units_at(&self, unit: u32) -> Option<u32> {
        self.slots.get(&unit).map(|slot| slot.units)
    }

    /// The object that begins here, if it is of this version.
    pub fn object(&self, unit: u32, version: Version) -> Option<Object> {
        let slot = self.slots.get(&unit).filter(|_| self.version_at(unit) == Some(version))?;
        Object::decode(&self.memory.read(unit, slot.units)).map(|(_, object)| object)
    }

    /// It was read so many times.
    pub fn hit(&mut self, unit: u32, version: Version, times: u8) {
        if self.version_at(unit) == Some(version)
            && let Some(slot) = self.slots.get_mut(&unit)
        {
            slot.hits = slot.hits.saturating_add(times).min(MOST_HITS);
            if self.is_lru {
                self.renew(unit);
            }
        }
    }

    /// It goes last again.
    fn renew(&mut self, unit: u32) {
        let Some(slot) = self.slots.get_mut(&unit) else { return };
        let queues = self.tenants.entry(slot.tenant).or_default();
        if slot.state == State::Small {
            queues.small_units -= slot.units;
        }
        self.serial = self.serial.wrapping_add(1);
        (slot.serial, slot.state, slot.hits, slot.since) = (self.serial, State::Main, 0, self.now_ms);
        queues.main.push_back((unit, self.serial));
        if slot.is_redundant {
            queues.redundant.push_back((unit, self.serial));
        }
        queues.compact(&self.slots);
    }

    /// The place word names another copy now, or this one.
    pub fn mark_redundant(&mut self, unit: u32, version: Version, is_redundant: bool) {
        if self.version_at(unit) != Some(version) {
            return;
        }
        let Some(slot) = self.slots.get_mut(&unit) else { return };
        if slot.is_redundant != is_redundant {
            slot.is_redundant = is_redundant;
            if is_redundant {
                self.redundant_units += slot.units;
                self.tenants.entry(slot.tenant).or_default().redundant.push_back((unit, slot.serial));
            } else {
                self.redundant_units -= slot.units;
            }
        }
    }

    /// Its bytes are being sent without a copy: they stay until [`release`](Self::release).
    pub fn hold(&mut self, unit: u32) {
        if let Some(slot) = self.slots.get_mut(&unit) {
            slot.held += 1;
        }
    }

    /// One send is over.
    pub fn release(&mut self, unit: u32) {
        if let Some(slot) = self.slots.get_mut(&unit) {
            slot.held = slot.held.saturating_sub(1);
        }
    }

    /// Frees the memory of expired objects, a part at each call, all within half a minute. `seconds` are those of the Unix clock.
    pub fn sweep(&mut self, seconds: u64, evicted: &mut Vec<Evicted>) {
        let (from, last) = self.swept.unwrap_or((0, seconds));
        if seconds <= last && self.swept.is_some() {
            return;
        }
        let part = u64::from(self.units).div_ceil(SWEEP_SECONDS) * (seconds - last).clamp(1, SWEEP_SECONDS);
        let to = u32::try_from(u64::from(from) + part).unwrap_or(u32::MAX);
        let mut expired = self.expired_in(from, to.min(self.units), seconds);
        let mut next = to;
        if to >= self.units {
            next = (to - self.units).min(from);
            expired.extend(self.expired_in(0, next, seconds));
        }
        self.swept = Some((next, seconds));
        for unit in expired {
            evicted.push(self.evict(unit));
        }
    }

    fn expired_in(&self, from: u32, to: u32, seconds: u64) -> Vec<u32> {
        let is_expired = |unit: u32, slot: &Slot| {
            let object = Object::decode(&self.memory.read(unit, slot.units));
            slot.state != State::Filling
                && slot.held == 0
                && object.is_some_and(|(_, object)| object.item.head.is_expired(seconds))
        };
        let slots = self.slots.range(from..to.max(from));
        slots.filter(|(unit, slot)| is_expired(**unit, slot)).map(|(unit, _)| *unit).collect()
    }

    /// How many names the queues hold.
    pub fn queued(&self) -> usize {
        self.tenants.values().map(|queues| queues.small.len() + queues.main.len() + queues.redundant.len()).sum()
    }

    /// Takes the object out and frees its room.
    fn evict(&mut self, unit: u32) -> Evicted {
        let version = Version(self.memory.read_word(unit));
        let Some(slot) = self.slots.remove(&unit) else {
            return Evicted { hash: 0, version: Version::NONE, unit, units: 0, is_redundant: false };
        };
        let object = Object::decode(&self.memory.read(unit, slot.units));
        let hash = object.map_or(0, |(_, object)| object.hash());
        let queues = self.tenants.entry(slot.tenant).or_default();
        if slot.state == State::Small {
            queues.small_units -= slot.units;
        }
        queues.units -= slot.units;
        queues.objects -= 1;
        if slot.is_redundant {
            self.redundant_units -= slot.units;
        }
        self.memory.write_word(unit, FILLING.0);
        self.free.give(unit, slot.units);
        Evicted { hash, version, unit, units: slot.units, is_redundant: slot.is_redundant }
    }

    /// One that leaves: a ghost of it stays.
    fn victim_for_good(&mut self, tenant: Tenant, units: u32) -> Option<u32> {
        let unit = self.victim(tenant, units, false)?;
        let slot = self.slots.get(&unit).filter(|slot| slot.state == State::Small);
        let object = slot.and_then(|slot| Object::decode(&self.memory.read(unit, slot.units)));
        if let Some((_, object)) = object {
            self.ghosts.add(object.hash(), self.slots.len());
        }
        Some(unit)
    }

    /// Tenants of which an object may go for one of this tenant, those first whose next one has been here longest.
    fn victims_of(&self, tenant: Tenant, units: u32) -> Vec<Tenant> {
        let is_alone = self.tenants.len() == 1 && self.tenants.contains_key(&tenant);
        if is_alone || self.is_over(tenant, units) {
            return vec![tenant];
        }
        let above = self.tenants.iter().filter(|(of, queues)| queues.units > self.share(**of).guaranteed);
        let mut tenants: Vec<(u32, Tenant)> =
            above.filter_map(|(of, _)| Some((self.age_of(*of)?, *of))).filter(|(_, of)| *of != tenant).collect();
        let own = self.tenants.get(&tenant).map_or(0, |queues| queues.units);
        let is_entitled = own.saturating_add(units) <= self.share(tenant).guaranteed;
        if let Some(age) = self.age_of(tenant).filter(|_| !is_entitled) {
            tenants.push((age, tenant));
        }
        tenants.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        // Of what is guaranteed to it a tenant lets its own go only where all others have no more than that.
        tenants.into_iter().map(|(_, of)| of).chain(is_entitled.then_some(tenant)).collect()
    }

    /// The object that goes for one of so many units of this tenant, a redundant one or what the replacement lets go. It is in no queue any more.
    fn victim(&mut self, tenant: Tenant, units: u32, is_redundant: bool) -> Option<u32> {
        for of in self.victims_of(tenant, units) {
            let (all, guaranteed) = (self.units_of(of), self.share(of).guaranteed);
            let Some(queues) = self.tenants.get_mut(&of) else { continue };
            let victim = if is_redundant {
                queues.redundant_victim(&self.slots)
            } else {
                queues.victim(&mut self.slots, self.is_lru, all, self.now_ms)
            };
            let Some((unit, slot)) = victim.and_then(|unit| Some((unit, self.slots.get(&unit)?))) else { continue };
            if of == tenant || queues.units - slot.units >= guaranteed {
                return Some(unit);
            }
            queues.put_back(unit, slot, true, is_redundant);
        }
        None
    }
}
