//! Copies of a segment are made, or get the same word again. See [`replicas`](super::replicas) for when.
//!
//! ```text
//!            all say which word they hold           homes with room give places
//!   asking ------------------> reserving -------------------------------> telling -----> reading, filling ----> leaving
//!      | it was released            ^  a new segment                        all know all    until all words are    a holder that is
//!      v                            |                                                       the highest            to leave drops it
//!    marked                  its words are made, then its name is registered
//! ```
//!
//! A word changes when the value that it will name is there, whole: whatever happens in the middle, the next view begins it again.

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::Incarnation;

use super::held::{Control, Site, Transition};
use crate::access::{Given, Step};
use crate::actions::HomeAction;
use crate::layout::{FILLING, Word, claims_at, word_at};
use crate::wire::{Question, Reply};
use crate::{Place, Refusal, Segment};

/// How far the copies of a segment are.
#[derive(Clone, Debug)]
pub(super) struct Copying {
    /// What all of them are to hold.
    word: Word,
    /// What each of them holds.
    words: BTreeMap<Incarnation, Word>,
    /// Homes that may be asked for one, the next one last.
    candidates: Vec<Incarnation>,
    /// Why the last of them has none.
    refused: Option<Refusal>,
    /// The set of holders may have changed.
    is_changed: bool,
    /// It was never served.
    is_new: bool,
    /// The words of a new segment that is not known to other nodes yet.
    unheard: Option<Control>,
    /// The value, with its stamp before it.
    value: Option<Vec<u8>>,
    /// The holder that leaves when the others hold the segment.
    leaver: Option<Incarnation>,
    /// The former leader has left, and no other node knows yet that the segment is here.
    is_unknown: bool,
    step: CopyStep,
}

#[derive(Clone, Debug)]
enum CopyStep {
    Asking(BTreeSet<Incarnation>),
    Reserving,
    Telling(BTreeSet<Incarnation>),
    Reading,
    Filling(Incarnation),
    /// The leaver was asked to drop it.
    Leaving,
}

impl Copying {
    fn new(me: Incarnation, word: Word, step: CopyStep) -> Self {
        let words = BTreeMap::from([(me, word)]);
        let (candidates, refused, unheard, value) = (vec![], None, None, None);
        let (is_changed, is_new, leaver, is_unknown) = (false, false, None, false);
        Copying { word, words, candidates, refused, is_changed, is_new, unheard, value, leaver, is_unknown, step }
    }

    /// Of a new segment, whose words are made here. Others are homes that may hold copies.
    pub(super) fn of_new(me: Incarnation, control: Control, others: Vec<Incarnation>) -> Self {
        let mut copying = Copying::new(me, control.next(), CopyStep::Reserving);
        copying.candidates = others.into_iter().filter(|home| *home != me).rev().collect();
        (copying.is_new, copying.unheard) = (true, Some(control));
        copying
    }

    /// Of a new segment that has its places, and whose name is registered.
    pub(super) fn of_registered(me: Incarnation, control: Control, segment: &Segment) -> Self {
        let mut copying = Copying::new(me, control.next(), CopyStep::Reserving);
        copying.words.extend(segment.backups.iter().map(|place| (place.home, Word::default())));
        copying.value = Some(vec![0; 8 + segment.wanted.bytes as usize]);
        (copying.is_new, copying.is_changed) = (true, true);
        copying
    }

    /// Of a segment of an earlier view, with this word here.
    pub(super) fn of_kept(me: Incarnation, word: Word, is_unknown: bool) -> Self {
        Copying { is_unknown, ..Copying::new(me, word, CopyStep::Asking(BTreeSet::new())) }
    }

    /// Of a segment out of use, with these words at its places.
    pub(super) fn moving(me: Incarnation, words: BTreeMap<Incarnation, Word>, leaver: Incarnation) -> Self {
        let word = words.values().copied().max_by_key(|word| word.version()).unwrap_or_default();
        let copying = Copying::new(me, word, CopyStep::Telling(BTreeSet::new()));
        Copying { words, leaver: Some(leaver), is_changed: true, ..copying }
    }

    /// Whether a holder is to leave.
    pub(super) fn is_moving(&self) -> bool {
        self.leaver.is_some()
    }

