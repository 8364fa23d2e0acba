//! What a node does with a message of another.

use verbena_terms::{Incarnation, ViewNumber};

use super::{Action, Clocks, Coop};
use crate::holder::Memory;
use crate::message::{Ask, Frame, Verdict};
use crate::place::Place;
use crate::version::Version;

impl<M: Memory> Coop<M> {
    /// A message: its view is the one that this node is in, or a later one (then only hand-overs are kept).
    pub fn frame(&mut self, from: Incarnation, view: ViewNumber, frame: Frame, clocks: Clocks, out: &mut Vec<Action>) {
        let number = self.number();
        if view != number {
            if let Frame::HandOver(entries) = frame
                && (view > number || !self.settings.rules.refuses_late_hand_over)
            {
                self.early.push((view, entries));
            }
            return;
        }
        let is_home = self.home.table.open_view() == u64::from(number.0)
            && (self.lease.valid_at(clocks.now) == Some(number) || !self.settings.rules.checks_lease_of_change);
        match frame {
            Frame::Ask(ask) if !self.home.is_new(from, ask.serial) => {}
            Frame::Ask(ask) if is_home => self.asked(from, ask, clocks, out),
            Frame::Ask(Ask { id, serial, .. }) => {
                let verdict = Verdict::Refused;
                out.push(Action::Send { to: from, view, frame: Frame::Verdict { id, serial, verdict } });
            }
            Frame::Verdict { id, serial, verdict } => self.verdict(id, serial, verdict, clocks, out),
            Frame::Relocate { hash, version, place } if is_home => {
                match self.home.relocate(hash, version, place) {
                    Some(old) if old != place => {
                        self.drop_at(old, version, out);
                        self.mirror_copy(hash, out);
                    }
                    Some(_) => {}
                    // The copy is of no use.
                    None => self.drop_at(place, version, out),
                }
            }
            Frame::Gone { hash, version, place } if is_home => self.gone(hash, version, place, out),
            Frame::Copied { hash, version, place } if is_home => {
                if !self.home.copied(hash, version, place) {
                    self.drop_at(place, version, out);
                }
            }
            Frame::Named { hash, version, place } => match self.holder.version_at(place.offset) {
                Some(found) if found == version => self.holder.mark_redundant(place.offset, version, false),
                _ => out.push(Action::Send { to: from, view, frame: Frame::Gone { hash, version, place } }),
            },
            Frame::Drop { unit, version } => {
                if self.holder.drop_version(unit, version) {
                    self.dropped.insert(version, self.now);
                }
            }
            Frame::DropAll(all) => {
                for (unit, version) in all {
                    if self.holder.drop_version(unit, version) {
                        self.dropped.insert(version, self.now);
                    }
                }
            }
            Frame::Hits(hits) => {
                hits.into_iter().for_each(|(unit, version, times)| self.holder.hit(unit, version, times))
            }
            Frame::Board(board) => {
                self.follow(board.chosen);
                self.room.told(from, board, self.now);
            }
            Frame::Offer { takes, offered } => self.offered(from, takes, offered, out),
            Frame::Flush { id, tenant } if is_home => self.flush_asked(from, id, tenant, clocks, out),
            Frame::Mirror { number, hash, version, place } => {
                self.mirrors.take(from, hash, (version, place), &self.settings.rules);
                if number != 0 {
                    out.push(Action::Send { to: from, view, frame: Frame::Mirrored { number } });
                }
            }
            Frame::MirrorFloor { number, tenant, floor } => {
                self.mirrors.raise_floor(from, tenant, floor, &self.settings.rules);
                out.push(Action::Send { to: from, view, frame: Frame::Mirrored { number } });
            }
            Frame::Mirrored { number } if is_home => self.mirrored(from, number, clocks, out),
            Frame::Flushed { id } => self.flushed(id, from, clocks, out),
            Frame::HandOver(entries) => self.home.take_over(entries),
            Frame::Relocate { .. }
            | Frame::Gone { .. }
            | Frame::Copied { .. }
            | Frame::Flush { .. }
            | Frame::Mirrored { .. } => {}
        }
    }

    /// A copy is gone: if it was the one that this home names, another one is from now on (rule K11).
    fn gone(&mut self, hash: u64, version: Version, place: Place, out: &mut Vec<Action>) {
        let Some(other) = self.home.gone(hash, version, place) else { return };
        if let Some(to) = self.holder_at(other) {
            out.push(Action::Send { to, view: self.number(), frame: Frame::Named { hash, version, place: other } });
        }
        self.mirror_copy(hash, out);
    }

    pub(super) fn drop_at(&mut self, place: Place, version: Version, out: &mut Vec<Action>) {
        if let Some(to) = self.holder_at(place) {
            let frame = Frame::Drop { unit: place.offset, version };
            out.push(Action::Send { to, view: self.number(), frame });
        }
    }
}
