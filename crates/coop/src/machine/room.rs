//! Room elsewhere: where a new object goes, and objects that one node takes in for another (rule K8).
//!
//! Each node says now and then how its memory stands, on its [`Board`]. The scheme makes of these what becomes of a new object. One that is to lie elsewhere is
//! whole in this node's *buffer* first, a small part of its memory that is kept free for that, and valid there as soon as its home has decided. Then
//! it is offered: the other node reads it, puts it under the same version into the room that the offer names, and tells the home; the home names the
//! new place, and has the old copy dropped. Until then the object is where it was. A swap is two of these, one each way. Nothing is lost if the other has no room:
//! the object stays.
//!
//! Under a scheme that keeps room, a node that is nearly full offers what it would let go next to the node with the most free memory, before it needs it.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_cluster::{Member, Role, View};
use verbena_terms::{Incarnation, Rank, Time};

use super::{Action, Coop};
use crate::holder::{Memory, Room};
use crate::message::{Board, Frame, Offered, Shown, Takes};
use crate::object::{Object, ReadBack};
use crate::place::{Place, UNIT_BYTES};
use crate::placement::{Situation, Store};
use crate::tenant::Tenant;
use crate::version::Version;

/// Numbers of reads that belong to offers.
const OF_OFFERS: u64 = 1 << 63;
/// A node with less than this part of its memory free offers objects, under a scheme that keeps room; one with more takes some in.
const FREE_PART: u32 = 16;
/// The buffer's part of the memory.
const BUFFER_PART: u32 = 64;
/// The same in units, where memory is tiny.
const LEAST_SHARE: u32 = 4;
/// Objects in one offer.
const MOST_OFFERED: usize = 256;
/// Units in one offer: 1 MiB.
const OFFERED_UNITS: u32 = 1 << 16;
/// When an object is offered again that is still there.
const OFFER_AGAIN: Duration = Duration::from_millis(200);
/// How often a node says how its memory stands.
const SAY_BOARD: Duration = Duration::from_millis(50);
/// The same where nothing changed but the age of what would go next.
const SAY_AGE: Duration = Duration::from_millis(500);

/// Whether a read of this number was made for an offer.
pub(super) fn is_of_offer(id: u64) -> bool {
    id & OF_OFFERS != 0
}

/// What a node knows of others' memory.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Of others, as they said last, and when.
    boards: BTreeMap<Incarnation, (Board, Time)>,
    /// What it said itself, and when.
    said: Option<(Board, Time)>,
    /// Objects that were offered, by their place, and when.
    offered: BTreeMap<u32, Time>,
    /// Objects of others that it reads.
    taking: BTreeMap<u64, (Offered, Takes)>,
    reads: u64,
}

impl Elsewhere {
    /// In a new view, in which all say again what they have.
    pub(super) fn enter(&mut self, view: &View) {
        self.boards.retain(|other, _| view.member(*other).is_some());
        (self.said, self.offered, self.taking) = (None, BTreeMap::new(), BTreeMap::new());
    }

    pub(super) fn told(&mut self, from: Incarnation, board: Board, now: Time) {
        self.boards.insert(from, (board, now));
    }

    /// So much less is free there, or redundant, than it said.
    fn used(&mut self, there: Incarnation, units: u32, takes: Takes) {
        if let Some((board, _)) = self.boards.get_mut(&there) {
            match takes {
                Takes::Free => board.free = board.free.saturating_sub(units),
                Takes::Redundant => board.redundant = board.redundant.saturating_sub(units),
                Takes::Next | Takes::Exchange => {}
            }
        }
    }
}

impl<M: Memory> Coop<M> {
    /// Free memory that a scheme that keeps room would have.
    fn share(&self) -> u32 {
        (self.settings.units / FREE_PART).max(LEAST_SHARE)
    }

    /// Free memory for objects on their way to other nodes.
    pub(super) fn buffer(&self) -> u32 {
        let has_others = self.scheme.cooperates() && !self.room.boards.is_empty();
        if has_others { (self.settings.units / BUFFER_PART).max(LEAST_SHARE) } else { 0 }
    }

