//! The home's own copy of its words: which are busy, how often each moved, and when each dependency moved last.
//!
//! A page word takes 24 bytes here and 24 in the table that proxies read, with its hard word and its change word. The number of updates that hold a word is
//! kept beside them, and only for words that are held.

use std::collections::BTreeMap;

use crate::change::{Change, Last};
use crate::hit::Kind;
use crate::home::HomeAction;
use crate::names::{Dependency, PageId};
use crate::table::{PageTable, Word};

/// Which updates leave their generation (rule H3): all that are to, outside of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Notes {
    pub hard: bool,
    pub changed: bool,
}

/// Page words, everything word, clock and stamps of one home. Whatever changes a word also tells the driver to store it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Board {
    table: PageTable,
    pages: Vec<Word>,
    /// Of each page word.
    last: Vec<Last>,
    last_of_all: Last,
    /// H3: hard purges leave their generation, and other updates theirs.
    notes: Notes,
    /// How many open updates keep a page word busy, for the words that are busy.
    holders: BTreeMap<u64, u32>,
    everything: Word,
    holders_of_everything: u32,
    /// The generation that the everything word had when it became busy, while nothing came of all that held it since.
    everything_before: Option<u64>,
    /// Rule P3; off, what came of one update is forgotten when nothing came of the last one (tests alone).
    voids_alone: bool,
    purge: Word,
    holders_of_purge: u32,
    clock: u64,
    stamps: Vec<u64>,
}

