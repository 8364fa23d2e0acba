//! A home takes memory back: from then on it offers less, and what does not fit into that any more goes when its notice is over.
//!
//! ```text
//!             all that stands fits into what is offered
//!   standing <-----------------------------------------+
//!      | it is chosen                                  |
//!      v                                               |
//!   given notice --------------------------------------+
//!      | the notice is over
//!      v
//!   marking --> ...           as if it was released (`home`), but a program that asks for it learns which home took the memory
//!
//! *Which segments go.* The smallest segment that makes the others fit; if none is large enough, the largest, and so
//! on: few segments, and few bytes more than needed. Of equal ones the youngest. A segment under notice that need not
//! go after all, because others were released, is spared, the largest first. A segment goes at the end of its own
//! notice. Asking for the same again postpones nothing, and asking for less spares no segment that must go all the
//! same.
//! No allocation takes a home above what it offers, nor does a copy of another home's. Pages in which nothing stands are the system's, where memory is not pinned; where it is, the
//! next view has less of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use verbena_cluster::View;
use verbena_terms::{Incarnation, Time};

use super::Home;
use super::held::{Held, Stage};
use super::moving::MOVES_AT_ONCE;
use crate::actions::{HomeAction, Stay};
use crate::heap::Heap;
use crate::layout::{End, extents_at};
use crate::recent::Recent;
use crate::wire::Question;
use crate::{Place, Refusal, Segment, SegmentId};

/// Segments that a home remembers to have reclaimed; of those that it reclaimed before it says that they were released.
const RECLAIMED: usize = 16_384;
/// When a home that might have room for what is to go is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What has to go from a home that offers less than it did.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    notice: Duration,
    /// What was given notice, and when that is over.
    going: BTreeMap<SegmentId, Time>,
    /// What was reclaimed.
    reclaimed: Recent<SegmentId, ()>,
    /// Copies whose homes were asked, in this view, to move them from here.
    asked: BTreeSet<SegmentId>,
    /// Something that has to go may have no notice yet, or need not go any more.
    is_stale: bool,
    /// As many move as do at a time: the next one goes when one has ended.
    is_busy: bool,
    /// When what is due was looked at last.
    looked_at: Time,
}

impl Offer {
    pub(super) fn new() -> Self {
        Offer {
            notice: Duration::ZERO,
            going: BTreeMap::new(),
            reclaimed: Recent::of_at_most(RECLAIMED),
            asked: BTreeSet::new(),
            is_stale: false,
            is_busy: false,
            looked_at: Time::ZERO,
        }
    }
}

/// What a home offers, as reports show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaims {
    /// Bytes that it could offer.
    pub share: u64,
    /// Bytes that it offers.
    pub offered: u64,
    /// Bytes that segments have.
    pub taken: u64,
    /// Segments that have notice.
    pub segments: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// After how long the first of them goes.
    pub first_in: Option<Duration>,
}

/// What is worth a line in the log, and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Another size is offered.
    Offers(Reclaims),
    /// These have to go, after so long.
    Noticed {
        /// How many.
        segments: usize,
        /// How many bytes they have.
        bytes: u64,
        /// Their notice.
        notice: Duration,
    },
    /// This segment's notice is over, and no other home had room for it.
    Reclaimed(Segment),
    /// This one is at another home from now on, or that of another home's is here no more.
    Moved(Segment, Incarnation),
}

impl Home {
    /// A home of the same process, which offers what the one before did.
    pub(crate) fn after(before: &Home, me: Incarnation) -> Home {
        let mut home = Home::new(me, before.options);
        home.share.offer(before.share.offered());
        home.offer.notice = before.offer.notice;
        home
    }

    /// Bytes that it offers.
    pub(crate) fn offered(&self) -> u64 {
        self.share.offered()
    }