    /// Free memory that it leaves to its own clients: a passive node has none.
    fn kept(&self) -> u32 {
        let me = self.view.as_ref().and_then(|view| view.member(self.me));
        let is_active = me.is_some_and(Member::is_pool_home);
        if is_active && self.scheme.keeps_room() { self.share() } else { self.buffer() }
    }

    fn lenders(&self) -> impl Iterator<Item = &Member> {
        let members = self.view.iter().flat_map(|view| view.members());
        members.filter(|member| member.roles.has(Role::Pool) && member.incarnation != self.me)
    }

    /// Homes of the pool in this view.
    pub(super) fn active(&self) -> usize {
        self.view.as_ref().map_or(1, |view| view.pool_homes().count().max(1))
    }

    /// How things stand for an object of so many units, which is at `from` if it is anywhere.
    pub(super) fn situation(&self, units: u32, from: Option<Rank>) -> Situation {
        let (total, age) = (self.settings.units.max(1), self.holder.age_of_next());
        let has_local_free = self.holder.free_units() >= units + self.buffer();
        let mut situation = Situation {
            bytes: units.saturating_mul(UNIT_BYTES as u32),
            has_local_free,
            has_local_redundant: self.holder.redundant_units() >= units,
            copies_share: (u64::from(self.holder.redundant_units()) * 10_000 / u64::from(total)) as u16,
            ..Situation::default()
        };
        if let Some(from) = from {
            situation.is_at_passive =
                self.lenders().any(|member| member.incarnation.rank == from && !member.is_pool_home());
        }
        // Others matter only where this node is full.
        if has_local_free {
            return situation;
        }
        // The most of each, by active and passive.
        let (mut free, mut redundant, mut oldest) = ([0; 2], [0; 2], age);
        let mut with_redundant = [None; 2];
        for member in self.lenders() {
            let Some((board, at)) = self.room.boards.get(&member.incarnation) else { continue };
            let (rank, passive) = (member.incarnation.rank, usize::from(!member.is_pool_home()));
            if board.free >= units.max(free[passive] + 1) {
                free[passive] = board.free;
                *(if passive == 0 { &mut situation.active_free } else { &mut situation.passive_free }) = Some(rank);
            }
            if board.redundant >= units.max(redundant[passive] + 1) {
                (redundant[passive], with_redundant[passive]) = (board.redundant, Some(rank));
            }
            let since = u32::try_from(self.now.since(*at).as_millis()).unwrap_or(u32::MAX);
            let age = board.age_ms.saturating_add(since);
            if passive == 1 && board.age_ms > 0 && age > oldest {
                (oldest, situation.passive_older) = (age, Some(rank));
            }
        }
        situation.remote_redundant = with_redundant[0].or(with_redundant[1]);
        situation.is_redundant_passive = with_redundant[0].is_none();
        situation
    }

    /// Room for a new object, and the node that is to take it from there.
    pub(super) fn place(
        &mut self,
        tenant: Tenant,
        units: u32,
        out: &mut Vec<Action>,
    ) -> (Option<u32>, Option<(Rank, Takes)>) {
        if units > Place::MAX_UNITS {
            return (None, None);
        }
        let situation = self.situation(units, None);
        let buffer = self.buffer();
        let replaced = self.replaced();
        let (room, kept, goes_to) = match self.scheme.store(&situation) {
            Store::Local => (Room::Free, buffer, None),
            Store::OverRedundant => (Room::Redundant, buffer, None),
            Store::Replace => (replaced, buffer, None),
            Store::Remote(there) => (Room::Free, 0, Some((there, Takes::Free))),
            Store::OverRemoteRedundant(there) => (Room::Free, 0, Some((there, Takes::Redundant))),
            Store::ReplaceAt(there) => (Room::Free, 0, Some((there, Takes::Next))),
        };
        match self.reserve(tenant, units, kept, room, out) {
            Some(unit) => (Some(unit), goes_to),
            // The buffer is full, or what is known of this memory is not right any more.
            None => (self.reserve(tenant, units, buffer, replaced, out), None),
        }
    }

