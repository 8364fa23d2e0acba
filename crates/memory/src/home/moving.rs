//! A segment moves while it is used: a home that takes its memory back holds it no more, and others do.
//!
//! The segment's leader makes sure that all others hold it, except the leaver, which may be the leader itself:
//!
//! ```text
//!          a place, where     all members end what     the others hold the       the one that leaves
//!          there is room      they do, and look anew   highest word              holds it no more
//!   standing ----> reserving ----> forgetting -----> reading, copying ------> leaving -----> adopting ----> standing
//!      |               | there is no room, and no other holds it     |           it leads: the next one of the line
//!      |               v                                             |           is given the segment
//!      |           it is reclaimed                 `replicas` <------+
//! ```
//!
//! A node that asks for the segment meanwhile gets no answer, and asks again. So no operation runs between the moment
//! when all members have forgotten the segment and the end of the move, and its holders can change as between two
//! views. When a view ends in the middle, the leader is the one before or the next one, and all that was begun starts
//! again.
//!
//! A home that has left says so for the rest of its incarnation, and which home has the segment ([`Reply::Held`],
//! [`Reply::Elsewhere`]). A node with an older list, in which that home comes first, strikes it off and asks the next.

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::Incarnation;

use super::adopting::Adopting;
use super::copying::{Copying, candidates, tell_holders};
use super::held::{Held, Site, Stage, Transition};
use super::{Home, Note};
use crate::access::{Given, Step};
use crate::actions::{HomeAction, QuestionId};
use crate::layout::{End, Word, word_at};
use crate::wire::{Question, Reply};
use crate::{Coherence, Place, Refusal, Segment, SegmentId};

/// Segments that a home remembers to have left; of those that it left before it says that they were released.
pub(super) const LEFT: usize = 65_536;

/// Segments that a home moves at a time: each may hold a value meanwhile.
pub(super) const MOVES_AT_ONCE: usize = 16;

/// A segment that stands yet, for which a place is looked for.
#[derive(Clone, Debug)]
pub(super) struct Leaver {
    holder: Incarnation,
    /// Homes that may be asked, the next one last.
    candidates: Vec<Incarnation>,
    /// One of those that were asked has no memory in this view yet, and may have room then.
    waits: bool,
}

/// A segment that is out of use, or will be soon.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    /// The holder that leaves.
    holder: Incarnation,
    /// What stands at its places.
    words: BTreeMap<Incarnation, Word>,
    step: MoveStep,
}

#[derive(Clone, Debug)]
enum MoveStep {
    /// The registrar of its name is to send nodes that ask for it to its home.
    Naming,
    Forgetting(BTreeSet<Incarnation>),
    /// The nth of its places.
    Reading(usize),
    /// Another home has it, or will.
    Given(Incarnation),
}

impl Moving {
    /// It begins. The new place, if there is one, is not filled: writers did not know of it.
    fn begin(holder: Incarnation, place: Option<Place>) -> Self {
        let words = place.map(|place| (place.home, Word::default())).into_iter().collect();
        Moving { holder, words, step: MoveStep::Naming }
    }

    /// The leader itself leaves, and gives the segment to the next in the line. `None` if it is the only holder.
    fn give(me: Incarnation, segment: &Segment, out: &mut Vec<HomeAction>) -> Option<Self> {
        let rest = segment.without(me)?;
        let (id, to) = (segment.id, rest.home);
        out.push(HomeAction::Note(Note::Moved(segment.clone(), to)));
        out.push(HomeAction::Ask { id, to, question: Question::Adopt(rest) });
        Some(Moving { holder: me, words: BTreeMap::new(), step: MoveStep::Given(to) })
    }

    /// Whether this one is to hold it no more.
    pub(super) fn is_left_by(&self, holder: Incarnation) -> bool {
        self.holder == holder
    }

    /// Whether another home leads it by now.
    fn is_given(&self) -> bool {
        matches!(self.step, MoveStep::Given(_))
    }

