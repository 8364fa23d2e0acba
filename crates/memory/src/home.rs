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

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::Incarnation;

use crate::access::{Given, Step};
use crate::get::slot_at;
use crate::heap::Heap;
use crate::layout::{FREE_AT, LARGEST_AT, Word, claims_at, extents_at, slot_bytes, word_at};
use crate::wire::{MOST_SEGMENTS, Question, Reply, Token};
use crate::{MemoryOptions, Refusal, Segment, SegmentId, Wanted};

#[derive(Clone, Debug)]
pub(crate) struct Home {
    me: Incarnation,
    options: MemoryOptions,
    heap: Heap,
    /// Controls that nobody has, and what stands in them.
    controls: Vec<Control>,
    segments: BTreeMap<u64, Held>,
    tokens: BTreeMap<Token, u64>,
    /// Bytes of each user.
    owned: BTreeMap<u32, u64>,
    made: u64,
    /// Its memory is of this view.
    pub(crate) is_open: bool,
}

#[derive(Clone, Copy, Debug)]
struct Control {
    number: u32,
    word: Word,
    claims: u64,
}

#[derive(Clone, Debug)]
struct Held {
    segment: Segment,
    token: Token,
    stage: Stage,
    /// Who is to be told.
    asker: Option<Asked>,
}