    /// What it offers, and what has to go.
    pub(crate) fn reclaims(&self, now: Time) -> Reclaims {
        let first = self.offer.going.values().min();
        Reclaims {
            share: self.options.bytes,
            offered: self.share.offered(),
            taken: self.share.taken(),
            segments: self.offer.going.len(),
            bytes: self.offer.going.keys().map(|id| self.extent_of(id)).sum(),
            first_in: first.map(|until| until.since(now)),
        }
    }

    /// Bytes of what has notice, or goes already.
    pub(crate) fn going_bytes(&self) -> u64 {
        let goes = |id: &SegmentId, held: &Held| {
            let is_released = held.stage.is_ending() && held.end == End::Released;
            self.offer.going.contains_key(id) || self.goes_already(*id, held) && !is_released
        };
        let going = self.segments.iter().filter(|(id, held)| goes(id, held));
        going.map(|(_, held)| held.extent()).sum()
    }

    fn extent_of(&self, id: &SegmentId) -> u64 {
        self.segments.get(id).map_or(0, |held| held.extent())
    }

    /// Segments that have notice.
    pub(super) fn going(&self) -> usize {
        self.offer.going.len()
    }

    /// After how long a segment goes, if it has notice.
    pub(super) fn goes_in(&self, id: SegmentId, now: Time) -> Option<Duration> {
        self.offer.going.get(&id).map(|until| until.since(now))
    }

    /// When the first notice is over, or at once if a segment has to be given notice.
    pub(crate) fn reclaim_at(&self) -> Option<Time> {
        let first = self.offer.going.values().min().copied().filter(|_| !self.offer.is_busy);
        if self.offer.is_stale { Some(Time::ZERO) } else { first }.filter(|_| self.is_open)
    }

    /// It may stand otherwise with what has to go.
    pub(super) fn review_notices(&mut self) {
        self.offer.is_stale |= self.share.taken() > self.share.offered() || !self.offer.going.is_empty();
    }

    /// It is no more: why is remembered, where it was not its user's wish.
    pub(super) fn is_gone(&mut self, id: SegmentId, end: End) {
        self.offer.going.remove(&id);
        self.offer.asked.remove(&id);
        if end == End::Reclaimed {
            self.offer.reclaimed.put(id, ());
        }
    }

    /// Another home leads it: what was asked of the one before does not count.
    pub(super) fn ask_anew(&mut self, id: SegmentId) {
        self.offer.asked.remove(&id);
    }

    /// The view ends: other homes forget what was asked of them in it.
    pub(super) fn ask_all_anew(&mut self) {
        self.offer.asked.clear();
    }

    /// What is said of a segment that does not stand here.
    pub(super) fn absent(&self, id: SegmentId) -> Refusal {
        match self.segments.get(&id) {
            Some(held) if held.stage.is_ending() => held.segment.ended(held.end),
            None if self.offer.reclaimed.get(&id).is_some() => Refusal::Reclaimed { id, home: self.me },
            _ => Refusal::Released { id },
        }
    }

    /// From now on the home offers `bytes` bytes.
    pub(crate) fn set_offer(&mut self, bytes: u64, notice: Duration, now: Time, out: &mut Vec<HomeAction>) {
        self.share.offer(bytes);
        self.offer.notice = notice;
        let latest = now + notice;
        self.offer.going.values_mut().for_each(|until| *until = latest.min(*until));
        self.offer.is_stale = true;
        self.give_notice(now, out);
        for (at, bytes) in self.share.extents() {
            self.discard(at, bytes, out);
        }
        self.publish(out);
        out.push(HomeAction::Note(Note::Offers(self.reclaims(now))));
    }

    /// The same of the free extent that this is in.
    pub(super) fn discard_at(&self, at: u64, out: &mut Vec<HomeAction>) {
        let around = self.share.extents().find(|(from, length)| (*from..from + length).contains(&at));
        if let Some((from, bytes)) = around {
            self.discard(from, bytes, out);
        }
    }