    /// From now on no node learns where the segment is.
    fn register(&mut self, segment: &Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        match segment.wanted.name.as_ref().and_then(|name| name.registrar(site.view)) {
            Some(to) => {
                let question = Question::Register(segment.clone());
                out.push(HomeAction::Ask { id: segment.id, to, question });
                Transition::Wait
            }
            None => self.forget(segment, site, out),
        }
    }

    fn forget(&mut self, segment: &Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let members = site.view.members().iter().map(|member| member.incarnation);
        let members: BTreeSet<Incarnation> = members.filter(|_| site.rules.forgotten_before_move).collect();
        for to in &members {
            let question = Question::Forget { id: segment.id, end: End::Moved };
            out.push(HomeAction::Ask { id: segment.id, to: *to, question });
        }
        let is_unknown = members.is_empty();
        self.step = MoveStep::Forgetting(members);
        if is_unknown { self.read_from(0, segment, site, out) } else { Transition::Wait }
    }

    /// No operation runs on it: its words do not change. Those of the places from the nth on are read, and then the others get the highest.
    fn read_from(&mut self, nth: usize, segment: &Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let is_unread = |(_, place): &(usize, Place)| !self.words.contains_key(&place.home);
        let next = segment.places().enumerate().skip(nth).find(is_unread);
        let Some((nth, place)) = next else {
            return Transition::Copy(Copying::moving(site.me, self.words.clone(), self.holder));
        };
        self.step = MoveStep::Reading(nth);
        let steps = vec![Step::ReadWord(word_at(place.control))];
        out.push(HomeAction::Post { id: segment.id, at: place.home, steps });
        Transition::Wait
    }

    /// A word was read.
    pub(super) fn completed(
        &mut self,
        segment: &Segment,
        given: &[Given],
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        let MoveStep::Reading(nth) = self.step else { return Transition::Wait };
        if let (Some(place), Some(word)) = (segment.places().nth(nth), given.first()) {
            self.words.insert(place.home, Word::from_bits(word.word()));
        }
        self.read_from(nth + 1, segment, site, out)
    }

    /// A member has answered what was asked for it.
    pub(super) fn answered(
        &mut self,
        segment: &Segment,
        from: Incarnation,
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        match &mut self.step {
            MoveStep::Naming => self.forget(segment, site, out),
            MoveStep::Forgetting(awaited) => {
                awaited.remove(&from);
                if awaited.is_empty() { self.read_from(0, segment, site, out) } else { Transition::Wait }
            }
            MoveStep::Given(to) if *to == from => Transition::Settle,
            MoveStep::Reading(_) | MoveStep::Given(_) => Transition::Wait,
        }
    }
}

impl Home {
    /// The answer about a segment that this incarnation gave to others or holds for them: which home serves it, as far
    /// as this one knows.
    pub(super) fn elsewhere(&self, id: SegmentId, view: &View) -> Option<Reply> {
        let goes_on = |held: &Held| match held.stage {
            Stage::Ending(ref ending) if ending.is_settling() => held.end == End::Moved,
            _ => held.stage.is_copy(),
        };
        let holders: Vec<Incarnation> = match self.segments.get(&id) {
            // A home that made a segment and gave it away may hold a copy again.
            Some(held) if held.segment.home != self.me && goes_on(held) => {
                held.segment.places().map(|place| place.home).collect()
            }
            None => self.left.get(&id)?.clone(),
            Some(_) => return None,
        };
        let by = holders.into_iter().find(|home| *home != self.me && view.member(*home).is_some());
        Some(by.map_or(Reply::Elsewhere(id), |by| Reply::Held { id, by }))
    }

    /// This home holds it no more, and will not lead it again. It remembers the other holders: all of them held it when this one left. So a node that is sent from one
    /// home to the next comes to those that left later, and not in a circle.
    pub(super) fn has_left(&mut self, Held { segment, end, .. }: &Held) {
        if segment.home == self.me || *end != End::Moved {
            return;
        }
        let others = segment.places().map(|place| place.home).filter(|home| *home != self.me).collect();
        self.left.put(segment.id, others);
    }

    /// Whether a place is looked for, for a segment that this one is to hold no more.
    pub(super) fn is_looking_for(&self, id: SegmentId, holder: Incarnation) -> bool {
        self.leavers.get(&id).is_some_and(|leaver| leaver.holder == holder)
    }

