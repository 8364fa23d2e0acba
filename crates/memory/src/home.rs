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

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::Incarnation;

use crate::access::{Given, Step};
use crate::get::slot_at;
use crate::heap::Heap;
use crate::held::{Asked, Control, Held, HomeAction, Renewal, Stage, Stands};
use crate::layout::{FREE_AT, LARGEST_AT, Word, claims_at, extents_at, slot_bytes, word_at};
use crate::wire::{MOST_SEGMENTS, Question, Reply, Token};
use crate::{MemoryOptions, Place, Refusal, Segment, SegmentId, Wanted};

#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) me: Incarnation,
    pub(crate) options: MemoryOptions,
    heap: Heap,
    /// Controls that nobody has, and what stands in them.
    controls: Vec<Control>,
    pub(crate) segments: BTreeMap<SegmentId, Held>,
    tokens: BTreeMap<Token, SegmentId>,
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
            controls: (0..options.segments).rev().map(fresh).collect(),
            segments: BTreeMap::new(),
            tokens: BTreeMap::new(),
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

    /// Free bytes, and those of the largest piece.
    pub(crate) fn free(&self) -> (u64, u64) {
        (self.heap.free(), self.heap.largest())
    }

    /// A view ends, and with it all that does not stand.
    pub(crate) fn view_ends(&mut self) {
        self.is_open = false;
        self.to_compare.clear();
        let lasts = |held: &Held| held.stage.lasts(held.segment.wanted.is_replicated());
        let gone: Vec<SegmentId> = self.segments.iter().filter(|(_, held)| !lasts(held)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| drop(self.remove(id)));
        for held in self.segments.values_mut().filter(|held| held.segment.wanted.is_replicated()) {
            (held.stage, held.asker) = (Stage::Kept, None);
        }
    }

    /// What its memory of the next view is to hold.
    pub(crate) fn renewal(&self) -> Renewal {
        let segments = self.segments.values().map(|held| (held.place, held.segment.clone())).collect();
        Renewal { bytes: extents_at(self.options.segments) + self.options.bytes, segments }
    }

    /// It is there.
    pub(crate) fn renewed(&mut self, stand: &[Stands], view: &View, out: &mut Vec<HomeAction>) {
        for stands in stand {
            self.stands_again(*stands, view, out);
        }
        let taken: BTreeSet<u32> = self.segments.values().map(|held| held.place.control).collect();
        let free = (0..self.options.segments).rev().filter(|number| !taken.contains(number));
        self.controls = free.map(|number| Control { number, word: Word::default(), claims: 0 }).collect();
        self.is_open = true;
        self.publish(out);
        self.compare_more(view, out);
    }

    /// Others are homes that may hold copies.
    pub(crate) fn allocate(
        &mut self,
        asker: Asked,
        token: Token,
        wanted: Wanted,
        others: Vec<Incarnation>,
        out: &mut Vec<HomeAction>,
    ) {
        if let Some(held) = self.tokens.get(&token).and_then(|id| self.segments.get_mut(id)) {
            // It was made in an earlier view, whose end took the answer.
            if let Stage::Copying(_) = held.stage {
                held.asker = Some(asker);
            } else {
                out.push(HomeAction::Reply { to: asker, reply: Reply::Segment(held.segment.clone()) });
            }
            return;
        }
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

    fn make(&mut self, asker: Asked, token: Token, wanted: Wanted, others: Vec<Incarnation>) -> Result<(), Refusal> {
        wanted.check()?;
        let (control, place) = self.take(&wanted)?;
        self.made += 1;
        let id = SegmentId { home: self.me, number: self.made };
        let segment = Segment { id, wanted, home: self.me, control: place.control, at: place.at, backups: vec![] };
        self.tokens.insert(token, id);
        let stage = Stage::Making(control, others);
        self.segments.insert(id, Held { segment, place, token: Some(token), stage, asker: Some(asker) });
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
        let at = self.heap.take(asked).ok_or(Refusal::NoRoom { home, asked, free, largest })?;
        self.controls.pop();
        *self.owned.entry(owner).or_default() += asked;
        Ok((control, Place { home, control: control.number, at }))
    }

    pub(crate) fn release(&mut self, asker: Asked, id: SegmentId, owner: u32, out: &mut Vec<HomeAction>) {
        let refuse = |refusal| HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) };
        let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Standing)) else {
            return out.push(refuse(Refusal::Released { id }));
        };
        let its = held.segment.wanted.owner;
        if its != owner {
            return out.push(refuse(Refusal::NotYours { id, owner: its }));
        }
        // Its word is not known: the first swap finds it. It is marked where puts are decided first, and last where it is read.
        let first = if self.options.rules.released_everywhere { 0 } else { held.segment.backups.len() };
        let guess = Word::new(1, 0);
        (held.stage, held.asker) = (Stage::Marking(first, guess), Some(asker));
        out.push(mark(&held.segment, first, guess));
    }

    /// Whether it is not known yet how it stands with this segment. While copies are marked as released it may still be served in the next view.
    pub(crate) fn is_comparing(&self, id: SegmentId) -> bool {
        self.segments.get(&id).is_some_and(|held| match held.stage {
            Stage::Copying(_) | Stage::Kept => true,
            Stage::Marking(..) => held.segment.wanted.is_replicated(),
            _ => false,
        })
    }

    /// Where a segment is.
    pub(crate) fn find(&self, id: SegmentId) -> Result<&Segment, Refusal> {
        match self.segments.get(&id) {
            Some(Held { segment, stage: Stage::Standing, .. }) => Ok(segment),
            _ => Err(Refusal::Released { id }),
        }
    }

    pub(crate) fn list(&self, after: SegmentId, prefix: &str) -> Reply {
        let begins = |segment: &&Segment| {
            segment.wanted.name.as_ref().map_or(prefix.is_empty(), |name| name.as_str().starts_with(prefix))
        };
        let mut rest = self.standing().filter(|segment| segment.id > after).filter(begins);
        let segments: Vec<Segment> = rest.by_ref().take(MOST_SEGMENTS).cloned().collect();
        Reply::Page { segments, is_last: rest.next().is_none() }
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
                    return out.push(mark(segment, next, word));
                }
                self.unregister(id, view, out);
            }
            Stage::Settling => {
                let words =
                    (Word::from_bits(given.first().map_or(0, Given::word)), given.get(1).map_or(0, Given::word));
                let control = Control { number: held.place.control, word: words.0, claims: words.1 };
                if self.remove(id).is_some() {
                    self.controls.push(control);
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
        let name = held.segment.wanted.name.clone();
        match name.and_then(|name| Some((name.registrar(view)?, name))) {
            Some((to, name)) => out.push(HomeAction::Ask { id, to, question: Question::Unregister { name, id } }),
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
            (Stage::Backup { is_told: false, .. }, reply) => {
                let is_among = matches!(&reply, Reply::Segment(now) if now.places().any(|place| place.home == self.me));
                if !is_among {
                    // Nobody works on it in this view.
                    self.settle(id, out);
                }
            }
            _ => {}
        }
    }

    /// Nobody has heard of it.
    pub(crate) fn unmake(&mut self, id: SegmentId, control: Control, refused: Reply, out: &mut Vec<HomeAction>) {
        let control = Control { word: control.next(), claims: 1, ..control };
        if let Some(Held { asker, segment, .. }) = self.remove(id) {
            out.extend(asker.map(|to| HomeAction::Reply { to, reply: refused }));
            self.drop_copies(&segment, out);
            self.controls.push(control);
        }
        self.publish(out);
    }

    pub(crate) fn stands(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Standing;
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Segment(held.segment.clone()) });
        }
    }

    /// The name is free: everybody is to forget the segment.
    fn forget(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Done });
        }
        if !self.options.rules.forgotten_before_reuse {
            return self.settle(id, out);
        }
        let members: BTreeSet<Incarnation> = view.members().iter().map(|member| member.incarnation).collect();
        for to in &members {
            out.push(HomeAction::Ask { id, to: *to, question: Question::Forget(id) });
        }
        held.stage = Stage::Forgetting(members);
    }

    /// Nobody works on it.
    pub(crate) fn settle(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Settling;
        let (at, control) = (self.me, held.place.control);
        let steps = vec![Step::ReadWord(word_at(control)), Step::ReadWord(claims_at(control))];
        out.push(HomeAction::Post { id, at, steps });
        if held.segment.home == self.me {
            let segment = held.segment.clone();
            self.drop_copies(&segment, out);
        }
    }

    fn drop_copies(&self, segment: &Segment, out: &mut Vec<HomeAction>) {
        for place in &segment.backups {
            out.push(HomeAction::Tell { to: place.home, question: Question::Drop(segment.id) });
        }
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Held> {
        let held = self.segments.remove(&id)?;
        if let Some(token) = &held.token {
            self.tokens.remove(token);
        }
        let bytes = held.segment.wanted.extent_bytes();
        self.heap.give(held.place.at, bytes);
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
    pub(crate) fn hold_place(&mut self, segment: Segment, place: Place, asker: Asked) {
        let stage = Stage::Emptying;
        self.segments.insert(segment.id, Held { segment, place, token: None, stage, asker: Some(asker) });
    }

    pub(crate) fn publish(&self, out: &mut Vec<HomeAction>) {
        let (free, largest) = self.free();
        out.push(HomeAction::Store { at: FREE_AT, word: free });
        out.push(HomeAction::Store { at: LARGEST_AT, word: largest });
    }
}

/// A segment is released at the nth of its places, if that word stands there.
fn mark(segment: &Segment, nth: usize, found: Word) -> HomeAction {
    let place = segment.link(nth);
    let step = Step::Swap(word_at(place.control), found.to_bits(), found.released().to_bits());
    HomeAction::Post { id: segment.id, at: place.home, steps: vec![step] }
}
