//! The home's own copy of its words: which are busy, how often each moved, and when each dependency moved last.

use crate::home::HomeAction;
use crate::names::{Dependency, PageId};
use crate::table::{PageTable, Word};

/// Page words, everything word, clock and stamps of one home. Whatever changes a word also tells the driver to store it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Board {
    table: PageTable,
    pages: Vec<Held>,
    everything: Held,
    clock: u64,
    stamps: Vec<u64>,
}

/// A word and how many open updates keep it busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    generation: u64,
    holders: u32,
}

impl Held {
    fn word(self) -> Word {
        Word::new(self.generation, self.holders > 0)
    }
}

impl Board {
    /// Words that begin where no earlier life of this node can have come: 2^31 movements before the next one's
    /// (rule C1). Proxies compare the incarnation too, so even a life that moves more often confuses nobody.
    pub(crate) fn new(table: PageTable, stamps: u32) -> Self {
        let origin = u64::from(table.home().start) << 31;
        let free = Held { generation: origin, holders: 0 };
        let pages = usize::try_from(table.slots()).expect("invariant: a table of this machine fits its memory");
        let stamps = stamps.max(1).next_power_of_two() as usize;
        Board { table, pages: vec![free; pages], everything: free, clock: origin, stamps: vec![origin; stamps] }
    }

    pub(crate) fn table(&self) -> &PageTable {
        &self.table
    }

    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    pub(crate) fn page(&self, page: PageId) -> Word {
        self.pages[self.table.slot(page) as usize].word()
    }

    pub(crate) fn everything(&self) -> Word {
        self.everything.word()
    }

    /// Every word with its place, for a region made anew.
    pub(crate) fn words(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let header = self.table.header().into_iter().enumerate().map(|(at, word)| (8 * at as u64, word));
        let pages = self.pages.iter().enumerate().map(|(at, held)| (self.table.slot_offset(at as u64), held.word().0));
        header
            .chain([
                (PageTable::everything_offset(), self.everything.word().0),
                (PageTable::clock_offset(), self.clock),
            ])
            .chain(pages)
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

    /// Bumps a page word without anybody holding it.
    pub(crate) fn bump(&mut self, slot: u64, out: &mut Vec<HomeAction>) {
        self.change(slot, out, |held| held.generation += 1);
    }

    /// Bumps a page word and keeps it busy.
    pub(crate) fn hold(&mut self, slot: u64, out: &mut Vec<HomeAction>) {
        self.change(slot, out, |held| {
            held.generation += 1;
            held.holders += 1;
        });
    }

    /// Gives a page word back, with a bump if `moved`; it is free when nobody else holds it.
    pub(crate) fn release(&mut self, slot: u64, moved: bool, out: &mut Vec<HomeAction>) {
        self.change(slot, out, |held| held.release(moved));
    }

    /// Bumps the everything word and keeps it busy.
    pub(crate) fn hold_everything(&mut self, out: &mut Vec<HomeAction>) {
        self.everything.generation += 1;
        self.everything.holders += 1;
        self.store_everything(out);
    }

    /// Gives the everything word back, with a bump if `moved`.
    pub(crate) fn release_everything(&mut self, moved: bool, out: &mut Vec<HomeAction>) {
        self.everything.release(moved);
        self.store_everything(out);
    }

    fn change(&mut self, slot: u64, out: &mut Vec<HomeAction>, change: impl FnOnce(&mut Held)) {
        let held = &mut self.pages[slot as usize];
        change(held);
        out.push(HomeAction::Store { offset: self.table.slot_offset(slot), word: held.word().0 });
    }

    fn store_everything(&self, out: &mut Vec<HomeAction>) {
        out.push(HomeAction::Store { offset: PageTable::everything_offset(), word: self.everything.word().0 });
    }

    fn stamp_index(&self, dependency: Dependency) -> usize {
        dependency.0 as usize & (self.stamps.len() - 1)
    }
}

impl Held {
    fn release(&mut self, moved: bool) {
        self.generation += u64::from(moved);
        self.holders = self.holders.checked_sub(1).expect("invariant: what is released was held");
    }
}