    /// Of what room is made where nothing is free.
    fn replaced(&self) -> Room {
        if self.scheme.drops_redundant_first() { Room::Any } else { Room::Next }
    }

    /// Has this object, which is here and valid, taken in there.
    pub(super) fn offer(&mut self, to: Rank, takes: Takes, offered: Offered, out: &mut Vec<Action>) {
        let to = self.lenders().map(|member| member.incarnation).find(|member| member.rank == to);
        let Some(to) = to else { return };
        self.room.used(to, offered.place.units, takes);
        self.room.offered.insert(offered.place.offset, self.now);
        self.measured.tally.offered += 1;
        out.push(Action::Send { to, view: self.number(), frame: Frame::Offer { takes, offered: vec![offered] } });
    }

    /// An object for one that came from there (rule K8).
    pub(super) fn give_in_exchange(&mut self, tenant: Tenant, to: Rank, out: &mut Vec<Action>) {
        let Some((unit, units, version)) = self.holder.give_away(tenant) else { return };
        let Some(object) = self.holder.object(unit, version) else { return };
        let hash = object.hash();
        let place = Place::new(hash, self.me.rank, unit, units);
        self.offer(to, Takes::Exchange, Offered { hash, version, place }, out);
    }

    /// Says how its memory stands, fills the buffer up again, and offers what would go next.
    pub(super) fn make_room(&mut self, out: &mut Vec<Action>) {
        let others: Vec<Incarnation> = self.lenders().map(|member| member.incarnation).collect();
        self.settle_scheme(&others);
        if others.is_empty() {
            return;
        }
        let (now, view, free, buffer) = (self.now, self.number(), self.holder.free_units(), self.buffer());
        if free < buffer / 2 {
            // What was offered found no room.
            let replaced = self.replaced();
            if let Some(unit) = self.reserve(Tenant::DEFAULT, buffer / 2, 0, replaced, out) {
                self.holder.drop_object(unit);
            }
        }
        self.say_board(&others, out);
        self.room.offered.retain(|_, at| now.since(*at) < OFFER_AGAIN);
        if free >= self.share() || !self.scheme.keeps_room() {
            return;
        }
        let free_of = |other: Incarnation| Some((self.room.boards.get(&other)?.0.free, other));
        let roomiest = others.into_iter().filter_map(free_of).max();
        let Some((room, to)) = roomiest.filter(|(room, _)| *room > 0) else { return };
        let units = (2 * self.share() - free).min(room.div_ceil(2)).min(OFFERED_UNITS);
        let mut offered = vec![];
        for (unit, units, version) in self.holder.coldest(units, MOST_OFFERED) {
            let object = self.holder.object(unit, version);
            if let Some(object) = object.filter(|_| !self.room.offered.contains_key(&unit)) {
                self.room.offered.insert(unit, now);
                let hash = object.hash();
                offered.push(Offered { hash, version, place: Place::new(hash, self.me.rank, unit, units) });
            }
        }
        if !offered.is_empty() {
            self.measured.tally.offered += offered.len() as u64;
            out.push(Action::Send { to, view, frame: Frame::Offer { takes: Takes::Free, offered } });
        }
    }

    /// How this node's memory stands.
    pub(super) fn board(&self) -> Board {
        let (tally, free) = (self.measured.tally, self.holder.free_units());
        let shown = Shown {
            units: self.settings.units,
            used: self.settings.units - free,
            objects: u32::try_from(self.holder.len()).unwrap_or(u32::MAX),
            local_hits: tally.local_hits,
            remote_hits: tally.remote_hits,
            misses: tally.misses,
        };
        if !self.scheme.cooperates() {
            return Board { chosen: self.chosen, shown, ..Board::default() };
        }
        Board {
            free: free.saturating_sub(self.kept()),
            redundant: self.holder.redundant_units(),
            age_ms: self.holder.age_of_next(),
            chosen: self.chosen,
            shown,
        }
    }

