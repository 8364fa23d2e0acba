//! A home's part: what of its share is whose.
//!
//! ```text
//!              words and slot are made     the registrar has the name          its home is asked to release it
//!   allocated ------------------------> made ---------------------> standing ---------------------------------> marking
//!      | no room: refused                 | it has another: freed                    the word is swapped for a released one |
//!      v                                  v                                                                             v
//!                                       free <--- settling <--- forgetting <------------------------------------ unregistering
//!                                          words are read   all members have nothing on their way to it      the name is free
//! ```
//!
//! Memory that was released is free again when every member has said that it has nothing on its way to it (rule M2), and with the next view, which
//! has other memory. What does not stand when a view ends is no more. What becomes of copies is in [`replicas`](crate::replicas).

mod questions;

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::{Incarnation, Time};

use crate::access::{Given, Step};
use crate::get::slot_at;
use crate::heap::Heap;
use crate::held::{Control, Held, HomeAction, QuestionId, Renewal, Stage, Stands};
use crate::layout::{End, FREE_AT, GOING_AT, LARGEST_AT, Word, claims_at, extents_at, slot_bytes, word_at};
use crate::moving::{LEFT, Leaver};
use crate::recent::Recent;
use crate::reclaim::Offer;
use crate::wire::{MOST_SEGMENTS, Question, Reply, Token};
use crate::{MemoryOptions, Place, Refusal, Segment, SegmentId, Wanted};

#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) me: Incarnation,
    pub(crate) options: MemoryOptions,
    pub(crate) heap: Heap,
    /// Bytes that segments have, copies among them.
    pub(crate) taken: u64,
    pub(crate) offer: Offer,
    /// Segments for which a place is looked for.
    pub(crate) leavers: BTreeMap<SegmentId, Leaver>,
    /// Segments that this incarnation held for others or gave to them, and their other holders, the leader first.
    pub(crate) left: Recent<SegmentId, Vec<Incarnation>>,
    /// Where things will be in the memory that is made.
    pub(crate) moves: BTreeMap<SegmentId, u64>,
    /// Free controls, and what stands in them.
    controls: Vec<Control>,
    pub(crate) segments: BTreeMap<SegmentId, Held>,
    tokens: BTreeMap<Token, SegmentId>,
    /// Of segments that others hold now: an allocation whose answer the client never used is asked again.
    left_tokens: Recent<Token, SegmentId>,
    /// Bytes of each user.
    owned: BTreeMap<u32, u64>,
    made: u64,
    /// Segments whose copies wait to be compared.
    pub(crate) to_compare: Vec<SegmentId>,
    /// Its memory is of this view.
    pub(crate) is_open: bool,
}

impl Home {
    pub(crate) fn new(me: Incarnation, options: MemoryOptions) -> Self {
        let from = extents_at(options.segments);
        let fresh = |number| Control { number, word: Word::default(), claims: 0 };
        Home {
            me,
            options,
            heap: Heap::new(from, options.bytes),
            taken: 0,
            offer: Offer::new(options.bytes),
            leavers: BTreeMap::new(),
            left: Recent::of_at_most(LEFT),
            moves: BTreeMap::new(),
            controls: (0..options.segments).rev().map(fresh).collect(),
            segments: BTreeMap::new(),
            tokens: BTreeMap::new(),
            left_tokens: Recent::of_at_most(LEFT),
            owned: BTreeMap::new(),
            made: 0,
            to_compare: vec![],
            is_open: false,
        }
    }

    /// What stands here, and is read here.
    pub(crate) fn standing(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().filter(|held| matches!(held.stage, Stage::Standing)).map(|held| &held.segment)
    }

    /// Segments that are here, those that are about to come or go too.
    pub(crate) fn held(&self) -> usize {
        self.segments.len()
    }

    /// Bytes that may be taken, and those of the largest piece.
    pub(crate) fn free(&self) -> (u64, u64) {
        let room = self.offer.bytes.saturating_sub(self.taken);
        (self.heap.free().min(room), self.heap.largest().min(room))
    }

