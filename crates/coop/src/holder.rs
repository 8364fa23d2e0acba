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
//! The schemes of chapter 7 let the least recently used go: their figures rest on that.
//!
//! What a holder does to its memory it does through [`Memory`], which a driver gives: a region that others read.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::extents::Extents;
use crate::ghosts::Ghosts;
use crate::object::{FILLING, Object};
use crate::place::{UNIT_BYTES, hash_of};
use crate::version::Version;

/// How far a hit counts.
const MOST_HITS: u8 = 3;
/// The small queue's part of the memory.
const SMALL_PART: u32 = 10;
/// Within that many seconds the memory of an expired object is free.
const SWEEP_SECONDS: u64 = 30;

/// A node's own memory, in units, which others read while it is written.
pub trait Memory {
    /// Writes bytes, whole words in order.
    fn write(&mut self, unit: u32, bytes: &[u8]);
    /// Writes one word, at the start of a unit, at once.
    fn write_word(&mut self, unit: u32, word: u64);
    /// Reads bytes.
    fn read(&self, unit: u32, units: u32) -> Vec<u8>;
    /// Reads one word, at the start of a unit.
    fn read_word(&self, unit: u32) -> u64;
}

/// Memory of this process alone: for tests and for nodes that hold nothing for others.
#[derive(Clone, Debug, Default)]
pub struct OwnMemory(Vec<u8>);

impl OwnMemory {
    /// So many units.
    pub fn new(units: u32) -> OwnMemory {
        OwnMemory(vec![0; units as usize * UNIT_BYTES])
    }
}

