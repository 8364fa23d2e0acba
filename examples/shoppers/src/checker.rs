//! Whether an answer is one that the shop could have given.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;

use crate::page::{self, Malformed, Shown};
use crate::span::{Floor, Spans};

/// An answer counts as soon after an update when it was asked for within this time after one of its rows changed.
const SOON: Duration = Duration::from_millis(50);
/// Commits of which it is known what they touched.
const COMMITS: usize = 64 << 10;
/// Different bodies of a page that need not be read again.
const BODIES: usize = 8;

/// A moment of the one clock: nanoseconds since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Now, on the clock that was started at `start`.
    pub fn since(start: Instant) -> Self {
        Self::after(start.elapsed())
    }

    /// So long after the start.
    pub fn after(duration: Duration) -> Self {
        Moment(u64::try_from(duration.as_nanos()).expect("invariant: no clock here runs for centuries"))
    }

    /// Microseconds from an earlier moment to this one.
    pub fn micros_since(self, earlier: Moment) -> u64 {
        (self.0.saturating_sub(earlier.0)) / 1000
    }

    pub(crate) fn is_longer_ago_than(self, duration: Duration, now: Moment) -> bool {
        u128::from(now.0.saturating_sub(self.0)) > duration.as_nanos()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000_000, self.0 / 1000 % 1_000_000)
    }
}

/// What must not be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Violation {
    /// Older than an acknowledged write.
    #[error(
        "{page} of commit {commit} is stale: {row} as of {shown}, and {written} was acknowledged before the request was sent"
    )]
    Stale {
        /// The page's path.
        page: String,
        /// The commit that it shows.
        commit: i64,
        /// The row that is too old.
        row: String,
        /// The commit that last changed it, as the page has it.
        shown: i64,
        /// The commit that was acknowledged.
        written: i64,
    },
    /// Older than an answer received before.
    #[error(
        "{page} of commit {commit} went backwards: as of {shown}, and as of {received} it was received before the request was sent"
    )]
    Backwards {
        /// The page's path.
        page: String,
        /// The commit that it shows.
        commit: i64,
        /// The last change of anything on it.
        shown: i64,
        /// The same of an answer received before.
        received: i64,
    },
    /// Not one state of the database.
    #[error("{page} mixes states: {what}")]
    Mixed {
        /// The page's path, or the write that shows it of an earlier answer.
        page: String,
        /// What contradicts what.
        what: String,
    },
    /// Not a page of the shop.
    #[error("{page} is no page of the shop: {what}")]
    Malformed {
        /// The page's path.
        page: String,
        /// What is wrong with it.
        what: String,
    },
}

/// An answer that was as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Whether one of its rows had changed shortly before it was asked for.
    pub soon: bool,
}

/// A page that answers are checked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId(usize);

type RowId = usize;

/// Knows the writes and the answers so far.
#[derive(Debug, Default)]
pub struct Checker {
    names: HashMap<Rc<str>, RowId>,
    rows: Vec<Row>,
    paths: HashMap<Rc<str>, PageId>,
    pages: Vec<Page>,
    commits: BTreeMap<i64, Commit>,
    written: Floor,
}

#[derive(Debug)]
struct Row {
    name: Rc<str>,
    acknowledged: Floor,
    spans: Spans,
}

#[derive(Debug)]
struct Page {
    path: Rc<str>,
    /// The row that it must show.
    subject: RowId,
    received: Floor,
    spans: Spans,
    bodies: VecDeque<Rc<Body>>,
}

/// A body that was found to be one state.
#[derive(Debug)]
struct Body {
    bytes: Bytes,
    commit: i64,
    commit_at: std::ops::Range<usize>,
    rows: Vec<(RowId, i64)>,
    /// The last change of anything on it.
    changed: i64,
}

#[derive(Debug)]
enum Commit {
    /// An acknowledged write touched these.
    Known(Vec<RowId>),
    /// Pages say that it touched these.
    Seen(Vec<RowId>),
}

impl Checker {
    /// A page by its path, to be checked from now on.
    pub fn page(&mut self, path: &str) -> PageId {
        if let Some(&page) = self.paths.get(path) {
            return page;
        }
        let subject = match path.trim_matches('/') {
            "" => "catalogue".into(),
            rest => rest.replace('/', ":"),
        };
        let subject = self.row(&subject);
        let (path, page): (Rc<str>, _) = (path.into(), PageId(self.pages.len()));
        self.pages.push(Page {
            path: path.clone(),
            subject,
            received: Floor::default(),
            spans: Spans::default(),
            bodies: VecDeque::new(),
        });
        self.paths.insert(path, page);
        page
    }

    /// A page's path.
    pub fn path(&self, page: PageId) -> Rc<str> {
        self.pages[page.0].path.clone()
    }

    /// Checks an answer with status 200.
    pub fn answered(
        &mut self,
        page: PageId,
        sent: Moment,
        received: Moment,
        bytes: &Bytes,
    ) -> Result<Checked, Violation> {
        let known = self.pages[page.0].bodies.iter().find(|body| body.bytes == bytes).cloned();
        let body = known.map_or_else(|| self.read(page, received, bytes), Ok)?;
        let mut soon = false;
        for &(row, shown) in &body.rows {
            let row = &self.rows[row];
            let Some((since, written)) = row.acknowledged.before(sent) else { continue };
            if shown < written {
                let (page, row) = (self.pages[page.0].path.to_string(), row.name.to_string());
                return Err(Violation::Stale { page, commit: body.commit, row, shown, written });
            }
            soon |= !since.is_longer_ago_than(SOON, sent);
        }
        let page = &mut self.pages[page.0];
        if let Some((_, before)) = page.received.before(sent).filter(|&(_, before)| before > body.changed) {
            let (page, commit) = (page.path.to_string(), body.commit);
            return Err(Violation::Backwards { page, commit, shown: body.changed, received: before });
        }
        page.received.raise(received, body.changed);
        Ok(Checked { soon })
    }