    /// Segments that it made.
    #[cfg(test)]
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Bytes that segments have.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// A view ends, and with it all that does not stand.
    pub(crate) fn view_ends(&mut self) {
        self.is_open = false;
        self.to_compare.clear();
        self.moves_end();
        let lasts = |held: &Held| held.stage.lasts(held.segment.has_copies() && !held.is_null());
        let gone: Vec<SegmentId> = self.segments.iter().filter(|(_, held)| !lasts(held)).map(|(id, _)| *id).collect();
        for id in gone {
            if let Some(held) = self.segments.get_mut(&id).filter(|held| held.stage.is_copy()) {
                held.end = End::Moved;
            }
            let is_null = self.remove(id).is_some_and(|held| held.is_null());
            if is_null && let Some(others) = self.left.get_mut(&id) {
                // Its value is at no other home: the other holders cannot serve it.
                others.clear();
            }
        }
        for held in self.segments.values_mut() {
            let stage = if held.segment.has_copies() { Stage::Kept } else { Stage::Standing };
            (held.stage, held.asker, held.end) = (stage, None, End::default());
        }
    }

    /// What its memory of the next view is to hold.
    pub(crate) fn renewal(&mut self) -> Renewal {
        self.moves = self.moves();
        let (from, segments) = (extents_at(self.options.segments), self.stays());
        let ends = segments.iter().map(|stay| stay.place.at + stay.segment.wanted.extent_bytes());
        let least = ends.chain([from + self.offer.bytes]).max().unwrap_or(from);
        Renewal { bytes: from + self.options.bytes, least, segments }
    }

    /// Its memory is there, and has `bytes` bytes.
    pub(crate) fn renewed(&mut self, bytes: u64, stand: &[Stands], view: &View, out: &mut Vec<HomeAction>) {
        let moves = std::mem::take(&mut self.moves);
        self.lay_out(bytes, &moves);
        for stands in stand {
            self.stands_again(*stands, view, out);
        }
        let taken: BTreeSet<u32> = self.segments.values().map(|held| held.place.control).collect();
        let free = (0..self.options.segments).rev().filter(|number| !taken.contains(number));
        self.controls = free.map(|number| Control { number, word: Word::default(), claims: 0 }).collect();
        self.is_open = true;
        self.look_who_goes();
        self.publish(out);
        self.compare_more(view, out);
    }

    /// What an allocation has made here. QuestionId for once more, it is a question of where that is: it may have moved, or be about to.
    pub(crate) fn made_by(&self, token: &Token) -> Option<SegmentId> {
        self.tokens.get(token).or_else(|| self.left_tokens.get(token)).copied()
    }

