//! A node as home: it alone says which version of a key is valid.

use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_cluster::{View, pool_home_of};
use verbena_terms::Incarnation;

use crate::copies::Copies;
use crate::message::{Ask, Expect, Verdict, Wanted};
use crate::mirror::Change;
use crate::place::Place;
use crate::rules::Rules;
use crate::table::{Entry, Table};
use crate::tenant::Tenant;
use crate::version::{Version, Versions};

/// Entries by the home that they go to.
pub(crate) type HandOvers = BTreeMap<Incarnation, Vec<(u64, Entry)>>;

#[derive(Debug)]
pub(crate) struct Home {
    pub table: Table,
    versions: Versions,
    rules: Rules,
    copies: Copies,
    /// Of each asker in this view, the number of its last request. A message may come twice after a reconnection.
    heard: BTreeMap<Incarnation, u64>,
    /// What this node kept for homes that are gone, or have given keys up to it: taken up when the view is in effect (rule K9).
    inherited: Vec<(u64, Version, Option<Place>)>,
}

impl Home {
    pub fn new(table: Table, rules: Rules) -> Home {
        Home {
            table,
            versions: Versions::default(),
            rules,
            copies: Copies::default(),
            heard: BTreeMap::new(),
            inherited: vec![],
        }
    }

    /// Acknowledges a view: entries of keys that others are home of in it are given up, as they stand now (rule K7). Nothing is decided or answered
    /// until [`open`](Self::open).
    pub fn enter(&mut self, view: &View, me: Incarnation) -> HandOvers {
        self.table.open(0);
        self.heard.clear();
        self.copies.clear();
        let leaves = |hash| pool_home_of(hash, view) != Some(me);
        let given = if !self.rules.drops_given_up {
            self.table.iter().filter(|(hash, _)| leaves(*hash)).collect()
        } else if self.rules.keeps_floor_in_hand_over {
            self.table.take(leaves)
        } else {
            self.table.take_with_flushed(leaves)
        };
        let mut by_home = HandOvers::new();
        for (hash, entry) in given {
            if let Some(home) = pool_home_of(hash, view) {
                by_home.entry(home).or_default().push((hash, entry));
            }
        }
        by_home
    }

    /// What comes to this node from what it mirrored.
    pub fn inherit(&mut self, inherited: Vec<(u64, Version, Option<Place>)>) {
        self.inherited = inherited;
    }

    /// The view is in effect: no other home answers for these keys any more. Whether it opened by this.
    pub fn open(&mut self, view: &Arc<View>, me: Incarnation) -> bool {
        let seat = view.pool_homes().position(|home| home.incarnation == me);
        if self.table.open_view() != 0 {
            return false;
        }
        for (hash, version, place) in std::mem::take(&mut self.inherited) {
            self.adopt(hash, version, place);
        }
        if let Some(versions) = seat.and_then(|seat| Versions::new(view.number(), seat)) {
            self.versions = versions;
            self.table.open(u64::from(view.number().0));
        }
        self.table.open_view() != 0
    }

    /// Entries of keys that come here. Behind the opening they would bring back what was replaced or deleted since.
    pub fn take_over(&mut self, entries: Vec<(u64, Entry)>) {
        if self.table.open_view() != 0 && self.rules.refuses_late_hand_over {
            return;
        }
        for (hash, Entry { version, place }) in entries {
            self.adopt(hash, version, Some(place));
        }
    }

    /// Of what comes from several nodes about a key the largest version stands (rules K2, K9).
    fn adopt(&mut self, hash: u64, version: Version, place: Option<Place>) {
        if self.table.get(hash).is_none_or(|known| known.version < version) {
            self.write(hash, version, place);
        }
    }

    fn write(&mut self, hash: u64, version: Version, place: Option<Place>) {
        match place {
            Some(place) => drop(self.table.put(hash, Entry { version, place })),
            None => drop(self.table.remove(hash)),
        }
    }