impl Board {
    /// Words that begin where no earlier incarnation of this node can have come: 2^31 movements before those
    /// of the next one (rule C1). Proxies compare the incarnation too, so even an incarnation with more
    /// movements confuses no proxy.
    pub(crate) fn new(table: PageTable, stamps: u32, notes: Notes, voids_alone: bool) -> Self {
        let origin = u64::from(table.home().start) << 31;
        let free = Word::new(origin, false);
        let pages = usize::try_from(table.slots()).expect("invariant: a table of this machine fits its memory");
        let stamps = stamps.max(1).next_power_of_two() as usize;
        Board {
            table,
            pages: vec![free; pages],
            last: vec![Last::new(origin); pages],
            last_of_all: Last::new(origin),
            notes,
            holders: BTreeMap::new(),
            everything: free,
            holders_of_everything: 0,
            everything_before: None,
            voids_alone,
            purge: free,
            holders_of_purge: 0,
            clock: origin,
            stamps: vec![origin; stamps],
        }
    }

    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }

    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    pub(crate) fn page(&self, page: PageId) -> Word {
        self.pages[self.table.slot(page) as usize]
    }

    /// The word of all pages that copies of this kind are compared with.
    pub(crate) fn common(&self, kind: Kind) -> Word {
        match kind {
            Kind::Coherent => self.everything,
            Kind::Standard => self.purge,
        }
    }

    /// Every word with its place, for a region made anew.
    pub(crate) fn words(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let header = self.table.header().into_iter().enumerate().map(|(at, word)| (8 * at as u64, word));
        let pages = self.pages.iter().enumerate().map(|(at, word)| (self.table.slot_offset(at as u64), word.0));
        header
            .chain([
                (PageTable::everything_offset(), self.everything.0),
                (PageTable::clock_offset(), self.clock),
                (PageTable::purge_offset(), self.purge.0),
            ])
            .chain(words_of(PageTable::last_change_of_all_offsets(), self.last_of_all))
            .chain(pages)
            .chain(
                self.last
                    .iter()
                    .enumerate()
                    .flat_map(|(at, &last)| words_of(self.table.slot_last_change_offsets(at as u64), last)),
            )
    }

    /// When the dependency moved last, as a clock value; later if others share its stamp.
    pub(crate) fn stamp(&self, dependency: Dependency) -> u64 {
        self.stamps[self.stamp_index(dependency)]
    }

    /// One more movement at this home, of these dependencies.
    pub(crate) fn move_clock(&mut self, dependencies: &[Dependency], out: &mut Vec<HomeAction>) {
        self.clock += 1;
        for &dependency in dependencies {
            let at = self.stamp_index(dependency);
            self.stamps[at] = self.clock;
        }
        out.push(HomeAction::Store { offset: PageTable::clock_offset(), word: self.clock });
    }

    /// Bumps a page word without holding it. Updates of what its copies were made of may not reach it from now on: that counts as a hard purge.
    pub(crate) fn bump(&mut self, slot: u64, out: &mut Vec<HomeAction>) {
        let word = self.pages[slot as usize];
        self.note(slot, Change::Hard, out);
        self.set(slot, Word::new(word.generation() + 1, word.is_busy()), out);
    }

    /// Bumps a page word for an update of this kind, and keeps it busy.
    pub(crate) fn hold(&mut self, slot: u64, change: Change, out: &mut Vec<HomeAction>) {
        *self.holders.entry(slot).or_insert(0) += 1;
        self.note(slot, change, out);
        self.set(slot, Word::new(self.pages[slot as usize].generation() + 1, true), out);
    }

    /// The page word is about to be bumped for an update of this kind.
    fn note(&mut self, slot: u64, change: Change, out: &mut Vec<HomeAction>) {
        let next = self.pages[slot as usize].generation() + 1;
        let offsets = self.table.slot_last_change_offsets(slot);
        self.notes.note((&mut self.last[slot as usize], offsets), (change, next), out);
    }

    /// Gives a page word back, with a bump if `moved`; it is free when no other update holds it.
    pub(crate) fn release(&mut self, slot: u64, moved: bool, out: &mut Vec<HomeAction>) {
        let holders = self.holders.get_mut(&slot).expect("invariant: what is released was held");
        *holders -= 1;
        let busy = *holders > 0;
        if !busy {
            self.holders.remove(&slot);
        }
        self.set(slot, Word::new(self.pages[slot as usize].generation() + u64::from(moved), busy), out);
    }

    /// Bumps the everything word and keeps it busy.
    pub(crate) fn hold_everything(&mut self, out: &mut Vec<HomeAction>) {
        if self.holders_of_everything == 0 {
            self.everything_before = Some(self.everything.generation());
        }
        self.holders_of_everything += 1;
        self.set_everything(Word::new(self.everything.generation() + 1, true), out);
    }

    /// Gives the everything word back, with a bump if `moved`.
    pub(crate) fn release_everything(&mut self, moved: bool, out: &mut Vec<HomeAction>) {
        if self.voids_alone {
            self.everything_before = None;
        }
        let left = self.release_holder_of_everything();
        self.set_everything(Word::new(self.everything.generation() + u64::from(moved), left > 0), out);
    }

    /// Gives the everything word back for an update of which nothing came. If nothing came of any update that held the word since it became busy, it is what it was before. Otherwise it is bumped.
    /// While it was busy no copy was good by it and no registration was accepted, so no proxy has used the generations in between.
    pub(crate) fn release_everything_void(&mut self, out: &mut Vec<HomeAction>) {
        let left = self.release_holder_of_everything();
        let before = self.everything_before.filter(|_| left == 0);
        let generation = before.unwrap_or_else(|| self.everything.generation() + 1);
        self.set_everything(Word::new(generation, left > 0), out);
    }

    fn release_holder_of_everything(&mut self) -> u32 {
        let left = self.holders_of_everything.checked_sub(1).expect("invariant: what is released was held");
        self.holders_of_everything = left;
        left
    }

    /// Bumps the purge word for an update of this kind, and keeps it busy.
    pub(crate) fn hold_purge(&mut self, change: Change, out: &mut Vec<HomeAction>) {
        self.holders_of_purge += 1;
        let next = self.purge.generation() + 1;
        let offsets = PageTable::last_change_of_all_offsets();
        self.notes.note((&mut self.last_of_all, offsets), (change, next), out);
        self.set_purge(Word::new(self.purge.generation() + 1, true), out);
    }

    /// Gives the purge word back, with a bump if `moved`.
    pub(crate) fn release_purge(&mut self, moved: bool, out: &mut Vec<HomeAction>) {
        let left = self.holders_of_purge.checked_sub(1).expect("invariant: what is released was held");
        self.holders_of_purge = left;
        self.set_purge(Word::new(self.purge.generation() + u64::from(moved), left > 0), out);
    }

    fn set_purge(&mut self, word: Word, out: &mut Vec<HomeAction>) {
        self.purge = word;
        out.push(HomeAction::Store { offset: PageTable::purge_offset(), word: word.0 });
    }

    fn set(&mut self, slot: u64, word: Word, out: &mut Vec<HomeAction>) {
        self.pages[slot as usize] = word;
        out.push(HomeAction::Store { offset: self.table.slot_offset(slot), word: word.0 });
    }

    fn set_everything(&mut self, word: Word, out: &mut Vec<HomeAction>) {
        self.everything = word;
        out.push(HomeAction::Store { offset: PageTable::everything_offset(), word: word.0 });
    }

    fn stamp_index(&self, dependency: Dependency) -> usize {
        dependency.0 as usize & (self.stamps.len() - 1)
    }
}