    /// Nothing stands there any more: it is the system's, if less is offered than could be.
    fn discard(&self, at: u64, bytes: u64, out: &mut Vec<HomeAction>) {
        if self.is_open && self.share.is_reduced() {
            out.push(HomeAction::Discard { at, bytes });
        }
    }

    /// Whether it is on its way out, or will be.
    fn goes_already(&self, id: SegmentId, held: &Held) -> bool {
        let leaves = match &held.stage {
            Stage::Moving(moving) => moving.is_left_by(self.me),
            Stage::Copying(copying) => copying.is_left_by(self.me),
            stage => stage.is_ending(),
        };
        leaves || self.offer.asked.contains(&id) || self.is_looking_for(id, self.me)
    }

    /// Bytes that have to go besides those that go already.
    fn needed(&self) -> u64 {
        let ending = self.segments.iter().filter(|(id, held)| self.goes_already(**id, held));
        let ending: u64 = ending.map(|(_, held)| held.extent()).sum();
        self.share.taken().saturating_sub(ending).saturating_sub(self.share.offered())
    }

    /// Gives notice to the segments that have to go, and spares those that need not go any longer.
    fn give_notice(&mut self, now: Time, out: &mut Vec<HomeAction>) {
        if !std::mem::take(&mut self.offer.is_stale) {
            return;
        }
        let needed = self.needed();
        let may_go = |held: &Held| matches!(held.stage, Stage::Standing | Stage::Backup { is_told: true, .. });
        let standing = self.segments.iter().filter(|(id, held)| may_go(held) && !self.goes_already(**id, held));
        let (known, others): (Vec<_>, Vec<_>) = standing.partition(|(id, _)| self.offer.going.contains_key(id));
        let (copied, alone): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, held)| held.segment.has_copies());
        let [known, alone, copied] =
            [known, alone, copied].map(|of| of.into_iter().map(|(id, held)| (held.extent(), *id)).collect::<Vec<_>>());
        let stay = spare(known, needed);
        self.offer.going.retain(|id, _| stay.contains(id));
        let lacking = needed.saturating_sub(stay.iter().map(|id| self.extent_of(id)).sum());
        let (mut chosen, still) = choose(copied, lacking);
        chosen.extend(choose(alone, still).0);
        let chosen = spare(chosen.into_iter().map(|id| (self.extent_of(&id), id)).collect(), lacking);
        if !chosen.is_empty() {
            let (segments, bytes) = (chosen.len(), chosen.iter().map(|id| self.extent_of(id)).sum());
            out.push(HomeAction::Note(Note::Noticed { segments, bytes, notice: self.offer.notice }));
        }
        let until = now + self.offer.notice;
        self.offer.going.extend(chosen.into_iter().map(|id| (id, until)));
    }

    /// Gives notice to the segments that have to go, and takes back those whose notice is over.
    pub(crate) fn reclaim(&mut self, view: &View, now: Time, out: &mut Vec<HomeAction>) {
        self.offer.looked_at = now;
        self.give_notice(now, out);
        let is_due = |until: &Time| *until <= now || !self.options.rules.notice_kept;
        let due: Vec<SegmentId> =
            self.offer.going.iter().filter(|(_, until)| is_due(until)).map(|(id, _)| *id).collect();
        let (me, moving) = (self.me, self.moving());
        self.offer.is_busy = moving + due.len() > MOVES_AT_ONCE;
        for id in due.into_iter().take(MOVES_AT_ONCE.saturating_sub(moving)) {
            self.offer.going.remove(&id);
            let Some(held) = self.segments.get_mut(&id) else { continue };
            match held.stage {
                Stage::Standing => {
                    self.begin_move(id, me, view, out);
                }
                _ => {
                    let to = held.segment.home;
                    self.offer.asked.insert(id);
                    out.push(HomeAction::Tell { to, question: Question::Yield(id) });
                }
            }
        }
        self.publish(out);
    }

    /// Its notice is over, but the homes that may have room for it have no memory yet: it stays until then.
    pub(super) fn goes_later(&mut self, id: SegmentId) {
        self.offer.going.insert(id, self.offer.looked_at + LOOK_AGAIN);
        self.offer.is_busy = false;
    }

    /// No other home has room for it.
    pub(super) fn reclaim_here(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        out.push(HomeAction::Note(Note::Reclaimed(held.segment.clone())));
        if self.options.rules.reclaimed_marked {
            self.mark_ended(id, End::Reclaimed, None, out);
        } else {
            held.end = End::Reclaimed;
            self.unregister(id, view, out);
        }
        self.publish(out);
    }

    /// Where things are to be in memory of which there is only what is offered: the slots of what has no copies can be elsewhere in the next view. Nothing, if
    /// all are where they can stay, or do not fit.
    pub(super) fn moves(&self) -> BTreeMap<SegmentId, u64> {
        let from = extents_at(self.options.segments);
        let end = from + self.share.offered();
        let its_end = |held: &Held| held.place.at + held.extent();
        if self.segments.values().all(|held| its_end(held) <= end) {
            return BTreeMap::new();
        }
        let mut heap = Heap::new(from, self.share.offered());
        let (stay, mut rest): (Vec<_>, Vec<_>) = self.segments.iter().partition(|(_, held)| held.segment.has_copies());
        for (_, held) in stay {
            let within = end.saturating_sub(held.place.at).min(held.extent());
            if within > 0 {
                heap.take_at(held.place.at, within);
            }
        }
        rest.sort_by_key(|(_, held)| std::cmp::Reverse(held.extent()));
        let moves = rest.into_iter().map(|(id, held)| Some((*id, heap.take(held.extent())?)));
        moves.collect::<Option<_>>().unwrap_or_default()
    }

    /// A region of `bytes` bytes, and each segment's place in it.
    pub(super) fn lay_out(&mut self, bytes: u64, moves: &BTreeMap<SegmentId, u64>) {
        self.share.lay_out(bytes);
        for (id, held) in &mut self.segments {
            if let Some(at) = moves.get(id) {
                (held.place.at, held.segment.at) = (*at, *at);
            }
            self.share.occupy(held.place.at, held.extent());
        }
    }

    /// What stays, and where.
    pub(super) fn stays(&self) -> Vec<Stay> {
        let stay = |(id, held): (&SegmentId, &Held)| {
            let at = self.moves.get(id).copied().unwrap_or(held.place.at);
            Stay { from: held.place.at, place: Place { at, ..held.place }, segment: held.segment.clone() }
        };
        self.segments.iter().map(stay).collect()
    }
}

