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
//! has other memory. What does not stand when a view ends is no more.
//!
//! A stage with more than one step is a type of its own: [`Copying`](copying::Copying), [`Moving`](moving::Moving), [`Adopting`](adopting::Adopting),
//! [`Ending`](ending::Ending). Each owns its data and its steps. [`Home`] hands it events, and carries out the [`Transition`](held::Transition) that it gives.
//! [`Share`](share::Share) has the bytes. When copies are compared is in [`replicas`], what has to go in [`reclaim`].

mod adopting;
mod copying;
mod ending;
mod held;
mod moving;
mod questions;
mod reclaim;
mod replicas;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::{Incarnation, Time};

use self::copying::Copying;
use self::ending::{Ending, drop_copies};
use self::held::{Control, Held, Site, Stage, Transition};
use self::moving::{LEFT, Leaver};
use self::reclaim::Offer;
pub use self::reclaim::{Note, Reclaims};
use self::share::Share;
use crate::access::{Given, Step};
use crate::actions::{HomeAction, QuestionId, Renewal, Stands};
use crate::get::slot_at;
use crate::layout::{End, FREE_AT, GOING_AT, LARGEST_AT, claims_at, extents_at, slot_bytes, word_at};
use crate::recent::Recent;
use crate::wire::{MOST_SEGMENTS, Question, Reply, Token};
use crate::{MemoryOptions, Place, Refusal, Segment, SegmentId, Wanted};

#[derive(Clone, Debug)]
pub(crate) struct Home {
    me: Incarnation,
    options: MemoryOptions,
    share: Share,
    offer: Offer,
    /// Segments for which a place is looked for.
    leavers: BTreeMap<SegmentId, Leaver>,
    /// Segments that this incarnation held for others or gave to them, and their other holders, the leader first.
    left: Recent<SegmentId, Vec<Incarnation>>,
    /// Where things will be in the memory that is made.
    moves: BTreeMap<SegmentId, u64>,
    segments: BTreeMap<SegmentId, Held>,
    tokens: BTreeMap<Token, SegmentId>,
    /// Of segments that others hold now: an allocation whose answer the client never used is asked again.
    left_tokens: Recent<Token, SegmentId>,
    made: u64,
    /// Segments whose copies wait to be compared.
    to_compare: Vec<SegmentId>,
    /// Its memory is of this view.
    is_open: bool,
}

impl Home {
    pub(crate) fn new(me: Incarnation, options: MemoryOptions) -> Self {
        Home {
            me,
            options,
            share: Share::new(me, options),
            offer: Offer::new(),
            leavers: BTreeMap::new(),
            left: Recent::of_at_most(LEFT),
            moves: BTreeMap::new(),
            segments: BTreeMap::new(),
            tokens: BTreeMap::new(),
            left_tokens: Recent::of_at_most(LEFT),
            made: 0,
            to_compare: vec![],
            is_open: false,
        }
    }

    /// Whether its memory is of this view.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// What stands here, and is read here.
    fn standing(&self) -> impl Iterator<Item = &Segment> {
        self.segments.values().filter(|held| matches!(held.stage, Stage::Standing)).map(|held| &held.segment)
    }

    /// Segments that are here, those that are about to come or go too.
    pub(crate) fn held(&self) -> usize {
        self.segments.len()
    }

    /// Bytes that may be taken, and those of the largest piece.
    pub(crate) fn free(&self) -> (u64, u64) {
        self.share.free()
    }

    /// Segments that it made.
    #[cfg(test)]
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Bytes that segments have.
    pub(crate) fn taken(&self) -> u64 {
        self.share.taken()
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
        let least = ends.chain([from + self.share.offered()]).max().unwrap_or(from);
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
        self.share.keep_controls(&taken);
        self.is_open = true;
        self.review_notices();
        self.publish(out);
        self.compare_more(view, out);
    }

    /// What an allocation has made here. If it is asked for once more, the question is where that is: it may have moved, or be about to.
    fn made_by(&self, token: &Token) -> Option<SegmentId> {
        self.tokens.get(token).or_else(|| self.left_tokens.get(token)).copied()
    }

    /// Makes a segment; nothing was made by this token. Others are homes that may hold copies.
    fn allocate(
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
        let (control, place) = self.share.take(&wanted)?;
        self.made += 1;
        let id = SegmentId { home: self.me, number: self.made };
        let segment = Segment { id, wanted, home: self.me, control: place.control, at: place.at, backups: vec![] };
        self.tokens.insert(token, id);
        let stage = Stage::Making(control, others);
        let (token, asker, end) = (Some(token), Some(asker), End::default());
        self.segments.insert(id, Held { segment, place, token, stage, asker, end });
        Ok(())
    }