    /// Segments that move, or are about to.
    pub(super) fn moving(&self) -> usize {
        let moves = |held: &&Held| match &held.stage {
            Stage::Copying(copying) => copying.is_moving(),
            stage => matches!(stage, Stage::Moving(_)),
        };
        self.leavers.len() + self.segments.values().filter(moves).count()
    }

    /// A holder is to leave: first a place is looked for, while the segment stays in use.
    pub(super) fn begin_move(
        &mut self,
        id: SegmentId,
        holder: Incarnation,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) -> bool {
        let is_free = |held: &&Held| matches!(held.stage, Stage::Standing) && !self.leavers.contains_key(&id);
        let Some(held) = self.segments.get(&id).filter(is_free) else { return false };
        let candidates = candidates(&held.segment, view);
        self.leavers.insert(id, Leaver { holder, candidates, waits: false });
        self.look_for_place(id, view, out);
        true
    }

    fn look_for_place(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let (Some(held), Some(leaver)) = (self.segments.get(&id), self.leavers.get_mut(&id)) else { return };
        let left = held.segment.places().filter(|place| place.home != leaver.holder).count();
        if left < usize::from(held.segment.wanted.copies)
            && let Some(to) = leaver.candidates.pop()
        {
            let question = Question::Reserve(held.segment.clone());
            return out.push(HomeAction::Ask { id, to, question });
        }
        if left > 0 {
            return self.stop(id, None, view, out);
        }
        match self.leavers.remove(&id) {
            Some(Leaver { waits: true, .. }) => self.goes_later(id),
            // There is no room anywhere.
            _ => self.reclaim_here(id, view, out),
        }
    }

    /// A home was asked for a place. It may have been released meanwhile.
    pub(crate) fn reserved(
        &mut self,
        id: SegmentId,
        from: Incarnation,
        reply: Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let is_copying = self.segments.get(&id).is_some_and(|held| matches!(held.stage, Stage::Copying(_)));
        match reply {
            reply if is_copying => self.answered(id, from, reply, view, out),
            Reply::Place(place) if self.leavers.contains_key(&id) => self.stop(id, Some(place), view, out),
            Reply::Place(place) => {
                let end = match self.segments.get(&id) {
                    Some(held) if held.stage.is_ending() => held.end,
                    None if self.left.get(&id).is_none() => End::Released,
                    _ => End::Moved,
                };
                out.push(HomeAction::Tell { to: place.home, question: Question::Drop { id, end } });
            }
            refused => {
                if let (Reply::Refused(Refusal::NoHome { .. }), Some(leaver)) = (refused, self.leavers.get_mut(&id)) {
                    leaver.waits = true;
                }
                self.look_for_place(id, view, out);
            }
        }
    }

    /// The segment is taken out of use.
    fn stop(&mut self, id: SegmentId, place: Option<Place>, view: &View, out: &mut Vec<HomeAction>) {
        let (Some(held), Some(leaver)) = (self.segments.get_mut(&id), self.leavers.remove(&id)) else { return };
        held.segment.backups.extend(place);
        held.stage = Stage::Moving(Box::new(Moving::begin(leaver.holder, place)));
        self.advance(id, view, out, |held, site, out| match &mut held.stage {
            Stage::Moving(moving) => moving.register(&held.segment, site, out),
            _ => Transition::Wait,
        });
        self.review_notices();
    }

    /// All others have the highest word: the leaver drops the segment.
    pub(super) fn let_go(&mut self, id: SegmentId, holder: Incarnation, out: &mut Vec<HomeAction>) {
        let me = self.me;
        if holder != me {
            return out.push(HomeAction::Ask { id, to: holder, question: Question::Leave(id) });
        }
        let Some(held) = self.segments.get_mut(&id) else { return };
        if let Some(moving) = Moving::give(me, &held.segment, out) {
            held.stage = Stage::Moving(Box::new(moving));
        }
    }

    // The part of a home that holds a copy.