/// Of these segments, each with its bytes, some that have `needed` bytes together, if all do; and how many bytes are
/// missing otherwise.
fn choose(mut of: Vec<(u64, SegmentId)>, mut needed: u64) -> (Vec<SegmentId>, u64) {
    of.sort_unstable();
    let mut chosen = vec![];
    while needed > 0 && !of.is_empty() {
        let suffices = of.partition_point(|(bytes, _)| *bytes < needed);
        let largest = of.len() - 1;
        let nth = of.get(suffices).map_or(largest, |(enough, _)| of.partition_point(|(bytes, _)| bytes <= enough) - 1);
        let (bytes, id) = of.remove(nth);
        chosen.push(id);
        needed = needed.saturating_sub(bytes);
    }
    (chosen, needed)
}

/// Of these segments, each with its bytes, those without which less than `needed` bytes would go.
fn spare(mut of: Vec<(u64, SegmentId)>, needed: u64) -> BTreeSet<SegmentId> {
    let all: u64 = of.iter().map(|(bytes, _)| bytes).sum();
    let mut over = all.saturating_sub(needed);
    of.sort_unstable_by_key(|(bytes, id)| (std::cmp::Reverse(*bytes), *id));
    of.retain(|(bytes, _)| {
        let is_spared = *bytes <= over;
        over -= if is_spared { *bytes } else { 0 };
        !is_spared
    });
    of.into_iter().map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests;