impl Notes {
    /// A word is about to be bumped to this generation for an update of this kind.
    fn note(
        self,
        (last, offsets): (&mut Last, [u64; 2]),
        (change, generation): (Change, u64),
        out: &mut Vec<HomeAction>,
    ) {
        let before = *last;
        last.note(change, generation);
        if !self.hard {
            last.hard = before.hard;
        }
        if !self.changed {
            last.changed = before.changed;
        }
        let is_new =
            words_of(offsets, *last).into_iter().zip(words_of(offsets, before)).filter(|(new, old)| new != old);
        out.extend(is_new.map(|((offset, word), _)| HomeAction::Store { offset, word }));
    }
}

fn words_of([hard, changed]: [u64; 2], last: Last) -> [(u64, u64); 2] {
    [(hard, last.hard), (changed, last.changed)]
}

#[cfg(test)]
mod tests {
    use verbena_terms::Incarnation;

    use super::*;

    fn board() -> Board {
        let notes = Notes { hard: true, changed: true };
        Board::new(PageTable::new(Incarnation::new(1, 1), 4, 1), 4, notes, true)
    }

    /// Whether the everything word is what it was before these steps.
    fn is_as_before(steps: impl Fn(&mut Board, &mut Vec<HomeAction>)) -> bool {
        let (mut board, mut out) = (board(), Vec::new());
        let before = board.everything;
        steps(&mut board, &mut out);
        assert!(!board.everything.is_busy());
        let stored = HomeAction::Store { offset: PageTable::everything_offset(), word: board.everything.0 };
        assert_eq!(out.last(), Some(&stored));
        assert!(board.everything == before || board.everything.generation() > before.generation() + 1);
        board.everything == before
    }

    #[test]
    fn updates_of_everything_of_which_nothing_came_leave_the_word_as_it_was() {
        assert!(is_as_before(|board, out| {
            board.hold_everything(out);
            assert!(board.everything.is_busy());
            board.release_everything_void(out);
        }));
        assert!(is_as_before(|board, out| {
            board.hold_everything(out);
            board.hold_everything(out);
            board.release_everything_void(out);
            assert!(board.everything.is_busy(), "the second is still open");
            board.release_everything_void(out);
        }));
    }

    #[test]
    fn what_came_of_one_of_them_counts_in_whatever_order_they_end() {
        assert!(!is_as_before(|board, out| {
            board.hold_everything(out);
            board.hold_everything(out);
            board.release_everything(true, out);
            board.release_everything_void(out);
        }));
        assert!(!is_as_before(|board, out| {
            board.hold_everything(out);
            board.hold_everything(out);
            board.release_everything_void(out);
            board.release_everything(true, out);
        }));
    }
}
