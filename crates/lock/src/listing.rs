//! The holders and waiters of each lock. Each node lists what its own clients hold and wait for, so the list covers
//! locks whose home is down.
//!
//! A list comes in pages, in the order of names and then of nodes. Each page is read at its own moment.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, Rank};

use crate::askers::Asker;
use crate::name::Name;
use crate::{Mode, Token};

/// Bytes that the rows of one page take at most, as [`Row::max_bytes`] counts them.
pub const PAGE_BYTES: usize = 7 * 1024;
/// Clients of one node that are named for one lock, of those that hold it and of those that wait.
pub const MOST_NAMED: usize = 8;

/// Where a page begins: behind this lock at this node.
pub type Cursor = (Name, Rank);

/// How a lock stands at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Which.
    pub name: Name,
    /// Where.
    pub node: Incarnation,
    /// While the node waits: the writer behind which it stands, as far as it knows.
    pub ahead: Rank,
    /// Clients that hold it, in the order in which they got it: [`MOST_NAMED`] at most.
    pub holders: Vec<Listed>,
    /// How many more do.
    pub more_holders: u32,
    /// Clients that wait for it, in the order in which they asked: [`MOST_NAMED`] at most.
    pub waiting: Vec<Listed>,
    /// How many more do.
    pub more_waiting: u32,
}

/// One client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The client.
    pub asker: Asker,
    /// How it holds it, or wants to.
    pub mode: Mode,
    /// What it holds it with. None while it waits, or becomes a reader.
    pub token: Option<Token>,
    /// For how long it has held it, or waited.
    pub age: Duration,
}

/// Some rows, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// In order.
    pub rows: Vec<Row>,
    /// Whether more follow.
    pub more: bool,
}

impl Row {
    /// The largest size of the encoded row, in bytes.
    pub fn max_bytes(&self) -> usize {
        96 + self.name.as_bytes().len() + 48 * (self.holders.len() + self.waiting.len())
    }

    fn cursor(&self) -> (&Name, Rank) {
        (&self.name, self.node.rank)
    }
}

impl Page {
    /// The first of these rows, which are in order: as many as fit.
    pub(crate) fn of(rows: impl Iterator<Item = Row>) -> Page {
        let (mut page, mut bytes) = (Page::default(), 0);
        for row in rows {
            bytes += row.max_bytes();
            if bytes > PAGE_BYTES {
                page.more = true;
                break;
            }
            page.rows.push(row);
        }
        page
    }

    /// What nodes said, as one page: not beyond the end of any page that goes on.
    pub(crate) fn merged(pages: Vec<Page>) -> Page {
        let ends = pages.iter().filter(|page| page.more).filter_map(|page| page.rows.last());
        let end = ends.map(|row| (row.name.clone(), row.node.rank)).min();
        let mut rows: Vec<Row> = pages.into_iter().flat_map(|page| page.rows).collect();
        rows.sort_unstable_by(|a, b| a.cursor().cmp(&b.cursor()));
        if let Some((name, rank)) = &end {
            rows.retain(|row| row.cursor() <= (name, *rank));
        }
        let page = Page::of(rows.into_iter());
        Page { more: page.more || end.is_some(), ..page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, node: u32) -> Row {
        let name = Name::new(name.as_bytes()).unwrap();
        Row {
            name,
            node: Incarnation::new(node, 1),
            ahead: Rank::NOBODY,
            holders: vec![],
            more_holders: 0,
            waiting: vec![],
            more_waiting: 0,
        }
    }

    fn page(rows: &[(&str, u32)], more: bool) -> Page {
        Page { rows: rows.iter().map(|(name, node)| row(name, *node)).collect(), more }
    }

    #[test]
    fn pages_of_nodes_become_one_in_order() {
        let merged = Page::merged(vec![
            page(&[("a", 2), ("c", 2), ("d", 2)], true),
            page(&[("a", 1), ("b", 1), ("x", 1)], false),
            page(&[("d", 1), ("d", 3), ("e", 3)], true),
        ]);
        // Node 2 may have more behind "d", and node 1 has said all.
        assert_eq!(merged, page(&[("a", 1), ("a", 2), ("b", 1), ("c", 2), ("d", 1), ("d", 2)], true));
        assert_eq!(Page::merged(vec![page(&[("a", 1)], false), page(&[], false)]), page(&[("a", 1)], false));
    }

    #[test]
    fn a_page_has_its_size() {
        let long = "n".repeat(1024);
        let rows = || (1..=20).map(|node| row(&long, node));
        let first = Page::of(rows());
        assert!(first.more && first.rows.len() == 6, "{}", first.rows.len());
        let merged = Page::merged(rows().map(|row| Page { rows: vec![row], more: false }).collect());
        assert_eq!(merged, first);
    }
}
