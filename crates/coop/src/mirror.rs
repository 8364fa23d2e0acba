//! The mirror of a home: what another node keeps of its entries, to be their home when it is gone (rule K9).
//!
//! The node that would inherit a key, second in the same draw, keeps the key's entry too. A change goes there first; when the mirror has acknowledged it,
//! the home writes its own word and answers. Changes of one key go one after the other. What a home only forgets, because the holder let the object go or the table
//! had no room, the mirror is not told: no client was told that the key is absent. Before one is told so the mirror has heard of it.
//!
//! A mirror keeps the largest version of a key that it heard of, and a removal has a version too. So messages may come late, twice and in any order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use verbena_cluster::{View, pool_heir_of, pool_home_of};
use verbena_terms::{Incarnation, Time};

use crate::message::{Ask, Frame, Verdict};
use crate::place::Place;
use crate::rules::Rules;
use crate::table::Entry;
use crate::tenant::Tenant;
use crate::version::Version;

/// When a message that is not acknowledged is sent again.
const SEND_AGAIN: Duration = Duration::from_millis(50);
/// Entries that a mirror is sent at a time when it begins.
const COPIED_AT_ONCE: usize = 512;
/// Entries and removals that a mirror keeps of one home. What exceeds it is forgotten, and no older entry of that home is taken any more.
const MOST: usize = 1 << 22;

/// What a home decided, and does when its mirror has it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Of the key.
    pub hash: u64,
    /// The entry that will stand; a removal has a version and no place.
    pub version: Version,
    pub place: Option<Place>,
    /// Who asked, and what it is told.
    pub asker: Incarnation,
    pub id: u64,
    pub serial: u64,
    pub verdict: Verdict,
}

/// What waits for a mirror.
#[derive(Debug)]
struct Pending {
    to: Incarnation,
    change: Change,
    sent: Time,
}

/// A flush that waits for all mirrors.
#[derive(Debug)]
pub(crate) struct Floor {
    pub asker: Incarnation,
    pub id: u64,
    pub tenant: Tenant,
    pub floor: Version,
    missing: BTreeSet<Incarnation>,
    sent: Time,
}

/// A home's side: changes on their way to its mirrors.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    numbers: u64,
    pending: BTreeMap<u64, Pending>,
    /// Keys with a change under way, and requests that wait for it.
    busy: HashMap<u64, VecDeque<(Incarnation, Ask)>>,
    floors: BTreeMap<u64, Floor>,
    /// Requests that came while a floor was on its way: decided now they would rest on what is below it, and stand above it.
    held: VecDeque<(Incarnation, Ask)>,
    /// Keys whose mirror is a new one, which has no copy of their entries yet.
    uncopied: Vec<u64>,
}

/// What an acknowledgement ended.
pub(crate) enum Ended {
    Change(Change),
    Floor(Floor),
}

impl Outbox {
    /// What was under way in the former view is no matter of this one: those who asked know nothing of it (rule K6).
    pub fn enter(&mut self) {
        (self.pending, self.busy, self.floors) = (BTreeMap::new(), HashMap::new(), BTreeMap::new());
        self.held.clear();
    }

    /// The home answers in this view, with these keys: those that are new to it or to their mirror are copied, and what was not copied yet.
    pub fn open(&mut self, before: Option<&View>, view: &View, me: Incarnation, keys: impl Iterator<Item = u64>) {
        let was_mirrored = |hash: &u64| {
            before.is_some_and(|before| {
                pool_home_of(*hash, before) == Some(me) && pool_heir_of(*hash, before) == pool_heir_of(*hash, view)
            })
        };
        self.uncopied.extend(keys.filter(|hash| !was_mirrored(hash)));
    }

    /// Whether a floor or a change of this key is under way. Then the request waits for it.
    pub fn waits(&mut self, from: Incarnation, ask: &Ask) -> bool {
        if !self.floors.is_empty() {
            self.held.push_back((from, ask.clone()));
            return true;
        }
        let Some(queue) = self.busy.get_mut(&ask.hash) else { return false };
        queue.push_back((from, ask.clone()));
        true
    }

    /// Sends a change to its mirror.
    pub fn begin(&mut self, to: Incarnation, change: Change, now: Time) -> Frame {
        self.numbers += 1;
        let frame = change.frame(self.numbers);
        self.busy.entry(change.hash).or_default();
        self.pending.insert(self.numbers, Pending { to, change, sent: now });
        frame
    }

    /// Sends a floor to all mirrors.
    pub fn begin_floor(&mut self, mirrors: BTreeSet<Incarnation>, floor: Floor) -> Frame {
        self.numbers += 1;
        let frame = Frame::MirrorFloor { number: self.numbers, tenant: floor.tenant, floor: floor.floor };
        self.floors.insert(self.numbers, Floor { missing: mirrors, ..floor });
        frame
    }

    /// A mirror has it.
    pub fn acknowledged(&mut self, from: Incarnation, number: u64) -> Option<Ended> {
        if let Some(floor) = self.floors.get_mut(&number) {
            floor.missing.remove(&from);
            return if floor.missing.is_empty() { self.floors.remove(&number).map(Ended::Floor) } else { None };
        }
        if self.pending.get(&number)?.to != from {
            return None;
        }
        self.pending.remove(&number).map(|pending| Ended::Change(pending.change))
    }