    /// Notes that a write was acknowledged, and checks that it fits what was seen.
    pub fn acknowledged(
        &mut self,
        commit: i64,
        touched: &[String],
        sent: Moment,
        received: Moment,
    ) -> Result<(), Violation> {
        let wrong = |what| Err(Violation::Mixed { page: format!("commit {commit}"), what });
        if let Some((_, before)) = self.written.before(sent).filter(|&(_, before)| before >= commit) {
            return wrong(format!("commit {before} was acknowledged before it was sent"));
        }
        self.written.raise(received, commit);
        let touched: Vec<RowId> = touched.iter().map(|name| self.row(name)).collect();
        let seen = self.commits.insert(commit, Commit::Known(touched.clone()));
        while self.commits.len() > COMMITS {
            self.commits.pop_first();
        }
        for &row in &touched {
            let row = &mut self.rows[row];
            row.acknowledged.raise(received, commit);
            if let Err(other) = row.spans.learn(commit, commit, received) {
                let (name, other) = (&row.name, other.0);
                return wrong(format!("a page had {name} unchanged from {} to {}", other.changed, other.until));
            }
        }
        match seen {
            Some(Commit::Known(_)) => wrong("two writes were answered with this number".into()),
            Some(Commit::Seen(rows)) => match rows.iter().find(|row| !touched.contains(row)) {
                Some(&row) => wrong(format!("a page had {} changed by it", self.rows[row].name)),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn row(&mut self, name: &str) -> RowId {
        if let Some(&row) = self.names.get(name) {
            return row;
        }
        let (name, row): (Rc<str>, _) = (name.into(), self.rows.len());
        self.rows.push(Row { name: name.clone(), acknowledged: Floor::default(), spans: Spans::default() });
        self.names.insert(name, row);
        row
    }

    /// Reads a body that is new, and checks that it is one state.
    fn read(&mut self, page: PageId, now: Moment, bytes: &Bytes) -> Result<Rc<Body>, Violation> {
        let path = self.pages[page.0].path.clone();
        let malformed = |what: String| Violation::Malformed { page: path.to_string(), what };
        let mixed = |what: String| Violation::Mixed { page: path.to_string(), what };
        let Shown { commit, commit_at, rows } =
            page::read(bytes).map_err(|reason: Malformed| malformed(reason.to_string()))?;
        let mut rows: Vec<(RowId, i64)> = rows.into_iter().map(|(name, changed)| (self.row(name), changed)).collect();
        rows.sort_unstable();
        rows.dedup();
        let subject = self.pages[page.0].subject;
        if rows.binary_search_by_key(&subject, |&(row, _)| row).is_err() {
            return Err(malformed(format!("{} is not on it", self.rows[subject].name)));
        }
        if let Some(twice) = rows.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (name, one, other) = (&self.rows[twice[0].0].name, twice[0].1, twice[1].1);
            return Err(mixed(format!("{name} is there as of {one} and as of {other}")));
        }
        for &(row, changed) in &rows {
            self.explain(row, changed).map_err(mixed)?;
            let row = &mut self.rows[row];
            if changed > commit {
                return Err(mixed(format!("{} as of {changed} on a page of {commit}", row.name)));
            }
            row.spans.learn(changed, commit, now).map_err(|other| {
                let (name, other) = (&row.name, other.0);
                mixed(format!(
                    "{name} unchanged from {changed} to {commit}, and from {} to {}",
                    other.changed, other.until
                ))
            })?;
        }
        let changed = rows.iter().map(|&(_, changed)| changed).max().unwrap_or(commit);
        let body = Rc::new(Body { bytes: bytes.clone(), commit, commit_at, rows, changed });
        let page = &mut self.pages[page.0];
        page.spans.learn(changed, commit, now).map_err(|other| {
            let other = other.0;
            mixed(format!("unchanged from {changed} to {commit}, and from {} to {}", other.changed, other.until))
        })?;
        if let Some(other) = page.bodies.iter().find(|other| other.changed == changed && !other.says_the_same(&body)) {
            return Err(mixed(format!("as of {changed} it was another text at {} than at {commit}", other.commit)));
        }
        if page.bodies.len() == BODIES {
            page.bodies.pop_front();
        }
        page.bodies.push_back(body.clone());
        Ok(body)
    }

    /// A commit of ours touched what it was sent to touch, and nothing else.
    fn explain(&mut self, row: RowId, changed: i64) -> Result<(), String> {
        // Of what was before the first write that is remembered, nothing is known.
        if self.commits.first_key_value().is_none_or(|(&first, _)| changed < first) {
            return Ok(());
        }
        match self.commits.entry(changed).or_insert_with(|| Commit::Seen(Vec::new())) {
            Commit::Known(touched) if touched.contains(&row) => Ok(()),
            Commit::Known(_) => Err(format!("{} as of {changed}, which did not touch it", self.rows[row].name)),
            Commit::Seen(rows) => {
                if !rows.contains(&row) {
                    rows.push(row);
                }
                Ok(())
            }
        }
    }
}

impl Body {
    fn says_the_same(&self, other: &Body) -> bool {
        let around = |body: &Body| (body.bytes.slice(..body.commit_at.start), body.bytes.slice(body.commit_at.end..));
        around(self) == around(other)
    }
}

#[cfg(test)]
mod tests;