    /// Whether the request is a new one of its asker in this view: what is decided twice brings back what was replaced since (rule K6).
    pub fn is_new(&mut self, from: Incarnation, serial: u64) -> bool {
        let heard = self.heard.entry(from).or_insert(0);
        let is_new = serial > *heard || !self.rules.decides_once;
        *heard = (*heard).max(serial);
        is_new
    }

    /// What a request comes to: the change that it makes, or a refusal. The caller looked at lease and view.
    pub fn judge(&mut self, from: Incarnation, ask: &Ask) -> Result<Change, Verdict> {
        let current = self.table.get(ask.hash);
        let holds = match &ask.expect {
            Expect::Any => true,
            Expect::Is(version) => {
                current.is_some_and(|entry| entry.version == *version)
                    || !self.rules.compares_expected
                    || current.is_none() && !self.rules.stub_ends
            }
            Expect::AbsentOr(versions) => current.is_none_or(|entry| versions.contains(&entry.version)),
        };
        if !holds {
            return Err(Verdict::Changed);
        }
        // A view that has no version left decides nothing more: the next one has.
        let version = self.versions.give().ok_or(Verdict::Refused)?;
        let (place, told) = match ask.wanted {
            Wanted::Remove => (None, Version::NONE),
            Wanted::Install(place) => (Some(place), version),
        };
        Ok(Change {
            hash: ask.hash,
            version,
            place,
            asker: from,
            id: ask.id,
            serial: ask.serial,
            verdict: Verdict::Done { version: told, was_there: current.is_some() },
        })
    }

    /// Writes what was decided. Returns where what it replaced lies, all copies: while a mirror was waited for another one may have been named than when it was judged.
    pub fn apply(&mut self, change: &Change) -> Vec<(Place, Version)> {
        let replaced = self.table.get(change.hash);
        self.write(change.hash, change.version, change.place);
        replaced.map_or(vec![], |entry| self.all_of(change.hash, entry))
    }

    /// Where the copies are of an entry that was taken out.
    fn all_of(&mut self, hash: u64, Entry { version, place }: Entry) -> Vec<(Place, Version)> {
        let others = self.copies.take_all(hash, version);
        std::iter::once(place).chain(others).map(|place| (place, version)).collect()
    }

    /// All that was installed until now is below this (rule K10).
    pub fn floor(&self) -> Version {
        self.versions.floor()
    }

    /// Makes nothing of all of this tenant that is below (rule K10). Returns where it lies.
    pub fn flush(&mut self, tenant: Tenant, floor: Version) -> Vec<(Place, Version)> {
        let before = self.table.floor(tenant);
        self.table.raise_floor(tenant, floor);
        let flushed = self.table.flushed_since(tenant, before);
        flushed.into_iter().flat_map(|(hash, entry)| self.all_of(hash, entry)).collect()
    }

    /// Names another copy, if the version is still this (rule K8). Returns the place that it named before.
    pub fn relocate(&mut self, hash: u64, version: Version, place: Place) -> Option<Place> {
        let current = self.table.get(hash)?;
        let version = if self.rules.compares_moved { version } else { current.version };
        self.copies.forget(hash, place);
        self.table.relocate(hash, version, place).then_some(current.place)
    }

    /// A copy is there too. False if it is one of no value that is valid.
    pub fn copied(&mut self, hash: u64, version: Version, place: Place) -> bool {
        match self.table.get(hash) {
            Some(entry) if entry.version == version => {
                if entry.place != place {
                    self.copies.add(hash, version, place);
                }
                true
            }
            _ => false,
        }
    }

    /// The copy is gone: so is the entry, if it still names it and no other copy is known (rule K11). Returns the one that it names from now on.
    pub fn gone(&mut self, hash: u64, version: Version, place: Place) -> Option<Place> {
        if self.table.get(hash) == Some(Entry { version, place }) || !self.rules.compares_gone {
            let other = self.copies.take(hash, version, place);
            match other {
                Some(other) => drop(self.table.relocate(hash, version, other)),
                None => drop(self.table.remove(hash)),
            }
            return other;
        }
        self.copies.forget(hash, place);
        None
    }
}
