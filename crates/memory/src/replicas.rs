//! Copies of a segment at several homes (rule M3): how they come to be, and how they become one again when a view begins.
//!
//! Of the holders that are left, the one that began first *leads*: it is the segment's home in this view. Each holder
//! knows all that began before it, and these learn of a new one before it is filled. So two never lead, whichever
//! holders are left.
//!
//! ```text
//!                 all say which word they hold           homes with room give places
//!   a view ----> asking ------------------> reserving -------------------------------> telling -----> reading, filling ----> it is served
//!                   | it was released            ^  a new segment                        all know all    until all words are
//!                   v                            |                                                       the highest
//!                releasing                 its words are made, then its name is known
//! ```
//!
//! A put that was reported done, and a value that any node has seen, is at all copies. So the highest word of the
//! holders that are left is that put or a later one that was never reported. A word changes when the value that it will
//! name is there, whole: whatever happens in the middle, the next view begins it again.

use std::collections::{BTreeMap, BTreeSet};

use verbena_cluster::View;
use verbena_terms::Incarnation;

use crate::access::{Given, Step};
use crate::held::{Control, HomeAction, QuestionId, Stage, Stands};
use crate::home::Home;
use crate::layout::{End, FILLING, Word, claims_at, word_at};
use crate::wire::{Question, Reply};
use crate::{Place, Refusal, Segment, SegmentId};

/// Segments whose copies are compared at a time: each may hold a value meanwhile.
const AT_ONCE: usize = 16;

/// How far the copies of a segment are.
#[derive(Clone, Debug)]
pub(crate) struct Copying {
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

    /// Of a segment out of use, with these words at its places.
    pub(crate) fn moving(me: Incarnation, words: BTreeMap<Incarnation, Word>, leaver: Incarnation) -> Self {
        let word = words.values().copied().max_by_key(|word| word.version()).unwrap_or_default();
        let copying = Copying::new(me, word, CopyStep::Telling(BTreeSet::new()));
        Copying { words, leaver: Some(leaver), is_changed: true, ..copying }
    }

    /// Whether a holder is to leave.
    pub(crate) fn is_moving(&self) -> bool {
        self.leaver.is_some()
    }

    /// Whether this one is to hold it no more.
    pub(crate) fn is_left_by(&self, who: Incarnation) -> bool {
        self.leaver == Some(who)
    }

    /// Whether its name is known, if it has one.
    pub(crate) fn is_heard_of(&self) -> bool {
        self.unheard.is_none()
    }
}

impl Home {
    /// The home that serves a segment in this view: the first of its holders that is left.
    pub(crate) fn leader(segment: &Segment, view: &View) -> Option<Incarnation> {
        segment.places().find(|place| is_left(place, view)).map(|place| place.home)
    }

    /// The segments that this home serves in this view or will serve. Also those that it holds for others, of which a
    /// leader may have left: their names are taken, too.
    pub(crate) fn led(&self, view: &View) -> Vec<Segment> {
        let led = self.segments.values().filter_map(|held| match &held.stage {
            Stage::Standing => Some(held.segment.clone()),
            Stage::Copying(copying) if copying.is_heard_of() && copying.word.slot().is_some() => {
                Some(held.segment.clone())
            }
            Stage::Kept if Self::leader(&held.segment, view) == Some(self.me) => {
                Some(Segment { home: self.me, ..held.segment.clone() })
            }
            Stage::Backup { word, is_told: false } if word.slot().is_some() => {
                Some(Segment { home: Self::leader(&held.segment, view)?, ..held.segment.clone() })
            }
            _ => None,
        });
        led.collect()
    }

    /// Whether anything is here of which it is not known yet what stands in the memory of this view.
    pub(crate) fn keeps_any(&self) -> bool {
        self.segments.values().any(|held| matches!(held.stage, Stage::Kept))
    }

    /// Whether something that was served before may be served again soon.
    pub(crate) fn is_comparing_any(&self) -> bool {
        self.segments.values().any(|held| match &held.stage {
            Stage::Copying(copying) => !copying.is_new,
            stage => matches!(stage, Stage::Kept | Stage::Moving(_) | Stage::Adopting(_)),
        })
    }