    /// Its leader has it hold the segment no more.
    pub(super) fn leave(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        if matches!(held.stage, Stage::Backup { .. }) {
            held.end = End::Moved;
            out.push(HomeAction::Note(Note::Moved(held.segment.clone(), held.segment.home)));
            self.settle(id, out);
        }
    }

    /// The former leader has dropped the segment: this home serves it.
    pub(super) fn adopted(&mut self, asker: QuestionId, segment: Segment, out: &mut Vec<HomeAction>) {
        let id = segment.id;
        let is_it =
            |held: &&mut Held| matches!(held.stage, Stage::Backup { .. }) && held.segment.wanted == segment.wanted;
        let Some(held) = self.segments.get_mut(&id).filter(is_it) else {
            let reply = Reply::Refused(Refusal::Released { id });
            return out.push(HomeAction::Reply { to: asker, reply });
        };
        tell_holders(&segment, out);
        held.segment = segment;
        self.ask_anew(id);
        self.adopt(id, Some(asker), out);
    }

    /// This home serves the segment from now on: its slots are free, and questions about it come here.
    pub(super) fn adopt(&mut self, id: SegmentId, asker: Option<QuestionId>, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Adopting(Adopting::begin(asker, &held.segment, held.place.control, me, out));
    }

    /// The answer of the first in the line, which this home asked where a segment is whose copy it holds.
    pub(crate) fn told_where(
        &mut self,
        id: SegmentId,
        from: Incarnation,
        reply: Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Backup { is_told: is_told @ false, .. } = &mut held.stage else { return };
        match reply {
            Reply::Segment(now) if now.wanted != held.segment.wanted => self.settle(id, out),
            Reply::Elsewhere(_) | Reply::Held { .. } => self.strike_off(id, from, view, out),
            Reply::Segment(now) if now.places().any(|place| place.home == me) => {
                *is_told = true;
                self.review_notices();
            }
            // It goes on without this one.
            Reply::Segment(now) => {
                (held.segment, held.end) = (now, End::Moved);
                self.settle(id, out);
            }
            // The segment is out of use in this view.
            reply => {
                let name = held.segment.wanted.name.clone().filter(|_| matches!(reply, Reply::Refused(_)));
                let end = held.end;
                // This home has reported it.
                if let Some((to, name)) = name.and_then(|name| Some((name.registrar(view)?, name))) {
                    out.push(HomeAction::Tell { to, question: Question::Unregister { name, id, end } });
                }
                self.settle(id, out);
            }
        }
    }

    /// The first in the line has left: the next one leads, and may be this home.
    pub(super) fn strike_off(&mut self, id: SegmentId, left: Incarnation, view: &View, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Backup { word, is_told: false } = held.stage else { return };
        let Some(segment) = held.segment.without(left) else { return };
        held.segment = segment;
        match Home::leader(&held.segment, view) {
            Some(to) if to != me => out.push(HomeAction::Ask { id, to, question: Question::Where(id) }),
            _ => {
                self.lead(id, word, true, view);
                self.compare_more(view, out);
            }
        }
    }

    // A view ends.

    /// Another home leads it.
    pub(super) fn hand_over(&mut self, id: SegmentId) {
        let me = self.me;
        if let Some(held) = self.segments.get_mut(&id)
            && let Some(segment) = held.segment.without(me)
        {
            (held.segment, held.end) = (segment, End::Moved);
        }
    }

    /// What becomes of what moves.
    pub(super) fn moves_end(&mut self) {
        self.leavers.clear();
        self.ask_all_anew();
        let given = |held: &Held| matches!(&held.stage, Stage::Moving(moving) if moving.is_given());
        let given: Vec<SegmentId> = self.segments.iter().filter(|(_, held)| given(held)).map(|(id, _)| *id).collect();
        for id in given {
            self.hand_over(id);
            drop(self.remove(id));
        }
        for held in self.segments.values_mut() {
            let is_moving = matches!(held.stage, Stage::Moving(_) | Stage::Copying(_));
            if is_moving && held.segment.wanted.coherence == Coherence::Null {
                // Puts of it go to its home alone.
                held.segment.backups.clear();
                held.stage = Stage::Standing;
            }
        }
    }
}

#[cfg(test)]
mod tests;
