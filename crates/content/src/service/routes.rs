//! The way of a hit: from a page to its words at its home, without a lock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use verbena_cluster::{View, home_of};
use verbena_fabric::{Batch, Class, Completed, Pending, Region, SharedRemote};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::change::LastChanges;
use crate::hit::Words;
use crate::names::PageId;
use crate::table::{PageTable, Word};

/// Where the words of the pages are, in each view that this node may act in: the acknowledged one and the newest.
#[derive(Clone, Default)]
pub(super) struct Routes {
    views: Vec<ViewRoutes>,
}

#[derive(Clone)]
struct ViewRoutes {
    view: Arc<View>,
    tables: Vec<(Incarnation, Table)>,
}

/// One home's page table, as this node reaches it.
#[derive(Clone)]
pub(super) struct Table {
    pub layout: PageTable,
    pub access: Access,
}

/// The own table is read where it is; another home's through the fabric.
#[derive(Clone)]
pub(super) enum Access {
    Own(Arc<dyn Region>),
    Peer(SharedRemote),
}

/// A read of a page's words that was posted.
#[derive(Debug)]
pub struct Reading {
    view: ViewNumber,
    home: Incarnation,
    words: State,
}

/// A read of what the last updates of a page left.
#[derive(Debug)]
pub struct ReadingLast {
    view: ViewNumber,
    home: Incarnation,
    words: State,
}

#[derive(Debug)]
enum State {
    Here(Option<[u64; 4]>),
    Posted(Pending<Completed>),
}

impl Routes {
    /// The routes of `view`, and no longer those of any but it and the acknowledged one.
    pub fn learn(&mut self, view: &Arc<View>, acknowledged: ViewNumber) {
        self.views.retain(|known| known.view.number() == acknowledged && known.view.number() != view.number());
        self.views.push(ViewRoutes { view: view.clone(), tables: Vec::new() });
    }

    /// A home's table can be read from now on.
    pub fn open(&mut self, table: Table) {
        for view in &mut self.views {
            if view.view.homes().any(|home| home.incarnation == table.layout.home()) {
                view.tables.retain(|(home, _)| *home != table.layout.home());
                view.tables.push((table.layout.home(), table.clone()));
            }
        }
    }

    /// The table of a home in the newest view that has it.
    pub fn table(&self, home: Incarnation) -> Option<&Table> {
        let tables = self.views.iter().rev().flat_map(|view| &view.tables);
        tables.filter(|(of, _)| *of == home).map(|(_, table)| table).next()
    }

    /// Posts a read of the page's word, the everything word, the clock and the purge word at the page's home in `view`, in one batch (rules P1,
    /// P2). `None` if the home or its table is not known.
    pub fn read(&self, page: PageId, view: ViewNumber, deadline: Time) -> Option<Reading> {
        let routes = self.views.iter().find(|routes| routes.view.number() == view)?;
        let home = home_of(page.0, &routes.view)?;
        let (_, table) = routes.tables.iter().find(|(of, _)| *of == home)?;
        let at = [
            table.layout.page_offset(page),
            PageTable::everything_offset(),
            PageTable::clock_offset(),
            PageTable::purge_offset(),
        ];
        Some(Reading { view, home, words: table.access.read(at, deadline) })
    }

    /// Posts a read of the hard words and change words that the page's copies are compared with, in one batch (rule H3).
    pub fn read_last_changes(&self, page: PageId, view: ViewNumber, deadline: Time) -> Option<ReadingLast> {
        let routes = self.views.iter().find(|routes| routes.view.number() == view)?;
        let home = home_of(page.0, &routes.view)?;
        let (_, table) = routes.tables.iter().find(|(of, _)| *of == home)?;
        Some(ReadingLast { view, home, words: table.access.read(table.layout.last_change_offsets(page), deadline) })
    }
}

impl Access {
    fn read(&self, at: [u64; 4], deadline: Time) -> State {
        match self {
            Access::Own(region) => State::Here(read_here(region.as_ref(), at)),
            Access::Peer(remote) => {
                State::Posted(remote.post_gathered(Batch::read_words(&at), Class::Control, deadline))
            }
        }
    }
}

impl State {
    async fn words(self) -> Option<[u64; 4]> {
        match self {
            State::Here(words) => words,
            State::Posted(pending) => read_there(&pending.await),
        }
    }
}

impl ReadingLast {
    /// The view in which it was posted, and the words; `None` if they could not be read.
    pub async fn words(self) -> Option<(ViewNumber, LastChanges)> {
        Some((self.view, LastChanges::new(self.home, self.words.words().await?)))
    }
}

impl Reading {
    /// The view in which it was posted, and the words; `None` if they could not be read.
    pub async fn words(self) -> Option<(ViewNumber, Words)> {
        Some((self.view, named(self.home, self.words.words().await?)))
    }

    /// The same without waiting, once: pending if they are still to be waited for. On a fabric that is synchronous they are here at once.
    pub fn words_now(&mut self) -> Poll<Option<(ViewNumber, Words)>> {
        let words = match &mut self.words {
            State::Here(words) => *words,
            State::Posted(pending) => match pending.poll_now() {
                Some(done) => read_there(&done),
                None => return Poll::Pending,
            },
        };
        Poll::Ready(words.map(|words| (self.view, named(self.home, words))))
    }

    /// The same, when they are here. Not to be asked again then.
    pub fn poll_words(&mut self, context: &mut Context<'_>) -> Poll<Option<(ViewNumber, Words)>> {
        let words = match &mut self.words {
            State::Here(words) => *words,
            State::Posted(pending) => read_there(&ready!(Pin::new(pending).poll(context))),
        };
        Poll::Ready(words.map(|words| (self.view, named(self.home, words))))
    }
}

fn named(home: Incarnation, [word, everything, clock, purge]: [u64; 4]) -> Words {
    Words { home, word: Word(word), everything: Word(everything), purge: Word(purge), clock }
}

fn read_there(done: &verbena_fabric::Result<Completed>) -> Option<[u64; 4]> {
    let mut words = done.as_ref().ok()?.iter().map(|done| done.word());
    Some([words.next()??, words.next()??, words.next()??, words.next()??])
}

fn read_here(region: &dyn Region, at: [u64; 4]) -> Option<[u64; 4]> {
    Some([region.load(at[0]).ok()?, region.load(at[1]).ok()?, region.load(at[2]).ok()?, region.load(at[3]).ok()?])
}