    /// Makes a segment; nothing was made by this token. Others are homes that may hold copies.
    pub(crate) fn allocate(
        &mut self,
        asker: QuestionId,
        token: Token,
        wanted: Wanted,
        others: Vec<Incarnation>,
        out: &mut Vec<HomeAction>,
    ) {
        match self.make(asker, token, wanted, others) {
            Ok(()) => self.publish(out),
            Err(refusal) => return out.push(HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) }),
        }
        let Some((id, held)) = self.tokens.get(&token).and_then(|id| self.segments.get_key_value(id)) else { return };
        let Stage::Making(control, _) = &held.stage else { return };
        let first = slot_at(&held.segment, 0);
        let zeros = vec![0; (slot_bytes(held.segment.wanted.bytes) - 8) as usize];
        let steps = vec![
            Step::WriteWord(first, control.next().version()),
            Step::Write(first + 8, zeros),
            Step::Swap(claims_at(control.number), control.claims, 1),
            Step::Swap(word_at(control.number), control.word.to_bits(), control.next().to_bits()),
        ];
        out.push(HomeAction::Post { id: *id, at: self.me, steps });
    }

    fn make(
        &mut self,
        asker: QuestionId,
        token: Token,
        wanted: Wanted,
        others: Vec<Incarnation>,
    ) -> Result<(), Refusal> {
        wanted.check()?;
        let (control, place) = self.take(&wanted)?;
        self.made += 1;
        let id = SegmentId { home: self.me, number: self.made };
        let segment = Segment { id, wanted, home: self.me, control: place.control, at: place.at, backups: vec![] };
        self.tokens.insert(token, id);
        let stage = Stage::Making(control, others);
        let (token, asker, end) = (Some(token), Some(asker), End::default());
        self.segments.insert(id, Held { segment, place, token, stage, asker, end });
        Ok(())
    }

    /// Bytes and words for a segment, or for a copy of one.
    pub(crate) fn take(&mut self, wanted: &Wanted) -> Result<(Control, Place), Refusal> {
        let (home, owner, asked) = (self.me, wanted.owner, wanted.extent_bytes());
        let (has, limit) = (self.owned.get(&owner).copied().unwrap_or(0), self.options.owner_bytes);
        if has.saturating_add(asked) > limit {
            return Err(Refusal::OverLimit { owner, home, has, asked, limit });
        }
        let none = Refusal::NoWords { home, most: self.options.segments };
        let control = *self.controls.last().ok_or(none)?;
        let (free, largest) = self.free();
        let is_offered = asked <= free || !self.options.rules.offer_kept;
        let at = is_offered.then(|| self.heap.take(asked)).flatten();
        let at = at.ok_or(Refusal::NoRoom { home, asked, free, largest })?;
        self.controls.pop();
        self.taken += asked;
        *self.owned.entry(owner).or_default() += asked;
        Ok((control, Place { home, control: control.number, at }))
    }

    pub(crate) fn release(&mut self, asker: QuestionId, id: SegmentId, owner: u32, out: &mut Vec<HomeAction>) {
        let refuse = |refusal| HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) };
        let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Standing)) else {
            return out.push(refuse(self.absent(id)));
        };
        let its = held.segment.wanted.owner;
        if its != owner {
            return out.push(refuse(Refusal::NotYours { id, owner: its }));
        }
        self.mark_ended(id, End::Released, Some(asker), out);
    }

    /// The segment comes to its end, whatever works on it.
    pub(crate) fn mark_ended(&mut self, id: SegmentId, end: End, asker: Option<QuestionId>, out: &mut Vec<HomeAction>) {
        self.leavers.remove(&id);
        let Some(held) = self.segments.get_mut(&id) else { return };
        // Its word is not known: the first swap finds it. It is marked where puts are decided first, and last where it is read.
        let first = if self.options.rules.released_everywhere { 0 } else { held.segment.backups.len() };
        let guess = Word::new(1, 0);
        (held.stage, held.asker, held.end) = (Stage::Marking(first, guess), asker, end);
        out.push(mark(held, first, guess));
        self.look_who_goes();
    }

    /// Whether it is not known yet how it stands with this segment. Until its words are marked others get and put it; and where there are copies it may still be served
    /// in the next view.
    pub(crate) fn is_comparing(&self, id: SegmentId) -> bool {
        self.segments.get(&id).is_some_and(|held| match held.stage {
            Stage::Registering(_) | Stage::Copying(_) | Stage::Kept | Stage::Marking(..) => true,
            Stage::Moving(_) | Stage::Adopting(_) => true,
            Stage::Backup { is_told, .. } => !is_told,
            _ => false,
        })
    }

    /// Where a segment is.
    pub(crate) fn find(&self, id: SegmentId) -> Result<&Segment, Refusal> {
        match self.segments.get(&id) {
            Some(Held { segment, stage: Stage::Standing, .. }) => Ok(segment),
            _ => Err(self.absent(id)),
        }
    }

    pub(crate) fn list(&self, after: SegmentId, prefix: &str, now: Time) -> Reply {
        let begins = |segment: &&Segment| {
            segment.wanted.name.as_ref().map_or(prefix.is_empty(), |name| name.as_str().starts_with(prefix))
        };
        let mut rest = self.standing().filter(|segment| segment.id > after).filter(begins);
        let segments: Vec<Segment> = rest.by_ref().take(MOST_SEGMENTS).cloned().collect();
        let going = |segment: &Segment| Some((segment.id, self.goes_in(segment.id, now)?));
        let going = segments.iter().filter_map(going).collect();
        Reply::Page { segments, is_last: rest.next().is_none(), going }
    }

    /// What was posted for a segment was executed.
    pub(crate) fn completed(&mut self, id: SegmentId, given: &[Given], view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let segment = &held.segment;
        match &mut held.stage {
            Stage::Making(control, others) => {
                let (control, others) = (*control, std::mem::take(others));
                if segment.wanted.is_replicated() {
                    return self.copy_new(id, control, others, view, out);
                }
                self.register(id, control, view, out);
            }
            Stage::Marking(nth, guess) => {
                let (nth, guess) = (*nth, *guess);
                let found = Word::from_bits(given.first().map_or(0, Given::word));
                let (next, word) =
                    if found != guess && found.slot().is_some() { (nth, found) } else { (nth + 1, guess) };
                if next <= segment.backups.len() {
                    held.stage = Stage::Marking(next, word);
                    return out.push(mark(held, next, word));
                }
                self.unregister(id, view, out);
            }
            Stage::Settling => {
                let words =
                    (Word::from_bits(given.first().map_or(0, Given::word)), given.get(1).map_or(0, Given::word));
                let control = Control { number: held.place.control, word: words.0, claims: words.1 };
                let at = held.place.at;
                if self.remove(id).is_some() {
                    self.controls.push(control);
                    self.discard_at(at, out);
                }
                self.publish(out);
            }
            Stage::Emptying => {
                held.stage = Stage::Backup { word: Word::default(), is_told: true };
                if let Some(to) = held.asker.take() {
                    out.push(HomeAction::Reply { to, reply: Reply::Place(held.place) });
                }
            }
            Stage::Copying(_) => self.copied(id, given, view, out),
            Stage::Moving(_) => self.moving_completed(id, given, view, out),
            Stage::Adopting(_) => self.adopting_completed(id, given, view, out),
            _ => {}
        }
    }

    /// Its name is to be known.
    pub(crate) fn register(&mut self, id: SegmentId, control: Control, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Registering(control);
        match held.segment.wanted.name.as_ref().and_then(|name| name.registrar(view)) {
            Some(to) => out.push(HomeAction::Ask { id, to, question: Question::Register(held.segment.clone()) }),
            None => self.registered(id, view, out),
        }
    }

    fn registered(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get(&id) else { return };
        if held.segment.wanted.is_replicated() {
            return self.copy_heard_of(id, view, out);
        }
        self.stands(id, out);
    }

    /// Its name is to be free.
    pub(crate) fn unregister(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Unregistering;
        let (name, end) = (held.segment.wanted.name.clone(), held.end);
        match name.and_then(|name| Some((name.registrar(view)?, name))) {
            Some((to, name)) => out.push(HomeAction::Ask { id, to, question: Question::Unregister { name, id, end } }),
            None => self.forget(id, view, out),
        }
    }

    /// A member has answered what was asked for a segment.
    pub(crate) fn answered(
        &mut self,
        id: SegmentId,
        from: Incarnation,
        reply: Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        match (&mut held.stage, reply) {
            (Stage::Registering(_), Reply::Done) => self.registered(id, view, out),
            (Stage::Registering(control), refused) => {
                let control = *control;
                self.unmake(id, control, refused, out);
            }
            (Stage::Unregistering, _) => self.forget(id, view, out),
            (Stage::Forgetting(awaited), _) => {
                awaited.remove(&from);
                if awaited.is_empty() {
                    self.settle(id, out);
                }
            }
            (Stage::Copying(_), reply) => self.copy_answered(id, from, reply, view, out),
            (Stage::Moving(_), _) => self.moving_answered(id, from, view, out),
            (Stage::Adopting(_), _) => self.adopting_answered(id, view, out),
            _ => {}
        }
    }

    /// No other node knows of it.
    pub(crate) fn unmake(&mut self, id: SegmentId, control: Control, refused: Reply, out: &mut Vec<HomeAction>) {
        let control = Control { word: control.next(), claims: 1, ..control };
        if let Some(Held { asker, segment, .. }) = self.remove(id) {
            out.extend(asker.map(|to| HomeAction::Reply { to, reply: refused }));
            self.drop_copies(&segment, End::Released, out);
            self.controls.push(control);
            self.discard_at(segment.at, out);
        }
        self.publish(out);
    }

    pub(crate) fn stands(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Standing;
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Segment(held.segment.clone()) });
        }
        self.look_who_goes();
    }

    /// The name is free: all members are to forget the segment.
    fn forget(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Done });
        }
        if !self.options.rules.forgotten_before_reuse {
            return self.settle(id, out);
        }
        let end = held.end;
        let members: BTreeSet<Incarnation> = view.members().iter().map(|member| member.incarnation).collect();
        for to in &members {
            out.push(HomeAction::Ask { id, to: *to, question: Question::Forget { id, end } });
        }
        held.stage = Stage::Forgetting(members);
    }

    /// No node has anything in flight to it.
    pub(crate) fn settle(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Settling;
        let (at, control) = (self.me, held.place.control);
        let steps = vec![Step::ReadWord(word_at(control)), Step::ReadWord(claims_at(control))];
        out.push(HomeAction::Post { id, at, steps });
        if held.segment.home == self.me {
            let (segment, end) = (held.segment.clone(), held.end);
            self.drop_copies(&segment, end, out);
        }
    }

    fn drop_copies(&self, segment: &Segment, end: End, out: &mut Vec<HomeAction>) {
        for place in &segment.backups {
            out.push(HomeAction::Tell { to: place.home, question: Question::Drop { id: segment.id, end } });
        }
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Held> {
        let held = self.segments.remove(&id)?;
        if let Some(token) = held.token {
            self.tokens.remove(&token);
            if held.end == End::Moved {
                self.left_tokens.put(token, id);
            }
        }
        self.is_gone(id, held.end);
        self.has_left(&held);
        let bytes = held.segment.wanted.extent_bytes();
        self.heap.give(held.place.at, bytes);
        self.taken -= bytes;
        self.look_who_goes();
        let owner = held.segment.wanted.owner;
        let left = self.owned.get(&owner).map_or(0, |has| has - bytes);
        if left == 0 {
            self.owned.remove(&owner);
        } else {
            self.owned.insert(owner, left);
        }
        Some(held)
    }

    /// A place for a copy of what another home leads.
    pub(crate) fn hold_place(&mut self, segment: Segment, place: Place, asker: QuestionId) {
        let (token, stage, asker, end) = (None, Stage::Emptying, Some(asker), End::default());
        self.segments.insert(segment.id, Held { segment, place, token, stage, asker, end });
    }

    pub(crate) fn publish(&self, out: &mut Vec<HomeAction>) {
        let (free, largest) = self.free();
        out.push(HomeAction::Store { at: FREE_AT, word: free });
        out.push(HomeAction::Store { at: LARGEST_AT, word: largest });
        out.push(HomeAction::Store { at: GOING_AT, word: self.going() as u64 });
    }
}

/// A segment comes to its end at the nth of its places, if that word stands there.
fn mark(held: &Held, nth: usize, found: Word) -> HomeAction {
    let Held { segment, end, .. } = held;
    let place = segment.link(nth);
    let step = Step::Swap(word_at(place.control), found.to_bits(), found.ended(*end).to_bits());
    HomeAction::Post { id: segment.id, at: place.home, steps: vec![step] }
}
