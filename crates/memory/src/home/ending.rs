//! A segment comes to its end: no node gets or puts it any longer.
//!
//! ```text
//!   marking ---------------> unregistering ----------> forgetting ----------> settling ----> free
//!      the words at all         the name is free          all members have       its words
//!      places bear the mark                               nothing in flight      are read
//! ```
//!
//! A copy, and what another home serves by now, begins with settling.

use std::collections::BTreeSet;

use verbena_terms::Incarnation;

use super::held::{Control, Site, Transition};
use crate::access::{Given, Step};
use crate::actions::{HomeAction, QuestionId};
use crate::layout::{End, Word, claims_at, word_at};
use crate::wire::{Question, Reply};
use crate::{Place, Segment};

/// How far a segment is that comes to its end.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// The question that is answered when the name is free.
    asker: Option<QuestionId>,
    step: EndStep,
}

#[derive(Clone, Debug)]
enum EndStep {
    /// At the nth of its places, where this word is expected.
    Marking(usize, Word),
    Unregistering,
    /// These members have something in flight to it.
    Forgetting(BTreeSet<Incarnation>),
    Settling,
}

/// What comes to its end, and how.
#[derive(Clone, Copy)]
pub(super) struct Ended<'a> {
    pub(super) segment: &'a Segment,
    pub(super) place: Place,
    pub(super) end: End,
}

impl Ending {
    /// It has just begun.
    pub(super) fn new(asker: Option<QuestionId>) -> Self {
        Ending { asker, step: EndStep::Settling }
    }

    /// Whether it is not yet marked at all its places.
    pub(super) fn is_marking(&self) -> bool {
        matches!(self.step, EndStep::Marking(..))
    }

    /// Whether nothing is in flight to it.
    pub(super) fn is_settling(&self) -> bool {
        matches!(self.step, EndStep::Settling)
    }

    /// Its words get the mark, whatever works on it.
    pub(super) fn mark(&mut self, ended: Ended<'_>, is_everywhere: bool, out: &mut Vec<HomeAction>) {
        // Its word is not known: the first swap finds it. It is marked where puts are decided first, and last where it is read.
        let first = if is_everywhere { 0 } else { ended.segment.backups.len() };
        self.mark_at(first, Word::new(1, 0), ended, out);
    }

    /// At the nth of its places, if that word stands there.
    fn mark_at(&mut self, nth: usize, found: Word, Ended { segment, end, .. }: Ended<'_>, out: &mut Vec<HomeAction>) {
        self.step = EndStep::Marking(nth, found);
        let place = segment.link(nth);
        let step = Step::Swap(word_at(place.control), found.to_bits(), found.ended(end).to_bits());
        out.push(HomeAction::Post { id: segment.id, at: place.home, steps: vec![step] });
    }

    /// Its name is to be free.
    pub(super) fn unregister(&mut self, ended: Ended<'_>, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        self.step = EndStep::Unregistering;
        let (id, end) = (ended.segment.id, ended.end);
        let name = ended.segment.wanted.name.clone();
        match name.and_then(|name| Some((name.registrar(site.view)?, name))) {
            Some((to, name)) => out.push(HomeAction::Ask { id, to, question: Question::Unregister { name, id, end } }),
            None => self.forget(ended, site, out),
        }
        Transition::Wait
    }

    /// The name is free: all members are to forget the segment.
    fn forget(&mut self, ended: Ended<'_>, site: Site<'_>, out: &mut Vec<HomeAction>) {
        if let Some(to) = self.asker.take() {
            out.push(HomeAction::Reply { to, reply: Reply::Done });
        }
        if !site.rules.forgotten_before_reuse {
            return self.settle(ended, site.me, out);
        }
        let (id, end) = (ended.segment.id, ended.end);
        let members: BTreeSet<Incarnation> = site.view.members().iter().map(|member| member.incarnation).collect();
        for to in &members {
            out.push(HomeAction::Ask { id, to: *to, question: Question::Forget { id, end } });
        }
        self.step = EndStep::Forgetting(members);
    }

    /// No node has anything in flight to it.
    pub(super) fn settle(
        &mut self,
        Ended { segment, place, end }: Ended<'_>,
        me: Incarnation,
        out: &mut Vec<HomeAction>,
    ) {
        self.step = EndStep::Settling;
        let steps = vec![Step::ReadWord(word_at(place.control)), Step::ReadWord(claims_at(place.control))];
        out.push(HomeAction::Post { id: segment.id, at: me, steps });
        if segment.home == me {
            drop_copies(segment, end, out);
        }
    }

    /// What was posted for it was executed.
    pub(super) fn completed(
        &mut self,
        ended: Ended<'_>,
        given: &[Given],
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        let first = Word::from_bits(given.first().map_or(0, Given::word));
        match self.step {
            EndStep::Marking(nth, guess) => {
                let is_another = first != guess && first.slot().is_some();
                let (next, word) = if is_another { (nth, first) } else { (nth + 1, guess) };
                if next > ended.segment.backups.len() {
                    return self.unregister(ended, site, out);
                }
                self.mark_at(next, word, ended, out);
                Transition::Wait
            }
            EndStep::Settling => {
                let claims = given.get(1).map_or(0, Given::word);
                Transition::Free(Control { number: ended.place.control, word: first, claims })
            }
            EndStep::Unregistering | EndStep::Forgetting(_) => Transition::Wait,
        }
    }

    /// A member has answered what was asked for it.
    pub(super) fn answered(
        &mut self,
        ended: Ended<'_>,
        from: Incarnation,
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        match &mut self.step {
            EndStep::Unregistering => self.forget(ended, site, out),
            EndStep::Forgetting(awaited) => {
                awaited.remove(&from);
                if awaited.is_empty() {
                    self.settle(ended, site.me, out);
                }
            }
            EndStep::Marking(..) | EndStep::Settling => {}
        }
        Transition::Wait
    }
}

/// The other holders are to drop their copies.
pub(super) fn drop_copies(segment: &Segment, end: End, out: &mut Vec<HomeAction>) {
    for place in &segment.backups {
        out.push(HomeAction::Tell { to: place.home, question: Question::Drop { id: segment.id, end } });
    }
}