    fn release(&mut self, asker: QuestionId, id: SegmentId, owner: u32, out: &mut Vec<HomeAction>) {
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
    fn mark_ended(&mut self, id: SegmentId, end: End, asker: Option<QuestionId>, out: &mut Vec<HomeAction>) {
        self.leavers.remove(&id);
        let is_everywhere = self.options.rules.released_everywhere;
        let Some(held) = self.segments.get_mut(&id) else { return };
        (held.stage, held.end) = (Stage::Ending(Ending::new(asker)), end);
        if let Some((ending, ended)) = held.ending() {
            ending.mark(ended, is_everywhere, out);
        }
        self.review_notices();
    }

    /// Whether it is not known yet how it stands with this segment. Until its words are marked others get and put it; and where there are copies it may still be served
    /// in the next view.
    fn is_comparing(&self, id: SegmentId) -> bool {
        self.segments.get(&id).is_some_and(|held| match held.stage {
            Stage::Registering(_) | Stage::Copying(_) | Stage::Kept => true,
            Stage::Moving(_) | Stage::Adopting(_) => true,
            Stage::Ending(ref ending) => ending.is_marking(),
            Stage::Backup { is_told, .. } => !is_told,
            Stage::Making(..) | Stage::Standing | Stage::Emptying => false,
        })
    }

    /// Where a segment is.
    fn find(&self, id: SegmentId) -> Result<&Segment, Refusal> {
        match self.segments.get(&id) {
            Some(Held { segment, stage: Stage::Standing, .. }) => Ok(segment),
            _ => Err(self.absent(id)),
        }
    }

    fn list(&self, after: SegmentId, prefix: &str, now: Time) -> Reply {
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
        self.advance(id, view, out, |held, site, out| held.completed(given, site, out));
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
        self.advance(id, view, out, |held, site, out| held.answered(from, reply, site, out));
    }

    /// A segment takes an event, and what follows is done.
    fn advance(
        &mut self,
        id: SegmentId,
        view: &View,
        out: &mut Vec<HomeAction>,
        event: impl FnOnce(&mut Held, Site<'_>, &mut Vec<HomeAction>) -> Transition,
    ) {
        let site = Site { me: self.me, rules: self.options.rules, view };
        let Some(held) = self.segments.get_mut(&id) else { return };
        let next = event(held, site, out);
        self.enter(id, next, view, out);
    }

    fn enter(&mut self, id: SegmentId, next: Transition, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let is_compared = matches!(held.stage, Stage::Copying(_)) && next.ends_copying();
        match next {
            Transition::Wait => {}
            Transition::Register(control) => self.register(id, control, view, out),
            Transition::Unmake(control, reply) => self.unmake(id, control, reply, out),
            Transition::Mark(end) => self.mark_ended(id, end, None, out),
            Transition::Copy(copying) => {
                held.stage = Stage::Copying(Box::new(copying));
                self.advance(id, view, out, |held, site, out| held.copy(Copying::begin, site, out));
            }
            Transition::Leave(holder) => self.let_go(id, holder, out),
            Transition::Adopt => self.adopt(id, None, out),
            Transition::Stand => self.stands(id, out),
            Transition::Settle => {
                self.hand_over(id);
                self.settle(id, out);
            }
            Transition::Free(control) => {
                if let Some(held) = self.remove(id) {
                    self.share.free_control(control);
                    self.discard_at(held.place.at, out);
                }
                self.publish(out);
            }
        }
        if is_compared {
            self.compare_more(view, out);
        }
    }

    /// Its name is to be known.
    fn register(&mut self, id: SegmentId, control: Control, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Registering(control);
        match held.segment.wanted.name.as_ref().and_then(|name| name.registrar(view)) {
            Some(to) => out.push(HomeAction::Ask { id, to, question: Question::Register(held.segment.clone()) }),
            None => self.advance(id, view, out, |held, site, _| held.registered(site.me)),
        }
    }

    /// Its name is to be free.
    fn unregister(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Ending(Ending::new(None));
        self.advance(id, view, out, |held, site, out| match held.ending() {
            Some((ending, ended)) => ending.unregister(ended, site, out),
            None => Transition::Wait,
        });
    }

    /// No other node knows of it.
    fn unmake(&mut self, id: SegmentId, control: Control, refused: Reply, out: &mut Vec<HomeAction>) {
        let control = Control { word: control.next(), claims: 1, ..control };
        if let Some(Held { asker, segment, .. }) = self.remove(id) {
            out.extend(asker.map(|to| HomeAction::Reply { to, reply: refused }));
            drop_copies(&segment, End::Released, out);
            self.share.free_control(control);
            self.discard_at(segment.at, out);
        }
        self.publish(out);
    }

    fn stands(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Standing;
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Segment(held.segment.clone()) });
        }
        self.review_notices();
    }

    /// No node has anything in flight to it.
    fn settle(&mut self, id: SegmentId, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        held.stage = Stage::Ending(Ending::new(None));
        if let Some((ending, ended)) = held.ending() {
            ending.settle(ended, me, out);
        }
    }

    fn remove(&mut self, id: SegmentId) -> Option<Held> {
        let held = self.segments.remove(&id)?;
        if let Some(token) = held.token {
            self.tokens.remove(&token);
            if held.end == End::Moved {
                self.left_tokens.put(token, id);
            }
        }
        self.is_gone(id, held.end);
        self.has_left(&held);
        self.share.give(held.place.at, &held.segment.wanted);
        self.review_notices();
        Some(held)
    }

    /// A place for a copy of what another home leads.
    fn hold_place(&mut self, segment: Segment, place: Place, asker: QuestionId) {
        let (token, stage, asker, end) = (None, Stage::Emptying, Some(asker), End::default());
        self.segments.insert(segment.id, Held { segment, place, token, stage, asker, end });
    }

    fn publish(&self, out: &mut Vec<HomeAction>) {
        let (free, largest) = self.free();
        out.push(HomeAction::Store { at: FREE_AT, word: free });
        out.push(HomeAction::Store { at: LARGEST_AT, word: largest });
        out.push(HomeAction::Store { at: GOING_AT, word: self.going() as u64 });
    }
}
