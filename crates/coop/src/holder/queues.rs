//! One tenant's objects in the order in which they go: S3-FIFO's queues, or that of the least recently used.

use std::collections::{BTreeMap, VecDeque};

use super::{MOST_HITS, SMALL_PART, Slot, State};

/// Place and serial of an object.
pub(super) type Name = (u32, u32);

/// The queues of one tenant. They name objects that are gone, too.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub small: VecDeque<Name>,
    pub main: VecDeque<Name>,
    pub redundant: VecDeque<Name>,
    pub small_units: u32,
    /// Units of all its objects, those that fill among them.
    pub units: u32,
    pub objects: u32,
    /// Objects that left for want of room.
    pub evicted: u64,
}

type Slots = BTreeMap<u32, Slot>;

impl Queues {
    /// Whether what goes next is in the small queue, of a memory of so many units.
    pub fn is_small_next(&self, is_lru: bool, units: u32) -> bool {
        // Of another replacement what is in the small queue is the oldest.
        let is_small_full = is_lru || self.small_units > units / SMALL_PART || self.main.is_empty();
        is_small_full && !self.small.is_empty()
    }

    /// Since when the object that would go next is here.
    pub fn since(&self, slots: &Slots, is_lru: bool, units: u32) -> Option<u32> {
        let is_small = self.is_small_next(is_lru, units);
        let (queue, state) = if is_small { (&self.small, State::Small) } else { (&self.main, State::Main) };
        let here = |(unit, serial): &Name| slots.get(unit).filter(|slot| slot.serial == *serial && slot.state == state);
        queue.iter().find_map(here).map(|slot| slot.since)
    }

    /// The object that goes. It is in no queue any more.
    pub fn victim(&mut self, slots: &mut Slots, is_lru: bool, memory: u32, now_ms: u32) -> Option<u32> {
        // An object that was hit goes round, one hit less: so twice the hits of all objects end it, unless all are held.
        let mut rounds = (self.small.len() + self.main.len()) * (usize::from(MOST_HITS) + 2);
        while rounds > 0 {
            rounds -= 1;
            let queue = if self.is_small_next(is_lru, memory) { State::Small } else { State::Main };
            let popped = match queue {
                State::Small => self.small.pop_front(),
                _ => self.main.pop_front(),
            };
            let (unit, serial) = popped?;
            let Some(slot) = slots.get_mut(&unit).filter(|slot| slot.serial == serial && slot.state == queue) else {
                continue;
            };
            if slot.held == 0 && slot.hits == 0 {
                return Some(unit);
            }
            slot.since = now_ms;
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

    pub fn redundant_victim(&mut self, slots: &Slots) -> Option<u32> {
        for _ in 0..self.redundant.len() {
            let (unit, serial) = self.redundant.pop_front()?;
            match slots.get(&unit).filter(|slot| slot.serial == serial && slot.is_redundant) {
                Some(slot) if slot.held == 0 => return Some(unit),
                Some(_) => self.redundant.push_back((unit, serial)),
                None => {}
            }
        }
        None
    }

    /// A victim that stays, first or last in the order.
    pub fn put_back(&mut self, unit: u32, slot: &Slot, is_first: bool, is_redundant: bool) {
        let queue = match slot.state {
            _ if is_redundant => &mut self.redundant,
            State::Small => &mut self.small,
            _ => &mut self.main,
        };
        if is_first { queue.push_front((unit, slot.serial)) } else { queue.push_back((unit, slot.serial)) }
    }

    /// Names of objects that were dropped go: never more than there are objects.
    pub fn compact(&mut self, slots: &Slots) {
        let most = 2 * self.objects as usize + 64;
        let queues =
            [(&mut self.small, Some(State::Small)), (&mut self.main, Some(State::Main)), (&mut self.redundant, None)];
        for (queue, state) in queues {
            if queue.len() > most {
                queue.retain(|(unit, serial)| {
                    slots.get(unit).is_some_and(|slot| {
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
}