    /// Whether this one is to hold it no more.
    pub(super) fn is_left_by(&self, holder: Incarnation) -> bool {
        self.leaver == Some(holder)
    }

    /// Whether its name is known, if it has one.
    pub(super) fn is_heard_of(&self) -> bool {
        self.unheard.is_none()
    }

    /// Whether it was never served.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether it names a value, as far as this home knows.
    pub(super) fn has_value(&self) -> bool {
        self.word.slot().is_some()
    }

    /// Whether the copies of an earlier view are compared by now.
    pub(super) fn is_begun(&self) -> bool {
        !self.is_new && !matches!(&self.step, CopyStep::Asking(awaited) if awaited.is_empty())
    }

    /// The first step, of a new segment, and of one that moves.
    pub(super) fn begin(&mut self, segment: &mut Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        if self.unheard.is_some() { self.reserve(segment, site, out) } else { self.tell(segment, site, out) }
    }

    /// All other holders are asked which word they hold.
    pub(super) fn compare(&mut self, segment: &mut Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let awaited = ask_to_hold(segment, out);
        let is_alone = awaited.is_empty();
        self.step = CopyStep::Asking(awaited);
        if is_alone { self.compared(segment, site, out) } else { Transition::Wait }
    }

    /// All holders in the view have said which word they hold.
    fn compared(&mut self, segment: &mut Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        if let Some(end) = self.words.values().find_map(|word| word.end()) {
            // The node that asked for that may have its answer. Others may hold it unmarked, and lead it if this home
            // goes.
            return Transition::Mark(end);
        }
        self.word = self.words.values().copied().max_by_key(|word| word.version()).unwrap_or(self.word);
        self.candidates = candidates(segment, site.view);
        // One that was moved when the view ended, and did not leave.
        let is_spare = segment.backups.len() >= usize::from(segment.wanted.copies);
        self.leaver = segment.backups.last().filter(|_| is_spare).map(|place| place.home);
        self.reserve(segment, site, out)
    }

    /// Another home is asked for a place, if there are too few.
    fn reserve(&mut self, segment: &mut Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        self.step = CopyStep::Reserving;
        let wanted = usize::from(segment.wanted.copies);
        let is_enough = segment.places().count() >= wanted;
        if !is_enough && let Some(to) = self.candidates.pop() {
            let question = Question::Reserve(segment.clone());
            out.push(HomeAction::Ask { id: segment.id, to, question });
            return Transition::Wait;
        }
        match self.unheard {
            None => self.tell(segment, site, out),
            Some(control) if is_enough => Transition::Register(control),
            Some(control) => {
                let few = Refusal::FewHomes { asked: segment.wanted.copies, homes: site.view.homes().count() };
                Transition::Unmake(control, Reply::Refused(self.refused.take().unwrap_or(few)))
            }
        }
    }

    /// Each holder of a copy learns of all others before one of them is filled.
    fn tell(&mut self, segment: &mut Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let is_told = self.is_changed && site.rules.holders_told_first;
        let awaited = if is_told { ask_to_hold(segment, out) } else { BTreeSet::new() };
        let is_known = awaited.is_empty();
        self.step = CopyStep::Telling(awaited);
        if is_known { self.bring_up(segment, site, out) } else { Transition::Wait }
    }

    /// The next copy that has another word gets the value and the word of the highest.
    fn bring_up(&mut self, segment: &Segment, site: Site<'_>, out: &mut Vec<HomeAction>) -> Transition {
        let (id, word) = (segment.id, self.word);
        let has = |place: &Place| self.words.get(&place.home).copied().unwrap_or_default();
        let is_behind = |place: &Place| has(place) != word && self.leaver != Some(place.home);
        let behind = segment.places().find(is_behind).filter(|_| site.rules.brought_up_first);
        let (Some(behind), Some(slot)) = (behind, word.slot()) else {
            self.step = CopyStep::Leaving;
            return match self.leaver {
                Some(holder) => Transition::Leave(holder),
                None if self.is_unknown => Transition::Adopt,
                None => Transition::Stand,
            };
        };
        let Some(value) = &self.value else {
            let Some(from) = segment.places().find(|place| has(place) == word) else { return Transition::Wait };
            self.step = CopyStep::Reading;
            let at = segment.slot_at(from, slot);
            let steps = vec![Step::Read(at + 8, 8 + segment.wanted.bytes)];
            out.push(HomeAction::Post { id, at: from.home, steps });
            return Transition::Wait;
        };
        let at = segment.slot_at(behind, slot);
        let held_word = has(&behind);
        let mut steps = vec![
            Step::WriteWord(at, FILLING),
            Step::Write(at + 8, value.clone()),
            Step::WriteWord(at, word.version()),
            Step::Swap(word_at(behind.control), held_word.to_bits(), word.to_bits()),
        ];
        if behind.home == site.me
            && let Some(old) = held_word.slot()
        {
            steps.push(Step::Swap(claims_at(behind.control), 1 << old, 1 << slot));
        }
        self.step = CopyStep::Filling(behind.home);
        out.push(HomeAction::Post { id, at: behind.home, steps });
        Transition::Wait
    }

