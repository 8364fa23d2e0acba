//! A home with a mirror: a change is the home's word and its answer when the mirror has it (rule K9).

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::{pool_heir_of, pool_home_of};
use verbena_terms::Incarnation;

use super::{Action, Clocks, Coop};
use crate::holder::Memory;
use crate::message::{Ask, Frame};
use crate::mirror::{Change, Ended, Floor, copy_of};
use crate::place::Place;
use crate::tenant::Tenant;
use crate::version::Version;

/// Objects in one message.
const MOST_DROPPED: usize = 1024;

impl<M: Memory> Coop<M> {
    /// A request to this home, which may decide.
    pub(super) fn asked(&mut self, from: Incarnation, ask: Ask, clocks: Clocks, out: &mut Vec<Action>) {
        if self.outbox.waits(from, &ask) {
            return;
        }
        let change = match self.home.judge(from, &ask) {
            Ok(change) => change,
            Err(verdict) => {
                let frame = Frame::Verdict { id: ask.id, serial: ask.serial, verdict };
                return out.push(Action::Send { to: from, view: self.number(), frame });
            }
        };
        let heir = self.view.as_ref().filter(|_| self.settings.mirror).and_then(|view| pool_heir_of(ask.hash, view));
        match heir {
            Some(to) if self.settings.rules.mirrors_first => {
                let frame = self.outbox.begin(to, change, clocks.now);
                out.push(Action::Send { to, view: self.number(), frame });
            }
            Some(to) => {
                let frame =
                    Frame::Mirror { number: 0, hash: change.hash, version: change.version, place: change.place };
                out.push(Action::Send { to, view: self.number(), frame });
                self.done(change, out);
            }
            None => self.done(change, out),
        }
    }

    fn done(&mut self, change: Change, out: &mut Vec<Action>) {
        let replaced = self.home.apply(&change);
        let Change { asker, id, serial, verdict, .. } = change;
        out.push(Action::Send { to: asker, view: self.number(), frame: Frame::Verdict { id, serial, verdict } });
        replaced.into_iter().for_each(|(place, version)| self.drop_at(place, version, out));
    }

    /// A flush at this home: mirrors raise their floors first.
    pub(super) fn flush_asked(
        &mut self,
        from: Incarnation,
        id: u64,
        tenant: Tenant,
        clocks: Clocks,
        out: &mut Vec<Action>,
    ) {
        let floor = Floor::new(from, id, tenant, self.home.floor(), clocks.now);
        let homes = self.view.iter().flat_map(|view| view.pool_homes()).map(|home| home.incarnation);
        let mirrors: BTreeSet<Incarnation> = homes.filter(|home| *home != self.me && self.settings.mirror).collect();
        if mirrors.is_empty() {
            return self.flush_done(&floor, out);
        }
        let frame = self.outbox.begin_floor(mirrors.clone(), floor);
        for to in mirrors {
            out.push(Action::Send { to, view: self.number(), frame: frame.clone() });
        }
    }

    fn flush_done(&mut self, floor: &Floor, out: &mut Vec<Action>) {
        let flushed = self.home.flush(floor.tenant, floor.floor);
        if self.settings.rules.frees_flushed {
            self.drop_all(flushed, out);
        }
        out.push(Action::Send { to: floor.asker, view: self.number(), frame: Frame::Flushed { id: floor.id } });
    }

    /// Nothing names these any more: their holders use the memory again.
    fn drop_all(&mut self, flushed: Vec<(Place, Version)>, out: &mut Vec<Action>) {
        let mut by_holder: BTreeMap<Incarnation, Vec<(u32, Version)>> = BTreeMap::new();
        for (place, version) in flushed {
            if let Some(holder) = self.holder_at(place) {
                by_holder.entry(holder).or_default().push((place.offset, version));
            }
        }
        for (to, all) in by_holder {
            for all in all.chunks(MOST_DROPPED) {
                out.push(Action::Send { to, view: self.number(), frame: Frame::DropAll(all.to_vec()) });
            }
        }
    }

    /// A mirror has what it was sent, and this home may still decide.
    pub(super) fn mirrored(&mut self, from: Incarnation, number: u64, clocks: Clocks, out: &mut Vec<Action>) {
        match self.outbox.acknowledged(from, number) {
            Some(Ended::Change(change)) => {
                let hash = change.hash;
                self.done(change, out);
                for (from, ask) in self.outbox.queue(hash) {
                    self.asked(from, ask, clocks, out);
                }
            }
            Some(Ended::Floor(floor)) => {
                self.flush_done(&floor, out);
                for (from, ask) in self.outbox.held() {
                    self.asked(from, ask, clocks, out);
                }
            }
            None => {}
        }
    }

    /// Its mirror learns where a copy lies now.
    pub(super) fn mirror_copy(&self, hash: u64, out: &mut Vec<Action>) {
        let Some(view) = self.view.as_ref().filter(|_| self.settings.mirror) else { return };
        if let (Some(entry), Some(to)) = (self.home.table.get(hash), pool_heir_of(hash, view)) {
            out.push(Action::Send { to, view: view.number(), frame: copy_of(hash, entry) });
        }
    }

    /// What was not acknowledged, and what a new mirror has not yet.
    pub(super) fn mirror_again(&mut self, out: &mut Vec<Action>) {
        let Some(view) = self.view.clone() else { return };
        let (me, number, table) = (self.me, view.number(), &self.home.table);
        let own = |hash| table.get(hash).filter(|_| pool_home_of(hash, &view) == Some(me));
        self.outbox.tick(self.now, own, &view, |to, frame| out.push(Action::Send { to, view: number, frame }));
    }
}
