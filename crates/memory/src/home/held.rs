//! What a home holds, and how far each of it is.
//!
//! A stage with more than one step is a type of its own: it owns its data, takes what was answered and executed, and says which [`Transition`] follows.

use verbena_cluster::View;
use verbena_terms::Incarnation;

use super::adopting::Adopting;
use super::copying::Copying;
use super::ending::{Ended, Ending};
use super::moving::Moving;
use crate::access::{Given, Step};
use crate::actions::{HomeAction, QuestionId};
use crate::layout::{End, Word, claims_at, word_at};
use crate::wire::{Reply, Token};
use crate::{Coherence, Place, Rules, Segment};

/// A segment's word and claims in a home's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    pub(super) number: u32,
    pub(super) word: Word,
    pub(super) claims: u64,
}

impl Control {
    /// What stands in it when it is a new segment's.
    pub(super) fn next(self) -> Word {
        Word::new(self.word.version() + 1, 0)
    }

    /// What makes it that of a place with no value.
    pub(super) fn emptied(self) -> Vec<Step> {
        vec![
            Step::Swap(claims_at(self.number), self.claims, 1),
            Step::Swap(word_at(self.number), self.word.to_bits(), 0),
        ]
    }
}

/// What a stage knows of its home.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) me: Incarnation,
    pub(super) rules: Rules,
    pub(super) view: &'a View,
}

/// A segment, or a copy of one, at this home.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) segment: Segment,
    /// Where it is here.
    pub(super) place: Place,
    /// The allocation that made it; `None` for a copy.
    pub(super) token: Option<Token>,
    pub(super) stage: Stage,
    /// The question that is answered when it stands, or is a copy's place.
    pub(super) asker: Option<QuestionId>,
    /// How it comes to its end, if it does.
    pub(super) end: End,
}

impl Held {
    /// Its puts go to its home alone, so a copy of it could not be served.
    pub(super) fn is_null(&self) -> bool {
        self.segment.wanted.coherence == Coherence::Null
    }

    /// Bytes that it has here.
    pub(super) fn extent(&self) -> u64 {
        self.segment.wanted.extent_bytes()
    }

    /// Its end, if it comes to one.
    pub(super) fn ending(&mut self) -> Option<(&mut Ending, Ended<'_>)> {
        let Held { segment, place, end, stage: Stage::Ending(ending), .. } = self else { return None };
        Some((ending, Ended { segment, place: *place, end: *end }))
    }

    /// What was posted for it was executed.
    pub(super) fn completed(&mut self, given: &[Given], site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let (segment, control) = (&mut self.segment, self.place.control);
        match &mut self.stage {
            Stage::Making(control, others) if segment.wanted.is_replicated() => {
                Transition::Copy(Copying::of_new(site.me, *control, std::mem::take(others)))
            }
            Stage::Making(control, _) => Transition::Register(*control),
            Stage::Emptying => {
                self.stage = Stage::Backup { word: Word::default(), is_told: true };
                if let Some(to) = self.asker.take() {
                    out.push(HomeAction::Reply { to, reply: Reply::Place(self.place) });
                }
                Transition::Wait
            }
            Stage::Copying(copying) => copying.completed(segment, given, site, out),
            Stage::Moving(moving) => moving.completed(segment, given, site, out),
            Stage::Adopting(adopting) => adopting.completed(segment, control, given, site, out),
            Stage::Ending(ending) => {
                ending.completed(Ended { segment, place: self.place, end: self.end }, given, site, out)
            }
            Stage::Registering(_) | Stage::Standing | Stage::Kept | Stage::Backup { .. } => Transition::Wait,
        }
    }

    /// A member has answered what was asked for it.
    pub(super) fn answered(
        &mut self,
        from: Incarnation,
        reply: Reply,
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        let segment = &mut self.segment;
        match &mut self.stage {
            Stage::Registering(_) if reply == Reply::Done => self.registered(site.me),
            Stage::Registering(control) => Transition::Unmake(*control, reply),
            Stage::Copying(copying) => copying.answered(segment, from, reply, site, out),
            Stage::Moving(moving) => moving.answered(segment, from, site, out),
            Stage::Adopting(adopting) => adopting.answered(segment, site, out),
            Stage::Ending(ending) => {
                ending.answered(Ended { segment, place: self.place, end: self.end }, from, site, out)
            }
            Stage::Making(..) | Stage::Standing | Stage::Emptying | Stage::Kept | Stage::Backup { .. } => {
                Transition::Wait
            }
        }
    }

    /// Its copies take an event.
    pub(super) fn copy(
        &mut self,
        event: fn(&mut Copying, &mut Segment, Site<'_>, &mut Vec<HomeAction>) -> Transition,
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        let Stage::Copying(copying) = &mut self.stage else { return Transition::Wait };
        event(copying, &mut self.segment, site, out)
    }

    /// The name of a new segment is registered, if it has one.
    pub(super) fn registered(&self, me: Incarnation) -> Transition {
        match self.stage {
            Stage::Registering(control) if self.segment.wanted.is_replicated() => {
                Transition::Copy(Copying::of_registered(me, control, &self.segment))
            }
            _ => Transition::Stand,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Others that may hold copies.
    Making(Control, Vec<Incarnation>),
    Registering(Control),
    Standing,
    /// No node gets or puts it any longer.
    Ending(Ending),
    /// Its copies are made, or compared.
    Copying(Box<Copying>),
    /// Of an earlier view, in which there were copies.
    Kept,
    /// A copy, of what another home leads.
    Backup {
        word: Word,
        /// Its leader has spoken of it in this view.
        is_told: bool,
    },
    /// A place for a copy.
    Emptying,
    /// The segment is out of use, or will be soon.
    Moving(Box<Moving>),
    /// Another home led it, and gives it to this one.
    Adopting(Adopting),
}

impl Stage {
    /// Whether it is coming to its end.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self, Stage::Ending(_))
    }

    /// Whether it is a copy, or a place for one, of what another home leads.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self, Stage::Backup { .. } | Stage::Emptying)
    }

    /// Whether it is more than an intention when the view ends.
    pub(super) fn lasts(&self, has_copies: bool) -> bool {
        match self {
            Stage::Standing | Stage::Moving(_) | Stage::Adopting(_) => true,
            Stage::Kept | Stage::Backup { .. } => has_copies,
            // What is marked shows in the words.
            Stage::Ending(ending) => ending.is_marking() && has_copies,
            Stage::Copying(copying) => copying.is_heard_of(),
            Stage::Making(..) | Stage::Registering(_) | Stage::Emptying => false,
        }
    }
}

/// What follows when a stage has taken an event.
#[derive(Debug)]
pub(super) enum Transition {
    /// The same stage, until what it asked for is answered, or what it posted is executed.
    Wait,
    /// The name of a new segment is registered.
    Register(Control),
    /// A new segment cannot be made, for this reason.
    Unmake(Control, Reply),
    /// The segment comes to its end: a place of it bears this mark.
    Mark(End),
    /// Its holders get the same word. No node works on it.
    Copy(Copying),
    /// All others hold it: this holder is to drop it.
    Leave(Incarnation),
    /// This home serves it from now on.
    Adopt,
    /// It is served.
    Stand,
    /// Another home has it: nothing is in flight to it here.
    Settle,
    /// It is no more, and this control is free.
    Free(Control),
}

impl Transition {
    /// Whether the copies of a segment all have its word, or come to their end.
    pub(super) fn ends_copying(&self) -> bool {
        matches!(self, Transition::Mark(_) | Transition::Leave(_) | Transition::Adopt | Transition::Stand)
    }
}