impl Memory for OwnMemory {
    fn write(&mut self, unit: u32, bytes: &[u8]) {
        let at = unit as usize * UNIT_BYTES;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn write_word(&mut self, unit: u32, word: u64) {
        self.write(unit, &word.to_le_bytes());
    }

    fn read(&self, unit: u32, units: u32) -> Vec<u8> {
        let at = unit as usize * UNIT_BYTES;
        self.0.get(at..at + units as usize * UNIT_BYTES).map_or(vec![], <[u8]>::to_vec)
    }

    fn read_word(&self, unit: u32) -> u64 {
        let at = unit as usize * UNIT_BYTES;
        let word = self.0.get(at..at + 8).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_le_bytes)
    }
}

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
    small: VecDeque<(u32, u32)>,
    main: VecDeque<(u32, u32)>,
    redundant: VecDeque<(u32, u32)>,
    small_units: u32,
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
            small: VecDeque::new(),
            main: VecDeque::new(),
            redundant: VecDeque::new(),
            small_units: 0,
            redundant_units: 0,
            ghosts: Ghosts::default(),
            serial: 0,
            swept: None,
            now_ms: 0,
            is_lru: false,
        }
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

    /// Objects that would go next, of so many units altogether, at most so many: of each its place, its units and its version.
    pub fn coldest(&self, mut units: u32, most: usize) -> Vec<(u32, u32, Version)> {
        let mut coldest = vec![];
        for (unit, serial) in self.small.iter().chain(&self.main) {
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
        let (queue, state) = if self.is_small_next() { (&self.small, State::Small) } else { (&self.main, State::Main) };
        let here = |(unit, serial): &(u32, u32)| {
            self.slots.get(unit).filter(|slot| slot.serial == *serial && slot.state == state)
        };
        queue.iter().find_map(here).map_or(0, |slot| self.now_ms.wrapping_sub(slot.since))
    }

    /// What the replacement would let go, and who is to have it: its place, its units and its version. It stays here, and is next again last.
    pub fn give_away(&mut self) -> Option<(u32, u32, Version)> {
        let unit = self.victim()?;
        let slot = self.slots.get(&unit)?;
        let entry = (unit, slot.serial);
        match slot.state {
            State::Small => self.small.push_back(entry),
            _ => self.main.push_back(entry),
        }
        Some((unit, slot.units, Version(self.memory.read_word(unit))))
    }

    /// Room for an object of so many units, with what had to leave for it. `None`: no room can be made of that.
    pub fn reserve(&mut self, units: u32, room: Room, evicted: &mut Vec<Evicted>) -> Option<u32> {
        self.reserve_beside(units, 0, room, evicted)
    }

    /// The same, with `kept` units that stay free: the buffer. It is used too where nothing else can leave any more.
    pub fn reserve_beside(&mut self, units: u32, kept: u32, room: Room, evicted: &mut Vec<Evicted>) -> Option<u32> {
        if units > self.units {
            return None;
        }
        let mut kept = kept.min(self.units - units);
        loop {
            if self.free.units >= units + kept
                && let Some(unit) = self.free.take(units)
            {
                // Head first: nothing that lies here counts from now on.
                self.memory.write_word(unit, FILLING.0);
                self.serial = self.serial.wrapping_add(1);
                let (serial, state, since) = (self.serial, State::Filling, self.now_ms);
                self.slots.insert(unit, Slot { units, serial, state, hits: 0, is_redundant: false, held: 0, since });
                return Some(unit);
            }
            let victim = match room {
                Room::Free => None,
                Room::Redundant => self.redundant_victim(),
                Room::Any => self.redundant_victim().or_else(|| self.victim_for_good()),
                Room::Next => self.victim_for_good(),
            };
            match victim {
                Some(victim) => evicted.push(self.evict(victim)),
                None if kept > 0 && matches!(room, Room::Any | Room::Next) => kept = 0,
                None => return None,
            }
        }
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
        let entry = (unit, slot.serial);
        let (units, hash) =
            (slot.units, Object::decode(&self.memory.read(unit, slot.units)).map(|(_, object)| hash_of(&object.key)));
        if self.is_lru || hash.is_some_and(|hash| self.ghosts.take(hash)) {
            slot.state = State::Main;
            self.main.push_back(entry);
        } else {
            slot.state = State::Small;
            self.small_units += units;
            self.small.push_back(entry);
        }
        if is_redundant {
            self.redundant_units += units;
            self.redundant.push_back(entry);
        }
        self.compact();
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
        if slot.state == State::Small {
            self.small_units -= slot.units;
        }
        self.serial = self.serial.wrapping_add(1);
        (slot.serial, slot.state, slot.hits, slot.since) = (self.serial, State::Main, 0, self.now_ms);
        self.main.push_back((unit, self.serial));
        if slot.is_redundant {
            self.redundant.push_back((unit, self.serial));
        }
        self.compact();
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
                self.redundant.push_back((unit, slot.serial));
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

    /// Queues name objects that were dropped meanwhile: never more than there are objects.
    fn compact(&mut self) {
        let most = 2 * self.slots.len() + 64;
        let queues =
            [(&mut self.small, Some(State::Small)), (&mut self.main, Some(State::Main)), (&mut self.redundant, None)];
        for (queue, state) in queues {
            if queue.len() > most {
                queue.retain(|(unit, serial)| {
                    self.slots.get(unit).is_some_and(|slot| {
                        slot.serial == *serial
                            && match state {
                                Some(state) => slot.state == state,
                                None => slot.is_redundant,
                            }
                    })
                });
            }
        }
    }

    /// How many names the queues hold.
    pub fn queued(&self) -> usize {
        self.small.len() + self.main.len() + self.redundant.len()
    }

    /// Takes the object out and frees its room.
    fn evict(&mut self, unit: u32) -> Evicted {
        let version = Version(self.memory.read_word(unit));
        let Some(slot) = self.slots.remove(&unit) else {
            return Evicted { hash: 0, version: Version::NONE, unit, units: 0, is_redundant: false };
        };
        let object = Object::decode(&self.memory.read(unit, slot.units));
        let hash = object.map_or(0, |(_, object)| hash_of(&object.key));
        if slot.state == State::Small {
            self.small_units -= slot.units;
        }
        if slot.is_redundant {
            self.redundant_units -= slot.units;
        }
        self.memory.write_word(unit, FILLING.0);
        self.free.give(unit, slot.units);
        Evicted { hash, version, unit, units: slot.units, is_redundant: slot.is_redundant }
    }

    fn redundant_victim(&mut self) -> Option<u32> {
        for _ in 0..self.redundant.len() {
            let (unit, serial) = self.redundant.pop_front()?;
            match self.slots.get(&unit).filter(|slot| slot.serial == serial && slot.is_redundant) {
                Some(slot) if slot.held == 0 => return Some(unit),
                Some(_) => self.redundant.push_back((unit, serial)),
                None => {}
            }
        }
        None
    }

    /// One that leaves: a ghost of it stays.
    fn victim_for_good(&mut self) -> Option<u32> {
        let unit = self.victim()?;
        let slot = self.slots.get(&unit).filter(|slot| slot.state == State::Small);
        let object = slot.and_then(|slot| Object::decode(&self.memory.read(unit, slot.units)));
        if let Some((_, object)) = object {
            self.ghosts.add(hash_of(&object.key), self.slots.len());
        }
        Some(unit)
    }

    fn is_small_next(&self) -> bool {
        // Of another replacement what is in the small queue is the oldest.
        let is_small_full = self.is_lru || self.small_units > self.units / SMALL_PART || self.main.is_empty();
        is_small_full && !self.small.is_empty()
    }

    /// The object that S3-FIFO lets go. It is in no queue any more.
    fn victim(&mut self) -> Option<u32> {
        // An object that was hit goes round, one hit less: so twice the hits of all objects end it, unless all are held.
        let mut rounds = (self.small.len() + self.main.len()) * (usize::from(MOST_HITS) + 2);
        while rounds > 0 {
            rounds -= 1;
            let queue = if self.is_small_next() { State::Small } else { State::Main };
            let popped = match queue {
                State::Small => self.small.pop_front(),
                _ => self.main.pop_front(),
            };
            let (unit, serial) = popped?;
            let Some(slot) = self.slots.get_mut(&unit).filter(|slot| slot.serial == serial && slot.state == queue)
            else {
                continue;
            };
            if slot.held == 0 && slot.hits == 0 {
                return Some(unit);
            }
            slot.since = self.now_ms;
            if slot.state == State::Small {
                self.small_units -= slot.units;
                (slot.state, slot.hits) = (State::Main, 0);
            } else {
                slot.hits = slot.hits.saturating_sub(1);
            }
            self.main.push_back((unit, serial));
        }
        None
    }
}