/// Who asked, and which of its questions it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) from: Incarnation,
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
enum Stage {
    Making(Control),
    Registering(Control),
    Standing,
    Marking(Word),
    Unregistering,
    Forgetting(BTreeSet<Incarnation>),
    Settling,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HomeAction {
    /// On its own memory.
    Post {
        number: u64,
        steps: Vec<Step>,
    },
    Ask {
        number: u64,
        to: Incarnation,
        question: Question,
    },
    Reply {
        to: Asked,
        reply: Reply,
    },
    /// A word that peers read.
    Store {
        at: u64,
        word: u64,
    },
}

/// What is to be copied from a view's memory to the next one's: slots and words stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Bytes of the region.
    pub bytes: u64,
    /// What stands in it.
    pub segments: Vec<Segment>,
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
            is_open: false,
        }
    }

    /// What stands here.
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
        let gone: Vec<u64> = self
            .segments
            .iter()
            .filter(|(_, held)| !matches!(held.stage, Stage::Standing))
            .map(|(at, _)| *at)
            .collect();
        gone.into_iter().for_each(|number| drop(self.remove(number)));
    }

    /// What its memory is to hold in the view that is in effect now.
    pub(crate) fn renewal(&self) -> Renewal {
        let bytes = extents_at(self.options.segments) + self.options.bytes;
        Renewal { bytes, segments: self.standing().cloned().collect() }
    }

    /// It is there.
    pub(crate) fn renewed(&mut self, out: &mut Vec<HomeAction>) {
        let taken: BTreeSet<u32> = self.standing().map(|segment| segment.control).collect();
        let free = (0..self.options.segments).rev().filter(|number| !taken.contains(number));
        self.controls = free.map(|number| Control { number, word: Word::default(), claims: 0 }).collect();
        self.is_open = true;
        self.publish(out);
    }

    pub(crate) fn allocate(&mut self, asker: Asked, token: Token, wanted: Wanted, out: &mut Vec<HomeAction>) {
        if let Some(held) = self.tokens.get(&token).and_then(|number| self.segments.get(number)) {
            // It was made in an earlier view, whose end took the answer.
            let reply = Reply::Segment(held.segment.clone());
            return out.push(HomeAction::Reply { to: asker, reply });
        }
        match self.make(asker, token, wanted) {
            Ok((number, steps)) => {
                out.push(HomeAction::Post { number, steps });
                self.publish(out);
            }
            Err(refusal) => out.push(HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) }),
        }
    }

    fn make(&mut self, asker: Asked, token: Token, wanted: Wanted) -> Result<(u64, Vec<Step>), Refusal> {
        wanted.check()?;
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
        self.made += 1;
        let id = SegmentId { home, number: self.made };
        let segment = Segment { id, wanted, control: control.number, at };
        let version = control.word.version() + 1;
        let first = slot_at(&segment, 0);
        let zeros = vec![0; (slot_bytes(segment.wanted.bytes) - 8) as usize];
        let steps = vec![
            Step::WriteWord(first, version),
            Step::Write(first + 8, zeros),
            Step::Swap(claims_at(control.number), control.claims, 1),
            Step::Swap(word_at(control.number), control.word.to_bits(), Word::new(version, 0).to_bits()),
        ];
        self.tokens.insert(token, self.made);
        let held = Held { segment, token, stage: Stage::Making(control), asker: Some(asker) };
        self.segments.insert(self.made, held);
        Ok((self.made, steps))
    }

    pub(crate) fn release(&mut self, asker: Asked, id: SegmentId, owner: u32, out: &mut Vec<HomeAction>) {
        let refuse = |refusal| HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) };
        let Some(held) = self.segments.get_mut(&id.number).filter(|held| matches!(held.stage, Stage::Standing)) else {
            return out.push(refuse(Refusal::Released { id }));
        };
        let its = held.segment.wanted.owner;
        if its != owner {
            return out.push(refuse(Refusal::NotYours { id, owner: its }));
        }
        // Its word is not known: the first swap finds it.
        let guess = Word::new(1, 0);
        (held.stage, held.asker) = (Stage::Marking(guess), Some(asker));
        out.push(HomeAction::Post { number: id.number, steps: vec![mark(&held.segment, guess)] });
    }

    /// Where a segment is.
    pub(crate) fn find(&self, id: SegmentId) -> Result<&Segment, Refusal> {
        match self.segments.get(&id.number) {
            Some(Held { segment, stage: Stage::Standing, .. }) => Ok(segment),
            _ => Err(Refusal::Released { id }),
        }
    }

    pub(crate) fn list(&self, after: u64, prefix: &str) -> Reply {
        let begins = |segment: &&Segment| {
            segment.wanted.name.as_ref().map_or(prefix.is_empty(), |name| name.as_str().starts_with(prefix))
        };
        let mut rest = self.standing().filter(|segment| segment.id.number > after).filter(begins);
        let segments: Vec<Segment> = rest.by_ref().take(MOST_SEGMENTS).cloned().collect();
        Reply::Page { segments, is_last: rest.next().is_none() }
    }

    /// What was posted for a segment was executed.
    pub(crate) fn completed(&mut self, number: u64, given: &[Given], view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&number) else { return };
        let segment = &held.segment;
        match held.stage {
            Stage::Making(control) => {
                let registrar = segment.wanted.name.as_ref().and_then(|name| name.registrar(view));
                held.stage = Stage::Registering(control);
                match registrar {
                    Some(to) => out.push(HomeAction::Ask { number, to, question: Question::Register(segment.clone()) }),
                    None => self.stands(number, out),
                }
            }
            Stage::Marking(guess) => {
                let found = Word::from_bits(given.first().map_or(0, Given::word));
                if found != guess && found.slot().is_some() {
                    held.stage = Stage::Marking(found);
                    return out.push(HomeAction::Post { number, steps: vec![mark(segment, found)] });
                }
                held.stage = Stage::Unregistering;
                let name = segment.wanted.name.clone();
                match name.and_then(|name| Some((name.registrar(view)?, name))) {
                    Some((to, name)) => {
                        let question = Question::Unregister { name, id: segment.id };
                        out.push(HomeAction::Ask { number, to, question });
                    }
                    None => self.forget(number, view, out),
                }
            }
            Stage::Settling => {
                let words =
                    (Word::from_bits(given.first().map_or(0, Given::word)), given.get(1).map_or(0, Given::word));
                let control = Control { number: segment.control, word: words.0, claims: words.1 };
                if let Some(held) = self.remove(number) {
                    self.controls.push(Control { number: held.segment.control, ..control });
                }
                self.publish(out);
            }
            Stage::Registering(_) | Stage::Standing | Stage::Unregistering | Stage::Forgetting(_) => {}
        }
    }

    /// A member has answered what was asked for a segment.
    pub(crate) fn answered(
        &mut self,
        number: u64,
        from: Incarnation,
        reply: &Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let Some(held) = self.segments.get_mut(&number) else { return };
        match (&mut held.stage, reply) {
            (Stage::Registering(_), Reply::Done) => self.stands(number, out),
            (Stage::Registering(control), refused) => {
                // Nobody has heard of it.
                let segment = &held.segment;
                let word = Word::new(control.word.version() + 1, 0);
                let control = Control { number: segment.control, word, claims: 1 };
                if let Some(Held { asker: Some(asker), .. }) = self.remove(number) {
                    out.push(HomeAction::Reply { to: asker, reply: refused.clone() });
                }
                self.controls.push(control);
                self.publish(out);
            }
            (Stage::Unregistering, _) => self.forget(number, view, out),
            (Stage::Forgetting(awaited), _) => {
                awaited.remove(&from);
                if awaited.is_empty() {
                    self.settle(number, out);
                }
            }
            _ => {}
        }
    }

    fn stands(&mut self, number: u64, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&number) else { return };
        held.stage = Stage::Standing;
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Segment(held.segment.clone()) });
        }
    }

    /// The name is free: everybody is to forget the segment.
    fn forget(&mut self, number: u64, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&number) else { return };
        if let Some(to) = held.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Done });
        }
        if !self.options.rules.forgotten_before_reuse {
            return self.settle(number, out);
        }
        let members: BTreeSet<Incarnation> = view.members().iter().map(|member| member.incarnation).collect();
        for to in &members {
            out.push(HomeAction::Ask { number, to: *to, question: Question::Forget(held.segment.id) });
        }
        held.stage = Stage::Forgetting(members);
    }

    fn settle(&mut self, number: u64, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&number) else { return };
        held.stage = Stage::Settling;
        let control = held.segment.control;
        let steps = vec![Step::ReadWord(word_at(control)), Step::ReadWord(claims_at(control))];
        out.push(HomeAction::Post { number, steps });
    }

    fn remove(&mut self, number: u64) -> Option<Held> {
        let held = self.segments.remove(&number)?;
        self.tokens.remove(&held.token);
        let bytes = held.segment.wanted.extent_bytes();
        self.heap.give(held.segment.at, bytes);
        let owner = held.segment.wanted.owner;
        let left = self.owned.get(&owner).map_or(0, |has| has - bytes);
        if left == 0 {
            self.owned.remove(&owner);
        } else {
            self.owned.insert(owner, left);
        }
        Some(held)
    }

    fn publish(&self, out: &mut Vec<HomeAction>) {
        let (free, largest) = self.free();
        out.push(HomeAction::Store { at: FREE_AT, word: free });
        out.push(HomeAction::Store { at: LARGEST_AT, word: largest });
    }
}

fn mark(segment: &Segment, found: Word) -> Step {
    Step::Swap(word_at(segment.control), found.to_bits(), found.released().to_bits())
}
