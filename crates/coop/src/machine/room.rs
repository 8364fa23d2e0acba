//! Room elsewhere: a node that is nearly full has objects taken in by one that has free memory (rule K8).
//!
//! A node says now and then how much of its memory is free. One that has little left offers what it would let go next to the node with the most. That one
//! reads each object whole, puts it under the same version into free memory, and tells the home; the home names the new place, and has the old copy
//! dropped. Until then the object is where it was. So memory that one node lends is used for what clients store at another.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_terms::{Incarnation, Time};

use super::{Action, Coop};
use crate::holder::{Memory, Room};
use crate::message::{Frame, Offered};
use crate::object::{Object, ReadBack};
use crate::place::{Place, hash_of};

/// Numbers of reads that belong to offers.
const OF_OFFERS: u64 = 1 << 63;
/// A node with less than this part of its memory free offers objects; one with more takes some in.
const FREE_PART: u32 = 16;
/// The same in units, where memory is tiny.
const LEAST_SHARE: u32 = 4;
/// Objects in one offer.
const MOST_OFFERED: usize = 256;
/// Units in one offer: 1 MiB.
const OFFERED_UNITS: u32 = 1 << 16;
/// When an object is offered again that is still there.
const OFFER_AGAIN: Duration = Duration::from_millis(200);
/// How often a node says what it has free.
const SAY_FREE: Duration = Duration::from_millis(50);

/// Whether a read of this number was made for an offer.
pub(super) fn is_of_offer(id: u64) -> bool {
    id & OF_OFFERS != 0
}

/// What a node knows of others' memory.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Units that others have free, as they said last.
    free: BTreeMap<Incarnation, u32>,
    /// What it said itself, and when.
    said: Option<(u32, Time)>,
    /// Objects that were offered, by their place, and when.
    offered: BTreeMap<u32, Time>,
    /// Objects of others that it reads.
    taking: BTreeMap<u64, Offered>,
    reads: u64,
}

impl Elsewhere {
    /// In a new view, in which all say again what they have.
    pub(super) fn enter(&mut self, view: &View) {
        self.free.retain(|other, _| view.member(*other).is_some());
        (self.said, self.offered, self.taking) = (None, BTreeMap::new(), BTreeMap::new());
    }

    pub(super) fn told_free(&mut self, from: Incarnation, units: u32) {
        self.free.insert(from, units);
    }
}

impl<M: Memory> Coop<M> {
    fn share(&self) -> u32 {
        (self.settings.units / FREE_PART).max(LEAST_SHARE)
    }

    fn others(&self) -> Vec<Incarnation> {
        let members = self.view.iter().flat_map(|view| view.members());
        let others = members.filter(|member| member.roles.has(Role::Pool) && member.incarnation != self.me);
        others.map(|member| member.incarnation).collect()
    }

    /// Says what is free, and offers what would go next.
    pub(super) fn make_room(&mut self, out: &mut Vec<Action>) {
        let others = self.others();
        if others.is_empty() || !self.scheme.cooperates() {
            return;
        }
        let (now, view, free) = (self.now, self.number(), self.holder.free_units());
        let is_news = self.room.said.is_none_or(|(said, at)| said != free && now.since(at) >= SAY_FREE);
        if is_news {
            self.room.said = Some((free, now));
            for to in &others {
                out.push(Action::Send { to: *to, view, frame: Frame::Free(free) });
            }
        }
        self.room.offered.retain(|_, at| now.since(*at) < OFFER_AGAIN);
        if free >= self.share() {
            return;
        }
        let roomiest = others.into_iter().filter_map(|other| Some((*self.room.free.get(&other)?, other))).max();
        let Some((room, to)) = roomiest.filter(|(room, _)| *room > self.share()) else { return };
        let units = (2 * self.share() - free).min(room / 2).min(OFFERED_UNITS);
        let mut offered = vec![];
        for (unit, units, version) in self.holder.coldest(units, MOST_OFFERED) {
            let object = self.holder.object(unit, version);
            if let Some(object) = object.filter(|_| !self.room.offered.contains_key(&unit)) {
                self.room.offered.insert(unit, now);
                let hash = hash_of(&object.key);
                offered.push(Offered { hash, version, place: Place::new(hash, self.me.rank, unit, units) });
            }
        }
        if !offered.is_empty() {
            out.push(Action::Send { to, view, frame: Frame::Offer(offered) });
        }
    }

    /// Reads those that find room.
    pub(super) fn offered(&mut self, from: Incarnation, offered: Vec<Offered>, out: &mut Vec<Action>) {
        let mut free = self.holder.free_units().saturating_sub(self.share());
        for one in offered {
            // Copies of a version that left here a while ago would make a torn read look whole (rule K3).
            let came_back = self.dropped.contains_key(&one.version) && self.settings.rules.takes_no_copy_again;
            if one.place.units > free || came_back || self.room.taking.len() >= 2 * MOST_OFFERED {
                continue;
            }
            free -= one.place.units;
            self.room.reads += 1;
            let id = OF_OFFERS | self.room.reads;
            self.room.taking.insert(id, one);
            out.push(Action::ReadObject { id, place: one.place, holder: Some(from) });
        }
    }

    /// An object that was offered is here, or is not there any more.
    pub(super) fn taken_in(&mut self, id: u64, read: &ReadBack, out: &mut Vec<Action>) {
        let Some(Offered { hash, version, place }) = self.room.taking.remove(&id) else { return };
        let object = Object::decode(&read.bytes).map(|(_, object)| object);
        let Some(object) = object.filter(|object| hash_of(&object.key) == hash) else { return };
        let came_back = self.dropped.contains_key(&version) && self.settings.rules.takes_no_copy_again;
        if read.check(&object.key, version).is_none() || came_back {
            return;
        }
        let Some(unit) = self.reserve(place.units, Room::Free, out) else { return };
        self.holder.fill(unit, &object);
        self.holder.publish(unit, version, false);
        let place = Place::new(hash, self.me.rank, unit, place.units);
        self.to_home(hash, Frame::Relocate { hash, version, place }, out);
    }
}
