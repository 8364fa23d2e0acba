//! The application and its database: rows, commits in order, and pages that are one state of it.

use std::collections::{BTreeMap, BTreeSet};

use verbena_content::{Dependency, Names, Scope};

pub const PAGES: u64 = 6;
const FIRST_PART: u64 = 100;
const PARTS: u64 = 5;

pub type Row = u64;
/// How many commits there were.
pub type State = u64;

/// What a page shows: rows and the commit that each was last changed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub page: u64,
    pub rows: BTreeMap<Row, State>,
}

#[derive(Default)]
pub struct Database {
    commits: State,
    /// The commits that changed each row.
    history: BTreeMap<Row, Vec<State>>,
    /// Those after which pages have the tags of before.
    silent: BTreeSet<State>,
}

/// By what the application knows a page again: all of what it shows, but for what silent commits changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(BTreeMap<Row, State>);

impl Database {
    pub fn commit(&mut self, rows: &[Row], is_silent: bool) -> State {
        self.commits += 1;
        self.silent.extend(is_silent.then_some(self.commits));
        for &row in rows {
            self.history.entry(row).or_default().push(self.commits);
        }
        self.commits
    }

    /// A page as it is now. It is made of a row of its own, and of a part that this row names: so what it depends on
    /// changes with the database.
    pub fn page(&self, page: u64) -> Content {
        let own = self.version(page, self.commits);
        let part = part_named_by(page, own);
        let rows = BTreeMap::from([(page, own), (part, self.version(part, self.commits))]);
        Content { page, rows }
    }

    /// The tag that the application gives a page.
    pub fn tag(&self, content: &Content) -> Tag {
        let told = |(&row, &version): (&Row, &State)| {
            let changes = self.history.get(&row).map_or(&[][..], Vec::as_slice);
            let told = changes.iter().copied().rfind(|change| *change <= version && !self.silent.contains(change));
            (row, told.unwrap_or(0))
        };
        Tag(content.rows.iter().map(told).collect())
    }

    /// The first state that shows this.
    pub fn shown_since(&self, content: &Content) -> State {
        content.rows.values().copied().max().unwrap_or(0)
    }

    /// The last state that shows this; `None` if no state ever did.
    pub fn shown_until(&self, content: &Content) -> Option<State> {
        let own = content.rows.get(&content.page)?;
        content.rows.get(&part_named_by(content.page, *own))?;
        let next = |(row, version): (&Row, &State)| {
            let changes = self.history.get(row).map_or(&[][..], Vec::as_slice);
            changes.iter().copied().find(|change| change > version).map_or(State::MAX, |change| change - 1)
        };
        let until = content.rows.iter().map(next).min()?;
        (until >= self.shown_since(content)).then_some(until)
    }

    fn version(&self, row: Row, at: State) -> State {
        let changes = self.history.get(&row).map_or(&[][..], Vec::as_slice);
        changes.iter().copied().rfind(|&change| change <= at).unwrap_or(0)
    }
}

pub fn rows() -> Vec<Row> {
    (0..PAGES).chain(FIRST_PART..FIRST_PART + PARTS).collect()
}

pub fn scope_of(names: &Names, rows: impl IntoIterator<Item = Row>) -> Scope {
    Scope::of(rows.into_iter().map(|row| dependency(names, row)))
}

fn dependency(names: &Names, row: Row) -> Dependency {
    names.dependency(format!("row {row}").as_bytes())
}

/// The part that a page shows while its own row is at `own`.
pub fn part_named_by(page: u64, own: State) -> Row {
    FIRST_PART + (page + own) % PARTS
}