    /// A floor is raised: the requests that waited for it, in their order.
    pub fn held(&mut self) -> VecDeque<(Incarnation, Ask)> {
        std::mem::take(&mut self.held)
    }

    /// The change of this key is done: the requests that waited for it, in their order.
    pub fn queue(&mut self, hash: u64) -> VecDeque<(Incarnation, Ask)> {
        self.busy.remove(&hash).unwrap_or_default()
    }

    /// What is to be sent again, and entries for new mirrors.
    pub fn tick(
        &mut self,
        now: Time,
        entry: impl Fn(u64) -> Option<Entry>,
        view: &View,
        mut send: impl FnMut(Incarnation, Frame),
    ) {
        for (number, pending) in &mut self.pending {
            if now.since(pending.sent) >= SEND_AGAIN {
                pending.sent = now;
                send(pending.to, pending.change.frame(*number));
            }
        }
        for (number, floor) in &mut self.floors {
            if now.since(floor.sent) >= SEND_AGAIN {
                floor.sent = now;
                for to in &floor.missing {
                    send(*to, Frame::MirrorFloor { number: *number, tenant: floor.tenant, floor: floor.floor });
                }
            }
        }
        for hash in self.uncopied.split_off(self.uncopied.len().saturating_sub(COPIED_AT_ONCE)) {
            if let (Some(entry), Some(to)) = (entry(hash), pool_heir_of(hash, view)) {
                send(to, copy_of(hash, entry));
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let sent = self.pending.values().map(|pending| pending.sent);
        let again = sent.chain(self.floors.values().map(|floor| floor.sent)).min().map(|sent| sent + SEND_AGAIN);
        if self.uncopied.is_empty() { again } else { Some(Time::ZERO) }
    }
}

/// Says what stands, to a mirror that need not acknowledge it: a copy that is lost is forgotten with the home.
pub(crate) fn copy_of(hash: u64, Entry { version, place }: Entry) -> Frame {
    Frame::Mirror { number: 0, hash, version, place: Some(place) }
}

impl Change {
    fn frame(&self, number: u64) -> Frame {
        Frame::Mirror { number, hash: self.hash, version: self.version, place: self.place }
    }
}

impl Floor {
    pub fn new(asker: Incarnation, id: u64, tenant: Tenant, floor: Version, now: Time) -> Floor {
        Floor { asker, id, tenant, floor, missing: BTreeSet::new(), sent: now }
    }
}

/// Of one home, what stands there.
#[derive(Debug, Default)]
struct Kept {
    /// The largest version of a key, and its place; a removal has none.
    entries: BTreeMap<u64, (Version, Option<Place>)>,
    /// Of tenants that flushed: nothing of theirs below counts (rule K10).
    floors: BTreeMap<Tenant, Version>,
    /// Of keys that are not known nothing below is taken: something of them was forgotten here.
    forgotten: Version,
}

/// A mirror's side: what it keeps for others.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    of: BTreeMap<Incarnation, Kept>,
}

impl Kept {
    fn is_flushed(&self, hash: u64, version: Version) -> bool {
        self.floors.get(&Tenant::of(hash)).is_some_and(|floor| version < *floor)
    }
}

impl Mirrors {
    /// Takes in what a home says.
    pub fn take(&mut self, home: Incarnation, hash: u64, (version, place): (Version, Option<Place>), rules: &Rules) {
        let kept = self.of.entry(home).or_default();
        if kept.is_flushed(hash, version) && rules.mirrors_floors {
            return;
        }
        if !rules.mirrors_removals && place.is_none() {
            kept.entries.remove(&hash);
            return;
        }
        match kept.entries.get(&hash) {
            // The same with another place: the object has moved.
            Some((known, _)) if *known > version && rules.mirrors_largest => return,
            None if version < kept.forgotten => return,
            _ => {}
        }
        kept.entries.insert(hash, (version, place));
        if kept.entries.len() > MOST
            && let Some((_, (version, _))) = kept.entries.pop_first()
        {
            kept.forgotten = kept.forgotten.max(version);
        }
    }

    /// Nothing of this tenant below this floor counts at this home.
    pub fn raise_floor(&mut self, home: Incarnation, tenant: Tenant, floor: Version, rules: &Rules) {
        if !rules.mirrors_floors {
            return;
        }
        let kept = self.of.entry(home).or_default();
        let known = kept.floors.entry(tenant).or_default();
        *known = (*known).max(floor);
        let floor = *known;
        kept.entries.retain(|hash, (version, _)| Tenant::of(*hash) != tenant || *version >= floor);
    }

    /// Acknowledges a view: gives what comes to this node, keeps what it mirrors still, and drops the rest, or it would take it up when it is old.
    pub fn enter(&mut self, view: &View, me: Incarnation, rules: &Rules) -> Vec<(u64, Version, Option<Place>)> {
        let mut inherited = vec![];
        for (home, kept) in &mut self.of {
            let home = *home;
            kept.entries.retain(|hash, (version, place)| {
                let owner = pool_home_of(*hash, view);
                if owner == Some(me) {
                    inherited.push((*hash, *version, *place));
                }
                let is_mirrored = owner == Some(home) && pool_heir_of(*hash, view) == Some(me);
                is_mirrored || !rules.mirrors_drop
            });
        }
        self.of.retain(|home, _| view.member(*home).is_some() || !rules.mirrors_drop);
        inherited
    }
}
