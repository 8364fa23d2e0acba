//! Copies of a segment at several homes (rule M3): how they come to be, and how they become one again when a view begins.
//!
//! Of the holders that are left, the one that began first *leads*: it is the segment's home in this view. Each holder
//! knows all that began before it, and these learn of a new one before it is filled. So two never lead, whichever
//! holders are left.
//!
//! A put that was reported done, and a value that any node has seen, is at all copies. So the highest word of the
//! holders that are left is that put or a later one that was never reported. [`Copying`] brings all copies up to it.

use verbena_cluster::View;
use verbena_terms::Incarnation;

use super::Home;
use super::copying::Copying;
use super::held::Stage;
use crate::actions::{HomeAction, QuestionId, Stands};
use crate::layout::{End, Word, word_at};
use crate::wire::{Question, Reply};
use crate::{Place, Refusal, Segment, SegmentId};

/// Segments whose copies are compared at a time: each may hold a value meanwhile.
const AT_ONCE: usize = 16;

impl Home {
    /// The home that serves a segment in this view: the first of its holders that is left.
    pub(super) fn leader(segment: &Segment, view: &View) -> Option<Incarnation> {
        segment.places().find(|place| is_left(place, view)).map(|place| place.home)
    }

    /// The segments that this home serves in this view or will serve. Also those that it holds for others, of which a
    /// leader may have left: their names are taken, too.
    pub(crate) fn led(&self, view: &View) -> Vec<Segment> {
        let led = self.segments.values().filter_map(|held| match &held.stage {
            Stage::Standing => Some(held.segment.clone()),
            Stage::Copying(copying) if copying.is_heard_of() && copying.has_value() => Some(held.segment.clone()),
            Stage::Kept if Self::leader(&held.segment, view) == Some(self.me) => {
                Some(Segment { home: self.me, ..held.segment.clone() })
            }
            Stage::Backup { word, is_told: false } if word.slot().is_some() => {
                Some(Segment { home: Self::leader(&held.segment, view)?, ..held.segment.clone() })
            }
            _ => None,
        });
        led.collect()
    }

    /// Whether anything is here of which it is not known yet what stands in the memory of this view.
    pub(crate) fn keeps_any(&self) -> bool {
        self.segments.values().any(|held| matches!(held.stage, Stage::Kept))
    }

    /// Whether something that was served before may be served again soon.
    pub(super) fn is_comparing_any(&self) -> bool {
        self.segments.values().any(|held| match &held.stage {
            Stage::Copying(copying) => !copying.is_new(),
            stage => matches!(stage, Stage::Kept | Stage::Moving(_) | Stage::Adopting(_)),
        })
    }

    // A view begins.

    /// What stands in the memory of this view of a segment that there were copies of.
    pub(super) fn stands_again(&mut self, stands: Stands, view: &View, out: &mut Vec<HomeAction>) {
        let (id, word, me) = (stands.id, stands.word, self.me);
        let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Kept)) else { return };
        let leader = Self::leader(&held.segment, view);
        held.end = word.end().unwrap_or_default();
        // A place that was never filled; or no node has to learn of the end or could hold the segment unmarked.
        let is_empty = word.version() == 0;
        let is_alone = held.segment.places().all(|place| place.home == me || !is_left(&place, view));
        if is_empty || is_alone && word.slot().is_none() {
            if is_empty {
                held.end = End::Moved;
                // Places are filled in turn: the later ones hold nothing either.
                let before = held.segment.backups.iter().position(|place| place.home == me);
                held.segment.backups.truncate(before.unwrap_or(0));
            }
            drop(self.remove(id));
            return;
        }
        if word.slot().is_none() {
            // The memory of this view does not have it, and the next one is to find it. No other node has the key yet.
            out.push(HomeAction::Store { at: word_at(held.place.control), word: word.to_bits() });
        }
        if leader != Some(me) {
            held.stage = Stage::Backup { word, is_told: false };
            out.extend(leader.map(|to| HomeAction::Ask { id, to, question: Question::Where(id) }));
            return;
        }
        self.lead(id, word, false, view);
    }

    /// Its copies are to be compared.
    pub(super) fn lead(&mut self, id: SegmentId, word: Word, is_unknown: bool, view: &View) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let is_anothers = |place: &Place| place.home != me && is_left(place, view);
        let backups: Vec<Place> = held.segment.places().filter(is_anothers).collect();
        let Place { home, control, at } = held.place;
        held.segment = Segment { home, control, at, backups, ..held.segment.clone() };
        held.stage = Stage::Copying(Box::new(Copying::of_kept(me, word, is_unknown)));
        self.to_compare.push(id);
    }

    /// A bounded number at a time.
    pub(super) fn compare_more(&mut self, view: &View, out: &mut Vec<HomeAction>) {
        let begun = self.segments.values().filter(|held| matches!(&held.stage, Stage::Copying(at) if at.is_begun()));
        for _ in begun.count()..AT_ONCE {
            let Some(id) = self.to_compare.pop() else { return };
            self.advance(id, view, out, |held, site, out| held.copy(Copying::compare, site, out));
        }
    }

    // The part of a home that holds a copy.

    /// A place for a copy: its word is set to 0, and its bytes are free.
    pub(super) fn reserve(&mut self, asker: QuestionId, mut segment: Segment, out: &mut Vec<HomeAction>) {
        let id = segment.id;
        let is_here = self.segments.contains_key(&id);
        let taken = if is_here { Err(Refusal::Released { id }) } else { self.share.take(&segment.wanted) };
        let (control, place) = match taken {
            Ok(taken) => taken,
            Err(refusal) => return out.push(HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) }),
        };
        segment.backups.push(place);
        self.left.remove(&id);
        self.hold_place(segment, place, asker);
        out.push(HomeAction::Post { id, at: self.me, steps: control.emptied() });
        self.publish(out);
    }

    /// The leader names the other holders.
    pub(super) fn hold(&mut self, segment: Segment) -> Reply {
        let id = segment.id;
        let Some(held) = self.segments.get_mut(&id) else { return Reply::Refused(Refusal::Released { id }) };
        let Stage::Backup { word, is_told } = &mut held.stage else { return Reply::Refused(Refusal::Released { id }) };
        if held.segment.wanted != segment.wanted {
            return Reply::Refused(Refusal::Released { id });
        }
        let (bits, is_anothers) = (word.to_bits(), held.segment.home != segment.home);
        (held.segment, *is_told) = (segment, true);
        if is_anothers {
            self.ask_anew(id);
        }
        self.review_notices();
        Reply::Holds(bits)
    }

    /// The segment is out of use, here or everywhere.
    pub(super) fn drop_copy(&mut self, id: SegmentId, end: End, out: &mut Vec<HomeAction>) {
        if let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Backup { .. })) {
            held.end = end;
            self.settle(id, out);
        }
    }
}

/// Whether the home of a place is in the view.
fn is_left(place: &Place, view: &View) -> bool {
    view.homes().any(|member| member.incarnation == place.home)
}

#[cfg(test)]
pub(super) mod tests;
