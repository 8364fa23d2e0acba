//! A segment moves while it is used: a home that takes its memory back holds it no more, and others do.
//!
//! The segment's leader makes sure that all others hold it, except the leaver, which may be the leader itself:
//!
//! ```text
//!          a place, where     all members end what     the others hold the       the one that leaves
//!          there is room      they do, and look anew   highest word              holds it no more
//!   standing ----> reserving ----> forgetting -----> reading, copying ------> leaving -----> adopting ----> standing
//!      |               | there is no room, and nobody else holds it  |           it leads: the next one of the line
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

use crate::access::{Given, Step};
use crate::held::{Held, HomeAction, QuestionId, Stage};
use crate::home::Home;
use crate::layout::{End, Word, claims_at, word_at};
use crate::reclaim::Note;
use crate::replicas::Copying;
use crate::segment::registrar_of;
use crate::wire::{Question, Reply};
use crate::{Coherence, Place, Refusal, Segment, SegmentId};

/// Segments that a home remembers to have left; of those that it left before it says that they were released.
pub(crate) const LEFT: usize = 65_536;

/// Segments that a home moves at a time: each may hold a value meanwhile.
pub(crate) const MOVES_AT_ONCE: usize = 16;

/// A segment that stands yet, for which a place is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Leaver {
    who: Incarnation,
    /// Homes that may be asked, the next one last.
    candidates: Vec<Incarnation>,
    /// One of those that were asked has no memory in this view yet, and may have room then.
    waits: bool,
}

/// A segment that is out of use, or will be soon.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    who: Incarnation,
    /// What stands at its places.
    words: BTreeMap<Incarnation, Word>,
    step: MoveStep,
}

#[derive(Clone, Debug)]
enum MoveStep {
    /// The registrar of its name is to send who asks to its home.
    Naming,
    Forgetting(BTreeSet<Incarnation>),
    /// The nth of its places.
    Reading(usize),
    /// Another home has it, or will.
    Given(Incarnation),
}

/// How far a home is that is to serve it.
#[derive(Clone, Debug)]
pub(crate) enum Adopting {
    /// Slots that were claimed are free.
    Looking,
    Claiming(u64),
    Naming,
    Telling,
}

impl Moving {
    /// Whether this one is to hold it no more.
    pub(crate) fn is_left_by(&self, who: Incarnation) -> bool {
        self.who == who
    }

    /// Whether another home leads it by now.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self.step, MoveStep::Given(_))
    }
}