    /// The boards of all nodes that lend memory, as they were heard last.
    pub fn boards(&self) -> Vec<(Incarnation, Board)> {
        let others = self.room.boards.iter().map(|(who, (board, _))| (*who, *board));
        std::iter::once((self.me, self.board())).chain(others).collect()
    }

    /// The configured scheme becomes the pool's where no other node of it goes by one: so all go by one, and a node that comes later by theirs. A node that is no
    /// home has no say, and where several begin at once the larger scheme goes for all.
    fn settle_scheme(&mut self, others: &[Incarnation]) {
        let me = self.view.as_ref().and_then(|view| view.member(self.me));
        let is_home = me.is_some_and(Member::is_pool_home);
        let heard_all = others.iter().all(|other| self.room.boards.contains_key(other));
        if self.chosen.nth == 0 && is_home && heard_all {
            self.chosen.nth = 1;
        }
    }

    fn say_board(&mut self, others: &[Incarnation], out: &mut Vec<Action>) {
        let (now, view, board) = (self.now, self.number(), self.board());
        let is_news = self.room.said.is_none_or(|(said, at)| {
            let is_other = Board { age_ms: board.age_ms, shown: board.shown, ..said } != board;
            is_other && now.since(at) >= SAY_BOARD || now.since(at) >= SAY_AGE
        });
        if is_news {
            self.room.said = Some((board, now));
            for to in others {
                out.push(Action::Send { to: *to, view, frame: Frame::Board(board) });
            }
        }
    }

    /// Reads those that find room.
    pub(super) fn offered(&mut self, from: Incarnation, takes: Takes, offered: Vec<Offered>, out: &mut Vec<Action>) {
        let (all_free, redundant) = (self.holder.free_units(), self.holder.redundant_units());
        let free = all_free.saturating_sub(self.kept());
        let mut room = match takes {
            Takes::Free => free,
            Takes::Redundant => free + redundant,
            Takes::Exchange => all_free,
            Takes::Next => self.settings.units,
        };
        if !self.scheme.cooperates() {
            return;
        }
        for one in offered {
            // Copies of a version that left here a while ago would make a torn read look whole (rule K3).
            let came_back = self.dropped.contains_key(&one.version) && self.settings.rules.takes_no_copy_again;
            if one.place.units > room || came_back || self.room.taking.len() >= 2 * MOST_OFFERED {
                continue;
            }
            room -= one.place.units;
            self.room.reads += 1;
            let id = OF_OFFERS | self.room.reads;
            self.room.taking.insert(id, (one, takes));
            out.push(Action::ReadObject { id, place: one.place, holder: Some(from) });
        }
    }

    /// An object that was offered is here, or is not there any more.
    pub(super) fn taken_in(&mut self, id: u64, read: &ReadBack, out: &mut Vec<Action>) {
        let Some((Offered { hash, version, place }, takes)) = self.room.taking.remove(&id) else { return };
        let object = Object::decode(&read.bytes).map(|(_, object)| object);
        let Some(object) = object.filter(|object| object.hash() == hash) else { return };
        let came_back = self.dropped.contains_key(&version) && self.settings.rules.takes_no_copy_again;
        if read.check(object.tenant, &object.key, version).is_none() || came_back {
            return;
        }
        let (room, kept) = match takes {
            Takes::Free | Takes::Exchange => (Room::Free, 0),
            Takes::Redundant => (Room::Redundant, 0),
            Takes::Next => (self.replaced(), self.buffer()),
        };
        let Some(unit) = self.reserve(object.tenant, place.units, kept, room, out) else { return };
        self.measured.tally.taken_in += 1;
        self.holder.fill(unit, &object);
        self.holder.publish(unit, version, false);
        self.now_here(hash, version, unit, place.units, out);
    }

    /// The home is to name this copy.
    pub(super) fn now_here(&mut self, hash: u64, version: Version, unit: u32, units: u32, out: &mut Vec<Action>) {
        let place = Place::new(hash, self.me.rank, unit, units);
        self.remember(hash, place);
        self.to_home(hash, Frame::Relocate { hash, version, place }, out);
    }
}