    /// What was posted for its copies was executed.
    pub(super) fn completed(
        &mut self,
        segment: &Segment,
        given: &[Given],
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        match (&self.step, given) {
            (CopyStep::Reading, [Given::Bytes(value), ..]) => self.value = Some(value.clone()),
            (CopyStep::Filling(home), _) => {
                self.words.insert(*home, self.word);
            }
            _ => return Transition::Wait,
        }
        self.bring_up(segment, site, out)
    }

    /// A home has answered what was asked for its copies.
    pub(super) fn answered(
        &mut self,
        segment: &mut Segment,
        from: Incarnation,
        reply: Reply,
        site: Site<'_>,
        out: &mut Vec<HomeAction>,
    ) -> Transition {
        match (&mut self.step, reply) {
            (CopyStep::Asking(awaited), reply) if awaited.contains(&from) => {
                awaited.remove(&from);
                let is_last = awaited.is_empty();
                if let Reply::Holds(bits) = reply {
                    self.words.insert(from, Word::from_bits(bits));
                } else {
                    // Its place was never filled.
                    segment.backups.retain(|place| place.home != from);
                    self.is_changed = true;
                }
                if is_last { self.compared(segment, site, out) } else { Transition::Wait }
            }
            (CopyStep::Telling(awaited), _) => {
                awaited.remove(&from);
                if awaited.is_empty() { self.bring_up(segment, site, out) } else { Transition::Wait }
            }
            (CopyStep::Leaving, Reply::Done) if self.leaver == Some(from) => {
                segment.backups.retain(|place| place.home != from);
                tell_holders(segment, out);
                Transition::Adopt
            }
            (CopyStep::Reserving, Reply::Place(place)) if place.home == from => {
                segment.backups.push(place);
                self.words.insert(from, Word::default());
                self.is_changed = true;
                self.reserve(segment, site, out)
            }
            (CopyStep::Reserving, reply) => {
                if let Reply::Refused(refusal) = reply {
                    self.refused = Some(refusal);
                }
                self.reserve(segment, site, out)
            }
            _ => Transition::Wait,
        }
    }
}

/// Homes that do not hold a segment and may be asked for a place, the next one last. Segments begin with different ones.
pub(super) fn candidates(segment: &Segment, view: &View) -> Vec<Incarnation> {
    let others = view.homes().map(|member| member.incarnation);
    let mut candidates: Vec<_> = others.filter(|home| segment.places().all(|place| place.home != *home)).collect();
    let turn = segment.id.number as usize % candidates.len().max(1);
    candidates.rotate_left(turn);
    candidates
}

/// All backups hear which homes hold it.
pub(super) fn tell_holders(segment: &Segment, out: &mut Vec<HomeAction>) {
    for place in &segment.backups {
        out.push(HomeAction::Tell { to: place.home, question: Question::Hold(segment.clone()) });
    }
}

/// Asks all backups which word they hold, and tells them which homes do.
fn ask_to_hold(segment: &Segment, out: &mut Vec<HomeAction>) -> BTreeSet<Incarnation> {
    let id = segment.id;
    let mut asked = BTreeSet::new();
    for place in &segment.backups {
        let question = Question::Hold(segment.clone());
        out.push(HomeAction::Ask { id, to: place.home, question });
        asked.insert(place.home);
    }
    asked
}