    // A view begins.

    /// What stands in the memory of this view of a segment that there were copies of.
    pub(crate) fn stands_again(&mut self, stands: Stands, view: &View, out: &mut Vec<HomeAction>) {
        let (id, word, me) = (stands.id, stands.word, self.me);
        let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Kept)) else { return };
        let leader = Self::leader(&held.segment, view);
        held.end = word.end().unwrap_or_default();
        // A place that was never filled; or no node has to learn of the end or could hold the segment unmarked.
        let is_empty = word.version() == 0;
        let is_alone = held.segment.places().all(|place| place.home == me || !is_left(&place, view));
        if is_empty || is_alone && word.slot().is_none() {
            if is_empty {
                held.end = End::Moved;
                // Places are filled in turn: the later ones hold nothing either.
                let before = held.segment.backups.iter().position(|place| place.home == me);
                held.segment.backups.truncate(before.unwrap_or(0));
            }
            drop(self.remove(id));
            return;
        }
        if word.slot().is_none() {
            // The memory of this view does not have it, and the next one is to find it. No other node has the key yet.
            out.push(HomeAction::Store { at: word_at(held.place.control), word: word.to_bits() });
        }
        if leader != Some(me) {
            held.stage = Stage::Backup { word, is_told: false };
            out.extend(leader.map(|to| HomeAction::Ask { id, to, question: Question::Where(id) }));
            return;
        }
        self.lead(id, word, false, view);
    }

    /// Its copies are to be compared.
    pub(crate) fn lead(&mut self, id: SegmentId, word: Word, is_unknown: bool, view: &View) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let is_anothers = |place: &Place| place.home != me && is_left(place, view);
        let backups: Vec<Place> = held.segment.places().filter(is_anothers).collect();
        let Place { home, control, at } = held.place;
        held.segment = Segment { home, control, at, backups, ..held.segment.clone() };
        let copying = Copying::new(me, word, CopyStep::Asking(BTreeSet::new()));
        held.stage = Stage::Copying(Box::new(Copying { is_unknown, ..copying }));
        self.to_compare.push(id);
    }

    /// A bounded number at a time.
    pub(crate) fn compare_more(&mut self, view: &View, out: &mut Vec<HomeAction>) {
        let is_begun = |copying: &Copying| {
            !copying.is_new && !matches!(&copying.step, CopyStep::Asking(awaited) if awaited.is_empty())
        };
        let begun = self.segments.values().filter(|held| matches!(&held.stage, Stage::Copying(at) if is_begun(at)));
        for _ in begun.count()..AT_ONCE {
            let Some(id) = self.to_compare.pop() else { return };
            self.compare(id, view, out);
        }
    }

    fn compare(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        let awaited = ask_to_hold(&held.segment, out);
        let is_alone = awaited.is_empty();
        copying.step = CopyStep::Asking(awaited);
        if is_alone {
            self.compared(id, view, out);
        }
    }

    /// All who are left have said which word they hold.
    fn compared(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        if let Some(end) = copying.words.values().find_map(|word| word.end()) {
            // The node that asked for that may have its answer. Others may hold it unmarked, and lead it if this home
            // goes.
            self.mark_ended(id, end, None, out);
            return self.compare_more(view, out);
        }
        copying.word = copying.words.values().copied().max_by_key(|word| word.version()).unwrap_or(copying.word);
        let others = view.homes().map(|member| member.incarnation);
        copying.candidates = others.filter(|home| held.segment.places().all(|place| place.home != *home)).collect();
        let turn = id.number as usize % copying.candidates.len().max(1);
        copying.candidates.rotate_left(turn);
        // One that was moved when the view ended, and did not leave.
        let is_spare = held.segment.backups.len() >= usize::from(held.segment.wanted.copies);
        copying.leaver = held.segment.backups.last().filter(|_| is_spare).map(|place| place.home);
        self.reserve_more(id, view, out);
    }

    // A new segment.

    /// Its words are made here.
    pub(crate) fn copy_new(
        &mut self,
        id: SegmentId,
        control: Control,
        others: Vec<Incarnation>,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let mut copying = Copying::new(me, control.next(), CopyStep::Reserving);
        copying.candidates = others.into_iter().filter(|home| *home != me).rev().collect();
        (copying.is_new, copying.unheard) = (true, Some(control));
        held.stage = Stage::Copying(Box::new(copying));
        self.reserve_more(id, view, out);
    }

    /// Its name is known.
    pub(crate) fn copy_heard_of(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let me = self.me;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Registering(control) = held.stage else { return };
        let mut copying = Copying::new(me, control.next(), CopyStep::Reserving);
        copying.words.extend(held.segment.backups.iter().map(|place| (place.home, Word::default())));
        copying.value = Some(vec![0; 8 + held.segment.wanted.bytes as usize]);
        (copying.is_new, copying.is_changed) = (true, true);
        held.stage = Stage::Copying(Box::new(copying));
        self.tell(id, view, out);
    }

    // Both.

    /// Another home is asked for a place, if there are too few.
    fn reserve_more(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        copying.step = CopyStep::Reserving;
        let wanted = usize::from(held.segment.wanted.copies);
        let is_enough = held.segment.places().count() >= wanted;
        if !is_enough && let Some(to) = copying.candidates.pop() {
            let question = Question::Reserve(held.segment.clone());
            return out.push(HomeAction::Ask { id, to, question });
        }
        match copying.unheard {
            None => self.tell(id, view, out),
            Some(control) if is_enough => self.register(id, control, view, out),
            Some(control) => {
                let few = Refusal::FewHomes { asked: held.segment.wanted.copies, homes: view.homes().count() };
                let refused = copying.refused.take().unwrap_or(few);
                self.unmake(id, control, Reply::Refused(refused), out);
            }
        }
    }

    /// Each holder of a copy learns of all others before one of them is filled.
    pub(crate) fn tell(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let is_told = self.options.rules.holders_told_first;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        let awaited = if copying.is_changed && is_told { ask_to_hold(&held.segment, out) } else { BTreeSet::new() };
        let is_known = awaited.is_empty();
        copying.step = CopyStep::Telling(awaited);
        if is_known {
            self.bring_up(id, view, out);
        }
    }

    /// The next copy that has another word gets the value and the word of the highest.
    fn bring_up(&mut self, id: SegmentId, view: &View, out: &mut Vec<HomeAction>) {
        let rules = self.options.rules;
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        let (segment, word) = (&held.segment, copying.word);
        let has = |place: &Place| copying.words.get(&place.home).copied().unwrap_or_default();
        let is_behind = |place: &Place| has(place) != word && copying.leaver != Some(place.home);
        let behind = segment.places().find(is_behind).filter(|_| rules.brought_up_first);
        let (Some(behind), Some(slot)) = (behind, word.slot()) else {
            copying.step = CopyStep::Leaving;
            match copying.leaver {
                Some(who) => self.let_go(id, who, out),
                None if copying.is_unknown => self.adopt(id, out),
                None => self.stands(id, out),
            }
            return self.compare_more(view, out);
        };
        let Some(value) = &copying.value else {
            let Some(from) = segment.places().find(|place| has(place) == word) else { return };
            copying.step = CopyStep::Reading;
            let at = segment.slot_at(from, slot);
            let steps = vec![Step::Read(at + 8, 8 + segment.wanted.bytes)];
            return out.push(HomeAction::Post { id, at: from.home, steps });
        };
        let at = segment.slot_at(behind, slot);
        let held_word = has(&behind);
        let mut steps = vec![
            Step::WriteWord(at, FILLING),
            Step::Write(at + 8, value.clone()),
            Step::WriteWord(at, word.version()),
            Step::Swap(word_at(behind.control), held_word.to_bits(), word.to_bits()),
        ];
        if behind.home == self.me
            && let Some(old) = held_word.slot()
        {
            steps.push(Step::Swap(claims_at(behind.control), 1 << old, 1 << slot));
        }
        copying.step = CopyStep::Filling(behind.home);
        out.push(HomeAction::Post { id, at: behind.home, steps });
    }

    /// What was posted for its copies was executed.
    pub(crate) fn copied(&mut self, id: SegmentId, given: &[Given], view: &View, out: &mut Vec<HomeAction>) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        match (&copying.step, given) {
            (CopyStep::Reading, [Given::Bytes(value), ..]) => copying.value = Some(value.clone()),
            (CopyStep::Filling(home), _) => {
                copying.words.insert(*home, copying.word);
            }
            _ => return,
        }
        self.bring_up(id, view, out);
    }

    /// A home has answered what was asked for its copies.
    pub(crate) fn copy_answered(
        &mut self,
        id: SegmentId,
        from: Incarnation,
        reply: Reply,
        view: &View,
        out: &mut Vec<HomeAction>,
    ) {
        let Some(held) = self.segments.get_mut(&id) else { return };
        let Stage::Copying(copying) = &mut held.stage else { return };
        match (&mut copying.step, reply) {
            (CopyStep::Asking(awaited), reply) if awaited.contains(&from) => {
                awaited.remove(&from);
                let is_last = awaited.is_empty();
                if let Reply::Holds(bits) = reply {
                    copying.words.insert(from, Word::from_bits(bits));
                } else {
                    // Its place was never filled.
                    held.segment.backups.retain(|place| place.home != from);
                    copying.is_changed = true;
                }
                if is_last {
                    self.compared(id, view, out);
                }
            }
            (CopyStep::Telling(awaited), _) => {
                awaited.remove(&from);
                if awaited.is_empty() {
                    self.bring_up(id, view, out);
                }
            }
            (CopyStep::Leaving, Reply::Done) if copying.leaver == Some(from) => self.is_left(id, from, out),
            (CopyStep::Reserving, Reply::Place(place)) if place.home == from => {
                held.segment.backups.push(place);
                copying.words.insert(from, Word::default());
                copying.is_changed = true;
                self.reserve_more(id, view, out);
            }
            (CopyStep::Reserving, reply) => {
                if let Reply::Refused(refusal) = reply {
                    copying.refused = Some(refusal);
                }
                self.reserve_more(id, view, out);
            }
            _ => {}
        }
    }

    // The part of a home that holds a copy.

    /// A place for a copy: its word is set to 0, and its bytes are free.
    pub(crate) fn reserve(&mut self, asker: QuestionId, mut segment: Segment, out: &mut Vec<HomeAction>) {
        let id = segment.id;
        let is_here = self.segments.contains_key(&id);
        let taken = if is_here { Err(Refusal::Released { id }) } else { self.take(&segment.wanted) };
        let (control, place) = match taken {
            Ok(taken) => taken,
            Err(refusal) => return out.push(HomeAction::Reply { to: asker, reply: Reply::Refused(refusal) }),
        };
        segment.backups.push(place);
        self.left.remove(&id);
        self.hold_place(segment, place, asker);
        out.push(HomeAction::Post { id, at: self.me, steps: control.emptied() });
        self.publish(out);
    }

    /// The leader names the other holders.
    pub(crate) fn hold(&mut self, segment: Segment) -> Reply {
        let id = segment.id;
        let Some(held) = self.segments.get_mut(&id) else { return Reply::Refused(Refusal::Released { id }) };
        let Stage::Backup { word, is_told } = &mut held.stage else { return Reply::Refused(Refusal::Released { id }) };
        if held.segment.wanted != segment.wanted {
            return Reply::Refused(Refusal::Released { id });
        }
        let (bits, is_anothers) = (word.to_bits(), held.segment.home != segment.home);
        (held.segment, *is_told) = (segment, true);
        if is_anothers {
            self.ask_anew(id);
        }
        self.look_who_goes();
        Reply::Holds(bits)
    }

    /// The segment is out of use, here or everywhere.
    pub(crate) fn drop_copy(&mut self, id: SegmentId, end: End, out: &mut Vec<HomeAction>) {
        if let Some(held) = self.segments.get_mut(&id).filter(|held| matches!(held.stage, Stage::Backup { .. })) {
            held.end = end;
            self.settle(id, out);
        }
    }
}

/// Whether the home of a place is in the view.
fn is_left(place: &Place, view: &View) -> bool {
    view.homes().any(|member| member.incarnation == place.home)
}

/// Asks all backups which word they hold, and tells them who does.
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

#[cfg(test)]
pub(crate) mod tests;