impl Home {
    /// The answer about a segment that this incarnation gave to others or holds for them: which home serves it, as far
    /// as this one knows.
    pub(crate) fn elsewhere(&self, id: SegmentId, view: &View) -> Option<Reply> {
        let goes_on = |held: &Held| match held.stage {
            Stage::Settling => held.end == End::Moved,
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

    /// It holds it no more, and will not lead it again. Where others do, it is remembered who: all of them did still when this one left. So who is sent from one to the next
    /// comes to those who left later, and not in a circle.
    pub(crate) fn has_left(&mut self, Held { segment, end, .. }: &Held) {
        if segment.home == self.me || *end != End::Moved {
            return;
        }
        let others = segment.places().map(|place| place.home).filter(|home| *home != self.me).collect();
        self.left.put(segment.id, others);
    }

    /// Whether a place is looked for, for a segment that this one is to hold no more.
    pub(crate) fn is_looking_for(&self, id: SegmentId, who: Incarnation) -> bool {
        self.leavers.get(&id).is_some_and(|leaver| leaver.who == who)
    }

    /// Segments that move, or are about to.
    pub(crate) fn moving(&self) -> usize {
        let moves = |held: &&Held| match &held.stage {
            Stage::Copying(copying) => copying.is_moving(),
            stage => matches!(stage, Stage::Moving(_)),
        };
        self.leavers.len() + self.segments.values().filter(moves).count()
    }

    /// A holder is to leave: first a place is looked for, while the segment stays in use.
    pub(crate) fn begin_move(
        &mut self,
        id: SegmentId,
        who: Incarnation,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) -> bool {
        let is_free = |held: &&Held| matches!(held.stage, Stage::Standing) && !self.leavers.contains_key(&id);
        let Some(held) = self.segments.get(&id).filter(is_free) else { return false };
        let others = view.homes().map(|member| member.incarnation);
        let mut candidates: Vec<_> =
            others.filter(|home| held.segment.places().all(|place| place.home != *home)).collect();
        let turn = id.number as usize % candidates.len().max(1);
        candidates.rotate_left(turn);
        self.leavers.insert(id, Leaver { who, candidates, waits: false });
        self.look_for_place(id, view, out);
        true
    }

    fn look_for_place(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let (Some(held), Some(leaver)) = (self.segments.get(&id), self.leavers.get_mut(&id)) else { return };
        let left = held.segment.places().filter(|place| place.home != leaver.who).count();
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
            reply if is_copying => self.copy_answered(id, from, reply, view, out),
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

    /// From now on no node learns where the segment is.
    fn stop(&mut self, id: SegmentId, place: Option<Place>, view: &View, out: &mut Vec<HomeAction>) {
        let (Some(held), Some(leaver)) = (self.segments.get_mut(&id), self.leavers.remove(&id)) else { return };
        // The new place is not filled: writers did not know of it.
        let words = place.map(|place| (place.home, Word::default())).into_iter().collect();
        held.segment.backups.extend(place);
        held.stage = Stage::Moving(Box::new(Moving { who: leaver.who, words, step: MoveStep::Naming }));
        match held.segment.wanted.name.as_ref().and_then(|name| name.registrar(view)) {
            Some(to) => out.push(HomeAction::Ask { id, to, question: Question::Register(held.segment.clone()) }),
            None => self.forget_where(id, view, out),
        }
        self.look_who_goes();
    }

    fn forget_where(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let is_forgotten = self.options.rules.forgotten_before_move;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Moving(moving) = &mut held.stage else { return };
        let members: BTreeSet<Incarnation> =
            view.members().iter().map(|member| member.incarnation).filter(|_| is_forgotten).collect();
        for to in &members {
            let question = Question::Forget { id, end: End::Moved };
            out.push(HomeAction::Ask { id, to: *to, question });
        }
        let is_nobody = members.is_empty();
        moving.step = MoveStep::Forgetting(members);
        if is_nobody {
            self.read_next(id, 0, view, out);
        }
    }

    /// No operation runs on it: its words do not change.
    fn read_next(&mut self, id: SegmentId, nth: usize, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Moving(moving) = &mut held.stage else { return };
        let is_unread = |(_, place): &(usize, Place)| !moving.words.contains_key(&place.home);
        let next = held.segment.places().enumerate().skip(nth).find(is_unread);
        let Some((nth, place)) = next else { return self.copy_moving(id, view, out) };
        moving.step = MoveStep::Reading(nth);
        out.push(HomeAction::Post { id, at: place.home, steps: vec![Step::ReadWord(word_at(place.control))] });
    }

    /// It was read.
    pub(crate) fn moving_completed(&mut self, id: SegmentId, given: &[Given], view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Moving(moving) = &mut held.stage else { return };
        let MoveStep::Reading(nth) = moving.step else { return };
        if let (Some(place), Some(word)) = (held.segment.places().nth(nth), given.first()) {
            moving.words.insert(place.home, Word::from_bits(word.word()));
        }
        self.read_next(id, nth + 1, view, out);
    }

    /// The others get the highest word.
    fn copy_moving(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Moving(moving) = &held.stage else { return };
        held.stage = Stage::Copying(Box::new(Copying::moving(me, moving.words.clone(), moving.who)));
        self.tell(id, view, out);
    }

    /// A member has answered what was asked for a segment that moves.
    pub(crate) fn moving_answered(&mut self, id: SegmentId, from: Incarnation, view: &View, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Moving(moving) = &mut held.stage else { return };
        match &mut moving.step {
            MoveStep::Naming => self.forget_where(id, view, out),
            MoveStep::Forgetting(awaited) => {
                awaited.remove(&from);
                if awaited.is_empty() {
                    self.read_next(id, 0, view, out);
                }
            }
            MoveStep::Given(to) if *to == from => {
                if let Some(segment) = held.segment.without(me) {
                    (held.segment, held.end) = (segment, End::Moved);
                }
                self.settle(id, out);
            }
            _ => {}
        }
    }

    /// All others have the highest word: the leaver drops the segment.
    pub(crate) fn let_go(&mut self, id: SegmentId, who: Incarnation, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        if who != me {
            return out.push(HomeAction::Ask { id, to: who, question: Question::Leave(id) });
        }
        let Some(segment) = held.segment.without(me) else { return };
        out.push(HomeAction::Note(Note::Moved(held.segment.clone(), segment.home)));
        let (to, words) = (segment.home, BTreeMap::new());
        held.stage = Stage::Moving(Box::new(Moving { who, words, step: MoveStep::Given(to) }));
        out.push(HomeAction::Ask { id, to, question: Question::Adopt(segment) });
    }

    /// It has left.
    pub(crate) fn is_left(&mut self, id: SegmentId, who: Incarnation, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.segment.backups.retain(|place| place.home != who);
        let segment = held.segment.clone();
        for place in &segment.backups {
            out.push(HomeAction::Tell { to: place.home, question: Question::Hold(segment.clone()) });
        }
        self.adopt(id, out);
    }

    // The part of a home that holds a copy.

    /// Its leader has it hold the segment no more.
    pub(crate) fn leave(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        if matches!(held.stage, Stage::Backup { .. }) {
            held.end = End::Moved;
            out.push(HomeAction::Note(Note::Moved(held.segment.clone(), held.segment.home)));
            self.settle(id, out);
        }
    }

    /// The former leader has dropped the segment: this home serves it.
    pub(crate) fn adopted(&mut self, asker: QuestionId, segment: Segment, out: &mut Vec<HomeAction>) {
        let id = segment.id;
        let is_it =
            |held: &&mut Held| matches!(held.stage, Stage::Backup { .. }) && held.segment.wanted == segment.wanted;
        let Some(held) = self.segments.get_mut(&id).filter(is_it) else {
            let reply = Reply::Refused(Refusal::Released { id });
            return out.push(HomeAction::Reply { to: asker, reply });
        };
        for place in &segment.backups {
            out.push(HomeAction::Tell { to: place.home, question: Question::Hold(segment.clone()) });
        }
        (held.segment, held.asker) = (segment, Some(asker));
        self.ask_anew(id);
        self.adopt(id, out);
    }

    /// This home serves the segment from now on: its slots are free, and questions about it come here.
    pub(crate) fn adopt(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let control = held.place.control;
        held.stage = Stage::Adopting(Adopting::Looking);
        let steps = vec![Step::ReadWord(word_at(control)), Step::ReadWord(claims_at(control))];
        out.push(HomeAction::Post { id, at: me, steps });
    }

    /// Its words were read, or its claims changed.
    pub(crate) fn adopting_completed(
        &mut self,
        id: SegmentId,
        given: &[Given],
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Adopting(step) = &mut held.stage else { return };
        let control = held.place.control;
        let words: Vec<u64> = given.iter().map(Given::word).collect();
        match (&*step, &words[..]) {
            (Adopting::Looking, [word, claims]) => {
                let slot = Word::from_bits(*word).slot().unwrap_or(0);
                *step = Adopting::Claiming(*claims);
                let steps = vec![Step::Swap(claims_at(control), *claims, 1 << slot)];
                out.push(HomeAction::Post { id, at: me, steps });
            }
            (Adopting::Claiming(expected), [found]) if expected == found => {
                *step = Adopting::Naming;
                match held.segment.wanted.name.as_ref().and_then(|name| name.registrar(view)) {
                    Some(to) => {
                        out.push(HomeAction::Ask { id, to, question: Question::Register(held.segment.clone()) })
                    }
                    None => self.adopting_answered(id, view, out),
                }
            }
            _ => self.adopt(id, out),
        }
    }

    /// A registrar knows that it is here.
    pub(crate) fn adopting_answered(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Adopting(step) = &mut held.stage else { return };
        match (&*step, registrar_of(id, view)) {
            (Adopting::Naming, Some(to)) => {
                *step = Adopting::Telling;
                out.push(HomeAction::Ask { id, to, question: Question::Moved(id) });
            }
            _ => {
                if let Some(to) = held.asker.take() {
                    out.push(HomeAction::Reply { to, reply: Reply::Done });
                }
                self.stands(id, out);
            }
        }
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
                self.look_who_goes();
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
    pub(crate) fn strike_off(&mut self, id: SegmentId, who: Incarnation, view: &View, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Backup { word, is_told: false } = held.stage else { return };
        let Some(segment) = held.segment.without(who) else { return };
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

    /// What becomes of what moves.
    pub(crate) fn moves_end(&mut self) {
        let me = self.me;
        self.leavers.clear();
        self.nobody_is_asked();
        let given = |held: &Held| matches!(&held.stage, Stage::Moving(moving) if moving.is_given());
        let given: Vec<SegmentId> = self.segments.iter().filter(|(_, held)| given(held)).map(|(id, _)| *id).collect();
        for id in given {
            if let Some(held) = self.segments.get_mut(&id)
                && let Some(segment) = held.segment.without(me)
            {
                (held.segment, held.end) = (segment, End::Moved);
            }
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
